"""A loaded model made ready for use, as the service does it too (serve.ready)."""

from __future__ import annotations

from regard.serve.http.prepare import describe_device, load_predictor, load_predictor_as, prepare_predictor

__all__ = ["describe_device", "load_predictor", "load_predictor_as", "prepare_predictor"]

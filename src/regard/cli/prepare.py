"""Models loaded and made ready, as the service does it (serve.http.prepare)."""

from __future__ import annotations

from regard.serve.http.prepare import describe_device, load_predictor, load_predictor_as, prepare_predictor

__all__ = ["describe_device", "load_predictor", "load_predictor_as", "prepare_predictor"]

"""A loaded model made ready for use, as the service does it too (serve.ready)."""

from __future__ import annotations

from regard.serve.ready import machine, opened, opened_as, ready

__all__ = ["machine", "opened", "opened_as", "ready"]

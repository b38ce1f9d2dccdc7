"""A task of one's own in one file outside the package; `FOLDER` is where it lies."""

from pathlib import Path

FOLDER = Path(__file__).parent

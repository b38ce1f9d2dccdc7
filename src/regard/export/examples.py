"""Example files for the check: a picture, a sound, a cloud of points."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from regard.export.plan import Plan


def write_example(name: Any, scratch: Path, folder: Path, plan: Plan) -> str:
    """Return an argument of run.py: a text as it is, or the path of an example file, written into `scratch`."""
    if (folder / str(name)).is_file():
        return str(folder / str(name))
    make = {"picture.png": _picture, "sound.wav": _sound, "points.npy": _points}.get(str(name))
    if make is None:
        return str(name)
    path = scratch / str(name)
    if not path.exists():
        make(path, plan)
    return str(path)


def _picture(path: Path, plan: Plan) -> None:
    """A picture of no square shape, with soft edges."""
    from PIL import Image

    y, x = np.mgrid[0:90, 0:120] / 20.0
    waves = [np.sin(x + 2 * y), np.cos(2 * x - y), np.sin(x * y)]
    Image.fromarray(np.stack([127 + 120 * wave for wave in waves], -1).astype(np.uint8)).save(path)


def _sound(path: Path, plan: Plan) -> None:
    """A second of a rising tone."""
    import soundfile

    rate = plan.values["preprocess"]["sample_rate"]
    time = np.arange(rate) / rate
    soundfile.write(path, 0.3 * np.sin(2 * np.pi * (200 + 400 * time) * time), rate)


def _points(path: Path, plan: Plan) -> None:
    """A flattened ball of points."""
    many = min(plan.values["max_points"], 150)
    np.save(path, np.random.default_rng(0).normal(size=(many, 3)).astype(np.float32) * [1.0, 0.6, 0.3])

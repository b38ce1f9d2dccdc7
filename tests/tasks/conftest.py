"""What tests of tasks share."""

import numpy as np
import pytest
from PIL import Image


@pytest.fixture(autouse=True)
def _no_curve(monkeypatch):
    """Plotting takes longer than these runs."""
    monkeypatch.setattr("regard.training.loop.TrainingRun._draw", lambda self, force=False: None)


@pytest.fixture(scope="session")
def shapes(tmp_path_factory):
    """Light or dark on the left, in colours: two classes that a small model learns at once."""
    folder, dice = tmp_path_factory.mktemp("shapes"), np.random.default_rng(0)
    for label, name in enumerate(("left", "right")):
        (folder / name).mkdir()
        for number in range(40):
            pixels = dice.integers(0, 60, (12, 12, 3), np.uint8)
            pixels[:, 6 * label : 6 * label + 6] += 150
            Image.fromarray(pixels).save(folder / name / f"{number:02d}.png")
    return folder

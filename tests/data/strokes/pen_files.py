"""A small folder of pen strokes in the real format: arcs that differ by digit and writer."""

import numpy as np

SAMPLES = (0, 1, 2, 3, 80, 81, 100, 101)  # two writers to train on, one to validate, one to test


def pens(home):
    """Write uji_digits.npz and omniglot_strokes.npz below a folder, and return that folder."""
    folder = home / "pen_strokes"
    folder.mkdir()
    rng = np.random.default_rng(5)
    points, lifted, digits, samples = [], [], [], []
    for digit in range(10):
        for sample in SAMPLES:
            angle = np.linspace(0, 1 + 0.5 * digit, 12 + digit)
            own = np.column_stack([300 * np.sin(angle * 2) + 500, 400 - 40 * sample % 90 - 300 * angle])
            up = np.zeros(len(own), dtype=bool)
            up[[5, -1]] = True  # two strokes
            points.append((own + rng.normal(size=own.shape)).astype(np.int16))
            lifted.append(up)
            digits.append(digit)
            samples.append(sample)
    ends = np.cumsum([0, *map(len, points)]).astype(np.int32)
    np.savez(folder / "uji_digits.npz", points=np.concatenate(points), pen_up=np.concatenate(lifted), offsets=ends,
             digit=np.array(digits, dtype=np.uint8), sample=np.array(samples, dtype=np.uint8))  # fmt: skip
    drawn = {}
    for part, count in (("train", 6), ("valid", 3), ("test", 3)):
        lengths = rng.integers(3, 9, count)
        up = np.concatenate([np.arange(n) == n - 1 for n in lengths])
        drawn[f"{part}_strokes"] = rng.integers(-90, 90, (lengths.sum(), 2)).astype(np.int16)
        drawn[f"{part}_pen_up"] = up
        drawn[f"{part}_offsets"] = np.cumsum([0, *lengths]).astype(np.int32)
    np.savez(folder / "omniglot_strokes.npz", **drawn)
    return home

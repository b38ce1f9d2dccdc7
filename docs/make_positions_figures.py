"""Draw the figures of docs/positions.md into docs/assets/, from benchmarks/results/positions and from the encodings.

python docs/make_positions_figures.py            positions-similarity, positions-sizes, positions-latitude
python docs/make_positions_figures.py --maps     positions-land, positions-temperature too: the networks of seed 1
                                                 are trained again (a minute of one CPU thread)
"""

from __future__ import annotations

import statistics
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.colors import Normalize
from matplotlib.ticker import MaxNLocator
from positions_tables import UNITS, read, scores

from regard.see.layout import INK, MUTED_INK, PALETTE, Layout, draw_map, font, style_axes
from regard.see.save import save

ASSETS = Path(__file__).resolve().parent / "assets"
TITLES = {
    "back": "the token three places before",
    "text": "characters of Shakespeare",
    "images": "Fashion-MNIST, by pixels of a side",
}
TRAINED = {"back": "32", "text": "64", "images": "28"}


def draw_similarity() -> Path | None:
    """Draw the matrix of every encoding after training."""
    cases = [case for case in read("sizes")["cases"] if "matrix" in case]
    if not cases:
        return None
    columns, side, step = 6, 1.45, 1.95
    rows = -(-len(cases) // columns)
    layout = Layout(0.3 + columns * step, 0.5 + rows * step)
    layout.text(
        0.15, 0.12, "What an encoding says of two of 24 positions: dark is its lowest value, bright its highest", 10
    )
    for at, case in enumerate(cases):
        matrix = np.asarray(case["matrix"])
        axes = layout.axes(0.2 + at % columns * step, 0.72 + at // columns * step, side, side)
        low, high = float(matrix.min()), float(matrix.max())
        draw_map(axes, matrix, Normalize(low, max(high, low + 1e-3)))
        layout.text(0.2 + at % columns * step, 0.52 + at // columns * step, case["encoding"], 8)
    return save(layout.figure, ASSETS / "positions-similarity.png")


def draw_sizes() -> Path | None:
    """Draw the score of every encoding at every size, one panel a task."""
    found = {task: table for task in TITLES if (table := scores(task))}
    if not found:
        return None
    names = [*next(iter(found.values()))]
    height, width, left = 0.24 * len(names), 2.55, 1.75
    layout = Layout(left + len(found) * (width + 0.25) + 0.1, 0.85 + height + 0.55)
    for at, (task, table) in enumerate(found.items()):
        axes = layout.axes(left + at * (width + 0.25), 0.85, width, height)
        layout.text(left + at * (width + 0.25), 0.15, TITLES[task], 10)
        sizes = [*next(iter(table.values()))]
        layout.text(left + at * (width + 0.25), 0.37, f"trained at {TRAINED[task]}", 8, MUTED_INK)
        for n, size in enumerate(sizes):
            style: dict[str, Any] = {"color": PALETTE[n], "s": 26, "zorder": 3, "marker": "o^sD"[n]}
            points = [(name, table[name][size]) for name in names if name in table]
            known = [(name, [v for v in values if v is not None]) for name, values in points]
            rows = [(names.index(name), values) for name, values in known if values]
            axes.scatter([statistics.mean(v) for _, v in rows], [y for y, _ in rows], label=size, **style)
            for y, values in rows:
                axes.plot([min(values), max(values)], [y, y], color=PALETTE[n], linewidth=1.2, alpha=0.6)
        axes.set_ylim(len(names) - 0.5, -0.5)
        axes.set_yticks(range(len(names)), names if at == 0 else [], font=font(8))
        axes.xaxis.set_major_locator(MaxNLocator(5))
        axes.set_xlabel(UNITS[task], font=font(8), color=MUTED_INK)
        style_axes(axes, 7)
        axes.tick_params(axis="y", labelsize=8)
        above = {"loc": "lower left", "bbox_to_anchor": (0, 1.0), "ncols": 4, "handletextpad": 0}
        axes.legend(frameon=False, prop=font(7), **above)
    return save(layout.figure, ASSETS / "positions-sizes.png")


def draw_latitude() -> Path | None:
    """Draw accuracy and error by latitude."""
    found = {task: scores(task) for task in ("land", "temperature")}
    if not all(found.values()):
        return None
    layout = Layout(8.6, 3.0)
    titles = ("land or ocean", "temperature of hidden cells")
    for at, ((task, table), title) in enumerate(zip(found.items(), titles, strict=True)):
        axes = layout.axes(0.65 + at * 3.55, 0.5, 2.8, 1.95)
        layout.text(0.65 + at * 3.55, 0.2, title, 10)
        bands = [size for size in next(iter(table.values())) if size != "all"]
        for n, (name, by_size) in enumerate(table.items()):
            means = [statistics.mean(v for v in by_size[band] if v is not None) for band in bands]
            axes.plot(range(len(bands)), means, marker="o", markersize=4, color=PALETTE[n], label=name)
        axes.set_xticks(range(len(bands)), bands, font=font(8))
        axes.yaxis.set_major_locator(MaxNLocator(5))
        axes.set_xlabel("latitude, degrees", font=font(8), color=MUTED_INK)
        axes.set_ylabel(UNITS[task], font=font(8), color=MUTED_INK)
        style_axes(axes)
    axes.legend(loc="upper left", bbox_to_anchor=(1.02, 1.02), frameon=False, prop=font(8))
    return save(layout.figure, ASSETS / "positions-latitude.png")


def draw_maps() -> list[Path]:
    """Draw the mask and the weather, and what the network makes of each code."""
    sys.path[:0] = [str(ASSETS.parent.parent / "benchmarks")]
    import globe

    from regard.data.data_dir import find_dataset
    from regard.data.globe.gridded import read_pp, sample_file
    from regard.data.globe.land_mask import read_mask

    field = read_pp(sample_file())
    order = np.argsort(field.longitudes)
    places, _, _ = globe.split_cells(field, 1)
    shape = field.values.shape

    def upright(values: torch.Tensor | np.ndarray) -> np.ndarray:  # north at the top, from west to east
        grid = np.asarray(values).reshape(shape)[:, order]
        return grid[::-1] if field.latitudes[0] < field.latitudes[-1] else grid

    longitude, latitude = np.meshgrid(np.arange(-179.5, 180), np.arange(89.5, -90, -1))
    dots = torch.from_numpy(np.stack([longitude, latitude], -1)).float().flatten(0, 1)
    mask = read_mask(find_dataset("land_mask"))[2::4, 2::4]
    lands, warm = {"the mask": mask.astype(float)}, {"the field": upright(field.values)}
    _, values, shown = globe.split_cells(field, 1)
    for name, spec in globe.SPECS.items():
        model, found = globe.land(spec, 1, globe.STEPS)
        share = globe.predict(model, dots).softmax(1)[:, 1].numpy().reshape(180, 360)
        lands[f"{name}: {found['all']:.1f} %"] = share
        model, found = globe.temperature(spec, 1, globe.STEPS)
        assert model is not None
        known = values[shown]
        warm[f"{name}: {found['all']:.2f} K"] = upright(globe.predict(model, places)[:, 0] * known.std() + known.mean())
    return [
        _maps(lands, "Land: how sure the network is", "positions-land.png", "share of land", "cividis", (0, 1)),
        _maps(
            warm,
            "Mean air temperature of a year (pre-industrial.pp)",
            "positions-temperature.png",
            "K",
            "inferno",
            None,
        ),
    ]


def _maps(parts: dict[str, np.ndarray], title: str, name: str, unit: str, colours: str, span: Any) -> Path:
    """Draw maps of the globe, three in a row."""
    width, height = 2.7, 1.35
    layout = Layout(0.2 + 3 * (width + 0.15) + 0.75, 0.5 + 2 * (height + 0.35))
    low, high = span or (min(p.min() for p in parts.values()), max(p.max() for p in parts.values()))
    norm = Normalize(low, high)
    layout.text(0.2, 0.12, title, 10)
    for at, (label, values) in enumerate(parts.items()):
        left, top = 0.2 + at % 3 * (width + 0.15), 0.65 + at // 3 * (height + 0.35)
        layout.text(left, top - 0.2, label, 8, INK)
        draw_map(layout.axes(left, top, width, height), values, norm, colours)
    layout.colorbar(0.25 + 3 * (width + 0.15), 0.65, height, norm, unit, colours)
    return save(layout.figure, ASSETS / name)


def main() -> None:
    """Draw what was measured, and print the files."""
    drawn = [draw_similarity(), draw_sizes(), draw_latitude(), *(draw_maps() if "--maps" in sys.argv[1:] else [])]
    print(*(str(file) for file in drawn if file), sep="\n")


if __name__ == "__main__":
    main()

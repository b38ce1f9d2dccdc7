"""The table of docs/how/faithfulness.md: maps of the shipped image models against known masks, and against the models.

    python benchmarks/faithfulness.py [--limit 100] [--run FOLDER MAP DATA]...

writes results/faithfulness.json and prints the table. Each --run adds a model that was trained here, as
`runs/camvid-segmenter-1 class camvid`. On one CPU thread; a curve is 17 passes of a model.
"""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path
from typing import Any

import harness
import torch

import regard
from regard.interpret.faithfulness import KINDS, evaluate_maps, masked_scenes

CASES = (
    *(("fashion", method, "fashion_mnist") for method in ("class", "rollout", "relevance", "pooling")),
    *(("fashion", method, "one_object") for method in ("class", "rollout", "relevance", "pooling")),
    ("scenes", "cross", "scenes"),
    ("scenes", "cross", "camvid"),
    ("scene-captions", "align", "scene_captions"),
    ("scene-segments", "class", "scenes"),
    *(("scene-questions", "cross", f"{kind}_questions") for kind in KINDS),
)
HEAD = ("model", "map", "images", "maps", "mass %", "share %", "gain", "pointing %", "box %", "deletion", "insertion")
HEAD += ("gain, shuffled", "correlation, shuffled")


def main() -> None:
    """Score, write the numbers and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--limit", type=int, default=100, help="images of each data set")
    parser.add_argument("--quick", action="store_true", help="two images; nothing is written")
    parser.add_argument("--run", nargs=3, action="append", default=[], metavar=("FOLDER", "MAP", "DATA"))
    asked = parser.parse_args()
    limit = 2 if asked.quick else asked.limit
    torch.set_num_threads(1)
    rows: list[dict[str, Any]] = []
    known = (case for case in CASES if case[0] in regard.api.zoo())
    for model, method, data in (*known, *asked.run):
        scenes, things = masked_scenes(data, "test", limit)
        found = asdict(evaluate_maps(regard.load(model), scenes, method, things))
        rows.append({"model": Path(model).name, "method": method, "data": data, **found})
        print(f"{model} {method} {data}", flush=True)
    if not asked.quick:
        print(harness.write("faithfulness.json", {**harness.machine(), "images": limit, "maps": rows}))
    print(f"| {' | '.join(HEAD)} |\n|{'---|' * len(HEAD)}")
    for row in rows:
        cells = [row["model"], row["method"], row["data"], row["maps"], f"{100 * row['mass']:.1f}"]
        cells += [f"{100 * row['share']:.1f}", f"{row['mass'] / row['share']:.2f}", f"{100 * row['pointing']:.0f}"]
        cells += [f"{100 * row['energy']:.1f}", f"{row['deletion']:.2f}", f"{row['insertion']:.2f}"]
        cells += [f"{row['random_mass'] / row['share']:.2f}", f"{row['random_correlation']:.2f}"]
        print(f"| {' | '.join(map(str, cells))} |")


if __name__ == "__main__":
    main()

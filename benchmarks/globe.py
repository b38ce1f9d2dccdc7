"""Codes of places on the globe, read by the same network of sines: land or ocean, and the weather between the cells.

    python benchmarks/globe.py                      -> results/positions/globe.json
    python benchmarks/globe.py --minutes 7          in several goes: what is measured already is kept

One SIREN (2 layers of width 128) with every code of GLOBE_POSITIONS in turn, Adam, rate 2e-3, cosine, 1,000 updates of
512 places; nothing is tuned for any code. The seed makes weights, batches and which cells are hidden.

    land          land or ocean (data land_mask, a quarter of a degree): 40,000 places to train on, 50,000 places of
                  other cells to test on, even on the sphere; accuracy %
    temperature   mean air temperature at 1.5 m, 145 x 192 cells (pre-industrial.pp of iris-sample-data): 10 % of the
                  cells to train on, the others hidden; root mean square error in kelvin, every cell weighted by its
                  area. "nearest" takes the value of the nearest cell that is not hidden

Both in all and in bands of latitude: up to 30 degrees, 30 to 60, 60 to 80, beyond 80.
"""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

import harness
import numpy as np
import torch
import torch.nn.functional as F
from scipy.spatial import cKDTree
from torch import nn

from regard.data.globe.gridded import GriddedField, read_pp, sample_file
from regard.data.globe.land_mask import LandMask
from regard.models.siren import SIREN, Config
from regard.positions import GLOBE_POSITIONS
from regard.positions.added.globe import unit_vectors

SPECS = {name: "harmonics(degrees=20)" if name == "harmonics" else name for name in GLOBE_POSITIONS}
SEEDS = (1, 2, 3)
STEPS, ROWS, RATE = 1000, 512, 2e-3
BANDS = {"0-30": (0, 30), "30-60": (30, 60), "60-80": (60, 80), "80-90": (80, 91)}  # degrees
SHOWN_SHARE = 0.1  # of the cells of the weather
PATH = harness.RESULTS / "positions" / "globe.json"


def fit(positions: str, places: torch.Tensor, targets: torch.Tensor, outputs: int, seed: int, steps: int) -> SIREN:
    """Train a SIREN on places: logits for whole numbers as targets, else values."""
    torch.manual_seed(seed)
    model = SIREN(Config(num_outputs=outputs, positions=positions, first_omega=10.0))
    encode, codes = model.positions, model.positions(places)
    model.positions = nn.Identity()  # the codes of all places are computed once
    optimizer = torch.optim.Adam(model.parameters(), lr=RATE)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    rng = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        rows = torch.randint(len(places), (ROWS,), generator=rng)
        found, wanted = model(codes[rows]), targets[rows]
        loss = F.mse_loss(found[:, 0], wanted) if wanted.is_floating_point() else F.cross_entropy(found, wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    model.positions = encode
    return model.eval()


@torch.no_grad()
def predict(model: SIREN, places: torch.Tensor) -> torch.Tensor:
    """Return the outputs of many places."""
    return torch.cat([model(some) for some in places.split(8192)])


def land(positions: str, seed: int, steps: int) -> tuple[SIREN, dict[str, float]]:
    """Land or ocean: the model, and its accuracy by latitude."""
    train, test = (LandMask(seed=seed).load(split).examples for split in ("train", "test"))
    model = fit(positions, train.places, train.labels, 2, seed, steps)
    right = (predict(model, test.places).argmax(1) == test.labels).double().numpy()
    weight = np.ones(len(right))
    return model, by_latitude(right, test.places[:, 1].numpy(), weight, lambda mean: 100 * mean)


def split_cells(field: GriddedField, seed: int) -> tuple[torch.Tensor, torch.Tensor, np.ndarray]:
    """Return places and values of all cells, and which of them are shown."""
    latitude, longitude = np.meshgrid(field.latitudes, field.longitudes, indexing="ij")
    places = torch.from_numpy(np.stack([longitude, latitude], -1)).float().flatten(0, 1)
    shown = np.random.default_rng(seed).random(len(places)) < SHOWN_SHARE
    return places, torch.from_numpy(field.values).float().flatten(), shown


def temperature(positions: str, seed: int, steps: int) -> tuple[SIREN | None, dict[str, float]]:
    """The hidden cells of the weather: the model, and its error by latitude."""
    places, values, shown = split_cells(read_pp(sample_file()), seed)
    mean, spread = values[shown].mean(), values[shown].std()
    model = None
    if positions == "nearest":
        tree = cKDTree(unit_vectors(places[shown]).numpy())
        found = values[shown][tree.query(unit_vectors(places).numpy())[1]]
    else:
        model = fit(positions, places[shown], (values[shown] - mean) / spread, 1, seed, steps)
        found = predict(model, places)[:, 0] * spread + mean
    error = (found - values).double().square().numpy()[~shown]
    latitude = places[:, 1].numpy()[~shown]
    return model, by_latitude(error, latitude, np.cos(np.radians(latitude)), np.sqrt)


def by_latitude(values: np.ndarray, latitude: np.ndarray, weight: np.ndarray, finish: Any) -> dict[str, float]:
    """Return the weighted mean of values, in all and in bands of latitude."""
    found = {}
    for name, (low, high) in {"all": (0, 91), **BANDS}.items():
        inside = (np.abs(latitude) >= low) & (np.abs(latitude) < high)
        total = max(float(weight[inside].sum()), 1e-12)
        found[name] = round(float(finish((values * weight)[inside].sum() / total)), 3)
    return found


TASKS = {"land": land, "temperature": temperature}


def main() -> None:
    """Measure what is missing in the record, and write after every case."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=1e9, help="begin no case after this time")
    parser.add_argument("--seeds", type=int, default=len(SEEDS), help="how many seeds")
    parser.add_argument("--quick", action="store_true", help="few steps, one seed; nothing is written")
    args = parser.parse_args()
    PATH.parent.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    record: dict[str, Any] = json.loads(PATH.read_text("utf-8")) if PATH.exists() and not args.quick else {}
    kept = record.get("cases", [])
    done = {(case["task"], case["positions"], case["seed"]) for case in kept}
    record = harness.machine() | {"threads": torch.get_num_threads(), "steps": STEPS, "merged": True, "cases": kept}
    for seed in SEEDS[: 1 if args.quick else args.seeds]:
        for task, run in TASKS.items():
            for name in [*SPECS, *(["nearest"] if task == "temperature" else [])]:
                if (task, name, seed) in done or time.monotonic() - began > 60 * args.minutes:
                    continue
                start = time.perf_counter()
                _, scores = run(SPECS.get(name, name), seed, 20 if args.quick else STEPS)
                seconds = round(time.perf_counter() - start, 1)
                kept.append({"task": task, "positions": name, "seed": seed, "scores": scores, "seconds": seconds})
                kept[-1] |= harness.lap()
                print(task, name, seed, scores, f"{seconds} s", flush=True)
                if not args.quick:
                    harness.write(f"positions/{PATH.name}", record)


if __name__ == "__main__":
    main()

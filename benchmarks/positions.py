"""Every positional encoding of the table on the same tasks: how it does at sizes that it was not trained on.

    python benchmarks/positions.py                    -> results/positions/sizes.json
    python benchmarks/positions.py --minutes 7        in several goes: what is measured already is kept
    python benchmarks/positions.py --tasks back --encodings sequence/rotary --quick

One small Transformer (2 blocks, width 32, 4 heads, pre-norm) with one position part, which all its layers share; only
that part differs. Vectors of another width than the model's go through a learned linear map. AdamW, rate 3e-3, cosine,
no tuning; the seed makes weights and batches. An encoding of graphs sees a line or grid of cells joined to their
neighbours, one of the globe cells of one degree from the equator southwards, one of grids or windows a row of cells.

    back      the token three places before every token, of 16, in random rows: trained at 32 tokens, tested at 32, 64,
              128 (accuracy %, over the tokens from the fourth on; 6 % is chance)
    text      characters of Shakespeare, causal: trained at 64 characters; bits per character of the same 32 characters
              of the validation part at the end of 64, 128 and 256
    images    Fashion-MNIST, cut into patches of 4 x 4 pixels: trained on 12,800 images of 28 x 28 pixels, tested on the
              first 500 of the test part, resized to 20, 28 and 40 pixels (accuracy %)

"-" where the encoding refuses the size. What a matrix shows is `regard.positions.similarity`, after training on `back`.
"""

from __future__ import annotations

import argparse
import gzip
import json
import time
from functools import cache
from typing import Any

import harness
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from regard.core.errors import RegardError
from regard.core.spec import build_part
from regard.data.data_dir import find_dataset
from regard.positions import ENCODINGS, WINDOW_BIASES
from regard.positions.similarity import Grid, cell_vectors, dense_bias, similarity

WIDTH, HEADS, BLOCKS = 32, 4, 2
RATE = 3e-3
SEEDS = (1, 2, 3)
TOKENS, BACK = 16, 3
STEPS = {"back": 600, "text": 400, "images": 400}
SIZES = {"back": (32, 64, 128), "text": (64, 128, 256), "images": (20, 28, 40)}
TRAINED = {"back": 32, "text": 64, "images": 28}
PATCH, TEST_IMAGES = 4, 500
# The unit of a code of places is a cell; what has frequencies of its own gets a tenth of a period a cell.
SPECS = {"GroundPositions": "ground(patch_size=1, reference=1.0)", "FourierFeatures": "fourier(scale=0.1)"}
PATH = harness.RESULTS / "positions" / "sizes.json"


def encodings() -> dict[str, tuple[Any, str]]:
    """Return table and name of every encoding, by what it encodes and its name: sequence/rotary."""
    found = {}
    for table in ENCODINGS:
        for name in table:
            part = make(table, name, (1, 4), causal=False)
            found[f"{part.traits.encodes}/{name}"] = (table, name)
    return found


def make(table: Any, name: str, grid: Grid, causal: bool) -> Any:
    """Build an encoding for a grid of cells."""
    sizes = {"width": WIDTH, "heads": HEADS, "head_dim": WIDTH // HEADS, "length": grid[0] * grid[1], "causal": causal}
    spec = SPECS.get(table[name][1], name)
    return build_part(table, spec, "positions", **sizes, grid=grid, max_grid=grid, window=grid)


class Attention(nn.Module):
    """Softmax attention that takes positions of every kind."""

    def __init__(self) -> None:
        super().__init__()
        self.qk, self.v, self.out = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor, part: Any, vectors: torch.Tensor | None, grid: Grid, causal: bool) -> Any:
        added = x + vectors if part.kind == "qk_input" else x
        q, k, v = (
            each.unflatten(-1, (HEADS, -1)).transpose(1, 2) for each in (*self.qk(added).chunk(2, -1), self.v(x))
        )
        bias = None
        if part.kind == "qk_transform":
            line = torch.arange(x.shape[1])[None]
            q, k = part.transform(q, line), part.transform(k, line)
        elif part.kind == "bias":
            bias = self.bias(part, q, grid)
            if hasattr(part, "content_bias"):  # Transformer-XL: what every key counts whatever the query
                q = q + part.content_bias[:, None]
        if causal:
            future = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
            bias = (torch.zeros(()) if bias is None else bias).masked_fill(future, float("-inf"))
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=bias)
        return self.out(mixed.transpose(1, 2).flatten(2))

    def bias(self, part: Any, q: torch.Tensor, grid: Grid) -> torch.Tensor:
        """Return the bias on the scores; of the queries, where it depends on them."""
        if part.traits.encodes == "window" and part.window != grid:
            part = another_window(part, grid)
        return dense_bias(part, grid, q * q.shape[-1] ** -0.5)


def another_window(part: Any, grid: Grid) -> Any:
    """Return the same bias for a window of another size; an error from a table, which has no rows for it."""
    name = "table" if hasattr(part, "table") else f"continuous(pretrained_window={part.window})"
    wider = build_part(WINDOW_BIASES, name, "positions", heads=HEADS, window=grid)
    if name == "table":
        dense_bias(part, grid)  # raises
    wider.load_state_dict(part.state_dict())
    return wider


class Model(nn.Module):
    """Tokens or patches to logits: for every token, or one for an image."""

    def __init__(self, part: Any, embed: nn.Module, outputs: int, causal: bool = False, pool: bool = False) -> None:
        super().__init__()
        self.part, self.embed, self.causal, self.pool = part, embed, causal, pool
        width = getattr(part, "width", WIDTH) if part.kind == "added" else WIDTH
        # sequences and grids have vectors of the model's width; the others are mapped to it
        self.map = nn.Identity() if part.traits.encodes in ("sequence", "grid") else nn.Linear(width, WIDTH)
        self.blocks = nn.ModuleList(
            nn.ModuleDict({
                "norm": nn.LayerNorm(WIDTH), "mix": Attention(), "feed_norm": nn.LayerNorm(WIDTH),
                "feed": nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)),
            })
            for _ in range(BLOCKS)
        )  # fmt: skip
        self.head = nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, outputs))
        self.codes: dict[Any, torch.Tensor] = {}

    def forward(self, inputs: torch.Tensor, grid: Grid, spacing: float = 1.0) -> torch.Tensor:
        x, part = self.embed(inputs), self.part
        vectors = None
        if part.kind in ("added", "qk_input"):
            vectors = self.map(self.cells(grid, spacing))
            x = x + vectors if part.kind == "added" else x
        for block in self.blocks:
            x = x + block["mix"](block["norm"](x), part, vectors, grid, self.causal)
            x = x + block["feed"](block["feed_norm"](x))
        return self.head(x.mean(1) if self.pool else x)

    def cells(self, grid: Grid, spacing: float) -> torch.Tensor:
        """Return the vectors of the cells; what has nothing to learn is computed once for each size."""
        if next(self.part.parameters(), None) is not None:
            return cell_vectors(self.part, grid, spacing)
        key = grid, spacing
        if key not in self.codes:
            self.codes[key] = cell_vectors(self.part, grid, spacing)
        return self.codes[key]


# -- tasks -------------------------------------------------------------------------------------------------------------


def train(model: Model, steps: int, batch: Any) -> None:
    """Train on batches of (arguments, targets)."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda n: min(1, n / 30) * 0.5 * (1 + np.cos(np.pi * n / steps))
    )
    for _ in range(steps):
        inputs, targets = batch()
        logits = model(*inputs)
        loss = F.cross_entropy(logits.flatten(0, -2), targets.flatten(), ignore_index=-1)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    model.eval()


def back(encoding: Any, seed: int, steps: int) -> dict[str, Any]:
    """The token three places before."""
    length = TRAINED["back"]
    part = make(*encoding, (1, length), causal=False)
    model = Model(part, nn.Embedding(TOKENS, WIDTH), TOKENS)
    rng = torch.Generator().manual_seed(seed)

    def batch(rows: int = 16, n: int = length) -> Any:
        tokens = torch.randint(TOKENS, (rows, n), generator=rng)
        return (tokens, (1, n)), F.pad(tokens[:, :-BACK], (BACK, 0), value=-1)

    train(model, steps, batch)

    def accuracy(n: int) -> float:
        inputs, targets = batch(64, n)
        return 100 * float((model(*inputs).argmax(-1) == targets)[:, BACK:].float().mean())

    with torch.no_grad():
        matrix = similarity(part, (1, length))[:, :24, :24].mean(0)
    return {"scores": at_sizes("back", accuracy), "matrix": matrix}


@cache
def shakespeare() -> tuple[torch.Tensor, torch.Tensor, int]:
    """Return the characters to train on, those to validate on, and how many different ones there are."""
    with gzip.open(find_dataset("tinyshakespeare") / "input.txt.gz", "rt", encoding="utf-8") as file:
        text = file.read()
    letters = sorted(set(text))
    ids = torch.tensor([letters.index(letter) for letter in text])
    cut = int(0.9 * len(ids))
    return ids[:cut], ids[cut:], len(letters)


def text(encoding: Any, seed: int, steps: int) -> dict[str, Any]:
    """Characters of Shakespeare."""
    train_ids, val_ids, letters = shakespeare()
    length = TRAINED["text"]
    model = Model(make(*encoding, (1, length), causal=True), nn.Embedding(letters, WIDTH), letters, causal=True)
    rng = torch.Generator().manual_seed(seed)

    def batch() -> Any:
        begin = torch.randint(len(train_ids) - length - 1, (16, 1), generator=rng)
        rows = train_ids[begin + torch.arange(length + 1)]
        return (rows[:, :-1], (1, length)), rows[:, 1:]

    train(model, steps, batch)
    ends = torch.linspace(max(SIZES["text"]), len(val_ids) - 1, 128).long()[:, None]  # of the same windows at all sizes

    def bits(n: int) -> float:
        losses = []
        for some in ends.split(32):
            rows = val_ids[some - torch.arange(n, -1, -1)]
            logits = model(rows[:, :-1], (1, n))[:, -32:]
            losses.append(F.cross_entropy(logits.flatten(0, 1), rows[:, -32:].flatten()))
        return float(torch.stack(losses).mean() / np.log(2))

    return {"scores": at_sizes("text", bits)}


@cache
def fashion() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return images and labels, to train on and of the test part."""
    with np.load(find_dataset("fashion_mnist") / "fashion_mnist.npz") as file:
        parts = [torch.from_numpy(file[key]) for key in ("train_images", "train_labels", "test_images", "test_labels")]
    images, labels, test, answers = parts
    return (
        images[:12_800].float() / 255,
        labels[:12_800].long(),
        test[:TEST_IMAGES].float() / 255,
        answers[:TEST_IMAGES],
    )


def images(encoding: Any, seed: int, steps: int) -> dict[str, Any]:
    """Fashion-MNIST at other resolutions."""
    pictures, labels, test, answers = fashion()
    side = TRAINED["images"] // PATCH
    model = Model(make(*encoding, (side, side), causal=False), nn.Linear(PATCH**2, WIDTH), 10, pool=True)
    rng = torch.Generator().manual_seed(seed)

    def patches(chosen: torch.Tensor) -> torch.Tensor:
        return F.unfold(chosen[:, None] - 0.3, PATCH, stride=PATCH).mT * 3

    def batch() -> Any:
        rows = torch.randint(len(pictures), (16,), generator=rng)
        return (patches(pictures[rows]), (side, side)), labels[rows]

    train(model, steps, batch)

    def accuracy(pixels: int) -> float:
        resized = F.interpolate(test[:, None], pixels, mode="bilinear", antialias=True)[:, 0]
        grid, right = (pixels // PATCH,) * 2, 0
        for some, wanted in zip(resized.split(250), answers.split(250), strict=True):
            found = model(patches(some), grid, TRAINED["images"] / pixels).argmax(-1)
            right += int((found == wanted).sum())
        return 100 * right / len(test)

    return {"scores": at_sizes("images", accuracy)}


@torch.no_grad()
def at_sizes(task: str, score: Any) -> dict[str, float | None]:
    """Return the score at every size; None where the encoding refuses it."""
    found: dict[str, float | None] = {}
    for size in SIZES[task]:
        try:
            found[str(size)] = round(score(size), 3)
        except RegardError:
            found[str(size)] = None
    return found


TASKS = {"back": back, "text": text, "images": images}


def others(kept: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the cases in the file that another run has measured meanwhile."""
    known = {(case["task"], case["encoding"], case["seed"]) for case in kept}
    found = json.loads(PATH.read_text("utf-8"))["cases"] if PATH.exists() else []
    return [case for case in found if (case["task"], case["encoding"], case["seed"]) not in known]


def main() -> None:
    """Measure what is missing in the record, and write after every case."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", help="comma-separated: back, text, images")
    parser.add_argument("--encodings", help="comma-separated: sequence/rotary, grid/learned, ...")
    parser.add_argument("--seeds", type=int, default=len(SEEDS), help="how many seeds")
    parser.add_argument("--minutes", type=float, default=1e9, help="begin no case after this time")
    parser.add_argument("--quick", action="store_true", help="few steps, one seed; nothing is written")
    args = parser.parse_args()
    PATH.parent.mkdir(parents=True, exist_ok=True)
    began, torch_threads = time.monotonic(), torch.get_num_threads()
    record: dict[str, Any] = json.loads(PATH.read_text("utf-8")) if PATH.exists() and not args.quick else {}
    kept = record.get("cases", [])
    done = {(case["task"], case["encoding"], case["seed"]) for case in kept}
    known = encodings()

    def rank(case: dict[str, Any]) -> tuple[int, int, int]:
        return [*TASKS].index(case["task"]), [*known].index(case["encoding"]), case["seed"]

    chosen = {name: known[name] for name in (args.encodings.split(",") if args.encodings else known)}
    record = harness.machine() | {"threads": torch_threads, "steps": STEPS, "merged": True, "cases": kept}
    with torch.random.fork_rng():
        for seed in SEEDS[: 1 if args.quick else args.seeds]:
            for task in args.tasks.split(",") if args.tasks else TASKS:
                for name, encoding in chosen.items():
                    if (task, name, seed) in done or time.monotonic() - began > 60 * args.minutes:
                        continue
                    torch.manual_seed(seed)
                    start = time.perf_counter()
                    found = TASKS[task](encoding, seed, 20 if args.quick else STEPS[task])
                    matrix = found.pop("matrix", None)
                    case = {"task": task, "encoding": name, "seed": seed, **found}
                    case["seconds"] = round(time.perf_counter() - start, 1)
                    if matrix is not None and seed == SEEDS[0]:
                        case["matrix"] = [[round(value, 3) for value in row] for row in matrix.tolist()]
                    kept.append(case | harness.lap())
                    print(task, name, seed, case["scores"], f"{case['seconds']} s", flush=True)
                    if not args.quick:
                        kept += others(kept)
                        kept.sort(key=rank)
                        harness.write(f"positions/{PATH.name}", record)


if __name__ == "__main__":
    main()

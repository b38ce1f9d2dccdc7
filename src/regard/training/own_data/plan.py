"""What the plans of all kinds of data share: timing an update, choosing among candidates, steps, and the six lines."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from regard.core.errors import BadInput
from regard.data.batching import StreamPosition
from regard.training.device import device_name, select_device, select_precision
from regard.training.finalize import count_parameters
from regard.training.recipe import Recipe, Train, build

MIN_MINUTES = 0.05
SHARE = 0.85  # of the minutes for training; the rest is for starting and for measuring what was trained
MIN_STEPS = 20
TIMED_UPDATES = 2  # after one that is not timed
VAL_FRACTION = 0.1  # of data without a validation split of their own


@dataclass(frozen=True)
class Candidate:
    """A recipe that fits the data; the first one for which there is time is taken."""

    recipe: Recipe
    epochs: float  # at which the data are learnt: no more are trained
    least: float = 0.0  # epochs below which the next candidate is better


@dataclass(frozen=True)
class Draft:
    """What a kind of data says before anything is timed."""

    name: str  # of the run
    data: str  # counts, sizes, classes, what is kept for validation
    start: str  # what the weights are at the start
    candidates: Sequence[Candidate]  # best first
    examples: int  # to train on
    per_update: int  # of an update
    regularisation: str
    use: str  # a command that uses the model; {model} is the folder


@dataclass(frozen=True)
class Plan:
    """A recipe and why."""

    recipe: Recipe
    lines: tuple[str, ...]
    use: str

    def __str__(self) -> str:
        return "\n".join(self.lines)


def complete(draft: Draft, kind: str, path: Path, minutes: float, device: str, quick: bool, seed: int) -> Plan:
    """Choose a candidate by the time of its updates, and set the schedule."""
    if not MIN_MINUTES <= minutes <= 60 * 24 * 30:
        raise BadInput(f"--minutes must be {MIN_MINUTES:g} or more, got {minutes:g}")
    target, seconds = select_device(device), 60 * minutes * SHARE
    per_epoch = max(1, draft.examples // draft.per_update)
    for number, candidate in enumerate(draft.candidates):
        each, parameters = time_update(candidate.recipe, target)
        possible = seconds / max(each, 1e-6)
        if possible >= candidate.least * per_epoch or number == len(draft.candidates) - 1:
            break
    steps = 6 if quick else max(MIN_STEPS, math.ceil(min(candidate.epochs * per_epoch, possible)))
    epochs = steps / per_epoch
    train = replace(
        candidate.recipe.train,
        steps=steps,
        budget_minutes=round(minutes * SHARE, 4),
        seed=seed,
        device=device,
        warmup_steps=max(1, steps // 10),
        eval_interval=max(1, math.ceil(steps / 10)),
        save_interval=max(1, math.ceil(steps / 3)),
        keep_checkpoints=1,
        log_interval=max(1, steps // 100),
    )
    recipe = replace(candidate.recipe, train=train, name=draft.name)
    ends = "it has learnt them by then" if epochs >= candidate.epochs else "the time is up"
    used = min(steps * each, seconds)
    lines = (
        f"data     {draft.data}",
        f"start    {draft.start}",
        f"model    {describe_model(recipe, parameters)}",
        f"against overfitting  {draft.regularisation}",
        f"updates  {steps:,} of {draft.per_update} examples ({epochs:.3g} epochs: {ends}), {train.optimizer}, learning "
        f"rate {train.learning_rate:g}, {train.schedule}",
        f"time     {format_minutes(used)} of at most {minutes:g} minutes on {device_name(target)}, "
        f"{each:.3g} s an update",
    )
    return Plan(recipe, lines, draft.use)


def time_update(recipe: Recipe, device: torch.device) -> tuple[float, int]:
    """Return the seconds of an update (the fastest of some, on a part of the data), and the number of parameters."""
    data = recipe.data
    if hasattr(data, "limit"):
        data = replace(data, limit=max(64, 4 * getattr(data, "batch_size", 16)))
    torch.manual_seed(0)
    task = recipe.task.build(data, folder=tokenizer_folder(recipe))
    model = build(task.fit(recipe.model)).to(device).train()
    stream = task.batches().start(StreamPosition(), 0, 1)
    rng = torch.Generator(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.0)
    autocast = select_precision(recipe.train.precision, device) == "bfloat16"
    times = []
    for _ in range(1 + TIMED_UPDATES):
        item, began = next(stream), time.monotonic()
        with torch.autocast(device.type, dtype=torch.bfloat16, enabled=autocast):
            total, _ = task.loss(model, item.batch.to(device), 0, rng)
        (total / max(1, item.count)).backward()
        optimizer.step()
        optimizer.zero_grad()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        times.append(time.monotonic() - began)
    return sum(times[1:]) / TIMED_UPDATES, count_parameters(model)


def tokenizer_folder(recipe: Recipe) -> Path | None:
    """Return the folder of what a recipe starts from, whose tokenizer its task takes."""
    from regard.training.init_from import resolve_source

    return None if recipe.train.init_from is None else resolve_source(recipe.train.init_from)


def describe_model(recipe: Recipe, parameters: int) -> str:
    """Return family and sizes of a model in words."""
    from regard.training.recipe import model_family

    model = recipe.model
    names = ("width", "layers", "encoder_layers", "decoder_layers")
    sizes = [f"{name.replace('_', ' ')} {getattr(model, name)}" for name in names if hasattr(model, name)]
    side = getattr(recipe.data, "pixels", None)
    sizes += [f"images of {side} x {side} pixels"] if side else []
    return ", ".join([model_family(model), *sizes, f"{format_millions(parameters)} parameters"])


def base_train(**settings: object) -> Train:
    """Return the training settings that all kinds of data start from."""
    usual = {
        "optimizer": "adamw",
        "schedule": "cosine",
        "min_learning_rate_ratio": 0.01,
        "betas": (0.9, 0.99),
        "eps": 1e-8,
        "clip_grad_norm": 1.0,
        "compile": False,  # it takes longer than these runs
        "save_dtype": "float32",
    }
    return Train(**{**usual, **settings})  # type: ignore[arg-type]


def num_train(count: int) -> int:
    """Return how many of `count` examples are left to train on."""
    return count - max(1, round(VAL_FRACTION * count))


def describe_counts(labels: Iterable[str], most: int = 6) -> str:
    """Return how often each label occurs, the commonest first: "dog 60, cat 58 and 3 more"."""
    counts: dict[str, int] = {}
    for label in labels:
        counts[label] = counts.get(label, 0) + 1
    ordered = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
    more = f" and {len(ordered) - most} more" if len(ordered) > most else ""
    return ", ".join(f"{label} {count:,}" for label, count in ordered[:most]) + more


def format_millions(count: int) -> str:
    """Return a number of parameters in a few characters."""
    return f"{count / 1e6:.1f} million" if count >= 1e6 else f"{count:,}"


def format_minutes(seconds: float) -> str:
    """Return seconds as "40 seconds" or "4.2 minutes"."""
    return f"about {seconds:.0f} seconds" if seconds < 90 else f"about {seconds / 60:.1f} minutes"


def run_name(path: Path) -> str:
    """Return the name of a run on the data at a path."""
    return path.name.removesuffix(".gz").rsplit(".", 1)[0] if path.is_file() else path.name


def detect_languages(texts: Sequence[str]) -> dict[str, float]:
    """Return the share of texts in each language that the shipped model `languages` knows."""
    import regard

    some = [text for text in texts if text.strip()][:: max(1, len(texts) // 100)][:100]
    model = regard.load("languages")
    found = model.predict(
        [" ".join(text.split()[:12]) for text in some], model.fill_options({})
    )  # no note of odd texts
    shares: dict[str, float] = {}
    for each in found:
        shares[each.label] = shares.get(each.label, 0.0) + 1 / len(some)
    return shares

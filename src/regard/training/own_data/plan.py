"""What the plans of all kinds of data share: timing an update, choosing among candidates, steps, and the six lines."""

from __future__ import annotations

import logging
import math
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from regard.core.errors import BadInput
from regard.data.batching import StreamPosition
from regard.training.device import device_name, select_device, select_precision
from regard.training.finalize import count_parameters
from regard.training.loggers.progress import say_if_slow
from regard.training.recipe import Recipe, Train, build

MIN_MINUTES = 0.05
MIN_STEPS = 20
EVALUATIONS = 10  # while training, or fewer: at most EVAL_SHARE of the time is for them
EVAL_SHARE = 0.15
FINAL_EVALUATIONS = 3  # of the last, the best and the averaged weights
FORWARD_SHARE = 0.4  # of the time of an update
SAVE_SECONDS = 3.0  # for saving and drawing the curve
RESERVE = 0.06  # of the time, for starting Python and for what is misjudged
TIMED_UPDATES, TIMED_SECONDS = 8, 1.0  # after one that is not timed: so many, or two and so long
SURE, ALL_UNUSUAL = 0.8, 0.9  # shares of texts: of a known language, and unlike all known ones
HOPELESS = 5.0  # times the seconds that an update may take: the first one tells
UNKNOWN = "an unknown language"
FEW = 10  # examples of validation below which the plan says so
VAL_FRACTION = 0.1  # of data without a validation split of their own


@dataclass(frozen=True)
class Candidate:
    """A recipe that fits the data; the first one for which there is time is taken."""

    recipe: Recipe
    epochs: float  # at which the data are learnt: no more are trained
    least: float = 0.0  # epochs below which the next candidate is better
    start: str = ""  # what the weights are at the start, where it is not the draft's


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


def complete(
    draft: Draft, kind: str, path: Path, minutes: float, device: str, quick: bool, seed: int, began: float
) -> Plan:
    """Choose a candidate by the time of its updates, and set the schedule; `began` is when the minutes began."""
    if not MIN_MINUTES <= minutes <= 60 * 24 * 30:
        raise BadInput(f"--minutes must be {MIN_MINUTES:g} or more, got {minutes:g}")
    target, given = select_device(device), 60 * minutes
    per_epoch = max(1, draft.examples // draft.per_update)
    for number, candidate in enumerate(draft.candidates):
        is_last = number == len(draft.candidates) - 1
        needed = given / max(1.0, candidate.least * per_epoch)  # seconds of an update at which there is time for it
        many = len(draft.candidates)
        which = f" of model {number + 1} of at most {many}, largest first" if many > 1 else ""
        with say_if_slow(f"timing some updates{which} ...", 1.0):
            each, parameters = time_update(candidate.recipe, target, math.inf if is_last else HOPELESS * needed)
        evaluation = VAL_FRACTION * per_epoch * each * FORWARD_SHARE
        spent, end = time.monotonic() - began, FINAL_EVALUATIONS * evaluation + SAVE_SECONDS
        left = (1 - RESERVE) * given - spent - end
        seconds = max(left, MIN_STEPS * each)  # of updates and of the evaluations between them
        evaluations = max(1, min(EVALUATIONS, int(EVAL_SHARE * seconds / evaluation)))
        possible = max(seconds - evaluations * evaluation, 0.0) / each
        if (left >= MIN_STEPS * each and possible >= candidate.least * per_epoch) or is_last:
            break
    steps = 6 if quick else max(MIN_STEPS, math.ceil(candidate.epochs * per_epoch))
    expected = min(steps, max(MIN_STEPS, int(possible)))
    train = replace(
        candidate.recipe.train,
        steps=steps,  # the time may end the run before; the learning rate has fallen by then
        budget_minutes=round(seconds / 60, 4),
        seed=seed,
        device=device,
        warmup_steps=max(1, expected // 10),
        eval_interval=max(1, math.ceil(expected / evaluations)),
        save_interval=max(1, math.ceil(expected / 3)),
        keep_checkpoints=1,
        log_interval=max(1, expected // 100),
    )
    recipe = replace(candidate.recipe, train=train, name=draft.name)
    count, ends = f"{steps:,}", "they are learnt by then"
    if expected < steps:
        count, ends = f"about {expected:,}", "the time is up"
    ends = "a quick try" if quick else ends
    used = spent + min(expected * each + evaluations * evaluation, seconds) + end
    named = "1 minute" if minutes == 1 else f"{minutes:g} minutes"
    limit = f"at most {named}" if used <= given else f"{named} (too few for {expected} updates)"
    found = {
        "data": draft.data,
        "start": candidate.start or draft.start,
        "model": describe_model(recipe, parameters),
        "regularisation": draft.regularisation,
        "updates": f"{count}, each of {draft.per_update} examples ({expected / per_epoch:.3g} epochs: {ends}), "
        f"{train.optimizer}, learning rate {train.learning_rate:g}, {train.schedule}",
        "time": f"{format_minutes(used)} of {limit} on {device_name(target)}, {each:.3g} s an update",
    }
    return Plan(recipe, tuple(plan_line(*each) for each in found.items()), draft.use)


def plan_line(name: str, text: str) -> str:
    """Return a line of a plan."""
    return f"{name:16}{text}"


def time_update(recipe: Recipe, device: torch.device, hopeless: float = math.inf) -> tuple[float, int]:
    """Return the seconds of an update (the fastest of some, on a part of the data), and the number of parameters.

    Where the first one takes more than `hopeless` seconds, there are no more.
    """
    data = recipe.data
    if hasattr(data, "limit"):
        data = replace(data, limit=max(64, 4 * getattr(data, "batch_size", 16)))
    torch.manual_seed(0)
    source = tokenizer_folder(recipe)
    task = recipe.task.build(data, folder=source)
    if source is not None:
        task.extend_vocabulary()
    model = build(task.fit(recipe.model)).to(device).train()
    stream = task.batches().start(StreamPosition(), 0, 1)
    rng = torch.Generator(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.0)
    autocast = select_precision(recipe.train.precision, device) == "bfloat16"
    times = list[float]()
    while (len(times) < 3 or (len(times) <= TIMED_UPDATES and sum(times[1:]) < TIMED_SECONDS)) and (
        not times or times[0] <= hopeless
    ):
        began = time.monotonic()
        item = next(stream)
        with torch.autocast(device.type, dtype=torch.bfloat16, enabled=autocast):
            total, _ = task.loss(model, item.batch.to(device), 0, rng)
        (total / max(1, item.count)).backward()
        optimizer.step()
        optimizer.zero_grad()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        times.append(time.monotonic() - began)
    return max(min(times[1:], default=times[0]), 1e-6), count_parameters(model)


def tokenizer_folder(recipe: Recipe) -> Path | None:
    """Return the folder of what a recipe starts from, whose tokenizer its task takes."""
    from regard.training.init_from import resolve_source

    return None if recipe.train.init_from is None else resolve_source(recipe.train.init_from)


def describe_model(recipe: Recipe, parameters: int) -> str:
    """Return family and sizes of a model in words."""
    from regard.training.recipe import model_family

    model = recipe.model
    names = ("width", "layers", "encoder_layers", "decoder_layers")
    found = {name: getattr(model, name) for name in names if hasattr(model, name)}
    sizes = [f"{name.replace('_', ' ')} {format_size(size)}" for name, size in found.items()]
    side = getattr(recipe.data, "pixels", None)
    sizes += [f"images of {side} x {side} pixels"] if side else []
    return ", ".join([model_family(model), *sizes, f"{format_millions(parameters)} parameters"])


def format_size(size: int | tuple[int, ...]) -> str:
    """Return a size, or those of several stages, as "4" or "1 + 1 + 2"."""
    return " + ".join(map(str, size)) if isinstance(size, tuple) else str(size)


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


def describe_kept(count: int) -> str:
    """Return how many examples validation has, and whether that is few."""
    return f"{count:,} kept for validation{' (few: scores are rough)' if count < FEW else ''}"


def describe_counts(labels: Iterable[str], most: int = 6) -> str:
    """Return how often each label occurs, the commonest first: "dog: 60, cat: 58 and 3 more"."""
    counts = Counter(labels)
    ordered = sorted(counts.items(), key=lambda pair: (-pair[1], len(pair[0]) if pair[0].isdecimal() else 0, pair[0]))
    more = f" and {len(ordered) - most} more" if len(ordered) > most else ""
    return ", ".join(f"{label}: {count:,}" for label, count in ordered[:most]) + more


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
    """Return the share of texts in each language that the shipped model `languages` knows; `UNKNOWN` may be one."""
    import regard

    some = [" ".join(text.split()[:12]) for text in texts if text.strip()][:: max(1, len(texts) // 100)][:100]
    identify = regard.load("languages")
    counts = Counter(each.label for each in identify(some))
    letters = [letter for text in some for letter in text if letter.isalpha()]
    latin = sum(map(str.isascii, letters)) >= SURE * len(letters)
    may_be_english = latin and counts["English"] >= SURE * len(some)  # of a field with words of its own
    if sum(map(bool, identify.domain_notes(some))) >= ALL_UNUSUAL * len(some) and not may_be_english:
        return {UNKNOWN: 1.0}  # it takes every language for the nearest that it knows
    return {label: count / len(some) for label, count in counts.items()}


@contextmanager
def without_warnings() -> Iterator[None]:
    """Keep back what the run itself will say about the data, and notes about texts that are only looked at."""
    log = logging.getLogger("regard")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(level)

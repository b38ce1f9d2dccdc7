"""What the numbers of a Config or a spec may be, so that what makes no model, task or training is said before one is
built.

whole numbers     1 or more, each of them where there are several, unless RULES says otherwise
other numbers     as RULES says of their name, or of `group.name` where two groups mean different things by it
None, words       not looked at: nobody said, or those who read them check them
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import Any, NamedTuple

from regard.core.errors import BadInput


class Rule(NamedTuple):
    """Which numbers are allowed, and the words for it."""

    allows: Callable[[float], bool]
    said: str


def at_least(least: int) -> Rule:
    """So many or more."""
    return Rule(lambda x: x >= least, f"at least {least} is needed")


def between(low: float, high: float) -> Rule:
    """From one number to another, both allowed."""
    return Rule(lambda x: low <= x <= high, f"a number from {low} to {high} is needed")


ANY = Rule(lambda x: math.isfinite(x), "a finite number is needed")
SHARE = Rule(lambda x: 0 <= x < 1, "it is a share, from 0 to less than 1")
ABOVE = Rule(lambda x: 0 < x < math.inf, "a number above 0 is needed")
WEIGHT = Rule(lambda x: 0 <= x < math.inf, "a number of 0 or more is needed")
PART = between(0, 1)

RULES: dict[str, Rule] = {
    **dict.fromkeys(("dropout", "attention_dropout", "activation_dropout", "drop_path", "smoothing"), SHARE),
    **dict.fromkeys(("ratio", "stretch", "eps", "temperature"), ABOVE),
    **dict.fromkeys(("spare", "layer_scale"), WEIGHT),
    **dict.fromkeys(("classes", "prefix", "trained", "highways", "pad", "bos", "eos"), at_least(0)),
    "halvings": between(0, 6),  # of a hundred frames a second, six leave three in two seconds
    "offset": between(-30, 30),  # log-odds: beyond these, float32 knows nothing but 0 and 1
    "model.vocab": at_least(0),  # of a recipe: the data will say
    **dict.fromkeys(("task.states", "task.returns", "task.balance", "task.sample", "task.power"), WEIGHT),
    "task.length_penalty": ANY,
    "task.share": PART,
    **dict.fromkeys(("task.mixup", "task.cutmix"), between(0, 100)),
    "task.mix_until": at_least(0),
    **dict.fromkeys(("task.reinforce.weight", "task.reinforce.entropy", "task.reinforce.floor"), WEIGHT),
    "task.reinforce.fade": at_least(0),
    **dict.fromkeys(("train.minutes", "train.rate", "train.eps", "train.decay", "train.clip"), WEIGHT),
    **dict.fromkeys(("train.betas", "train.ema"), SHARE),
    "train.floor": PART,
    "train.layer_decay": Rule(lambda x: 0 < x <= 1, "it is a share, above 0 and up to 1"),
    "train.seed": ANY,
    **dict.fromkeys(("train.warmup", "train.evaluate", "train.score", "train.patience"), at_least(0)),
    **dict.fromkeys(("train.save", "train.keep"), at_least(0)),
}
SPECS: dict[str, Rule] = {  # of what stands in a spec, by its kind
    "aligner.reach": at_least(0),
    "aligner.sharpness": ABOVE,
    "aligner.noise": WEIGHT,
    "feed-forward.z": WEIGHT,
    "augmentation.padding": at_least(0),
    "head.classes": at_least(1),  # where a model may have no classes, this head would have nothing to say
    "positions.base": ABOVE,
    **dict.fromkeys(("optimiser.momentum", "optimiser.forget", "optimiser.betas"), SHARE),
    "optimiser.threshold": ABOVE,
    "optimiser.floor": WEIGHT,
}
MAY_BE_EMPTY = ("wider",)


def within(config: Any, group: str = "", **own: Rule) -> None:
    """Refuse a Config with a number that it cannot have; `group` stands before names ("train."), `own` before RULES."""
    for field in fields(config):
        name, value = field.name, getattr(config, field.name)
        whole = group + name
        if is_dataclass(value):
            within(value, f"{whole}.")
            continue
        if isinstance(value, tuple) and not value and name not in MAY_BE_EMPTY and "str" not in str(field.type):
            raise BadInput(f"{whole} is empty; at least one number is needed")
        rule = own.get(name) or RULES.get(whole) or RULES.get(name) or at_least(1)
        _hold(value, rule, whole)
    _padding(config, group)


def check(value: Any, kind: str, key: str, what: str) -> None:
    """Refuse a number in the spec of a part, `what` to the reader, that no part of this kind can have."""
    numbers = _numbers(value)
    usual = ANY if any(isinstance(number, float) for number in numbers) else at_least(1)
    _hold(value, SPECS.get(f"{kind}.{key}") or RULES.get(key) or usual, what)


def _hold(value: Any, rule: Rule, what: str) -> None:
    if not all(rule.allows(number) for number in _numbers(value)):
        raise BadInput(f"{what} is {value}; {rule.said}")


def _numbers(value: Any) -> list[float]:
    """The numbers of a value: itself, or those that stand in it."""
    if isinstance(value, (list, tuple)):
        return [number for each in value for number in _numbers(each)]
    return [value] if isinstance(value, (int, float)) and not isinstance(value, bool) else []


def _padding(config: Any, group: str) -> None:
    """The token of padding has a row in a table of embeddings, so it must be one of them."""
    pad, vocab = getattr(config, "pad", None), getattr(config, "vocab", None)
    if pad is not None and vocab and pad >= vocab:
        raise BadInput(f"{group}pad is {pad}; of {vocab} tokens the last is {vocab - 1}")

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
    message: str


def at_least(least: int) -> Rule:
    """So many or more."""
    return Rule(lambda x: x >= least, f"at least {least} is needed")


def between(low: float, high: float) -> Rule:
    """From one number to another, both allowed."""
    return Rule(lambda x: low <= x <= high, f"a number from {low} to {high} is needed")


FINITE = Rule(lambda x: math.isfinite(x), "a finite number is needed")
FRACTION = Rule(lambda x: 0 <= x < 1, "it is a share, from 0 to less than 1")
POSITIVE = Rule(lambda x: 0 < x < math.inf, "a number above 0 is needed")
NON_NEGATIVE = Rule(lambda x: 0 <= x < math.inf, "a number of 0 or more is needed")
UNIT_INTERVAL = between(0, 1)

FIELD_RULES: dict[str, Rule] = {
    **dict.fromkeys(("dropout", "attention_dropout", "activation_dropout", "drop_path", "label_smoothing"), FRACTION),
    **dict.fromkeys(("ratio", "mlp_ratio", "length_ratio", "eps", "temperature"), POSITIVE),
    **dict.fromkeys(("length_offset", "layer_scale"), NON_NEGATIVE),
    **dict.fromkeys(
        (
            "num_classes",
            "num_prefix_tokens",
            "prefix",
            "pretrained_window_sizes",
            "pretrained_window",
            "trained",
            "highway_layers",
            "pad",
            "bos",
            "eos",
        ),
        at_least(0),
    ),
    "subsampling_layers": between(0, 6),  # of a hundred frames a second, six leave three in two seconds
    **dict.fromkeys(
        ("emission_bias", "offset"), between(-30, 30)
    ),  # log-odds: beyond these, float32 knows nothing but 0 and 1
    "model.vocab": at_least(0),  # of a recipe: the data will say
    **dict.fromkeys(("task.states", "task.returns", "task.balance", "task.subsample", "task.power"), NON_NEGATIVE),
    "task.length_penalty": FINITE,
    "task.alpha": UNIT_INTERVAL,
    **dict.fromkeys(("task.mixup", "task.cutmix"), between(0, 100)),
    "task.mix_until": at_least(0),
    **dict.fromkeys(("task.reinforce.weight", "task.reinforce.entropy", "task.reinforce.final_entropy"), NON_NEGATIVE),
    "task.reinforce.entropy_steps": at_least(0),
    **dict.fromkeys(
        ("train.max_minutes", "train.learning_rate", "train.eps", "train.weight_decay", "train.clip_grad_norm"),
        NON_NEGATIVE,
    ),
    **dict.fromkeys(("train.betas", "train.ema_decay"), FRACTION),
    "train.min_learning_rate_ratio": UNIT_INTERVAL,
    "train.layer_decay": Rule(lambda x: 0 < x <= 1, "it is a share, above 0 and up to 1"),
    "train.seed": FINITE,
    **dict.fromkeys(
        ("train.warmup_steps", "train.eval_interval", "train.score_interval", "train.patience"), at_least(0)
    ),
    **dict.fromkeys(("train.save_interval", "train.keep_checkpoints"), at_least(0)),
}
SPEC_RULES: dict[str, Rule] = {  # of what stands in a spec, by its kind
    "aligner.reach": at_least(0),
    "aligner.sharpness": POSITIVE,
    "aligner.noise": NON_NEGATIVE,
    "feed-forward.z": NON_NEGATIVE,
    "augmentation.padding": at_least(0),
    "head.classes": at_least(1),  # where a model may have no classes, this head would have nothing to say
    "positions.base": POSITIVE,
    **dict.fromkeys(("optimizer.momentum", "optimizer.decay_rate", "optimizer.betas"), FRACTION),
    "optimizer.clip_threshold": POSITIVE,
    "optimizer.min_rms": NON_NEGATIVE,
}
MAY_BE_EMPTY = ("extra_layers",)


def validate(config: Any, prefix: str = "", **overrides: Rule) -> None:
    """Refuse a Config with a number that it cannot have; `group` stands before names ("train."), `own` before RULES."""
    for field in fields(config):
        name, value = field.name, getattr(config, field.name)
        path = prefix + name
        if is_dataclass(value):
            validate(value, f"{path}.")
            continue
        if isinstance(value, tuple) and not value and name not in MAY_BE_EMPTY and "str" not in str(field.type):
            raise BadInput(f"{path} is empty; at least one number is needed")
        rule = overrides.get(name) or FIELD_RULES.get(path) or FIELD_RULES.get(name) or at_least(1)
        _enforce(value, rule, path)
    _check_pad_id(config, prefix)


def validate_argument(value: Any, kind: str, key: str, what: str) -> None:
    """Refuse a number in the spec of a part, `what` to the reader, that no part of this kind can have."""
    numbers = _numbers(value)
    usual = FINITE if any(isinstance(number, float) for number in numbers) else at_least(1)
    _enforce(value, SPEC_RULES.get(f"{kind}.{key}") or FIELD_RULES.get(key) or usual, what)


def _enforce(value: Any, rule: Rule, what: str) -> None:
    if not all(rule.allows(number) for number in _numbers(value)):
        raise BadInput(f"{what} is {value}; {rule.message}")


def _numbers(value: Any) -> list[float]:
    """The numbers of a value: itself, or those that stand in it."""
    if isinstance(value, (list, tuple)):
        return [number for each in value for number in _numbers(each)]
    return [value] if isinstance(value, (int, float)) and not isinstance(value, bool) else []


def _check_pad_id(config: Any, prefix: str) -> None:
    """The token of padding has a row in a table of embeddings, so it must be one of them."""
    pad, vocab = getattr(config, "pad", None), getattr(config, "vocab", None)
    if pad is not None and vocab and pad >= vocab:
        raise BadInput(f"{prefix}pad is {pad}; of {vocab} tokens the last is {vocab - 1}")

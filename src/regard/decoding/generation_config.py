"""How a text is to be written, and what is known of one that was."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

from regard.core.errors import BadInput, UnknownName, did_you_mean
from regard.decoding.sampling import Sampler, validate_seed


@dataclass(frozen=True)
class GenerationConfig:
    """How a text is written on."""

    max_new_tokens: int = 200  # at most so many more
    temperature: float = 1.0  # 0: always the likeliest token
    top_k: int = 0  # draw among so many likeliest tokens; 0: all
    top_p: float = 1.0  # draw among the likeliest that fill this share of the probability
    min_p: float = 0.0  # draw among those at least so likely as this share of the likeliest
    repetition_penalty: float = 1.0  # above 1, what the text holds already is less likely
    stop: Sequence[str] = ()  # a text ends before any of these
    num_samples: int = 1  # texts for each prompt
    beam_size: int = 1  # above 1: look for the likeliest text, so many at a time
    length_penalty: float = 1.0  # of beams
    slide: bool = False  # let the oldest tokens go where a text outgrows the model's positions
    seed: int = 0

    def __post_init__(self) -> None:
        if self.max_new_tokens < 1 or self.num_samples < 1 or self.beam_size < 1:
            raise BadInput(
                f"{self.max_new_tokens} tokens, {self.num_samples} samples and {self.beam_size} beams: each must be 1 or more"
            )
        validate_seed(self.seed)
        if isinstance(self.stop, str):
            raise BadInput("give a list of stop strings, not a single one")
        if "" in self.stop:
            raise BadInput("a stop string is empty; leave it out, or say what the text is to end before")
        if not math.isfinite(self.length_penalty):
            raise BadInput(f"the length penalty is {self.length_penalty}; give a number such as 1 or 0.6")
        if self.length_penalty != 1 and self.beam_size == 1:
            raise BadInput("a length penalty is about beams; give 2 beams or more, or leave it out")
        if self.temperature:
            self.sampling()
        elif self.num_samples > 1 and self.beam_size == 1:
            raise BadInput(
                f"at temperature 0 there is one text for each prompt; {self.num_samples} need one above 0, or beams"
            )
        if self.beam_size > 1:
            drawn = {"stop": (), "repetition_penalty": 1.0, "slide": False, "top_k": 0, "top_p": 1.0, "min_p": 0.0}
            if other := [name for name, none in drawn.items() if getattr(self, name) != none]:
                raise BadInput(f"{other[0]} is for texts written token by token; it does not go with beams")
            if self.num_samples > self.beam_size:
                raise BadInput(
                    f"{self.num_samples} texts for each prompt need at least as many beams, not {self.beam_size}"
                )

    def sampling(self) -> Sampler | None:
        """How tokens are drawn; None: the likeliest."""
        if not self.temperature:
            return None
        return Sampler(self.temperature, self.top_k, self.top_p, self.min_p)


@dataclass(frozen=True)
class GeneratedText:
    """What follows a prompt: its text and tokens, its mean log-probability, and why it ends."""

    text: str
    tokens: list[int]
    score: float
    finish_reason: (
        str  # "end" (the model ended it), "stop" (a stop string), "length" (as many tokens as were asked for)
    )


def make_generation_config(max_new_tokens: int, how: dict[str, Any]) -> GenerationConfig:
    """The settings of these names; an unknown one offers the nearest."""
    known = {field.name for field in fields(GenerationConfig)}
    for name in how:
        if name not in known:
            raise UnknownName(f"writing has no setting '{name}'; {did_you_mean(name, known)}")
    return GenerationConfig(max_new_tokens, **how)

"""Options of text generation, and its result."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

from regard.core.errors import BadInput, UnknownName, did_you_mean
from regard.decoding.sampling import Sampler, validate_seed


@dataclass(frozen=True)
class GenerationConfig:
    """Options of text generation."""

    max_new_tokens: int = 200  # most tokens to generate
    temperature: float = 1.0  # 0: always the most likely token
    top_k: int = 0  # sample from this many most likely tokens; 0: all
    top_p: float = 1.0  # sample from the most likely tokens that make up this probability
    min_p: float = 0.0  # sample from tokens with at least this fraction of the highest probability
    repetition_penalty: float = 1.0  # above 1, tokens that are in the text already are less likely
    stop: Sequence[str] = ()  # generation ends before any of these strings
    num_samples: int = 1  # outputs per prompt
    beam_size: int = 1  # above 1: beam search
    length_penalty: float = 1.0  # exponent of the length in the score of a beam
    slide: bool = False  # drop the oldest tokens where a text outgrows the model's positions
    seed: int = 0

    def __post_init__(self) -> None:
        if self.max_new_tokens < 1 or self.num_samples < 1 or self.beam_size < 1:
            raise BadInput(
                f"max_new_tokens={self.max_new_tokens}, num_samples={self.num_samples}, beam_size={self.beam_size}: "
                "each must be 1 or more"
            )
        validate_seed(self.seed)
        if isinstance(self.stop, str):
            raise BadInput("stop must be a list of strings, not a single string")
        if "" in self.stop:
            raise BadInput("a stop string is empty; leave it out")
        if not math.isfinite(self.length_penalty):
            raise BadInput(f"length_penalty must be a finite number such as 1 or 0.6, got {self.length_penalty}")
        if self.length_penalty != 1 and self.beam_size == 1:
            raise BadInput("length_penalty needs beam search; give beam_size=2 or more, or leave it out")
        if self.temperature:
            self.sampling()
        elif self.num_samples > 1 and self.beam_size == 1:
            raise BadInput(
                f"at temperature 0 all samples are the same; num_samples={self.num_samples} needs a temperature above "
                "0, or beam search"
            )
        if self.beam_size > 1:
            drawn = {"stop": (), "repetition_penalty": 1.0, "slide": False, "top_k": 0, "top_p": 1.0, "min_p": 0.0}
            if other := [name for name, none in drawn.items() if getattr(self, name) != none]:
                raise BadInput(f"{other[0]} does not work with beam search; leave it out, or set beam_size=1")
            if self.num_samples > self.beam_size:
                raise BadInput(f"num_samples must be at most beam_size ({self.beam_size}), got {self.num_samples}")

    def sampling(self) -> Sampler | None:
        """Return the sampler; None for greedy search."""
        if not self.temperature:
            return None
        return Sampler(self.temperature, self.top_k, self.top_p, self.min_p)


@dataclass(frozen=True)
class GeneratedText:
    """Generated text with its tokens, its mean log-probability, and why it ended."""

    text: str
    tokens: list[int]
    score: float
    finish_reason: str  # "end" (the model's eos), "stop" (a stop string), "length" (max_new_tokens)


def make_generation_config(max_new_tokens: int, options: dict[str, Any]) -> GenerationConfig:
    """Build the config from keyword arguments; an unknown name raises with the nearest known one."""
    known = {field.name for field in fields(GenerationConfig)}
    for name in options:
        if name not in known:
            raise UnknownName(f"text generation has no option '{name}'; {did_you_mean(name, known)}")
    return GenerationConfig(max_new_tokens, **options)

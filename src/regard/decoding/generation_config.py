"""GenerationConfig: how a model writes text. Beam search, sampling, penalties and lengths, declared once.

    search      beam search with `beam_size` hypotheses (1 is greedy), in `groups` that avoid one another's tokens
    sample      tokens are sampled instead; `temperature`, `top_k`, `top_p`, `min_p` (decoding.sampling)

A predictor uses this class, or a subclass that changes defaults, as its `options`; what its model cannot do it refuses
with the reason (`refuse`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Literal

from regard.core.config import field
from regard.core.errors import BadInput, Unsupported
from regard.core.validation import validate
from regard.decoding.seed import MAX_SEED, MIN_SEED, validate_seed

if TYPE_CHECKING:
    from regard.decoding.sampling import Sampler

SEARCH, SAMPLING = "Search", "Sampling"  # groups of options
_BEAM_SEARCH = ("length_penalty", "early_stopping", "groups", "diversity")


@dataclass(frozen=True)
class GenerationConfig:
    """Options of text generation."""

    beam_size: int = field(
        4, low=1, high=256, help="hypotheses that beam search keeps; 1 is greedy search", group=SEARCH
    )
    num_candidates: int = field(1, low=1, high=1024, help="texts to return for each input, best first")
    length_penalty: float = field(
        1.0, help="beam search divides scores by length to this power; more is longer", group=SEARCH
    )
    groups: int = field(
        1, low=1, help="groups of beams that avoid one another's tokens (diverse beam search)", group=SEARCH
    )
    diversity: float = field(0.5, low=0, help="cost of a token for each time an earlier group chose it", group=SEARCH)
    prefix: str = field("", help="every text begins with this", group=SEARCH)
    must: tuple[str, ...] = field((), help="phrases that every text contains", group=SEARCH)
    sample: bool = field(False, help="sample from the model instead of searching", group=SAMPLING)
    temperature: float = field(
        1.0, low=0, help="below 1 safer, above 1 more varied; 0 takes the most likely token", group=SAMPLING
    )
    top_k: int = field(0, low=0, help="sample from this many most likely tokens; 0: all", group=SAMPLING)
    top_p: float = field(
        1.0, above=0, high=1, help="sample from the most likely tokens of this total probability", group=SAMPLING
    )
    min_p: float = field(
        0.0, low=0, high=1, help="sample from tokens at least this share as likely as the likeliest", group=SAMPLING
    )
    early_stopping: bool | Literal["never"] = field(
        False,
        help="beam search ends when beam_size texts are finished (true), when no text of the present length would be "
        "better (false), or of any length (never)",
        group=SEARCH,
    )
    no_repeat_ngram_size: int = field(
        0, low=0, help="no sequence of so many tokens occurs twice in a text; 0: all may", group=SEARCH
    )
    min_new_tokens: int = field(0, low=0, help="fewest tokens of a text")
    repetition_penalty: float = field(
        1.0, above=0, help="above 1, tokens that are in the text already are less likely", group=SAMPLING
    )
    stop: tuple[str, ...] = field((), help="the text ends before any of these strings")
    max_new_tokens: int | None = field(None, low=1, help="most tokens of a text; by default what the model allows")
    slide: bool = field(False, help="drop the oldest tokens where a text outgrows the model's positions")
    seed: int = field(0, low=MIN_SEED, high=MAX_SEED, help="seed of the samples", group=SAMPLING)

    def __post_init__(self) -> None:
        validate_seed(self.seed)
        for name in ("must", "stop"):
            value = getattr(self, name)
            if isinstance(value, str):
                raise BadInput(f"{name} must be a list of strings, not a single string")
            if "" in value:
                raise BadInput(f"a string of {name} is empty; leave it out")
            object.__setattr__(self, name, tuple(value))
        validate(self)
        if self.must and (self.prefix or self.groups > 1 or self.sample):
            raise BadInput("must works with plain beam search only; leave out prefix, groups and sample")
        if self.must and (self.no_repeat_ngram_size or self.min_new_tokens or self.early_stopping):
            raise BadInput("must works without no_repeat_ngram_size, min_new_tokens and early_stopping; leave them out")
        if self.sample and not self.temperature and self.num_candidates > 1:
            raise BadInput(
                f"at temperature 0 all samples are the same; num_candidates={self.num_candidates} needs a temperature "
                "above 0, or beam search"
            )
        if not self.sample and self.num_candidates > self.beam_size:
            raise BadInput(f"num_candidates must be at most beam_size ({self.beam_size}), got {self.num_candidates}")
        if self.beam_size % self.groups and not self.sample:
            raise BadInput(f"beam_size must be a multiple of groups ({self.groups}), got {self.beam_size}")

    @property
    def is_random(self) -> bool:
        """Whether tokens are sampled, so that a text depends on the seed."""
        return self.sample and self.temperature > 0

    def sampler(self) -> Sampler | None:
        """Return the sampler; None for greedy search."""
        from regard.decoding.sampling import Sampler

        return Sampler(self.temperature, self.top_k, self.top_p, self.min_p) if self.is_random else None

    def restrictions(self) -> dict[str, int]:
        """Return the arguments of a search that restrict which tokens come next."""
        return {"no_repeat_ngram_size": self.no_repeat_ngram_size, "min_new_tokens": self.min_new_tokens}

    @classmethod
    def compatible_defaults(cls, defaults: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the defaults of a predictor that go with the options that were given: search, or sampling."""
        beams, sampling = given.get("beam_size"), {"temperature", "top_k", "top_p", "min_p"}
        dropped: set[str] = set()
        if given.get("sample") or (cls.sample and given.keys() & (sampling | {"seed"})):
            dropped = {"sample", "beam_size", *_BEAM_SEARCH}
        elif isinstance(beams, int):
            dropped = {*_BEAM_SEARCH} if beams == 1 else {"sample", *sampling}
            dropped |= {"repetition_penalty"} if cls.sample and beams > 1 else set()
        return {name: value for name, value in defaults.items() if name not in dropped}

    def refuse(self, reasons: Mapping[str, str]) -> None:
        """Raise `Unsupported` if an option that has a reason (name -> why) is not left at its default."""
        for option in fields(self):
            if option.name in reasons and getattr(self, option.name) != option.default:
                raise Unsupported(f"{option.name} {reasons[option.name]}; leave it out")

    def refuse_unused(self, given: Collection[str]) -> None:
        """Raise `BadInput` if an option that was given has no effect beside the others."""
        if self.sample:
            unused = dict.fromkeys(("groups", "diversity", "length_penalty"), "is for beam search, not for sampling; ")
            unused |= {"beam_size": "is for beam search, not for sampling; "} if self.beam_size > 1 else {}
        else:
            sampling = "" if type(self).sample else "add `sample`, or "  # a class that samples was given beams
            unused = dict.fromkeys(("temperature", "top_k", "top_p", "min_p", "seed"), f"is for sampling; {sampling}")
            unused |= {"diversity": "needs `groups` of beams; "} if self.groups == 1 else {}
            unused |= {"length_penalty": "needs beam search; "} if self.beam_size == 1 else {}
        for name, why in unused.items():
            if name in given:
                raise BadInput(f"{name} {why}leave it out")


@dataclass(frozen=True)
class ContinuationConfig(GenerationConfig):
    """Options of a language model: it samples, unless `temperature` is 0 or `beam_size` is above 1."""

    beam_size: int = field(
        1, low=1, high=256, help="above 1: beam search with so many hypotheses instead of sampling", group=SEARCH
    )
    sample: bool = field(True, help="sample tokens; otherwise take the most likely one", group=SAMPLING)
    max_new_tokens: int = field(200, low=1, help="most tokens of a text")

    def __post_init__(self) -> None:
        object.__setattr__(self, "sample", self.sample and self.beam_size <= 1)
        super().__post_init__()
        if self.beam_size == 1:
            if self.length_penalty != 1:
                raise BadInput("length_penalty needs beam search; give beam_size=2 or more, or leave it out")
            return
        sampling = {"stop": (), "repetition_penalty": 1.0, "slide": False, "top_k": 0, "top_p": 1.0, "min_p": 0.0}
        if other := [name for name, default in sampling.items() if getattr(self, name) != default]:
            raise BadInput(f"{other[0]} does not work with beam search; leave it out, or set beam_size=1")

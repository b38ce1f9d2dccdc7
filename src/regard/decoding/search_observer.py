"""Looking on while something is searched for.

    with observed(tree):                               # decoding.search_tree writes down all that happens
        translate(["A dog runs."], beams=4)

A search asks once, when it is made, whether somebody looks on, and then says after every step what it had to choose
from and what it chose: the very tensors it went on with. Where nobody does, nothing is made and nothing is told. A
search that is looked on is never replayed from a recording (runtime.cuda_graph), since a replay tells nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NamedTuple

from regard.core.shapes import Bool, Float, Int, Tensor

if TYPE_CHECKING:
    from regard.decoding.search_loop import SearchLoop


class BeamCandidates(NamedTuple):
    """The C best continuations of one group of beams, best first, and which of them go on."""

    total: Float[Tensor, "B C"]  # log-probability of all that was written
    rank: Float[Tensor, "B C"]  # what they are ranked by: the total, less what diversity costs
    word: Int[Tensor, "B C"]
    parent: Int[Tensor, "B C"]  # the beam that each continues
    kept: Int[Tensor, "B k"]  # places among the C of those that become the group's new beams, in their order


class SampledTokens(NamedTuple):
    """One word for each of the K outputs of an input, and what it was chosen from."""

    p: Float[Tensor, "B K V"]  # log-probabilities, as the model gives them
    logits: Float[Tensor, "B K V"]  # what was chosen from: what was said before penalised, a forced word held
    uniform: Float[Tensor, "B K"] | None  # the random numbers; None: the likeliest was taken
    word: Int[Tensor, "B K"]
    over: Bool[Tensor, "B K"]  # was over before this step


class SearchObserver:
    """Who looks on; each method does nothing until it is given something to do."""

    def on_start(self, search: SearchLoop) -> None:
        """A search is about to take its first step."""

    def on_beam_step(self, search: SearchLoop, offered: Sequence[BeamCandidates]) -> None:
        """Beams have grown by a word: what each group was offered; the search is already at the next step."""

    def on_sample_step(self, search: SearchLoop, drawn: SampledTokens) -> None:
        """Every output has got a word; the search is already at the next step."""

    def on_ctc_greedy(self, labels: Int[Tensor, "B T"], kept: Bool[Tensor, "B T"]) -> None:
        """The likeliest label of every frame, and which of them were written down (CTC, greedy)."""

    def on_ctc_frame(self, prefixes: Sequence[tuple[tuple[int, ...], Any]], beam_size: int) -> None:
        """A frame was heard: all prefixes with their probabilities, best first, of which `beams` go on (CTC, beam)."""


_current_observer: ContextVar[SearchObserver | None] = ContextVar("looking_on", default=None)


def current_observer() -> SearchObserver | None:
    """Who looks on here, if anybody does."""
    return _current_observer.get()


@contextmanager
def observe_search(by: SearchObserver) -> Iterator[None]:
    """Searches that are made inside the block are looked on."""
    before = _current_observer.set(by)
    try:
        yield
    finally:
        _current_observer.reset(before)

"""Observers of a search.

    with observe_search(tree):                         # decoding.search_tree records every step
        translate(["A dog runs."], beam_size=4)

A search looks up its observer once, when it is made, and then reports after every step the candidates and the choice:
the very tensors it continues with. Without an observer nothing is computed for it. An observed search is never replayed
from a CUDA graph (runtime.cuda_graph), since a replay runs no Python.
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
    """The C best continuations of one group of beams, best first, and which of them become beams."""

    total: Float[Tensor, "B C"]  # log-probability of the whole output
    rank: Float[Tensor, "B C"]  # the total less the diversity cost; candidates are ranked by it
    token: Int[Tensor, "B C"]
    parent: Int[Tensor, "B C"]  # the beam that each one continues
    kept: Int[Tensor, "B k"]  # indices among the C of the group's new beams, in order


class SampledTokens(NamedTuple):
    """One token for each of the K outputs of an input, and what it was chosen from."""

    p: Float[Tensor, "B K V"]  # log-probabilities of the model
    logits: Float[Tensor, "B K V"]  # after the repetition penalty and the forced prefix
    uniform: Float[Tensor, "B K"] | None  # the random numbers; None: greedy
    token: Int[Tensor, "B K"]
    over: Bool[Tensor, "B K"]  # the output was over before this step


class SearchObserver:
    """Base class of observers; its methods do nothing. When they are called the search is already at the next step."""

    def on_start(self, search: SearchLoop) -> None:
        """Called before the first step of a search."""

    def on_beam_step(self, search: SearchLoop, offered: Sequence[BeamCandidates]) -> None:
        """Called after a step of beam search, with the candidates of each group."""

    def on_sample_step(self, search: SearchLoop, drawn: SampledTokens) -> None:
        """Called after a step of sampling or greedy search."""

    def on_ctc_greedy(self, labels: Int[Tensor, "B T"], kept: Bool[Tensor, "B T"]) -> None:
        """Called with the most likely label of every frame, and which of them are in the output."""

    def on_ctc_frame(self, prefixes: Sequence[tuple[tuple[int, ...], Any]], beam_size: int) -> None:
        """Called after a frame of CTC beam search with all prefixes, best first; `beam_size` of them go on."""


_current_observer: ContextVar[SearchObserver | None] = ContextVar("search_observer", default=None)


def current_observer() -> SearchObserver | None:
    """Return the observer of searches made here, or None."""
    return _current_observer.get()


@contextmanager
def observe_search(observer: SearchObserver) -> Iterator[None]:
    """Let `observer` observe the searches made inside the block."""
    before = _current_observer.set(observer)
    try:
        yield
    finally:
        _current_observer.reset(before)

"""Decoding: greedy, beam, sampling, constrained and CTC search over every model that can step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from regard.core.lazy_exports import lazy_exports

_MODULES = {
    "beam_search": ("greedy_search", "sample"),
    "constrained_search": ("constrained_beam_search",),
    "ctc_search": ("CTCHypothesis", "ctc_beam_search", "ctc_decode", "ctc_greedy_search"),
    "generation_config": ("GenerationConfig",),
    "incremental_detokenizer": ("IncrementalDetokenizer",),
    "joint_search": ("CTCPrefixScorer", "JointDecodable"),
    "ngram_lm": ("NGramLM",),
    "online_decoder": ("OnlineDecoder",),
    "sample_search": ("SampleSearch",),
    "sampling": ("Sampler",),
    "search_loop": ("Hypothesis", "SearchLoop"),
    "search_observer": ("SearchObserver", "observe_search"),
    "search_tree": ("SearchNode", "SearchTree"),
}
if TYPE_CHECKING:
    from regard.decoding._exports import *
else:
    __getattr__, __dir__ = lazy_exports(__name__, _MODULES)

"""Trace of a decoding search: every step with the candidates that were offered, kept and pruned.

    shown = trace_search(regard.load("en-de"), {"text": "A dog runs."}, method="beam", beam_size=4)
    shown["hypotheses"][0]["text"]                          # the very translation that a call gives
    shown["steps"][3]["nodes"]                         # what was offered at the fourth word, what was pruned and why

    how        greedy, beam, diverse, sample: of anything that writes one word after another, whatever it reads
               for a model that labels frames (CTC): greedy or beam, with the lattice of all methods of saying the text

The predictor runs its own search while a `SearchTree` observes it (decoding.search_observer). The result is plain data,
ready to be sent as JSON.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, NamedTuple

from regard.attention.capture.watch import watch
from regard.core.errors import BadInput, UnknownName, Unsupported, did_you_mean
from regard.decoding.search_observer import observe_search
from regard.decoding.search_tree import SearchNode, SearchStep, SearchTree
from regard.tasks.audio.ctc_speech_recognition import CTCSpeechRecognizer
from regard.tasks.audio.speech_base import SpeechRecognizerBase, is_silent
from regard.tasks.audio.speech_recognition import SpeechRecognizer
from regard.tasks.text.language_modeling import TextGenerator
from regard.tasks.text.pronunciation import Pronouncer
from regard.tasks.text.text_to_text import TextToTextGenerator
from regard.tasks.text.translation import Translator

MAX_BEAMS, MAX_TOKENS, MAX_SOURCE_TOKENS = 8, 128, 96  # more can be searched, but not be looked at


@dataclass(frozen=True)
class SearchTraceConfig:
    """Settings of the search; a method ignores the settings that it does not have."""

    method: str = "beam"  # greedy, beam, diverse or sample
    beam_size: int = 4
    groups: int = 2  # of diverse beams
    diversity: float = 0.5
    length_penalty: float = 1.0
    num_candidates: int = 1
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int = 0
    max_new_tokens: int = 40  # of a text that is written on
    prefix: str = ""  # of a translation

    def __post_init__(self) -> None:
        for name, most in {"beam_size": MAX_BEAMS, "num_candidates": MAX_BEAMS, "max_new_tokens": MAX_TOKENS}.items():
            if not 1 <= getattr(self, name) <= most:
                raise BadInput(f"{name} is {getattr(self, name)}; the search view shows 1 to {most}")
        if self.method == "diverse" and (self.groups < 1 or self.beam_size % self.groups):
            raise BadInput(f"{self.groups} groups do not divide {self.beam_size} beams")


class SearchTracer(NamedTuple):
    """How a class of predictors is traced: its search methods, and the function that runs one."""

    methods: tuple[str, ...]
    run: Callable[[Any, Mapping[str, Any], SearchTraceConfig], dict[str, Any]]


def search_methods(predictor: Any) -> list[str]:
    """Return the search methods of a predictor; none where it does not search."""
    play = _tracer(predictor)
    return [] if play is None else list(play.methods)


def trace_search(predictor: Any, inputs: Mapping[str, Any], **search: Any) -> dict[str, Any]:
    """Run one search and return its trace.

    `inputs` holds the inputs as for an inspection, {"text"} or {"audio"}; `search` the fields of `SearchTraceConfig`.
    """
    known = {field.name for field in fields(SearchTraceConfig)}
    for name in search:
        if name not in known:
            raise UnknownName(f"the search view has no setting '{name}'; {did_you_mean(name, known)}")
    own = _tracer(predictor)
    if own is None:
        raise Unsupported(f"{type(predictor).__name__} does not search, so there is no search to show.")
    config = SearchTraceConfig(**{"method": own.methods[0]} | search)
    if config.method not in own.methods:
        raise BadInput(f"'{config.method}' cannot be played here; this model offers {', '.join(own.methods)}")
    return own.run(predictor, inputs, config)


def _tracer(predictor: Any) -> SearchTracer | None:
    return next((play for kind, play in _TRACERS.items() if isinstance(predictor, kind)), None)


# -- who searches ------------------------------------------------------------------------------------------------------


def _trace_translation(predictor: Translator, inputs: Mapping[str, Any], config: SearchTraceConfig) -> dict[str, Any]:
    line = _text(inputs)
    parts = predictor._parts([line], [1])[0]
    if not parts:
        raise BadInput("The text is empty.")
    if len(parts) > 1 or len(parts[0]) > MAX_SOURCE_TOKENS:
        raise BadInput(f"the text has more than {MAX_SOURCE_TOKENS} tokens, too many to be followed; shorten it")
    source = predictor.text.pieces([*parts[0], predictor.text.eos])
    asked: dict[str, Any] = {"beam_size": 1 if config.method == "greedy" else config.beam_size, "prefix": config.prefix}
    if config.method in ("beam", "diverse"):
        asked |= {"num_candidates": config.beam_size, "length_penalty": config.length_penalty}
    if config.method == "diverse":
        asked |= {"groups": config.groups, "diversity": config.diversity}
    if config.method == "sample":
        asked |= {"sample": True, "num_candidates": config.num_candidates, **_sampling_options(config)}
    with watch(predictor.model) as seen:
        tree = SearchTree(seen)
        with observe_search(tree):
            predictor.candidates([line], **asked)
    return _tree_as_dict(tree, config, source, predictor.text.pieces, predictor._decode)


def _trace_generation(predictor: TextGenerator, inputs: Mapping[str, Any], config: SearchTraceConfig) -> dict[str, Any]:
    (ids,) = predictor._encoded([_text(inputs)])
    if len(ids) > MAX_SOURCE_TOKENS:
        raise BadInput(f"the prompt has {len(ids)} tokens; at most {MAX_SOURCE_TOKENS} can be followed")
    asked: dict[str, Any] = {"temperature": 0.0}
    if config.method == "beam":
        asked = {
            "beam_size": config.beam_size,
            "num_candidates": config.beam_size,
            "length_penalty": config.length_penalty if config.beam_size > 1 else 1,
        }
    if config.method == "sample":
        asked = {"num_candidates": config.num_candidates, **_sampling_options(config)}
    with watch(predictor.model) as seen:
        tree = SearchTree(seen, prompt=len(ids))
        with observe_search(tree):
            predictor.write([ids], max_new_tokens=config.max_new_tokens, **asked)

    def decode(rows: Sequence[Sequence[int]]) -> list[str]:
        return [predictor.sampler.decode(ids, row) for row in rows]

    return _tree_as_dict(tree, config, predictor.text.pieces(ids), predictor.text.pieces, decode)


def _trace_recognition(
    predictor: SpeechRecognizer, inputs: Mapping[str, Any], config: SearchTraceConfig
) -> dict[str, Any]:
    asked: dict[str, Any] = {"length_penalty": config.length_penalty} if config.method == "beam" else {}
    audio = _audio(predictor, inputs)
    with watch(predictor.model) as seen:
        tree = SearchTree(seen)
        with observe_search(tree):
            predictor(audio, beam_size=config.beam_size if asked else 1, **asked)
    columns = tree.maps[0].weights.shape[-1] if tree.maps else 0
    seconds = [f"{predictor.seconds * n:.2f}" for n in range(columns)]
    return _tree_as_dict(tree, config, seconds, predictor.text.pieces, predictor.text.decode)


def _trace_ctc(predictor: CTCSpeechRecognizer, inputs: Mapping[str, Any], config: SearchTraceConfig) -> dict[str, Any]:
    from regard.interpret.ctc_trace import trace_ctc

    audio = _audio(predictor, inputs)
    return {
        "search": asdict(config),
        **trace_ctc(predictor, audio, 1 if config.method == "greedy" else config.beam_size),
    }


_TRACERS: dict[type, SearchTracer] = {
    Pronouncer: SearchTracer(("beam", "greedy", "diverse", "sample"), _trace_translation),
    TextToTextGenerator: SearchTracer(("beam", "greedy", "diverse", "sample"), _trace_translation),
    Translator: SearchTracer(("beam", "greedy", "diverse", "sample"), _trace_translation),
    TextGenerator: SearchTracer(("sample", "greedy", "beam"), _trace_generation),
    CTCSpeechRecognizer: SearchTracer(("beam", "greedy"), _trace_ctc),
    SpeechRecognizer: SearchTracer(("beam", "greedy"), _trace_recognition),
}


def _sampling_options(config: SearchTraceConfig) -> dict[str, Any]:
    return {name: getattr(config, name) for name in ("temperature", "top_k", "top_p", "min_p", "seed")}


def _text(inputs: Mapping[str, Any]) -> str:
    text = inputs.get("text")
    if not isinstance(text, str):
        raise BadInput("give a text to search for: {'text': ...}")
    return text


def _audio(predictor: SpeechRecognizerBase, inputs: Mapping[str, Any]) -> Any:
    """Return the recording; refuse one without speech."""
    audio = inputs.get("audio")
    if audio is None:
        raise BadInput("give a recording to search in: {'audio': ...}")
    if is_silent(predictor.frames(audio)):
        raise BadInput("There is no speech in this recording, so there is no search to show.")
    return audio


# -- as plain values ---------------------------------------------------------------------------------------------------


def _tree_as_dict(
    tree: SearchTree,
    config: SearchTraceConfig,
    source: Sequence[str],
    pieces: Callable[[Sequence[int]], list[str]],
    decode: Callable[[Sequence[Sequence[int]]], list[str]],
) -> dict[str, Any]:
    """A tree as plain values, its words by their names."""
    shown = [node for node in tree.nodes if node.status != "pruned"]
    texts = dict(zip([node.id for node in shown], decode([list(node.path) for node in shown]), strict=True))
    names = dict(zip([node.id for node in tree.nodes[1:]], pieces([n.token for n in tree.nodes[1:]]), strict=True))
    found = [
        {"node": node.id, "text": texts[node.id], "finished": one.finished, "path": _node_path(tree, node),
         "score": _round(one.score), "total_log_prob": _round(one.log_probability)}
        for one, node in zip(tree.hypotheses, tree.ends(), strict=True)
    ]  # fmt: skip
    return {
        "kind": "tree",
        "search": asdict(config),
        "source": list(source),
        "maps": [trace.name for trace in tree.maps],
        "attention_kind": tree.maps[0].kind
        if tree.maps
        else "",  # at the source (cross, align) or back at its own text (self)
        "steps": [_step_as_dict(step, names, texts) for step in tree.steps],
        "hypotheses": found,
    }


def _node_path(tree: SearchTree, node: SearchNode) -> list[int]:
    """The nodes from the beginning to this one."""
    way = [node.id]
    while (node := tree.nodes[node.parent]).id:
        way.insert(0, node.id)
    return way


def _step_as_dict(step: SearchStep, names: Mapping[int, str], texts: Mapping[int, str]) -> dict[str, Any]:
    return {
        "nodes": [_node_as_dict(node, names[node.id], texts.get(node.id)) for node in step.nodes],
        "outputs": [{"node": o.node, "score": _round(o.score), "finished": o.finished} for o in step.outputs],
        "attention": [[[round(w, 4) for w in row] for row in rows] for rows in step.attention],
        "draws": [{name: _round(value) for name, value in asdict(draw).items()} for draw in step.draws],
        "stopped": step.stopped,
    }


def _node_as_dict(node: SearchNode, name: str, text: str | None) -> dict[str, Any]:
    plain = {"id": node.id, "parent": node.parent, "token": node.token, "piece": name, "status": node.status}
    plain |= {
        "log_prob": _round(node.log_prob),
        "total_log_prob": _round(node.total_log_prob),
        "score": _round(node.score),
    }
    plain |= {"beam": node.beam, "group": node.group, "reason": node.reason, "pruned_at": node.pruned_at}
    for more, value in {"text": text, "rank": node.rank, "share": node.share}.items():
        if value is not None:
            plain[more] = _round(value) if isinstance(value, float) else value
    return plain


def _round(value: Any) -> Any:
    return round(value, 5) if isinstance(value, float) else value

"""The decoding theatre: a search as it ran, step by step, to be looked at.

    shown = play(regard.load("en-de"), {"text": "A dog runs."}, how="beam", beams=4)
    shown["found"][0]["text"]                          # the very translation that a call gives
    shown["steps"][3]["nodes"]                         # what was offered at the fourth word, what was pruned and why

    how        greedy, beam, diverse, sample: of anything that writes one word after another, whatever it reads
               for a model that labels frames (CTC): greedy or beam, with the lattice of all ways of saying the text

The predictor runs its own search while a `Tree` looks on (tasks.observer). Everything that is given back is plain: it
goes to a browser as JSON.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, NamedTuple

from regard.attention.capture import watch
from regard.core.errors import BadInput, UnknownName, Unsupported, nearest
from regard.tasks.hearer import Hearer
from regard.tasks.observer import observed
from regard.tasks.pronouncer import Pronouncer
from regard.tasks.text_writer import TextToText
from regard.tasks.transcriber import Sounds, Transcriber, still
from regard.tasks.translator import Translator
from regard.tasks.tree import Node, Step, Tree
from regard.tasks.writer import Writer

MOST_BEAMS, MOST_TOKENS, MOST_SOURCE = 8, 128, 96  # more can be searched, but not be looked at


@dataclass(frozen=True)
class Staging:
    """What is played: how the search goes. What a way of searching does not use is left alone."""

    how: str = "beam"  # greedy, beam, diverse or sample
    beams: int = 4
    groups: int = 2  # of diverse beams
    diversity: float = 0.5
    length_penalty: float = 1.0
    samples: int = 1
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int = 0
    tokens: int = 40  # of a text that is written on
    prefix: str = ""  # of a translation

    def __post_init__(self) -> None:
        for name, most in {"beams": MOST_BEAMS, "samples": MOST_BEAMS, "tokens": MOST_TOKENS}.items():
            if not 1 <= getattr(self, name) <= most:
                raise BadInput(f"{name} is {getattr(self, name)}; the theatre shows 1 to {most}")
        if self.how == "diverse" and (self.groups < 1 or self.beams % self.groups):
            raise BadInput(f"{self.groups} groups do not divide {self.beams} beams")


class Play(NamedTuple):
    """A predictor that searches: the ways it offers, and how it is run with a tree looking on."""

    ways: tuple[str, ...]
    run: Callable[[Any, Mapping[str, Any], Staging], dict[str, Any]]


def offers(predictor: Any) -> list[str]:
    """The ways of searching that can be played with this predictor; none where it does not search."""
    play = _play(predictor)
    return [] if play is None else list(play.ways)


def play(predictor: Any, given: Mapping[str, Any], **search: Any) -> dict[str, Any]:
    """One search as it ran. `given` as for a look: {"text"} or {"sound"}; `search` holds the fields of `Staging`."""
    known = {field.name for field in fields(Staging)}
    for name in search:
        if name not in known:
            raise UnknownName(f"the theatre has no setting '{name}'; {nearest(name, known)}")
    own = _play(predictor)
    if own is None:
        raise Unsupported(f"a {type(predictor).__name__} does not search for what it gives; there is nothing to play")
    staging = Staging(**{"how": own.ways[0]} | search)
    if staging.how not in own.ways:
        raise BadInput(f"'{staging.how}' cannot be played here; this model offers {', '.join(own.ways)}")
    return own.run(predictor, given, staging)


def _play(predictor: Any) -> Play | None:
    return next((play for kind, play in _PLAYS.items() if isinstance(predictor, kind)), None)


# -- who searches ------------------------------------------------------------------------------------------------------


def _translation(predictor: Translator, given: Mapping[str, Any], how: Staging) -> dict[str, Any]:
    line = _text(given)
    parts = predictor._parts([line], 1)[0]
    if not parts:
        raise BadInput("an empty line has nothing to search for")
    if len(parts) > 1 or len(parts[0]) > MOST_SOURCE:
        raise BadInput(f"the text has more than {MOST_SOURCE} tokens, too many to be followed; shorten it")
    source = predictor.text.pieces([*parts[0], predictor.text.eos])
    asked: dict[str, Any] = {"beams": 1 if how.how == "greedy" else how.beams, "prefix": how.prefix}
    if how.how in ("beam", "diverse"):
        asked |= {"nbest": how.beams, "length_penalty": how.length_penalty}
    if how.how == "diverse":
        asked |= {"groups": how.groups, "diversity": how.diversity}
    if how.how == "sample":
        asked |= {"sample": True, "nbest": how.samples, **_drawing(how)}
    with watch(predictor.model) as seen:
        tree = Tree(seen)
        with observed(tree):
            predictor.candidates([line], **asked)
    return _told(tree, how, source, predictor.text.pieces, predictor._decode)


def _writing(predictor: Writer, given: Mapping[str, Any], how: Staging) -> dict[str, Any]:
    (ids,) = predictor._encoded([_text(given)])
    if len(ids) > MOST_SOURCE:
        raise BadInput(f"the prompt has {len(ids)} tokens; at most {MOST_SOURCE} can be followed")
    asked: dict[str, Any] = {"temperature": 0.0}
    if how.how == "beam":
        asked = {"beams": how.beams, "samples": how.beams, "length_penalty": how.length_penalty if how.beams > 1 else 1}
    if how.how == "sample":
        asked = {"samples": how.samples, **_drawing(how)}
    with watch(predictor.model) as seen:
        tree = Tree(seen, prompt=len(ids))
        with observed(tree):
            predictor.write([ids], tokens=how.tokens, **asked)
    decode: Callable[[Sequence[Sequence[int]]], list[str]] = lambda rows: [predictor._text(ids, row) for row in rows]  # noqa: E731
    return _told(tree, how, predictor.text.pieces(ids), predictor.text.pieces, decode)


def _hearing(predictor: Hearer, given: Mapping[str, Any], how: Staging) -> dict[str, Any]:
    asked: dict[str, Any] = {"length_penalty": how.length_penalty} if how.how == "beam" else {}
    sound = _sound(predictor, given)
    with watch(predictor.model) as seen:
        tree = Tree(seen)
        with observed(tree):
            predictor([sound], beams=how.beams if asked else 1, **asked)
    columns = tree.maps[0].weights.shape[-1] if tree.maps else 0
    seconds = [f"{predictor.seconds * n:.2f}" for n in range(columns)]
    return _told(tree, how, seconds, predictor.text.pieces, predictor.text.decode)


def _frames(predictor: Transcriber, given: Mapping[str, Any], how: Staging) -> dict[str, Any]:
    from regard.tasks.lattice import heard

    sound = _sound(predictor, given)
    return {"search": asdict(how), **heard(predictor, sound, 1 if how.how == "greedy" else how.beams)}


_PLAYS: dict[type, Play] = {
    Pronouncer: Play(("beam", "greedy", "diverse", "sample"), _translation),
    TextToText: Play(("beam", "greedy", "diverse", "sample"), _translation),
    Translator: Play(("beam", "greedy", "diverse", "sample"), _translation),
    Writer: Play(("sample", "greedy", "beam"), _writing),
    Transcriber: Play(("beam", "greedy"), _frames),
    Hearer: Play(("beam", "greedy"), _hearing),
}


def _drawing(how: Staging) -> dict[str, Any]:
    return {name: getattr(how, name) for name in ("temperature", "top_k", "top_p", "min_p", "seed")}


def _text(given: Mapping[str, Any]) -> str:
    text = given.get("text")
    if not isinstance(text, str):
        raise BadInput("give a text to search for: {'text': ...}")
    return text


def _sound(predictor: Sounds, given: Mapping[str, Any]) -> Any:
    """A sound as the predictor reads it; one in which there is nothing is not searched in."""
    sound = given.get("sound")
    if sound is None:
        raise BadInput("give a sound to search in: {'sound': ...}")
    if still(*predictor.framed([sound])):
        raise BadInput("nothing is in this sound, so there is no search to follow; give one in which someone speaks")
    return sound


# -- as plain values ---------------------------------------------------------------------------------------------------


def _told(
    tree: Tree,
    how: Staging,
    source: Sequence[str],
    pieces: Callable[[Sequence[int]], list[str]],
    decode: Callable[[Sequence[Sequence[int]]], list[str]],
) -> dict[str, Any]:
    """A tree as plain values, its words by their names."""
    shown = [node for node in tree.nodes if node.fate != "pruned"]
    texts = dict(zip([node.id for node in shown], decode([list(node.path) for node in shown]), strict=True))
    names = dict(zip([node.id for node in tree.nodes[1:]], pieces([n.token for n in tree.nodes[1:]]), strict=True))
    found = [
        {"node": node.id, "text": texts[node.id], "score": _round(one.score), "total": _round(one.log_probability),
         "finished": one.finished, "way": _way(tree, node)}
        for one, node in zip(tree.found, tree.ends(), strict=True)
    ]  # fmt: skip
    return {
        "kind": "tree",
        "search": asdict(how),
        "source": list(source),
        "maps": [trace.name for trace in tree.maps],
        "looks": tree.maps[0].kind if tree.maps else "",  # at the source (cross, align) or back at its own text (self)
        "steps": [_step(step, names, texts) for step in tree.steps],
        "found": found,
    }


def _way(tree: Tree, node: Node) -> list[int]:
    """The nodes from the beginning to this one."""
    way = [node.id]
    while (node := tree.nodes[node.parent]).id:
        way.insert(0, node.id)
    return way


def _step(step: Step, names: Mapping[int, str], texts: Mapping[int, str]) -> dict[str, Any]:
    return {
        "nodes": [_node(node, names[node.id], texts.get(node.id)) for node in step.nodes],
        "outputs": [{"node": o.node, "score": _round(o.score), "finished": o.finished} for o in step.outputs],
        "looked": [[[round(w, 4) for w in row] for row in rows] for rows in step.looked],
        "draws": [{name: _round(value) for name, value in asdict(draw).items()} for draw in step.draws],
        "stopped": step.stopped,
    }


def _node(node: Node, name: str, text: str | None) -> dict[str, Any]:
    plain = {"id": node.id, "parent": node.parent, "token": node.token, "piece": name, "fate": node.fate}
    plain |= {"gain": _round(node.gain), "total": _round(node.total), "score": _round(node.score)}
    plain |= {"beam": node.beam, "group": node.group, "why": node.why, "lost": node.lost}
    for more, value in {"text": text, "rank": node.rank, "share": node.share}.items():
        if value is not None:
            plain[more] = _round(value) if isinstance(value, float) else value
    return plain


def _round(value: Any) -> Any:
    return round(value, 5) if isinstance(value, float) else value

"""One input that a model has read, kept to be asked about: which tokens there are and where, and any part of any map.

    seen = look(regard.load("en-de"), {"text": "Two dogs are playing in the snow."})
    seen.about()                                            tokens with their places, the output, the list of maps
    seen.sample("decoder.blocks.2.cross")                   a thumbnail of every head
    seen.row("decoder.blocks.2.cross", head=3, query=1)     one exact row; head -1 is the mean of all heads
    seen.rollout(1), seen.relevance(1)                      through all layers; what spoke for a word

No matrix is stored: what the maps are made of is held (attention.kept), and a row is computed when it is asked for. A
thumbnail takes evenly spread rows, and of each bin of columns the largest weight, so that a narrow line is not lost.

    raw             the weights as they are applied
    without_sink    without the keys on which a head rests when it has nothing to look for: those that a quarter
                    of the queries see and to which they give a third of their weight, as a mean, and twice an equal
                    share. The others are scaled so that a row sums to what it did.
    value           weights times the length of what they move: the value behind the output projection

Every task has a file in tasks/looks that says how its input is read and what the two sides of its maps are.

Xiao, Tian, Chen, Han, Lewis: Efficient Streaming Language Models with Attention Sinks. ICLR 2024. arXiv:2309.17453
Kobayashi, Kuribayashi, Yokoi, Inui: Attention is Not Only a Weight. EMNLP 2020. arXiv:2004.10102
"""

from __future__ import annotations

import re
import uuid
from collections import Counter, OrderedDict
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from threading import Lock
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import torch

from regard.attention.kept import MOST, Held, Kept, kept
from regard.core import shown
from regard.core.errors import BadInput, UnknownName, Unsupported, nearest
from regard.core.spec import Table, resolve
from regard.tasks.looks.views import binned, eight_bits, plain, rested, resting, stretched
from regard.tasks.serving import only_runs

View = Literal["raw", "without_sink", "value"]
VIEWS = ("raw", "without_sink", "value")

# {"text": [begin, end]} in characters (code points), {"box": [x, y, w, h]} in pixels of the picture that the model saw,
# {"time": [from, to]} in seconds, or {"none": True}
Place = dict[str, Any]
NOWHERE: Place = {"none": True}

LOOKS: Table = {
    "translation": ("regard.tasks.looks.translation", "TranslationLook"),
    "language": ("regard.tasks.looks.language", "LanguageLook"),
    "masked": ("regard.tasks.looks.masked", "MaskedLook"),
    "text_to_text": ("regard.tasks.looks.text_to_text", "TextToTextLook"),
    "classification": ("regard.tasks.looks.classification", "ClassificationLook"),
    "tagging": ("regard.tasks.looks.tagging", "TaggingLook"),
    "span": ("regard.tasks.looks.span", "SpanLook"),
    "embedding": ("regard.tasks.looks.embedding", "EmbeddingLook"),
    "images": ("regard.tasks.looks.images", "ImageLook"),
    "transcription": ("regard.tasks.looks.transcription", "TranscriptionLook"),
    "listening": ("regard.tasks.looks.listening", "ListeningLook"),
    "pronunciation": ("regard.tasks.looks.pronunciation", "PronunciationLook"),
}

_SOME = 64  # query rows of which sinks are found
_LINES = 24  # maps that are drawn in a notebook
_AT_ONCE = 2**21  # weights of a tile that are computed together: more of them leave the processor's cache
_BLOCK, _BLOCKS = 64, 64  # columns computed at a time, and blocks of them that are remembered


class Side(NamedTuple):
    """The tokens along one side of a map, and where each stands in what was given; `text` is what places count in.

    `notes` is what the model says of single tokens, such as their tags; "" of those of which it says nothing.
    """

    name: str
    tokens: list[str]
    places: list[Place]
    special: list[bool]
    text: str | None = None
    notes: list[str] | None = None

    def about(self) -> dict[str, Any]:
        """Plain values."""
        return self._asdict()


class Look:
    """One input that was read. A task's own kind of look writes `read`, `sides_of` and what it can of the rest."""

    task: ClassVar[str]
    takes: ClassVar[Mapping[str, type | tuple[type, ...]]]  # what may be given, and of which type
    needs: ClassVar[tuple[str, ...]] = ()  # of these, what must be given beside the first
    input: str  # the side that rollout and relevance lie on
    output_side: str | None = None  # the side whose tokens a rollout is asked for

    def __init__(
        self,
        predictor: Any,
        given: Mapping[str, Any],
        *,
        name: str = "",
        interventions: Sequence[Mapping[str, Any]] = (),
        most: int = MOST,
    ) -> None:
        self.id, self.model, self.predictor = uuid.uuid4().hex, name, predictor
        self.given, self.interventions = _checked(given, self.takes, self.needs), list(interventions)
        self.sides: dict[str, Side] = {}
        self.output: dict[str, Any] = {}
        self.picture: bytes | None = None
        self.sound: dict[str, Any] | None = None
        self.store: Kept = Kept()
        self._most, self._lock = most, Lock()
        self._sinks: dict[str, list[list[int]]] = {}
        self._columns: OrderedDict[tuple[str, int, int], np.ndarray] = OrderedDict()
        with self._as_asked():
            self.read()

    # -- what a task's own kind writes ---------------------------------------------------------------------------------

    def read(self) -> None:
        """Run the model over what was given: sets sides, output and the store."""
        raise NotImplementedError

    def sides_of(self, held: Held) -> tuple[str, str]:
        """The names of the sides that a map's rows and columns are."""
        raise NotImplementedError

    def rollout(self, query: int) -> np.ndarray:
        """How much of each input cell reaches a token through all layers."""
        raise Unsupported(f"there is no rollout for the task '{self.task}' with this model")

    def relevance(self, target: int) -> np.ndarray:
        """How much each input cell spoke for an answer."""
        raise Unsupported(f"there is no relevance for the task '{self.task}' with this model")

    @property
    def targets(self) -> list[str]:
        """What relevance can be asked for; empty: it cannot."""
        return []

    # -- what can be asked ---------------------------------------------------------------------------------------------

    def about(self) -> dict[str, Any]:
        """Everything but bytes and weights, as plain values."""
        counted = Counter[tuple[str, str]]()
        maps = []
        for held in self.store.values():
            stack = re.split(r"\d", held.name)[0], held.kind  # "decoder.blocks.", "cross"
            maps.append(self._described(held, counted[stack]))
            counted[stack] += 1
        return {
            "id": self.id,
            "model": self.model,
            "task": self.task,
            "given": {k: {"bytes": len(v)} if isinstance(v, bytes) else v for k, v in self.given.items()},
            "interventions": self.interventions,
            "sides": {name: side.about() for name, side in self.sides.items()},
            "input": self.input,
            "output": self.output,
            "picture": self.picture is not None,
            "sound": None if self.sound is None else {"seconds": self.sound["seconds"]},
            "rollout": self.output_side,
            "relevance": [] if only_runs(self.predictor.model) else self.targets,
            "maps": maps,
            "bytes": self.bytes,
        }

    @property
    def bytes(self) -> int:
        """What is held of the pass."""
        given = sum(len(value) for value in self.given.values() if isinstance(value, (bytes, str)))
        return self.store.bytes + len(self.picture or b"") + given

    def shape(self, name: str) -> tuple[int, int]:
        """Rows and columns of a map."""
        return self._shape(self._held(name))

    def sample(self, name: str, size: int = 32) -> tuple[np.ndarray, list[float]]:
        """A thumbnail of every head, uint8 H size size, where 255 is the largest weight of the head; and those.

        A map with fewer rows or columns than that is stretched.
        """
        held, _ = self._held(name), _positive(size)
        n, m = self._shape(held)
        rows, where = np.unique((np.arange(size) + 0.5) * n // size, return_inverse=True)
        w = binned(plain(held.lines(rows.astype(int).tolist())[0])[:, :, :m], size)
        return eight_bits(w[:, where][:, :, stretched(w.shape[2], size)])

    def tile(
        self, name: str, head: int, rows: tuple[int, int], columns: tuple[int, int], size: int
    ) -> tuple[np.ndarray, float]:
        """Part of a map at a resolution, uint8 with at most `size` rows and columns; and the weight that 255 is.

        Where there are more rows than that, evenly spread ones are taken; columns are joined by their largest.
        """
        held, _ = self._held(name), _positive(size)
        n, m = self._shape(held)
        (top, bottom), (left, right) = _span(rows, n, "rows"), _span(columns, m, "columns")
        many = min(size, bottom - top)
        picked = top + ((np.arange(many) + 0.5) * (bottom - top) // many).astype(int)
        heads = self._heads(held, head)
        at_once = max(1, _AT_ONCE // (held.columns * (held.heads if heads is None else 1))) if held.rowwise else many
        parts = [
            binned(plain(held.lines(part.tolist(), heads)[0])[:, :, left:right].mean(0, keepdims=True), size)
            for part in np.split(picked, range(at_once, many, at_once))
        ]
        pixels, scales = eight_bits(np.concatenate(parts, axis=1))
        return pixels[0], scales[0]

    def row(self, name: str, head: int, query: int, view: View = "raw") -> np.ndarray:
        """What one query looks at, float32 over all keys; head -1: the mean of all heads."""
        held = self._held(name)
        n, m = self._shape(held)
        heads = self._heads(held, head)
        valued = self._view(held, view) == "value"
        w = plain(held.lines([_number(query, n, "query")], heads, valued)[0])[:, 0, :m]
        which = list(range(held.heads)) if heads is None else heads
        if view == "without_sink":
            w = np.stack([rested(line, self.sinks(name)[h]) for line, h in zip(w, which, strict=True)])
        return np.ascontiguousarray(w.mean(0), dtype=np.float32)

    def column(self, name: str, head: int, key: int, view: View = "raw") -> np.ndarray:
        """Who looks at one key, float32 over all queries; head -1: the mean of all heads."""
        held = self._held(name)
        _number(key, self._shape(held)[1], "key")
        self._view(held, view)
        heads = self._heads(held, head)
        each = [self._one_column(held, h, key, view) for h in (range(held.heads) if heads is None else heads)]
        return np.ascontiguousarray(np.mean(each, axis=0), dtype=np.float32)

    def sinks(self, name: str) -> list[list[int]]:
        """The keys of each head on which it rests, found on evenly spread rows."""
        if name not in self._sinks:
            held = self._held(name)
            n, m = self._shape(held)
            rows = np.unique(np.linspace(0, n - 1, min(n, _SOME)).astype(int))
            w = plain(held.lines(rows.tolist())[0])[:, :, :m]
            self._sinks[name] = [resting(head, rows if n == m else None) for head in w]
        return self._sinks[name]

    def _repr_html_(self) -> str:
        """In a notebook: what was read and answered, and a thumbnail of every head."""
        words = [str(v) for v in (*self.given.values(), *self.output.values()) if isinstance(v, str) and v]
        said = "".join(f"<p><bdi>{shown.escape(text[:300])}</bdi></p>" for text in words)
        lines = []
        for name in list(self.store)[:_LINES]:
            heads = torch.from_numpy(self.sample(name)[0]).float()
            maps = "".join(shown.small((h / 255), f"{name}, head {k}", 40) for k, h in enumerate(heads[: shown.HEADS]))
            lines.append(f"<tr><td>{shown.escape(name)}</td><td>{maps}</td></tr>")
        more = f"<p>and {len(self.store) - _LINES} maps more</p>" if len(self.store) > _LINES else ""
        return f"<div><b>{shown.escape(self.model or self.task)}</b>{said}<table>{''.join(lines)}</table>{more}</div>"

    # -- inside --------------------------------------------------------------------------------------------------------

    def _as_asked(self) -> Any:
        """The model as it is, or changed as was asked for."""
        if not self.interventions:
            return nullcontext()
        from regard.tasks.interventions import intervened

        return intervened(self.predictor.model, self.interventions)

    def _run(self, *inputs: Any) -> Any:
        """One pass with everything kept; gives the model's answer."""
        self.inputs = inputs
        self.predictor.model.eval()
        with torch.no_grad(), kept(self.predictor.model, values=True, most=self._most) as self.store:
            return self.predictor.model(*inputs)

    def _described(self, held: Held, layer: int) -> dict[str, Any]:
        rows, columns = self.sides_of(held)
        n, m = self._shape(held)
        return {
            "name": held.name,
            "kind": held.kind,
            "layer": layer,
            "heads": held.heads,
            "rows": rows,
            "columns": columns,
            "n": n,
            "m": m,
            "exact": held.exact,
            "views": self._views(held),
        }

    @staticmethod
    def _views(held: Held) -> list[str]:
        offered = {"without_sink": held.normalised, "value": held.norms is not None}
        return [view for view in VIEWS if offered.get(view, True)]

    def _view(self, held: Held, view: str) -> str:
        if view not in VIEWS:
            raise UnknownName(f"no view is called '{view}'; {nearest(view, VIEWS)}")
        if view not in self._views(held):
            raise Unsupported(f"'{held.name}' has no view '{view}'; it has {', '.join(self._views(held))}")
        return view

    def _held(self, name: str) -> Held:
        if name not in self.store:
            raise UnknownName(f"no map is called '{name}'; {nearest(name, self.store)}")
        return self.store[name]

    def _shape(self, held: Held) -> tuple[int, int]:
        """Rows and columns that stand for something: what is beyond a side's tokens is padding."""
        rows, columns = self.sides_of(held)
        return min(held.rows, len(self.sides[rows].tokens)), min(held.columns, len(self.sides[columns].tokens))

    @staticmethod
    def _heads(held: Held, head: int) -> list[int] | None:
        return None if head == -1 else [_number(head, held.heads, "head")]

    def _one_column(self, held: Held, head: int, key: int, view: str) -> np.ndarray:
        if view == "value" and held.geometry is not None:
            return plain(held.columns_of([key], head, valued=True)[0, :, 0])[: self._shape(held)[0]]
        column = self._block(held, head, key)
        if view == "value":
            return column * float(held.values_norm()[0, head, key])
        if view == "without_sink":
            sinks = self.sinks(held.name)[head]
            if key in sinks:
                return np.zeros_like(column)
            rest = 1 - sum((self._block(held, head, sink) for sink in sinks), np.zeros_like(column))
            return np.divide(column, rest, out=np.zeros_like(column), where=rest > 1e-6)
        return column

    def _block(self, held: Held, head: int, key: int) -> np.ndarray:
        """One column; its neighbours come with it, and are remembered for whoever moves along."""
        which = held.name, head, key // _BLOCK
        with self._lock:
            if which in self._columns:
                self._columns.move_to_end(which)
                return self._columns[which][key % _BLOCK]
        n, _ = self._shape(held)
        keys = range(which[2] * _BLOCK, min((which[2] + 1) * _BLOCK, held.columns))
        found = np.ascontiguousarray(plain(held.columns_of(list(keys), head)[0])[:n].T)
        with self._lock:
            self._columns[which] = found
            while len(self._columns) > _BLOCKS:
                self._columns.popitem(last=False)
        return found[key % _BLOCK]


def look(
    predictor: Any,
    given: Mapping[str, Any],
    *,
    name: str = "",
    interventions: Sequence[Mapping[str, Any]] = (),
    most: int = MOST,
) -> Look:
    """Let a task's model read something, and keep what is needed to look at it.

    `given` holds text, image or sound and the options of the task; `most` bounds the bytes that are kept.
    """
    from regard.tasks import PREDICTORS

    where = type(predictor).__module__, type(predictor).__qualname__
    task = next((task for task, cls in PREDICTORS.items() if cls == where), None)
    if task not in LOOKS:
        raise Unsupported(f"there is nothing to look at in a {type(predictor).__name__}; in these: {', '.join(LOOKS)}")
    cls = resolve(LOOKS, str(task), "look")
    found: Look = cls(predictor, given, name=name, interventions=interventions, most=most)
    return found


def _checked(
    given: Mapping[str, Any], takes: Mapping[str, type | tuple[type, ...]], needs: Sequence[str]
) -> dict[str, Any]:
    """What was given, where it is all known and of the right type; the first of `takes` and `needs` must be there."""
    for key, value in given.items():
        if key not in takes:
            raise UnknownName(f"nothing called '{key}' can be given here; {nearest(str(key), takes)}")
        if isinstance(value, bool) or not isinstance(value, takes[key]):
            raise BadInput(f"'{key}' is a {type(value).__name__}; that is not what it can be")
    for wanted in (next(iter(takes)), *needs):
        if wanted not in given:
            raise BadInput(f"there is no '{wanted}' to read")
    return dict(given)


def _number(asked: int, many: int, what: str) -> int:
    if not 0 <= asked < many:
        raise BadInput(f"there is no {what} {asked}; there are 0 to {many - 1}")
    return asked


def _positive(size: int) -> int:
    if not 1 <= size <= 4096:
        raise BadInput(f"a picture of a map has 1 to 4096 pixels a side, not {size}")
    return size


def _span(asked: tuple[int, int], many: int, what: str) -> tuple[int, int]:
    begin, end = asked
    if not 0 <= begin < end <= many:
        raise BadInput(f"the {what} {begin}:{end} are not within 0:{many}")
    return begin, end

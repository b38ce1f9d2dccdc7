"""Inspection: one input of a predictor, its tokens with their positions, its output, and any part of any map.

    seen = inspect(regard.load("en-de"), {"text": "Two dogs are playing in the snow."})
    seen.about()                                            tokens with their positions, the output, the list of maps
    seen.sample("decoder.blocks.2.cross")                   a thumbnail of every head
    seen.row("decoder.blocks.2.cross", head=3, query=1)     one exact row; head -1 is the mean of all heads
    seen.rollout(1), seen.relevance(1)                      through all layers; attention x gradient for a word

No matrix is stored, only what the maps are computed from (attention.capture); a row is computed on request. A
thumbnail takes evenly spread rows, and of each bin of columns the largest weight, so that a narrow line is not lost.

    raw             the weights as they are applied
    without_sink    without attention sinks: keys that a quarter of the queries see and that get, on average, a third
                    of their weight and twice the uniform weight. The others are scaled to the same row sum.
    value           weights times the norm of the value after the output projection

Every task has a file in interpret/inspections that says how its input is read and what the axes of its maps are.

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

from regard.attention.capture.map_store import MAX_BYTES, LazyMap, MapStore, watch_lazy
from regard.attention.capture.watch import watch
from regard.core import html
from regard.core.errors import BadInput, UnknownName, Unsupported, did_you_mean
from regard.core.spec import Registry, resolve
from regard.core.trace import Trace
from regard.modalities.audio import Audio
from regard.modalities.point_cloud import PointCloud
from regard.runtime.inference import is_inference_only
from regard.see.map_views import find_sinks, max_pool_columns, nearest_columns, remove_sinks, to_numpy, to_uint8

View = Literal["raw", "without_sink", "value"]
VIEWS = ("raw", "without_sink", "value")

# {"text": [begin, end]} in characters (code points), {"box": [x, y, w, h]} in pixels of the picture that the model saw,
# {"time": [from, to]} in seconds, {"point": [x, y, z]} as the model saw it, {"place": [x, y], "to": [nodes]} of a node
# in a drawing of its graph, {"pen": [x, y], "drawn": does a line lead there} in heights of letters, or {"none": True}
Position = dict[str, Any]
NO_POSITION: Position = {"none": True}

INSPECTIONS: Registry = {
    "translation": ("regard.interpret.inspections.translation", "TranslationInspection"),
    "language_modeling": ("regard.interpret.inspections.language_modeling", "LanguageModelInspection"),
    "masked_lm": ("regard.interpret.inspections.masked_lm", "MaskedLMInspection"),
    "text_to_text": ("regard.interpret.inspections.text_to_text", "TextToTextInspection"),
    "classification": ("regard.interpret.inspections.classification", "ClassificationInspection"),
    "pair_classification": ("regard.interpret.inspections.classification", "PairClassificationInspection"),
    "tagging": ("regard.interpret.inspections.tagging", "TaggingInspection"),
    "extractive_qa": ("regard.interpret.inspections.extractive_qa", "ExtractiveQAInspection"),
    "embedding": ("regard.interpret.inspections.embedding", "EmbeddingInspection"),
    "image_classification": ("regard.interpret.inspections.image_classification", "ImageClassificationInspection"),
    "glimpse_classification": ("regard.interpret.inspections.glimpse_classification", "GlimpseInspection"),
    "object_detection": ("regard.interpret.inspections.object_detection", "ObjectDetectionInspection"),
    "semantic_segmentation": ("regard.interpret.inspections.dense", "DenseInspection"),
    "depth_estimation": ("regard.interpret.inspections.dense", "DenseInspection"),
    "captioning": ("regard.interpret.inspections.captioning", "CaptionInspection"),
    "visual_question_answering": (
        "regard.interpret.inspections.visual_question_answering",
        "VisualQuestionInspection",
    ),
    "ctc_speech_recognition": ("regard.interpret.inspections.ctc_speech_recognition", "CTCInspection"),
    "speech_recognition": ("regard.interpret.inspections.speech_recognition", "SpeechRecognitionInspection"),
    "pronunciation": ("regard.interpret.inspections.pronunciation", "PronunciationInspection"),
    "handwriting": ("regard.interpret.inspections.handwriting", "HandwritingInspection"),
    "story_answering": ("regard.interpret.inspections.story_answering", "StoryInspection"),
    "tapes": ("regard.interpret.inspections.tapes", "TapeInspection"),
}

# For predictors whose task has none of its own, by the kind of their first input.
INSPECTIONS_BY_INPUT: Registry = {
    "image": ("regard.interpret.inspections.image", "ImageInspection"),
    "text": ("regard.interpret.inspections.text", "TextInspection"),
    "points": ("regard.interpret.inspections.point_cloud", "PointCloudInspection"),
    "graph": ("regard.interpret.inspections.graph", "GraphInspection"),
    "place": ("regard.interpret.inspections.place", "PlaceInspection"),
    "any": ("regard.interpret.inspections.declared", "DeclaredInspection"),
}

OPTION_HELP = {  # of options that only an inspection has
    "target_text": "maps of this text, instead of the model's own",
    "other": "a second text, for a pair",
}

_SINK_ROWS = 64  # query rows of which sinks are found
_CHECKED_WEIGHTS = 4096  # of a map that is checked for uniform attention
_NOTEBOOK_MAPS = 24  # maps that are drawn in a notebook
_TILE_WEIGHTS = 2**21  # weights of a tile that are computed together: more of them leave the processor's cache
_COLUMN_BLOCK, _MAX_COLUMN_BLOCKS = 16, 256  # columns computed at a time, and blocks of them that are remembered


class Axis(NamedTuple):
    """The tokens along one axis of a map, and the position of each in the input; `text` is what positions count in.

    `notes` are predictions for single tokens, such as tags; "" where there is none.
    """

    name: str
    tokens: list[str]
    positions: list[Position]
    special: list[bool]
    text: str | None = None
    notes: list[str] | None = None

    def about(self) -> dict[str, Any]:
        """Return plain values."""
        return self._asdict()


class Inspection:
    """One input and what the model did with it. Subclasses write `read`, `axes_of` and what else they can offer."""

    task: str
    input_types: ClassVar[Mapping[str, type | tuple[type, ...]]]  # names and types of inputs and options
    required_inputs: ClassVar[tuple[str, ...]] = ()  # required besides the first
    input_axis: str  # the axis of rollout and relevance
    output_axis: str | None = None  # the axis whose tokens have a rollout
    figure: ClassVar[str] = "token_maps"  # what draws it (interpret.figures)

    def __init__(
        self,
        predictor: Any,
        inputs: Mapping[str, Any],
        *,
        name: str = "",
        interventions: Sequence[Mapping[str, Any]] = (),
        most: int = MAX_BYTES,
    ) -> None:
        self.id, self.model, self.predictor = uuid.uuid4().hex, name, predictor
        self.inputs, self.interventions = self.check(inputs), list(interventions)
        self.axes: dict[str, Axis] = {}
        self.output: dict[str, Any] = {}
        self.note = ""  # a sentence to show with the output
        self.warning = ""  # what makes the input unlike the training data
        self.picture: bytes | None = None
        self.region: tuple[float, ...] | None = None  # the part of the input image that `picture` shows, in its pixels
        self.audio: dict[str, Any] | None = None
        self.store: MapStore = MapStore()
        self._most, self._lock = most, Lock()
        self._sinks: dict[str, list[list[int]]] = {}
        self._uniform: dict[str, bool] = {}
        self._columns: OrderedDict[tuple[str, int, int], np.ndarray] = OrderedDict()
        with self._with_interventions():
            self.read()
        self.warning = self._domain_note()

    # -- for subclasses ------------------------------------------------------------------------------------------------

    @classmethod
    def fields(cls, predictor: type[Any]) -> tuple[dict[str, str], dict[str, Any]]:
        """Return the inputs (name -> kind) and options (name -> JSON schema) for a predictor class."""
        first, *rest = cls.input_types
        needed = {name: _input_kind(name, cls.input_types[name]) for name in (first, *cls.required_inputs)}
        of_task = predictor.options_schema()["properties"] if hasattr(predictor, "options_schema") else {}
        said = OPTION_HELP | {name: each["description"] for name, each in of_task.items() if "description" in each}
        options = {name: _option_schema(cls.input_types[name]) for name in rest if name not in needed}
        return needed, {
            name: each | ({"description": said[name]} if name in said else {}) for name, each in options.items()
        }

    def check(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the inputs, their names and types checked."""
        return _check_inputs(inputs, self.input_types, self.required_inputs)

    def read(self) -> None:
        """Run the model on the inputs: set the axes, the output and the store."""
        raise NotImplementedError

    def axes_of(self, held: LazyMap) -> tuple[str, str]:
        """Return the names of the axes of a map's rows and columns."""
        raise NotImplementedError

    def rollout(self, query: int) -> np.ndarray:
        """Return the share of each input cell in a token, through all layers."""
        raise Unsupported(f"This model has no rollout (task '{self.task}').")

    def relevance(self, target: int) -> np.ndarray:
        """Return the relevance of each input cell for a target: attention x gradient."""
        raise Unsupported(f"This model has no relevance (task '{self.task}').")

    @property
    def targets(self) -> list[str]:
        """The targets that relevance is available for; empty: none."""
        return []

    def summary(self) -> list[str]:
        """Return the input and the output in a line of text each."""
        text = str(self.output.get("text") or self.output.get("label") or "")
        return [str(next(iter(self.inputs.values()))).strip(), *([text] if text else [])]

    def labels_of(self, name: str) -> tuple[list[str], list[str]]:
        """Return the tokens along the rows and the columns of a map."""
        rows, columns = self.axes_of(self._held(name))
        return self.axes[rows].tokens, self.axes[columns].tokens

    def traces(self) -> list[Trace]:
        """Run the model once more and return its maps, whole, with their tokens as labels."""
        with self._with_interventions(), torch.no_grad(), watch(self.predictor.model) as seen:
            self.predictor.model(*self.model_inputs)
        return [trace.with_labels(*self.labels_of(trace.name)) for trace in seen.traces()]

    # -- queries -------------------------------------------------------------------------------------------------------

    def about(self) -> dict[str, Any]:
        """Return everything but bytes and weights, as plain values."""
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
            "inputs": {k: {"bytes": _num_bytes(v)} if _is_file(v) else v for k, v in self.inputs.items()},
            "interventions": self.interventions,
            "axes": {name: side.about() for name, side in self.axes.items()},
            "input_axis": self.input_axis,
            "output": self.output,
            "note": self.note,
            "warning": self.warning,
            "picture": self.picture is not None,
            "region": None if self.region is None else list(self.region),
            "audio": None if self.audio is None else {"seconds": self.audio["seconds"]},
            "rollout_axis": self.output_axis,
            "relevance_targets": [] if is_inference_only(self.predictor.model) else self.targets,
            "maps": maps,
            "bytes": self.bytes,
        }

    @property
    def bytes(self) -> int:
        """Size of what is stored."""
        own = sum(map(_num_bytes, self.inputs.values()))
        return self.store.bytes + len(self.picture or b"") + own

    def shape(self, name: str) -> tuple[int, int]:
        """Return the number of rows and columns of a map."""
        return self._shape(self._held(name))

    def sample(self, name: str, size: int = 32) -> tuple[np.ndarray, list[float]]:
        """Return a thumbnail of every head, uint8 H size size (255: the largest weight of the head), and those weights.

        A map with fewer rows or columns than that is stretched.
        """
        held, _ = self._held(name), _check_size(size)
        n, m = self._shape(held)
        rows, where = np.unique((np.arange(size) + 0.5) * n // size, return_inverse=True)
        w = max_pool_columns(to_numpy(held.rows_of(rows.astype(int).tolist())[0])[:, :, :m], size)
        return to_uint8(w[:, where][:, :, nearest_columns(w.shape[2], size)])

    def tile(
        self, name: str, head: int, rows: tuple[int, int], columns: tuple[int, int], size: int, view: View = "raw"
    ) -> tuple[np.ndarray, float]:
        """Return part of a map as uint8 with at most `size` rows and columns, and the weight that 255 stands for.

        Where there are more rows than that, evenly spread ones are taken; columns are joined by their largest.
        """
        held, _ = self._held(name), _check_size(size)
        n, m = self._shape(held)
        (top, bottom), (left, right) = _check_range(rows, n, "rows"), _check_range(columns, m, "columns")
        many = min(size, bottom - top)
        picked = top + ((np.arange(many) + 0.5) * (bottom - top) // many).astype(int)
        heads = self._heads(held, head)
        at_once = (
            max(1, _TILE_WEIGHTS // (held.columns * (held.heads if heads is None else 1))) if held.rowwise else many
        )
        parts = [
            max_pool_columns(
                self._rows(held, part.tolist(), heads, view)[:, :, left:right].mean(0, keepdims=True), size
            )
            for part in np.split(picked, range(at_once, many, at_once))
        ]
        pixels, scales = to_uint8(np.concatenate(parts, axis=1))
        return pixels[0], scales[0]

    def row(self, name: str, head: int, query: int, view: View = "raw") -> np.ndarray:
        """Return the weights of one query over all keys, float32; head -1: the mean of all heads."""
        held = self._held(name)
        query = _check_index(query, self._shape(held)[0], "query")
        w = self._rows(held, [query], self._heads(held, head), view)[:, 0]
        return np.ascontiguousarray(w.mean(0), dtype=np.float32)

    def column(self, name: str, head: int, key: int, view: View = "raw") -> np.ndarray:
        """Return the weights of one key for all queries, float32; head -1: the mean of all heads."""
        held = self._held(name)
        _check_index(key, self._shape(held)[1], "key")
        self._view(held, view)
        heads = self._heads(held, head)
        each = [self._one_column(held, h, key, view) for h in (range(held.heads) if heads is None else heads)]
        return np.ascontiguousarray(np.mean(each, axis=0), dtype=np.float32)

    def sinks(self, name: str) -> list[list[int]]:
        """Return the attention sinks of each head, found on evenly spread rows."""
        if name not in self._sinks:
            held = self._held(name)
            n, m = self._shape(held)
            rows = np.unique(np.linspace(0, n - 1, min(n, _SINK_ROWS)).astype(int))
            w = to_numpy(held.rows_of(rows.tolist())[0])[:, :, :m]
            self._sinks[name] = [find_sinks(head, rows if n == m else None) for head in w]
        return self._sinks[name]

    def _repr_html_(self) -> str:
        """Show the inputs, the output and a thumbnail of every head in a notebook."""
        words = [str(v) for v in (*self.inputs.values(), *self.output.values()) if isinstance(v, str) and v]
        said = "".join(f"<p><bdi>{html.escape(text[:300])}</bdi></p>" for text in words)
        lines = []
        for name in list(self.store)[:_NOTEBOOK_MAPS]:
            heads = torch.from_numpy(self.sample(name)[0]).float()
            maps = "".join(
                html.heatmap((h / 255), f"{name}, head {k}", 40) for k, h in enumerate(heads[: html.MAX_HEADS])
            )
            lines.append(f"<tr><td>{html.escape(name)}</td><td>{maps}</td></tr>")
        more = f"<p>and {len(self.store) - _NOTEBOOK_MAPS} maps more</p>" if len(self.store) > _NOTEBOOK_MAPS else ""
        return f"<div><b>{html.escape(self.model or self.task)}</b>{said}<table>{''.join(lines)}</table>{more}</div>"

    # -- inside --------------------------------------------------------------------------------------------------------

    def _domain_note(self) -> str:
        """Return what makes the inputs unlike the training data of the model; "" where nothing does."""
        fields = getattr(self.predictor, "inputs", {})
        if not getattr(self.predictor, "domains", None) or not fields.keys() <= self.inputs.keys():
            return ""
        item = self.predictor.read_item({name: self.inputs[name] for name in fields})
        note: str = self.predictor.domain_notes([item])[0]
        return note

    def _with_interventions(self) -> Any:
        """Return a context in which the interventions apply."""
        if not self.interventions:
            return nullcontext()
        from regard.interpret.interventions import intervene

        return intervene(self.predictor.model, self.interventions)

    def _run(self, *inputs: Any) -> Any:
        """Run one captured pass and return the model's output."""
        self.model_inputs = inputs
        self.predictor.model.eval()
        with torch.no_grad(), watch_lazy(self.predictor.model, values=True, max_bytes=self._most) as self.store:
            return self.predictor.model(*inputs)

    def _described(self, held: LazyMap, layer: int) -> dict[str, Any]:
        rows, columns = self.axes_of(held)
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
            "normalised": held.normalised,
            "views": self._views(held),
            "uniform": self._is_uniform(held, n, m),
        }

    def _is_uniform(self, held: LazyMap, n: int, m: int) -> bool:
        """Return whether no weight of any head is above 1.5 uniform shares; of larger maps it is not checked."""
        if not held.normalised or m < 2 or n * m > _CHECKED_WEIGHTS:
            return False
        if held.name not in self._uniform:
            self._uniform[held.name] = bool(to_numpy(held.rows_of([*range(n)])[0])[:, :, :m].max() < 1.5 / m)
        return self._uniform[held.name]

    @staticmethod
    def _views(held: LazyMap) -> list[str]:
        offered = {"without_sink": held.normalised, "value": held.norms is not None}
        return [view for view in VIEWS if offered.get(view, True)]

    def _rows(self, held: LazyMap, queries: list[int], heads: list[int] | None, view: View) -> np.ndarray:
        """Return rows of some heads (None: all) in a view, H n m."""
        valued = self._view(held, view) == "value"
        w = to_numpy(held.rows_of(queries, heads, valued)[0])[:, :, : self._shape(held)[1]]
        if view != "without_sink":
            return w
        sinks = self.sinks(held.name)
        which = range(held.heads) if heads is None else heads
        return np.stack([remove_sinks(rows, sinks[head]) for rows, head in zip(w, which, strict=True)])

    def _view(self, held: LazyMap, view: str) -> str:
        if view not in VIEWS:
            raise UnknownName(f"no view is called '{view}'; {did_you_mean(view, VIEWS)}")
        if view not in self._views(held):
            raise Unsupported(f"'{held.name}' has no view '{view}'; it has {', '.join(self._views(held))}")
        return view

    def _held(self, name: str) -> LazyMap:
        if name not in self.store:
            raise UnknownName(f"no map is called '{name}'; {did_you_mean(name, self.store)}")
        return self.store[name]

    def _shape(self, held: LazyMap) -> tuple[int, int]:
        """Return the rows and columns of tokens; what is beyond an axis is padding."""
        rows, columns = self.axes_of(held)
        return min(held.rows, len(self.axes[rows].tokens)), min(held.columns, len(self.axes[columns].tokens))

    @staticmethod
    def _heads(held: LazyMap, head: int) -> list[int] | None:
        return None if head == -1 else [_check_index(head, held.heads, "head")]

    def _one_column(self, held: LazyMap, head: int, key: int, view: str) -> np.ndarray:
        if view == "value" and held.geometry is not None:
            return to_numpy(held.columns_of([key], head, times_value_norm=True)[0, :, 0])[: self._shape(held)[0]]
        column = self._block(held, head, key)
        if view == "value":
            return column * float(held.value_norms()[0, head, key])
        if view == "without_sink":
            sinks = self.sinks(held.name)[head]
            if key in sinks:
                return np.zeros_like(column)
            rest = 1 - sum((self._block(held, head, sink) for sink in sinks), np.zeros_like(column))
            return np.divide(column, rest, out=np.zeros_like(column), where=rest > 1e-6)
        return column

    def _block(self, held: LazyMap, head: int, key: int) -> np.ndarray:
        """Return one column; its neighbours are computed with it and cached."""
        which = held.name, head, key // _COLUMN_BLOCK
        with self._lock:
            if which in self._columns:
                self._columns.move_to_end(which)
                return self._columns[which][key % _COLUMN_BLOCK]
        n, _ = self._shape(held)
        keys = range(which[2] * _COLUMN_BLOCK, min((which[2] + 1) * _COLUMN_BLOCK, held.columns))
        found = np.ascontiguousarray(to_numpy(held.columns_of(list(keys), head)[0])[:n].T)
        with self._lock:
            self._columns[which] = found
            while len(self._columns) > _MAX_COLUMN_BLOCKS:
                self._columns.popitem(last=False)
        return found[key % _COLUMN_BLOCK]


def inspect(
    predictor: Any,
    inputs: Mapping[str, Any],
    *,
    name: str = "",
    interventions: Sequence[Mapping[str, Any]] = (),
    most: int = MAX_BYTES,
) -> Inspection:
    """Run a predictor on one input and store what its maps are computed from.

    `inputs` are text, image or audio and the options of the task; `most` limits the bytes that are stored.
    """
    return inspection_class(type(predictor))(predictor, inputs, name=name, interventions=interventions, most=most)


def inspection_class(predictor: type[Any]) -> type[Inspection]:
    """Return the inspection of a predictor class: that of its task or a base class, else by its first input."""
    from regard.tasks import task_name
    from regard.tasks.predictor import Predictor

    for base in predictor.__mro__:
        if (task := task_name(base)) in INSPECTIONS:
            return resolve(INSPECTIONS, task, "inspection")
    if not issubclass(predictor, Predictor):
        raise Unsupported(f"{predictor.__name__} is no Predictor: it declares no inputs and outputs to inspect.")
    kind = next(iter(predictor.inputs.values())).kind
    return resolve(INSPECTIONS_BY_INPUT, kind if kind in INSPECTIONS_BY_INPUT else "any", "inspection")


def _input_kind(name: str, kind: type | tuple[type, ...]) -> str:
    return name if kind is bytes or (isinstance(kind, tuple) and bytes in kind) else "text"


def _is_file(value: Any) -> bool:
    """Return whether an input is a file or what was decoded from one, which JSON cannot hold."""
    return not isinstance(value, (str, int, float, list, dict, type(None)))


def _num_bytes(value: Any) -> int:
    """Return how much memory an input takes: a text or file its length, a decoded image or recording its samples."""
    if isinstance(value, (str, bytes)):
        return len(value)
    if isinstance(value, Audio):
        return value.samples.nbytes
    if isinstance(value, PointCloud):
        return value.points.nbytes
    return value.width * value.height * len(value.getbands()) if hasattr(value, "getbands") else 0


def _option_schema(kind: type | tuple[type, ...]) -> dict[str, Any]:
    """Return the JSON schema of an option of these types."""
    names = {str: "string", int: "integer", float: "number", list: "array", bool: "boolean"}
    kinds = kind if isinstance(kind, tuple) else (kind,)
    if list in kinds:
        return {"type": "array", "items": {"type": "string"}}
    return {"type": "number" if float in kinds else names.get(kinds[0], "string")}


def _check_inputs(
    inputs: Mapping[str, Any], input_types: Mapping[str, type | tuple[type, ...]], required_inputs: Sequence[str]
) -> dict[str, Any]:
    """Check names and types of the inputs; the first of `input_types` and all `required_inputs` must be present."""
    for key, value in inputs.items():
        if key not in input_types:
            raise UnknownName(f"there is no input '{key}' here; {did_you_mean(str(key), input_types)}")
        if isinstance(value, bool) or not isinstance(value, input_types[key]):
            raise BadInput(f"'{key}' is a {type(value).__name__}; expected {_type_names(input_types[key])}")
    for wanted in (next(iter(input_types)), *required_inputs):
        if wanted not in inputs:
            raise BadInput(f"'{wanted}' is missing")
    return dict(inputs)


def _type_names(kind: type | tuple[type, ...]) -> str:
    return " or ".join(each.__name__ for each in (kind if isinstance(kind, tuple) else (kind,)))


def _check_index(asked: int, many: int, what: str) -> int:
    if not 0 <= asked < many:
        raise BadInput(f"there is no {what} {asked}; there are 0 to {many - 1}")
    return asked


def _check_size(size: int) -> int:
    if not 1 <= size <= 4096:
        raise BadInput(f"size must be 1 to 4096 pixels, got {size}")
    return size


def _check_range(asked: tuple[int, int], many: int, what: str) -> tuple[int, int]:
    begin, end = asked
    if not 0 <= begin < end <= many:
        raise BadInput(f"the {what} {begin}:{end} are not within 0:{many}")
    return begin, end

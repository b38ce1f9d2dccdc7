"""Typed inputs and outputs: the values that people hand to a model and get back.

    Input     reads itself from a shell argument, a file, an upload, JSON or a Python object, within limits
    Output    prints itself in a terminal, as JSON with a JSON schema, and compares itself with another of its kind

A `Predictor` declares which of these it takes and returns. The command line, the service, the explorer, `regard list`
and the contract tests are made from that declaration, so a new type of input or output is one file in this package.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self


@dataclass(frozen=True)
class Limits:
    """How large one input may be. The service lowers these; a local call uses the defaults."""

    characters: int = 1_000_000
    pixels: int = 2**28
    seconds: float | None = None  # None: of any length
    points: int = 2**22  # of a point cloud
    edges: int = 2**20  # of a graph


NO_LIMITS = Limits()


class Source(NamedTuple):
    """One item of the command line before it is read: a name for messages, what `Input.read` takes, and what is wrong
    with it where it cannot be read."""

    name: str
    value: Any
    problem: str = ""


class Input:
    """A type that a predictor takes. The methods are class methods: the value itself is what `read` returns."""

    kind: ClassVar[str]  # the usual field name, and the explorer's stage: "text", "image", "audio", "points"
    units: ClassVar[str]  # what places in it are counted in: "characters", "pixels", "seconds", "points"
    media_types: ClassVar[tuple[str, ...]] = ()  # accepted as an upload; empty: JSON only
    is_object: ClassVar[bool] = False  # whether the value itself may be a JSON object

    @classmethod
    def read(cls, source: Any, limits: Limits = NO_LIMITS) -> Any:
        """Return the value of a Python object, a path or the bytes of a file; raise `BadInput` where it is none."""
        raise NotImplementedError

    @classmethod
    def is_single(cls, given: Any) -> bool:
        """Return whether an argument of a call is one item rather than a list of items."""
        raise NotImplementedError

    @classmethod
    def sources(cls, arguments: Sequence[str]) -> Iterator[Source]:
        """Yield the items that shell arguments mean: texts, files, the files of a folder."""
        raise NotImplementedError

    @classmethod
    def from_json(cls, value: Any, limits: Limits = NO_LIMITS) -> Any:
        """Return the value of one item of a JSON request; the default reads it as a Python object."""
        return cls.read(value, limits)

    @classmethod
    def size(cls, value: Any) -> float:
        """Return how large a value is, in `units`; the service limits the inputs of a request together by it."""
        return 0

    @classmethod
    def json_schema(cls) -> dict[str, Any]:
        """Return the JSON schema of one item of a request."""
        raise NotImplementedError


class Output:
    """A value that a predictor returns for one item."""

    kind: ClassVar[str]

    def to_json(self) -> Any:
        """Return plain values: numbers, strings, lists, dicts."""
        return {f.name: plain(getattr(self, f.name)) for f in fields(self)}  # type: ignore[arg-type]

    @classmethod
    def from_json(cls, values: Any) -> Self:
        """Return the output that `to_json` wrote."""
        return cls(**values)

    @classmethod
    def json_schema(cls) -> dict[str, Any]:
        """Return the JSON schema of `to_json`."""
        raise NotImplementedError

    def difference(self, other: Any) -> float:
        """Return how far another output of this kind is from this one: 0 for the same, 1 for nothing in common."""
        raise NotImplementedError


def plain(value: Any) -> Any:
    """Return a value as JSON can hold it: tensors and arrays become lists, dataclasses and outputs dicts."""
    if isinstance(value, Output):
        return value.to_json()
    if isinstance(value, str):
        return str(value)
    if hasattr(value, "tolist"):
        return value.tolist()
    if hasattr(value, "_asdict"):
        return {key: plain(each) for key, each in value._asdict().items()}
    if isinstance(value, dict):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    return value


def object_schema(properties: dict[str, Any], optional: Iterable[str] = ()) -> dict[str, Any]:
    """Return the JSON schema of an object whose properties are all required, but for the optional ones."""
    return {
        "type": "object",
        "properties": properties,
        "required": [name for name in properties if name not in set(optional)],
        "additionalProperties": False,
    }


def array_schema(items: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Return the JSON schema of an array of such items."""
    return {"type": "array", "items": items, **more}


NUMBER: dict[str, Any] = {"type": "number"}
STRING: dict[str, Any] = {"type": "string"}
INTEGER: dict[str, Any] = {"type": "integer"}
BOOLEAN: dict[str, Any] = {"type": "boolean"}
PROBABILITY: dict[str, Any] = {"type": "number", "minimum": 0, "maximum": 1}


def is_path(given: Any) -> bool:
    """Return whether a string or a Path names something that exists; a text may be longer than a name can be."""
    try:
        return isinstance(given, (str, Path)) and bool(str(given)) and Path(given).exists()
    except (OSError, ValueError):
        return False


def file_sources(words: Sequence[str], suffixes: Collection[str], noun: str) -> Iterator[Source]:
    """Return the files that arguments name, and of a folder those with one of the suffixes, in order."""
    for word in words:
        if is_path(word) and Path(word).is_dir():
            files = sorted(file for file in Path(word).rglob("*") if file.suffix.lower() in suffixes)
            yield from (Source(str(file), file) for file in files)
            if not files:
                yield Source(word, None, f"there are no {noun} in {word} ({', '.join(suffixes)})")
        else:
            yield Source(word, Path(word))

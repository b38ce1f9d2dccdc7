"""Predictor: a model ready to use. Typed inputs in, typed outputs out.

    class Detector(Predictor):
        inputs = {"image": Image}
        outputs = Boxes
        options = Options                                        # a frozen dataclass

        def predict(self, batch, options): ...                   # a list of values -> a list of outputs

    detect = regard.load("runs/detector")
    detect("street.jpg", min_score=0.5)                          # one input -> one output
    detect(["a.jpg", "b.jpg"])                                   # a list -> a list

From these four declarations follow ``regard run``, ``regard see``, the REST route with its schema, the explorer's page,
the row in ``regard list`` and the contract tests. A predictor with several input fields gets dicts of values in
`predict`, and its call takes one argument (an item or a list of items) per field, or a dict or a list of dicts.
"""

from __future__ import annotations

import logging
import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import torch
from torch import nn

from regard.core.config import from_dict
from regard.core.errors import BadInput, UnknownName, did_you_mean, require_iterable, shorten
from regard.core.validation import validate
from regard.modalities.base import NO_LIMITS, Input, Limits, Output, array_schema, object_schema
from regard.modalities.domain import Domain, notes_of

log = logging.getLogger("regard")


@dataclass(frozen=True)
class NoOptions:
    """A predictor without options."""


class Predictor:
    """A model with what turns inputs into tensors and its answers into outputs."""

    inputs: ClassVar[Mapping[str, type[Input]]]  # name -> type, in order
    outputs: ClassVar[type[Output]]
    options: ClassVar[type] = NoOptions  # a frozen dataclass: command options, JSON fields and page controls
    examples: ClassVar[tuple[Any, ...]] = ()  # inputs to try: values, or dicts of values by field

    model: nn.Module
    option_defaults: Mapping[str, Any] = types.MappingProxyType({})  # of this model, before those of `options`
    domains: Mapping[str, Domain] = types.MappingProxyType({})  # what its inputs look like, by input field

    def predict(self, batch: list[Any], options: Any) -> list[Any]:
        """Return an output for every item: a value, or a dict of values where there are several input fields."""
        raise NotImplementedError

    def predict_numbered(self, batch: list[Any], options: Any, numbers: Sequence[int]) -> list[Any]:
        """Return an output for every item of a part of a longer list; `numbers`, from 1, are their places in the list.

        Override it where seeds or messages depend on the place of an item.
        """
        return self.predict(batch, options)

    def __call__(self, *inputs: Any, **options: Any) -> Any:
        """Return the output of one input, or a list of outputs for a list of inputs."""
        items, is_single = self.read(inputs)
        if noted := [note for note in self.domain_notes(items) if note]:
            count = f"{len(noted):,} of {len(items):,} inputs are unusual; the first: " if len(items) > 1 else ""
            log.warning("%s%s", count, noted[0])
        found = self.predict(items, self.fill_options(options))
        return found[0] if is_single else found

    def to(self, device: torch.device | str) -> Self:
        """Move the model to a device, and return the predictor."""
        self.model.to(device)
        return self

    def __repr__(self) -> str:
        """The class, what goes in and comes out, and the model: one line."""
        weights = [*self.model.parameters()]
        count, device = sum(weight.numel() for weight in weights), weights[0].device if weights else "no device"
        size = f"{count / 1e6:.1f}M" if count >= 1e5 else f"{count:,}"
        labels = list(map(str, getattr(self, "labels", None) or getattr(self, "answers", None) or ()))
        known = f"; {len(labels):,} labels: {shorten(', '.join(labels), 60)}" if labels else ""
        languages = [getattr(self, side, "") for side in ("source", "target")]
        pair = (
            f"; {languages[0]} to {languages[1]}" if all(isinstance(each, str) and each for each in languages) else ""
        )
        return (
            f"{type(self).__name__}({', '.join(self.inputs)} -> {self.outputs.__name__}{pair}{known}; "
            f"{type(self.model).__name__}, {size} parameters on {device})"
        )

    # -- inputs --------------------------------------------------------------------------------------------------------

    @classmethod
    def read(cls, inputs: Sequence[Any], limits: Limits = NO_LIMITS) -> tuple[list[Any], bool]:
        """Return the items of a call, and whether a single one was given.

        `inputs` has one argument per field; or, where there are several fields, one dict, or a list of dicts or tuples.
        """
        if len(inputs) == 1 < len(cls.inputs):
            (given,) = inputs
            if isinstance(given, Mapping):
                return [cls.read_item(given, 1, limits)], True
            if isinstance(given, list) and all(isinstance(row, (Mapping, tuple, list)) for row in given):
                return [cls.read_item(cls._by_field(row, n), n, limits) for n, row in enumerate(given, 1)], False
        if len(inputs) != len(cls.inputs):
            several = ": one value each, a list each, or one list of dicts" if len(cls.inputs) > 1 else ""
            wanted = f"{len(cls.inputs)} input(s) ({', '.join(cls.inputs)}{several})"
            raise BadInput(f"{cls.__name__} takes {wanted}, got {len(inputs)}.")
        single = [kind.is_single(given) for kind, given in zip(cls.inputs.values(), inputs, strict=True)]
        is_single = all(single)
        if any(single) and not is_single:  # else a text would be taken for a list of letters
            one, other = (single.index(each) for each in (True, False))
            require_iterable(inputs[other], f"{list(cls.inputs)[other].removesuffix('s')}s")
            a, b = (list(cls.inputs)[each] for each in (one, other))
            raise BadInput(f"Give one value per field, or a list per field; got one {a} and several {b}s.")
        columns = [[given] if is_single else list(require_iterable(given, f"{name.removesuffix('s')}s")) for name, given in zip(cls.inputs, inputs, strict=True)]  # fmt: skip  # noqa: E501
        sizes = {len(column) for column in columns}
        if len(sizes) > 1:
            counts = ", ".join(f"{len(column)} {name}s" for name, column in zip(cls.inputs, columns, strict=True))
            raise BadInput(f"Every item needs one value per field; got {counts}.")
        rows = [dict(zip(cls.inputs, row, strict=True)) for row in zip(*columns, strict=True)]
        return [cls.read_item(row, number, limits) for number, row in enumerate(rows, 1)], is_single

    @classmethod
    def _by_field(cls, row: Any, number: int) -> Mapping[str, Any]:
        """Return an item with a value for each field, given in order or by name, by name."""
        if isinstance(row, Mapping):
            return row
        if len(row) != len(cls.inputs):
            raise BadInput(f"Item {number} has {len(row)} values; expected {', '.join(cls.inputs)}.")
        return dict(zip(cls.inputs, row, strict=True))

    @classmethod
    def read_item(cls, values: Mapping[str, Any], number: int = 1, limits: Limits = NO_LIMITS) -> Any:
        """Return one item of `predict` from Python objects by field; an error names the field and the number."""
        return cls._item(values, number, lambda kind, value: kind.read(value, limits))

    @classmethod
    def item_from_json(cls, values: Any, number: int = 1, limits: Limits = NO_LIMITS) -> Any:
        """Return one item of `predict` from a JSON value: an object by field, or the bare value of a single field."""
        if len(cls.inputs) == 1:
            ((name, kind),) = cls.inputs.items()
            if not isinstance(values, dict) or (kind.is_object and name not in values):
                values = {name: values}
        if not isinstance(values, dict):
            raise BadInput(f"Item {number} must be an object with {', '.join(cls.inputs)}.")
        return cls._item(values, number, lambda kind, value: kind.from_json(value, limits))

    @classmethod
    def _item(cls, values: Mapping[str, Any], number: int, read: Any) -> Any:
        for name in values:
            if name not in cls.inputs:
                raise UnknownName(f"{cls.__name__} has no input '{name}'; {did_you_mean(name, cls.inputs)}")
        found = {}
        for name, kind in cls.inputs.items():
            if name not in values:
                raise BadInput(f"Item {number} has no {name}; expected {', '.join(cls.inputs)}.")
            try:
                found[name] = read(kind, values[name])
            except BadInput as error:
                is_file = kind.media_types and isinstance(values[name], (str, Path))
                label = shorten(values[name], 300) if is_file else f"{name} {number}"
                raise BadInput(str(error) if label in str(error) else f"{label}: {error}") from None
        return found if len(cls.inputs) > 1 else next(iter(found.values()))

    def count_tokens(self, texts: Sequence[str]) -> int:
        """Return how many tokens the model reads of some texts; their characters where it has no tokenizer."""
        tokenizer: Any = getattr(self, "text", None)
        return sum(map(len, texts if tokenizer is None else tokenizer.encode(list(texts))))

    def domain_notes(self, batch: Sequence[Any]) -> list[str]:
        """Return for each item what makes it unlike the training data, in a sentence; "" where nothing does.

        A model without stored domains has nothing to say.
        """
        if not self.domains:
            return [""] * len(batch)
        shown = getattr(self, "preprocess", None)
        domains = {field: domain.seen_through(shown) for field, domain in self.domains.items()}
        rows = batch if len(self.inputs) > 1 else [{next(iter(self.inputs)): value} for value in batch]
        return notes_of(domains, rows)

    # -- options -------------------------------------------------------------------------------------------------------

    @classmethod
    def make_options(cls, values: Mapping[str, Any]) -> Any:
        """Return the options of these names and values, each checked for type and range."""
        known = [f.name for f in fields(cls.options)]
        for name in values:
            if name not in known:
                hint = did_you_mean(name, known) if known else "it has none"
                raise UnknownName(f"{cls.__name__} has no option '{name}'; {hint}")
        made: Any = from_dict(cls.options, values)
        validate(made)
        return made

    def fill_options(self, given: Mapping[str, Any]) -> Any:
        """Return the options of a call: those given, else the defaults of this model, else those of its class."""
        defaults = self.option_defaults
        if defaults and hasattr(self.options, "compatible_defaults"):
            defaults = self.options.compatible_defaults(defaults, given)
        return self.make_options({**defaults, **given})

    # -- schemas -------------------------------------------------------------------------------------------------------

    @classmethod
    def input_schema(cls) -> dict[str, Any]:
        """Return the JSON schema of one item of a request."""
        item = object_schema({name: kind.json_schema() for name, kind in cls.inputs.items()})
        if len(cls.inputs) > 1:
            return item
        return {"anyOf": [next(iter(cls.inputs.values())).json_schema(), item]}

    @classmethod
    def options_schema(cls) -> dict[str, Any]:
        """Return the JSON schema of the options: types, ranges, defaults and help."""
        hints = typing.get_type_hints(cls.options)
        properties = {f.name: _option_schema(f, hints[f.name]) for f in fields(cls.options)}
        return object_schema(properties, optional=properties)

    @classmethod
    def output_schema(cls) -> dict[str, Any]:
        """Return the JSON schema of one output."""
        made: dict[str, Any] = getattr(cls.outputs, "output_schema", cls.outputs.json_schema)()
        return made

    @classmethod
    def request_schema(cls) -> dict[str, Any]:
        """Return the JSON schema of a whole request."""
        inputs = array_schema(cls.input_schema(), minItems=1, maxItems=1024)
        return object_schema({"inputs": inputs, "options": cls.options_schema()}, optional=["options"])

    @classmethod
    def answer_schema(cls) -> dict[str, Any]:
        """Return the JSON schema of a whole answer."""
        warning = object_schema({"input": {"type": "integer"}, "message": {"type": "string"}})
        properties = {"model": {"type": "string"}, "outputs": array_schema(cls.output_schema())}
        return object_schema(properties | {"warnings": array_schema(warning)}, optional=["warnings"])


_JSON_TYPES = {bool: "boolean", int: "integer", float: "number", str: "string"}


def _option_schema(option: Any, hint: Any) -> dict[str, Any]:
    """Return the JSON schema of one option: its type, range, default and help."""
    schema = _type_schema(hint)
    bounds = option.metadata.get("range")
    if bounds is not None and schema.get("type") in ("integer", "number"):
        names = {"low": "minimum", "high": "maximum", "above": "exclusiveMinimum", "below": "exclusiveMaximum"}
        limits = {name: getattr(bounds, key) for key, name in names.items()}
        schema |= {name: value for name, value in limits.items() if isinstance(value, (int, float))}
    elif bounds is None and schema.get("type") == "integer":
        schema["minimum"] = 1  # what `validate` asks of integers without a range
    if option.default is not MISSING:
        schema["default"] = list(option.default) if isinstance(option.default, tuple) else option.default
    if option.metadata.get("help"):
        schema["description"] = option.metadata["help"]
    return schema


def _type_schema(hint: Any) -> dict[str, Any]:
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if hint in _JSON_TYPES:
        return {"type": _JSON_TYPES[hint]}
    if origin is Literal:
        return {"enum": list(inner)}
    if origin in (typing.Union, types.UnionType):
        return {"anyOf": [{"type": "null"} if each is type(None) else _type_schema(each) for each in inner]}
    if origin in (tuple, list, Sequence) or (isinstance(origin, type) and issubclass(origin, Sequence)):
        return {"type": "array", "items": _type_schema(inner[0])}
    return {}


def check_label_count(labels: Sequence[str], classes: int | None) -> None:
    """Raise `BadInput` unless there is a label for every class of a model; None: how many it has is not known."""
    if classes is not None and len(labels) != classes:
        raise BadInput(f"The model has {classes:,} classes, got {len(labels):,} labels; give one for each class.")


def config_value(model: nn.Module, name: str) -> Any:
    """Return a field of a model's Config; None if it has none."""
    return getattr(getattr(model, "config", None), name, None)

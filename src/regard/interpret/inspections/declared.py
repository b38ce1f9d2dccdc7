"""Inspection of any predictor, from its declaration: its output, and the maps that its layers gave meanwhile.

What may be given are the predictor's inputs and options. The prediction is made by `predict` itself while the maps are
captured. Where nothing says which tokens the rows and columns of a map stand for, they are numbered.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import torch

from regard.attention.capture.map_store import LazyMap, watch_lazy
from regard.core.errors import UnknownName, did_you_mean
from regard.interpret.inspection import NO_POSITION, Axis, Inspection
from regard.tasks import task_name
from regard.tasks.predictor import Predictor

NO_MAPS = "The layers of this model give no attention maps, so only its output is shown."


class DeclaredInspection(Inspection):
    """An input and the output of a predictor. Subclasses place the tokens of the maps: `lay_out`."""

    input_types: ClassVar[Mapping[str, Any]] = {}
    input_axis = ""
    figure = "output"
    predictor: Predictor

    @classmethod
    def fields(cls, predictor: type[Any]) -> tuple[dict[str, str], dict[str, Any]]:
        return {name: kind.kind for name, kind in predictor.inputs.items()}, predictor.options_schema()["properties"]

    def check(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Return what was given; its item and its options are read here, with the predictor's own refusals."""
        kind, self.task = type(self.predictor), task_name(self.predictor)
        fields, options = self.fields(kind)
        for name in inputs:
            if name not in fields and name not in options:
                raise UnknownName(f"{kind.__name__} takes no '{name}'; {did_you_mean(str(name), [*fields, *options])}")
        self.item = kind.item_from_json({name: inputs[name] for name in fields if name in inputs})
        self.options = self.predictor.fill_options({name: value for name, value in inputs.items() if name in options})
        return dict(inputs)

    def read(self) -> None:
        self.show()
        self.predict_and_capture()
        self.output = {"kind": self.prediction.kind, **self.prediction.to_json()}
        self._axes_of: dict[str, tuple[str, str]] = {}
        if self.store:
            self.lay_out()
        else:
            self.note = NO_MAPS

    def predict_and_capture(self) -> None:
        """Make the prediction, and store the maps of its passes."""
        (self.prediction,) = self._capture(lambda: self.predictor.predict([self.item], self.options))

    def show(self) -> None:
        """Prepare what is shown of the input."""

    def lay_out(self) -> None:
        """Set the sides of all maps, and which of them are the rows and columns of each; by default numbered tokens."""
        for held in self.store.values():
            self._axes_of[held.name] = self._numbered(held.rows), self._numbered(held.columns)
        self.input_axis = self.input_axis or next(iter(self.axes))

    def axes_of(self, held: LazyMap) -> tuple[str, str]:
        return self._axes_of[held.name]

    def _numbered(self, many: int, name: str = "") -> str:
        """Return the side of so many tokens without a place, made where it is new."""
        name = name or f"{many} tokens"
        numbers = [str(n) for n in range(1, many + 1)]
        self.axes.setdefault(name, Axis(name, numbers, [NO_POSITION] * many, [False] * many))
        return name

    def _capture(self, work: Callable[[], Any]) -> Any:
        """Return what `work` returns; the maps of the passes in it are stored."""
        model = self.predictor.model.eval()
        with torch.no_grad(), watch_lazy(model, values=True, max_bytes=self._most, required=False) as self.store:
            return work()

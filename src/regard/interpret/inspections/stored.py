"""Inspection of a captured pass of any model, with the names of its tokens.

    with regard.watch_lazy(model) as store:
        model(tokens)
    seen = StoredInspection(store, {"text": pieces})
    seen.row("decoder.blocks.0.mix", head=0, query=5)

With one axis, it is both axes of all maps; else `of` returns the names of the axes of a map.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace

from torch import nn

from regard.attention.capture.map_store import LazyMap, MapStore
from regard.core.errors import BadInput
from regard.interpret.inspection import NO_POSITION, Axis, Inspection


class StoredInspection(Inspection):
    """A captured pass."""

    task = "stored"
    input_types = {"name": str}  # noqa: RUF012

    def __init__(
        self,
        store: MapStore,
        sides: Mapping[str, Sequence[str] | Axis],
        of: Callable[[LazyMap], tuple[str, str]] | None = None,
        name: str = "",
    ) -> None:
        if of is None and len(sides) != 1:
            raise BadInput("With several axes, `of` must return the axes of a map.")
        super().__init__(SimpleNamespace(model=nn.Identity()), {"name": name}, name=name)
        self.store, self.input_axis = store, next(iter(sides))
        self._of = of or (lambda held: (self.input_axis, self.input_axis))
        for name_, side in sides.items():
            many = len(side)
            named = side if isinstance(side, Axis) else Axis(name_, list(side), [NO_POSITION] * many, [False] * many)
            self.axes[name_] = named

    def read(self) -> None:
        """Nothing to run."""

    def axes_of(self, held: LazyMap) -> tuple[str, str]:
        return self._of(held)

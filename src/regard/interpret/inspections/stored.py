"""Looking at a pass of any model, whatever task it is for: what was kept of it, and the names of its tokens.

    with regard.watch_lazy(model) as store:
        model(tokens)
    seen = StoredInspection(store, {"text": pieces})
    seen.row("decoder.blocks.0.mix", head=0, query=5)

With one side, all maps have it along both of theirs; else `of` says which are the rows and the columns of a map.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace

from torch import nn

from regard.attention.capture.map_store import LazyMap, MapStore
from regard.core.errors import BadInput
from regard.interpret.inspection import NO_POSITION, Axis, Inspection


class StoredInspection(Inspection):
    """What was kept of a pass, to be asked about."""

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
            raise BadInput("with several sides, say which are the rows and columns of a map: of=")
        super().__init__(SimpleNamespace(model=nn.Identity()), {"name": name}, name=name)
        self.store, self.input_axis = store, next(iter(sides))
        self._of = of or (lambda held: (self.input_axis, self.input_axis))
        for name_, side in sides.items():
            many = len(side)
            named = side if isinstance(side, Axis) else Axis(name_, list(side), [NO_POSITION] * many, [False] * many)
            self.axes[name_] = named

    def read(self) -> None:
        """It was read before."""

    def axes_of(self, held: LazyMap) -> tuple[str, str]:
        """As was said."""
        return self._of(held)

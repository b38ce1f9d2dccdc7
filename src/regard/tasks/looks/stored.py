"""Looking at a pass of any model, whatever task it is for: what was kept of it, and the names of its tokens.

    with regard.kept(model) as store:
        model(tokens)
    seen = StoredLook(store, {"text": pieces})
    seen.row("decoder.blocks.0.mix", head=0, query=5)

With one side, all maps have it along both of theirs; else `of` says which are the rows and the columns of a map.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace

from torch import nn

from regard.attention.kept import Held, Kept
from regard.core.errors import BadInput
from regard.tasks.look import NOWHERE, Look, Side


class StoredLook(Look):
    """What was kept of a pass, to be asked about."""

    task = "stored"
    takes = {"name": str}  # noqa: RUF012

    def __init__(
        self,
        store: Kept,
        sides: Mapping[str, Sequence[str] | Side],
        of: Callable[[Held], tuple[str, str]] | None = None,
        name: str = "",
    ) -> None:
        if of is None and len(sides) != 1:
            raise BadInput("with several sides, say which are the rows and columns of a map: of=")
        super().__init__(SimpleNamespace(model=nn.Identity()), {"name": name}, name=name)
        self.store, self.input = store, next(iter(sides))
        self._of = of or (lambda held: (self.input, self.input))
        for name_, side in sides.items():
            many = len(side)
            named = side if isinstance(side, Side) else Side(name_, list(side), [NOWHERE] * many, [False] * many)
            self.sides[name_] = named

    def read(self) -> None:
        """It was read before."""

    def sides_of(self, held: Held) -> tuple[str, str]:
        """As was said."""
        return self._of(held)

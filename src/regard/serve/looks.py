"""The looks that the explorer keeps: the newest few, and never more than so many bytes of them."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Any

from regard.core.errors import UnknownName


class Looks:
    """Looks by their id; whoever is asked for stays longest."""

    def __init__(self, most: int = 8, memory: int = 2**29) -> None:
        self.most, self.memory = most, memory
        self._kept: OrderedDict[str, Any] = OrderedDict()
        self._lock = threading.Lock()

    def add(self, look: Any) -> None:
        """Keep one; the oldest go where there are too many, or they hold too much. The newest always stays."""
        with self._lock:
            self._kept[look.id] = look
            while len(self._kept) > 1 and (len(self._kept) > self.most or self.bytes > self.memory):
                self._kept.popitem(last=False)

    def get(self, name: str) -> Any:
        """The look of an id."""
        with self._lock:
            if name not in self._kept:
                raise UnknownName("this look is no longer kept (or never was); read the input again")
            self._kept.move_to_end(name)
            return self._kept[name]

    def __len__(self) -> int:
        return len(self._kept)

    @property
    def bytes(self) -> int:
        """What they hold together."""
        return sum(look.bytes for look in self._kept.values())

"""The looks that the explorer keeps: the newest few, and never more than so many bytes of them."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Any

from regard.core.errors import UnknownName


class InspectionCache:
    """Looks by their id; whoever is asked for stays longest."""

    def __init__(self, max_entries: int = 8, memory: int = 2**29) -> None:
        self.max_entries, self.memory = max_entries, memory
        self._entries: OrderedDict[str, Any] = OrderedDict()
        self._lock = threading.Lock()

    def add(self, inspection: Any) -> None:
        """Keep one; the oldest go where there are too many, or they hold too much. The newest always stays."""
        with self._lock:
            self._entries[inspection.id] = inspection
            while len(self._entries) > 1 and (len(self._entries) > self.max_entries or self.bytes > self.memory):
                self._entries.popitem(last=False)

    def get(self, name: str) -> Any:
        """The look of an id."""
        with self._lock:
            if name not in self._entries:
                raise UnknownName("this look is no longer kept (or never was); read the input again")
            self._entries.move_to_end(name)
            return self._entries[name]

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def bytes(self) -> int:
        """What they hold together."""
        return sum(inspection.bytes for inspection in self._entries.values())

"""Cache of inspections: the most recent ones, limited in number and bytes."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Any

from regard.core.errors import UnknownName


class InspectionCache:
    """Inspections by id; the least recently used is dropped first."""

    def __init__(self, max_entries: int = 8, memory: int = 2**29) -> None:
        self.max_entries, self.memory = max_entries, memory
        self._entries: OrderedDict[str, Any] = OrderedDict()
        self._lock = threading.Lock()

    def add(self, inspection: Any) -> None:
        """Store one, and drop the oldest beyond the limits; the newest always stays."""
        with self._lock:
            self._entries[inspection.id] = inspection
            while len(self._entries) > 1 and (len(self._entries) > self.max_entries or self.bytes > self.memory):
                self._entries.popitem(last=False)

    def get(self, name: str) -> Any:
        """Return the inspection of an id."""
        with self._lock:
            if name not in self._entries:
                raise UnknownName("This inspection is no longer stored; run the input again.")
            self._entries.move_to_end(name)
            return self._entries[name]

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def bytes(self) -> int:
        """Size of all of them."""
        return sum(inspection.bytes for inspection in self._entries.values())

"""The KV cache of decoding, and the table of beams.

Beams are *queries of the same input*, not copies of it. The K beams write side by side into one cache and never move; a
small table, B K M, says which slots of the cache are a beam's ancestors. Reordering beams permutes that table only.

While `filled` is a number (or a symbol for one, while a graph is traced), the cache returns views of its filled part.
As a tensor on the device it makes every shape static (the table masks the empty slots), so that one step can be
captured as a CUDA graph and replayed, or exported.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from regard.attention.mask import DenseMask, Mask
from regard.core.shapes import Bool, Float, Int, Tensor


@dataclass(eq=False)
class KVCache:
    """The keys and values of one layer in `capacity` slots; without tensors until the first ones are written."""

    capacity: int
    k: Any = None  # B G M D
    v: Any = None  # B G M E

    def allocate(self, k: Float[Tensor, "B G n D"], v: Float[Tensor, "B G n E"]) -> KVCache:
        """Return the cache with tensors of the shape, dtype and device of these keys and values."""
        if self.k is not None:
            return self
        (b, g, _, d), slots = k.shape, self.capacity
        # zeroed, since a step with static shapes reads all of it, and 0 * nan is nan
        if k.device.type == "cpu":
            return KVCache(slots, k.new_zeros(b, g, slots, d), v.new_zeros(b, g, slots, v.shape[-1]))
        # a token's heads lie side by side
        pair = k.new_zeros(b, slots, g, d), v.new_zeros(b, slots, g, v.shape[-1])
        return KVCache(slots, pair[0].transpose(1, 2), pair[1].transpose(1, 2))

    def append(self, k: Tensor, v: Tensor, beam_table: BeamTable) -> tuple[Tensor, Tensor]:
        """Write the newest slots, which are in the beam table already, and return all keys and values to read."""
        n = k.shape[2]
        if not isinstance(beam_table.filled, Tensor):
            end = beam_table.filled
            self.k[:, :, end - n : end] = k
            self.v[:, :, end - n : end] = v
            return self.k[:, :, :end], self.v[:, :, :end]
        write = write_slots if torch.compiler.is_exporting() else _write  # a graph has no operators of ours
        write(self.k, self.v, beam_table._newest, k, v)
        return self.k, self.v

    def select(self, rows: Int[Tensor, " R"] | None, beams: Int[Tensor, "R K"]) -> KVCache:
        """Keep the inputs `rows` (None: all); beams are reordered by the beam table, not here."""
        if rows is None or self.k is None:
            return self
        return KVCache(self.capacity, self.k[rows], self.v[rows])

    def freeze(self) -> KVCache:
        """Return a state whose steps write in place: the cache does so anyway."""
        return self


_SCHEMA = "(Tensor(a!) keys, Tensor(b!) values, Tensor slots, Tensor k, Tensor v) -> ()"


@torch.library.custom_op("regard::write_slots", mutates_args=("keys", "values"), schema=_SCHEMA)
def _write(keys: Tensor, values: Tensor, slots: Tensor, k: Tensor, v: Tensor) -> None:
    """Write the newest slots. A custom operator, so that compiled code calls it as it is: given the two copies, it may
    make a new cache and copy it back, at every step and in every layer."""
    write_slots(keys, values, slots, k, v)


def write_slots(keys: Tensor, values: Tensor, slots: Tensor, k: Tensor, v: Tensor) -> None:
    """Write keys and values into these slots of a cache."""
    keys.index_copy_(2, slots, k)
    values.index_copy_(2, slots, v)


@dataclass(eq=False)
class BeamTable:
    """Which slots of the cache are the ancestors of each beam, and the time of each slot. Shared by all layers."""

    allow: Bool[Tensor, "B K M"]
    index: Int[Tensor, "#B M"]  # the time of every slot, for each input if prompts differ in length
    filled: int | Tensor = 0
    time: int | Tensor = 0  # as a tensor: #B 1
    single_beam: bool = True  # always one beam and no padding: every filled slot is an ancestor
    _newest: Any = None  # once frozen: the slots of the newest tokens, computed once for all layers

    @staticmethod
    def start(batch: int, capacity: int, device: torch.device) -> BeamTable:
        """Return an empty table."""
        return BeamTable(
            torch.zeros(batch, 1, capacity, dtype=torch.bool, device=device),
            torch.zeros(1, capacity, dtype=torch.long, device=device),
        )

    def add_prompt(self, n: int, lengths: Int[Tensor, " B"] | None = None) -> None:
        """Add a prompt of n slots before all beams; of input b only the first lengths[b] are real (None: all n)."""
        places = torch.arange(n, device=self.allow.device)
        if lengths is None:
            self.allow[:, :, :n] = True
            self.time = n
        else:
            self.allow[:, :, :n] = (places < lengths[:, None])[:, None]
            self.index = self.index.repeat(len(lengths), 1)
            self.time, self.single_beam = lengths[:, None].clone(), False
        self.index[:, :n] = places
        self.filled = n

    def add_step(self, k: int) -> None:
        """Add one slot for each of k beams, at the current time, and advance the time."""
        own = torch.eye(k, dtype=torch.bool, device=self.allow.device)
        if not isinstance(self.filled, Tensor):
            end = self.filled + k
            if end > self.allow.shape[2]:
                raise ValueError(
                    f"the cache has {self.allow.shape[2]} slots, but {end} are needed; start with a larger capacity"
                )
            self.allow[:, :, self.filled : end] = own
            self.index[:, self.filled : end] = self.time
        else:
            self._newest = self.filled + torch.arange(k, device=own.device)
            self.allow.index_copy_(2, self._newest, own.expand(self.allow.shape[0], k, k))
            self.index.index_copy_(1, self._newest, self.time.expand(-1, k))  # type: ignore[union-attr]
        self.single_beam = self.single_beam and k == 1
        self.filled += k
        self.time += 1

    def mask(self) -> Mask | None:
        """Return the mask of the newest slots; None if they see all filled slots."""
        if isinstance(self.filled, Tensor):
            return DenseMask(self.allow)
        return None if self.single_beam else DenseMask(self.allow[:, :, : self.filled])

    def positioned_mask(self) -> DenseMask:
        """Return the mask of the newest slots, which knows when each query and key was written."""
        return DenseMask(
            self.allow if isinstance(self.filled, Tensor) else self.allow[:, :, : self.filled], self.positions()
        )

    def positions(self) -> tuple[Int[Tensor, "#B K"], Int[Tensor, "#B M"]]:
        """Return the times of the newest slots (the queries) and of all slots that are read (the keys)."""
        k = self.allow.shape[1]
        if not isinstance(self.filled, Tensor):
            return self.index[:, self.filled - k : self.filled], self.index[:, : self.filled]
        return (self.time - 1).expand(-1, k), self.index  # type: ignore[union-attr]

    def select(self, rows: Int[Tensor, " R"] | None, beams: Int[Tensor, "R K"]) -> BeamTable:
        """Keep the inputs `rows` (None: all), of each the beams `beams`."""
        own = torch.arange(beams.shape[0], device=beams.device) if rows is None else rows
        allow = self.allow[own[:, None], beams]
        if isinstance(self.filled, Tensor) and rows is None and allow.shape == self.allow.shape:
            self.allow.copy_(allow)  # in place: a captured graph reads this memory
            return self
        index, time = self.index, self.time
        if rows is not None and len(index) > 1:  # per input
            index, time = index[rows], time[rows]  # type: ignore[index]
        return BeamTable(allow, index, self.filled, time, self.single_beam and beams.shape[1] == 1)

    def freeze(self) -> None:
        """Move the counters to the device, so that every shape is static."""
        if not isinstance(self.filled, Tensor):
            self.filled = torch.tensor(self.filled, device=self.allow.device)
            if not isinstance(self.time, Tensor):
                self.time = torch.tensor([[self.time]], device=self.allow.device)

"""Tables of rows that import and export checkpoints of other libraries.

    Row("h.{}.attn.c_proj.weight", "blocks.{}.mix.join.out.weight", transpose)
    Row(("layers.{}.q_proj.weight", "layers.{}.k_proj.weight", "layers.{}.v_proj.weight"),
        "blocks.{}.mix.project.qkv.weight", stack("three (h d) ... -> (h three d) ...", h=8))
    Row("lm_head.extra", None, reason="an index that only transformers reads")

A row names an external tensor (or several), an internal tensor (or several), and the operation between them. ``{}`` is
an index; several have names, ``layers.{s}.blocks.{b}``. The same rows import and export, since every operation has an
inverse:

    same         no change                                  transpose    swap rows and columns
    view         an einops pattern                          stack        several external tensors on a new first axis
    concat       several external tensors, concatenated     split        one external tensor into several internal ones
    tie          several names of one tensor                zero         a bias that the other side lacks
    computed     a table that a module computes: compared, not loaded

A name without a row, on either side, or a shape that does not fit raises an error with all such names, and the model is
not changed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from string import Formatter
from typing import Any, NamedTuple

import torch
from einops import EinopsError, rearrange
from torch import nn

from regard.core.errors import BadInput
from regard.core.shapes import Tensor

# -- operations: load external to internal, save internal to external -----------------------------------------------


@dataclass(frozen=True)
class Op:
    """The operation between external and internal tensors; `save` inverts `load`."""

    def load(self, external: list[Tensor]) -> list[Tensor]:
        """Convert external tensors to internal ones."""
        raise NotImplementedError

    def save(self, internal: list[Tensor]) -> list[Tensor]:
        """Convert internal tensors to external ones."""
        raise NotImplementedError


@dataclass(frozen=True)
class Same(Op):
    """No change."""

    def load(self, external: list[Tensor]) -> list[Tensor]:
        return external

    def save(self, internal: list[Tensor]) -> list[Tensor]:
        return internal


@dataclass(frozen=True)
class Transpose(Op):
    """Swap rows and columns."""

    def load(self, external: list[Tensor]) -> list[Tensor]:
        return [each.mT for each in external]

    def save(self, internal: list[Tensor]) -> list[Tensor]:
        return [each.mT for each in internal]


@dataclass(frozen=True)
class View(Op):
    """Rearrange one tensor by an einops pattern."""

    pattern: str
    sizes: Mapping[str, int]

    def load(self, external: list[Tensor]) -> list[Tensor]:
        return [_rearrange(each, self.pattern, self.sizes) for each in external]

    def save(self, internal: list[Tensor]) -> list[Tensor]:
        return [_rearrange(each, _inverse_pattern(self.pattern), self.sizes) for each in internal]


@dataclass(frozen=True)
class Stack(View):
    """Stack several tensors of one shape on a new first axis, then rearrange."""

    def load(self, external: list[Tensor]) -> list[Tensor]:
        return super().load([torch.stack(external)])

    def save(self, internal: list[Tensor]) -> list[Tensor]:
        return list(super().save(internal)[0].unbind(0))


@dataclass(frozen=True)
class Concat(Op):
    """Rearrange several tensors, each by its own pattern, concatenate them along an axis, then rearrange."""

    parts: tuple[str, ...]
    lengths: tuple[int, ...]  # of each part along the axis
    along: str
    then: str
    sizes: Mapping[str, int]

    def load(self, external: list[Tensor]) -> list[Tensor]:
        sizes = {**self.sizes, self.along: sum(self.lengths)}
        parts = [_rearrange(t, pattern, self.sizes) for t, pattern in zip(external, self.parts, strict=True)]
        return [_rearrange(torch.cat(parts, self._axis()), self.then, sizes)]

    def save(self, internal: list[Tensor]) -> list[Tensor]:
        sizes = {**self.sizes, self.along: sum(self.lengths)}
        parts = _rearrange(internal[0], _inverse_pattern(self.then), sizes).split(self.lengths, self._axis())
        return [
            _rearrange(t, _inverse_pattern(pattern), self.sizes) for t, pattern in zip(parts, self.parts, strict=True)
        ]

    def _axis(self) -> int:
        return self.then.split("->")[0].split().index(self.along)


@dataclass(frozen=True)
class Inverse(Op):
    """The inverse of another operation."""

    of: Op

    def load(self, external: list[Tensor]) -> list[Tensor]:
        return self.of.save(external)

    def save(self, internal: list[Tensor]) -> list[Tensor]:
        return self.of.load(internal)


@dataclass(frozen=True)
class Tie(Op):
    """Several names of one tensor. Files have it under one of them or all; those present must be equal."""


@dataclass(frozen=True)
class Zero(Op):
    """A tensor that one side lacks: imported as zeros, and exported only if it is zero."""

    shape: tuple[int, ...] = ()  # of the external tensor, if the internal one is missing


@dataclass(frozen=True)
class Computed(Op):
    """A table that an internal module computes: compared on import, written on export."""

    rows: int  # exported
    method: str = "vectors"  # of the module: (index 1 N, dtype) -> 1 N C

    def table(self, module: nn.Module, like: Tensor, rows: int) -> Tensor:
        """Return `rows` rows of the internal table."""
        index = torch.arange(rows, device=like.device)[None]
        made: Tensor = getattr(module, self.method)(index, like.dtype)[0]
        return made


same, transpose, tie = Same(), Transpose(), Tie()


def view(pattern: str, **sizes: int) -> View:
    """Rearrange one tensor: ``view("(three h d) c -> (h three d) c", three=3, h=8)``."""
    return View(pattern, sizes)


def stack(pattern: str, **sizes: int) -> Stack:
    """Stack several external tensors into an internal one; the pattern's first axis counts them and needs its size."""
    return Stack(pattern, sizes)


def concat(*parts: str, lengths: Sequence[int], along: str, then: str, **sizes: int) -> Concat:
    """Concatenate several external tensors along an axis of `then` into an internal one; `lengths` are along it."""
    return Concat(parts, tuple(lengths), along, then, sizes)


def split(*parts: str, lengths: Sequence[int], along: str, then: str, **sizes: int) -> Inverse:
    """Split one external tensor into several internal ones: the inverse of `concat`, patterns internal to external."""
    return Inverse(Concat(parts, tuple(lengths), along, then, sizes))


def zero(*shape: int) -> Zero:
    """A bias that one side lacks; `shape` is that of the external tensor, if the internal one is missing."""
    return Zero(shape)


def computed(rows: int, method: str = "vectors") -> Computed:
    """A table that an internal module computes; `rows` are exported."""
    return Computed(rows, method)


def _rearrange(tensor: Tensor, pattern: str, sizes: Mapping[str, int]) -> Tensor:
    names = set(re.findall(r"[A-Za-z_]\w*", pattern))
    return rearrange(tensor, pattern, **{k: v for k, v in sizes.items() if k in names})


def _inverse_pattern(pattern: str) -> str:
    left, right = pattern.split("->")
    return f"{right.strip()} -> {left.strip()}"


# -- rows ------------------------------------------------------------------------------------------------------------

Names = str | tuple[str | None, ...] | None


@dataclass(frozen=True)
class Row:
    """External name or names, internal ones, and the operation; None with a reason for a tensor without a counterpart.

    None among several external names is a missing bias (zeros). For `computed`, the internal name is the module's path.
    """

    external: Names
    internal: Names
    op: Op = field(default=same)
    reason: str = ""

    def __post_init__(self) -> None:
        one_sided = self.external is None or self.internal is None
        if one_sided != bool(self.reason or isinstance(self.op, Zero)):
            raise ValueError(
                f"{self}: a row with one side needs a reason or zero(), a row with two sides takes neither"
            )
        if self.internal is None and isinstance(self.op, Zero) and "{" in str(self.external):
            raise ValueError(f"{self}: the number of tensors to export is unknown; give the names one by one")
        holes = {
            frozenset(n for _, n in _placeholders(p) if n)
            for p in (*_as_tuple(self.external), *_as_tuple(self.internal))
            if p
        }
        if len(holes) > 1:
            raise ValueError(f"{self}: all its names must have the same indices")


def linear(external: str, internal: str, op: Op = same) -> list[Row]:
    """Return the rows of the weight and the bias of a linear layer, a convolution or a norm."""
    return [Row(f"{external}.{part}", f"{internal}.{part}", op) for part in ("weight", "bias")]


def nested(rows: Sequence[Row], external: str, internal: str) -> list[Row]:
    """Return rows with prefixes before their names: the table of a part as rows of the whole."""

    def prefixed(names: Names, prefix: str) -> Names:
        if isinstance(names, tuple):
            return tuple(name and prefix + name for name in names)
        return names and prefix + names

    return [
        replace(row, external=prefixed(row.external, external), internal=prefixed(row.internal, internal))
        for row in rows
    ]


def import_state_dict(table: Sequence[Row], external: Mapping[str, Tensor], model: nn.Module) -> None:
    """Load external tensors into a model: all of them or, if anything does not fit, none."""
    for name, value in external.items():
        if not isinstance(name, str) or not isinstance(value, Tensor):
            raise BadInput(f"{name!r} is a {type(value).__name__}; expected a state dict of tensors")
    internal = model.state_dict(keep_vars=True)
    matches = list(_matches(table, external, internal))
    _check_names(matches, external, internal)
    changes: list[tuple[Tensor, Tensor]] = []
    wrong: list[str] = []
    for match in matches:
        try:
            values = _load_row(match, external, internal, model)
        except (EinopsError, RuntimeError):
            values = []
        if len(values) != len(match.internal) or any(
            v.shape != internal[name].shape for v, name in zip(values, match.internal, strict=True)
        ):
            have = _describe_shapes((n for n in match.external if n), external)
            wrong.append(f"{have} for {_describe_shapes(match.internal, internal)}")
            continue
        changes += [(internal[name], value) for name, value in zip(match.internal, values, strict=True)]
    if wrong:
        more = f", and {len(wrong) - 8} more" if len(wrong) > 8 else ""
        raise BadInput(f"the weights do not fit the model, shapes differ: {'; '.join(wrong[:8])}{more}")
    with torch.no_grad():
        for old, new in changes:
            old.copy_(new)


def export_state_dict(table: Sequence[Row], model: nn.Module) -> dict[str, Tensor]:
    """Return the external tensors of a model under all their names; some may share memory."""
    internal = model.state_dict()
    matches = list(_matches(table, None, internal))
    filled = {name for match in matches for name in match.internal}
    if unknown := [name for name in internal if name not in filled]:
        raise BadInput(f"the format has no tensors for: {', '.join(collapse_indices(unknown))}")
    external: dict[str, Tensor] = {}
    for match in matches:
        try:
            external.update(_save_row(match, internal, model))
        except (EinopsError, RuntimeError):
            raise BadInput(f"the format cannot represent {_describe_shapes(match.internal, internal)}") from None
    return external


# -- names -----------------------------------------------------------------------------------------------------------


Indices = tuple[tuple[str, int], ...]


class Match(NamedTuple):
    """A row with its indices filled in, and those of its names that are present."""

    row: Row
    external: tuple[str | None, ...]
    internal: tuple[str, ...]
    path: str = ""  # of the computing module


def _matches(
    table: Sequence[Row], external: Mapping[str, Tensor] | None, internal: Mapping[str, Tensor]
) -> Iterator[Match]:
    """Yield every row at every index where both sides (for export, the internal one) are complete."""
    for row in table:
        they, we = _as_tuple(row.external), tuple(name for name in _as_tuple(row.internal) if name)
        for at in sorted(_indices(they, external or ()) | _indices(we, internal)):
            named = [name and _fill_pattern(name, at) for name in they]
            match = Match(row, tuple(named), tuple(_fill_pattern(name, at) for name in we))
            if isinstance(row.op, (Tie, Computed)) and external is not None:  # some of the names are enough
                match = match._replace(external=tuple(name for name in named if name in external))
            if isinstance(row.op, Computed):
                match = match._replace(internal=(), path=match.internal[0])
            complete = external is None or all(name in external for name in match.external if name)
            some = match.external or row.external is None
            if some and complete and all(name in internal for name in match.internal):
                yield match


def _indices(patterns: Iterable[str | None], names: Iterable[str]) -> set[Indices]:
    """Return the indices at which any pattern is a name; a pattern without placeholders has the empty one."""
    found: set[Indices] = set()
    for pattern in patterns:
        if pattern and "{" not in pattern:
            found.add(())
        elif pattern:
            regex = _regex(pattern)
            found |= {_match_indices(match) for name in names if (match := regex.fullmatch(name))}
    return found


def _check_names(matches: list[Match], external: Mapping[str, Tensor], internal: Mapping[str, Tensor]) -> None:
    placed = {name for match in matches for name in match.external}
    filled = {name for match in matches for name in match.internal}
    extra = [name for name in external if name not in placed]
    missing = [name for name in internal if name not in filled]
    if extra or missing:
        raise BadInput(mismatch_message(extra, missing))


def mismatch_message(extra: Sequence[str], missing: Sequence[str]) -> str:
    """Return the message for weights that do not fit a model, with both lists."""
    return (
        "the weights do not fit the model; unexpected tensors: "
        f"{', '.join(collapse_indices(extra)) or 'none'}; "
        f"missing tensors: {', '.join(collapse_indices(missing)) or 'none'}"
    )


def collapse_indices(names: Iterable[str]) -> list[str]:
    """Merge names that differ only in their first index: ``blocks.{0-5}.mix.join.out.bias``."""

    def shape(name: str) -> str:
        return re.sub(r"(^|\.)\d+(?=\.|$)", r"\1{}", name, count=1)

    short: dict[str, list[int]] = {}
    for name in names:
        number = re.search(r"(?:^|\.)(\d+)(?=\.|$)", name)
        short.setdefault(shape(name), []).append(int(number[1]) if number else -1)
    return [
        name if name.count("{}") == 0 else name.replace("{}", _format_ranges(indices), 1)
        for name, indices in short.items()
    ]


def _format_ranges(indices: list[int]) -> str:
    if len(indices) == 1:
        return str(indices[0])
    runs = []
    for _, run in groupby(enumerate(sorted(indices)), lambda pair: pair[1] - pair[0]):
        members = [index for _, index in run]
        runs.append(f"{members[0]}-{members[-1]}" if len(members) > 1 else str(members[0]))
    return "{" + ",".join(runs) + "}"


def _as_tuple(names: Names) -> tuple[str | None, ...]:
    return () if names is None else (names,) if isinstance(names, str) else names


def _placeholders(pattern: str) -> Iterator[tuple[str, str | None]]:
    """Yield the literal pieces of a pattern, each with the name of the index after it (None after the last)."""
    count = 0
    for text, name, _, _ in Formatter().parse(pattern):
        if name == "":
            name, count = f"_{count}", count + 1
        yield text, name


def _regex(pattern: str) -> re.Pattern[str]:
    seen: set[str] = set()
    regex = ""
    for text, name in _placeholders(pattern):
        regex += re.escape(text)
        if name is not None:
            regex += f"(?P={name})" if name in seen else rf"(?P<{name}>\d+)"
            seen.add(name)
    return re.compile(regex)


def _match_indices(found: re.Match[str]) -> Indices:
    return tuple((name, int(value)) for name, value in sorted(found.groupdict().items()))


def _fill_pattern(pattern: str, at: Indices) -> str:
    numbers = dict(at)
    return "".join(text + (str(numbers[name]) if name is not None else "") for text, name in _placeholders(pattern))


# -- tensors ---------------------------------------------------------------------------------------------------------


def _load_row(
    match: Match, external: Mapping[str, Tensor], internal: Mapping[str, Tensor], model: nn.Module
) -> list[Tensor]:
    """Return the new values of the internal tensors of a match."""
    row, op = match.row, match.row.op
    if isinstance(op, Computed):
        for name in match.external:
            _check_computed(op, str(name), external[str(name)], model.get_submodule(match.path))
        return []
    if isinstance(op, Zero):
        if row.external is None:
            return [torch.zeros_like(internal[name]) for name in match.internal]
        for name in match.external:
            _check_zero(str(name), external[str(name)], "the model")
        return []
    if row.external is None or row.internal is None:  # without a counterpart
        return [internal[name].detach() for name in match.internal]
    there = [external[name] for name in match.external if name]
    if isinstance(op, Tie):
        for name, value in zip(match.external, there, strict=True):
            if not torch.equal(value, there[0]):
                raise BadInput(
                    f"'{name}' and '{match.external[0]}' are one tensor in this model, but differ in the file"
                )
        return [there[0]] * len(match.internal)
    return op.load([external[name] if name else torch.zeros_like(there[0]) for name in match.external])


def _save_row(match: Match, internal: Mapping[str, Tensor], model: nn.Module) -> dict[str, Tensor]:
    """Return the external tensors of a match."""
    row, op = match.row, match.row.op
    like = next(iter(internal.values()))
    if isinstance(op, Computed):
        made = op.table(model.get_submodule(match.path), like, op.rows)
        return {str(name): made for name in match.external}
    if isinstance(op, Zero):
        for name in match.internal:
            _check_zero(name, internal[name], "the format")
        return {str(name): torch.zeros(op.shape, dtype=like.dtype, device=like.device) for name in match.external}
    if row.external is None or row.internal is None:
        return {}
    mine = [internal[name] for name in match.internal]
    if isinstance(op, Tie):
        for name, value in zip(match.internal, mine, strict=True):
            if value is not mine[0] and not torch.equal(value, mine[0]):
                raise BadInput(
                    f"'{name}' and '{match.internal[0]}' are one tensor in this format, but differ in the model"
                )
        return {str(name): mine[0] for name in match.external}
    made_of = list(zip(match.external, op.save(mine), strict=True))
    for lacking in (value for name, value in made_of if name is None):
        _check_zero(match.internal[0], lacking, "the format")
    return {name: value for name, value in made_of if name}


def _check_zero(name: str, value: Tensor, other: str) -> None:
    if value.any():
        raise BadInput(f"'{name}' has values, but {other} has no such bias")


def _check_computed(op: Computed, name: str, value: Tensor, module: nn.Module) -> None:
    mine = op.table(module, value, len(value))
    if mine.shape != value.shape:
        raise BadInput(f"'{name}' is {tuple(value.shape)}, {type(module).__name__} computes {tuple(mine.shape)}")
    far = (mine.double() - value.double()).abs().max().item() if value.numel() else 0.0
    if far > max(1e-6, 4 * torch.finfo(value.dtype).eps):
        raise BadInput(f"'{name}' is not the table that {type(module).__name__} computes: they differ by {far:.2g}")


def _describe_shapes(names: Iterable[str], tensors: Mapping[str, Any]) -> str:
    return " + ".join(f"{name} {tuple(tensors[name].shape)}" for name in names)

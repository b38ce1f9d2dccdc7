"""Other people's checkpoints in and out, as tables of rows.

    Row("h.{}.attn.c_proj.weight", "blocks.{}.mix.join.out.weight", transpose)
    Row(("layers.{}.q_proj.weight", "layers.{}.k_proj.weight", "layers.{}.v_proj.weight"),
        "blocks.{}.mix.project.qkv.weight", stack("three (h d) ... -> (h three d) ...", h=8))
    Row("lm_head.extra", None, reason="an index that only their program reads")

A row names a tensor of theirs (or several), a tensor of ours (or several), and what lies between. ``{}`` stands for an
index; several may be named, ``layers.{s}.blocks.{b}``. The same rows load (`read`) and save (`write`), since every
operation has an inverse:

    same         as it is                                   transpose    rows and columns changed over
    view         an einops pattern, back by its mirror      stack        several of theirs, laid on a new first axis
    concat       several of theirs, laid end to end         split        one of theirs, cut into several of ours
    tie          many names of one tensor                   zero         a bias that the other side lacks
    computed     a table we compute: compared, not loaded

Nothing is guessed. A name that no row places, on either side, or a shape that does not fit raises with all such names,
and the model is left as it was.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from string import Formatter
from typing import Any, NamedTuple

import torch
from einops import EinopsError, rearrange
from torch import nn

from regard.core.errors import BadInput
from regard.core.shapes import Tensor

# -- operations: load makes ours of theirs, save makes theirs of ours ------------------------------------------------


@dataclass(frozen=True)
class Op:
    """What lies between their tensors and ours; `save` undoes `load`."""

    def load(self, theirs: list[Tensor]) -> list[Tensor]:
        """Theirs to ours."""
        raise NotImplementedError

    def save(self, ours: list[Tensor]) -> list[Tensor]:
        """Ours to theirs."""
        raise NotImplementedError


@dataclass(frozen=True)
class Same(Op):
    """As it is."""

    def load(self, theirs: list[Tensor]) -> list[Tensor]:
        """Nothing to do."""
        return theirs

    def save(self, ours: list[Tensor]) -> list[Tensor]:
        """Nothing to do."""
        return ours


@dataclass(frozen=True)
class Transpose(Op):
    """Rows and columns changed over."""

    def load(self, theirs: list[Tensor]) -> list[Tensor]:
        """Each matrix transposed."""
        return [each.mT for each in theirs]

    def save(self, ours: list[Tensor]) -> list[Tensor]:
        """Each matrix transposed."""
        return [each.mT for each in ours]


@dataclass(frozen=True)
class View(Op):
    """One tensor seen otherwise."""

    pattern: str
    sizes: Mapping[str, int]

    def load(self, theirs: list[Tensor]) -> list[Tensor]:
        """The pattern, left to right."""
        return [_rearranged(each, self.pattern, self.sizes) for each in theirs]

    def save(self, ours: list[Tensor]) -> list[Tensor]:
        """The pattern, right to left."""
        return [_rearranged(each, _mirror(self.pattern), self.sizes) for each in ours]


@dataclass(frozen=True)
class Stack(View):
    """Several tensors of one shape laid on a new first axis, and the whole seen otherwise."""

    def load(self, theirs: list[Tensor]) -> list[Tensor]:
        """Stack, then the pattern."""
        return super().load([torch.stack(theirs)])

    def save(self, ours: list[Tensor]) -> list[Tensor]:
        """The pattern backwards, then apart."""
        return list(super().save(ours)[0].unbind(0))


@dataclass(frozen=True)
class Concat(Op):
    """Several tensors, each seen by its own pattern, laid end to end along an axis, and the whole seen otherwise."""

    parts: tuple[str, ...]
    lengths: tuple[int, ...]  # of each part along the axis
    along: str
    then: str
    sizes: Mapping[str, int]

    def load(self, theirs: list[Tensor]) -> list[Tensor]:
        """Together."""
        sizes = {**self.sizes, self.along: sum(self.lengths)}
        parts = [_rearranged(t, pattern, self.sizes) for t, pattern in zip(theirs, self.parts, strict=True)]
        return [_rearranged(torch.cat(parts, self._axis()), self.then, sizes)]

    def save(self, ours: list[Tensor]) -> list[Tensor]:
        """Apart."""
        sizes = {**self.sizes, self.along: sum(self.lengths)}
        parts = _rearranged(ours[0], _mirror(self.then), sizes).split(self.lengths, self._axis())
        return [_rearranged(t, _mirror(pattern), self.sizes) for t, pattern in zip(parts, self.parts, strict=True)]

    def _axis(self) -> int:
        return self.then.split("->")[0].split().index(self.along)


@dataclass(frozen=True)
class Inverse(Op):
    """Another operation, read from its other side."""

    of: Op

    def load(self, theirs: list[Tensor]) -> list[Tensor]:
        """What the other does to save."""
        return self.of.save(theirs)

    def save(self, ours: list[Tensor]) -> list[Tensor]:
        """What the other does to load."""
        return self.of.load(ours)


@dataclass(frozen=True)
class Tie(Op):
    """Many names of one tensor. Files keep it under one of them or under all; those that are there must be equal."""


@dataclass(frozen=True)
class Zero(Op):
    """A tensor that one side lacks: zeros for the side that has it, and nothing but zeros from it."""

    shape: tuple[int, ...] = ()  # of theirs, where it is ours that lacks it


@dataclass(frozen=True)
class Computed(Op):
    """A table that a module of ours computes: theirs is compared where it is there, and written from ours."""

    rows: int  # how many are written
    method: str = "vectors"  # of the module: (index 1 N, dtype) -> 1 N C

    def table(self, module: nn.Module, like: Tensor, rows: int) -> Tensor:
        """Ours, of as many rows as asked for."""
        index = torch.arange(rows, device=like.device)[None]
        made: Tensor = getattr(module, self.method)(index, like.dtype)[0]
        return made


same, transpose, tie = Same(), Transpose(), Tie()


def view(pattern: str, **sizes: int) -> View:
    """See one tensor otherwise: ``view("(three h d) c -> (h three d) c", three=3, h=8)``."""
    return View(pattern, sizes)


def stack(pattern: str, **sizes: int) -> Stack:
    """Several of theirs into one of ours; the pattern's first axis counts them and needs its size."""
    return Stack(pattern, sizes)


def concat(*parts: str, lengths: Sequence[int], along: str, then: str, **sizes: int) -> Concat:
    """Several of theirs, end to end along an axis of `then`, into one of ours; lengths are those of the parts there."""
    return Concat(parts, tuple(lengths), along, then, sizes)


def split(*parts: str, lengths: Sequence[int], along: str, then: str, **sizes: int) -> Inverse:
    """One of theirs into several of ours: `concat` read backwards, so the patterns go from ours to theirs."""
    return Inverse(Concat(parts, tuple(lengths), along, then, sizes))


def zero(*shape: int) -> Zero:
    """A bias that one side lacks; the shape is theirs, where ours lacks it."""
    return Zero(shape)


def computed(rows: int, method: str = "vectors") -> Computed:
    """A table that a module of ours computes; `rows` are written."""
    return Computed(rows, method)


def _rearranged(tensor: Tensor, pattern: str, sizes: Mapping[str, int]) -> Tensor:
    names = set(re.findall(r"[A-Za-z_]\w*", pattern))
    return rearrange(tensor, pattern, **{k: v for k, v in sizes.items() if k in names})


def _mirror(pattern: str) -> str:
    left, right = pattern.split("->")
    return f"{right.strip()} -> {left.strip()}"


# -- rows ------------------------------------------------------------------------------------------------------------

Names = str | tuple[str | None, ...] | None


@dataclass(frozen=True)
class Row:
    """Their name or names, ours, what lies between; None with a reason for what has no counterpart on purpose.

    None among several of their names is a bias they lack (zeros). For `computed`, ours is the path of the module.
    """

    theirs: Names
    ours: Names
    op: Op = field(default=same)
    reason: str = ""

    def __post_init__(self) -> None:
        one_sided = self.theirs is None or self.ours is None
        if one_sided != bool(self.reason or isinstance(self.op, Zero)):
            raise ValueError(
                f"{self}: a row with one side needs a reason or zero(), a row with two sides takes neither"
            )
        if self.ours is None and isinstance(self.op, Zero) and "{" in str(self.theirs):
            raise ValueError(f"{self}: how many there would be to write cannot be told; give the names one by one")
        holes = {frozenset(n for _, n in _holes(p) if n) for p in (*_several(self.theirs), *_several(self.ours)) if p}
        if len(holes) > 1:
            raise ValueError(f"{self}: all its names must have the same indices")


def linear(theirs: str, ours: str, op: Op = same) -> list[Row]:
    """The rows of a linear map, a convolution or a norm: a weight and a bias."""
    return [Row(f"{theirs}.{part}", f"{ours}.{part}", op) for part in ("weight", "bias")]


def read(table: Sequence[Row], theirs: Mapping[str, Tensor], model: nn.Module) -> None:
    """Load their tensors into our model: all of them or, if anything does not fit, none."""
    for name, value in theirs.items():
        if not isinstance(name, str) or not isinstance(value, Tensor):
            raise BadInput(f"{name!r} is a {type(value).__name__}; give a plain state dict, tensors under their names")
    ours = model.state_dict(keep_vars=True)
    places = list(_places(table, theirs, ours))
    _complain_of_names(places, theirs, ours)
    changes: list[tuple[Tensor, Tensor]] = []
    wrong: list[str] = []
    for place in places:
        try:
            values = _loaded(place, theirs, ours, model)
        except (EinopsError, RuntimeError):
            values = []
        if len(values) != len(place.ours) or any(
            v.shape != ours[name].shape for v, name in zip(values, place.ours, strict=True)
        ):
            have = _with_shapes((n for n in place.theirs if n), theirs)
            wrong.append(f"{have} for {_with_shapes(place.ours, ours)}")
            continue
        changes += [(ours[name], value) for name, value in zip(place.ours, values, strict=True)]
    if wrong:
        more = f", and {len(wrong) - 8} more" if len(wrong) > 8 else ""
        raise BadInput(f"the weights do not fit the model, shapes differ: {'; '.join(wrong[:8])}{more}")
    with torch.no_grad():
        for old, new in changes:
            old.copy_(new)


def write(table: Sequence[Row], model: nn.Module) -> dict[str, Tensor]:
    """Our model as their tensors, under all their names; some may share memory with the model or with one another."""
    ours = model.state_dict()
    places = list(_places(table, None, ours))
    filled = {name for place in places for name in place.ours}
    if unknown := [name for name in ours if name not in filled]:
        raise BadInput(f"their format has no place for: {', '.join(folded(unknown))}")
    theirs: dict[str, Tensor] = {}
    for place in places:
        try:
            theirs.update(_saved(place, ours, model))
        except (EinopsError, RuntimeError):
            raise BadInput(f"their format cannot hold {_with_shapes(place.ours, ours)}") from None
    return theirs


# -- how names meet --------------------------------------------------------------------------------------------------


Indices = tuple[tuple[str, int], ...]


class Place(NamedTuple):
    """A row with its indices filled in, and only those of its names that are there."""

    row: Row
    theirs: tuple[str | None, ...]
    ours: tuple[str, ...]
    path: str = ""  # of the module that computes


def _places(table: Sequence[Row], theirs: Mapping[str, Tensor] | None, ours: Mapping[str, Tensor]) -> Iterator[Place]:
    """Every row at every index, where both sides are complete; to save (theirs is None), where ours is."""
    for row in table:
        they, we = _several(row.theirs), tuple(name for name in _several(row.ours) if name)
        for at in sorted(_indices(they, theirs or ()) | _indices(we, ours)):
            named = [name and _filled(name, at) for name in they]
            place = Place(row, tuple(named), tuple(_filled(name, at) for name in we))
            if isinstance(row.op, (Tie, Computed)) and theirs is not None:  # some of their names are enough
                place = place._replace(theirs=tuple(name for name in named if name in theirs))
            if isinstance(row.op, Computed):
                place = place._replace(ours=(), path=place.ours[0])
            complete = theirs is None or all(name in theirs for name in place.theirs if name)
            some = place.theirs or row.theirs is None
            if some and complete and all(name in ours for name in place.ours):
                yield place


def _indices(patterns: Iterable[str | None], names: Iterable[str]) -> set[Indices]:
    """The indices at which any of these patterns is the name of something; a name without holes has the empty one."""
    found: set[Indices] = set()
    for pattern in patterns:
        if pattern and "{" not in pattern:
            found.add(())
        elif pattern:
            regex = _regex(pattern)
            found |= {_frozen(match) for name in names if (match := regex.fullmatch(name))}
    return found


def _complain_of_names(places: list[Place], theirs: Mapping[str, Tensor], ours: Mapping[str, Tensor]) -> None:
    placed = {name for place in places for name in place.theirs}
    filled = {name for place in places for name in place.ours}
    extra = [name for name in theirs if name not in placed]
    missing = [name for name in ours if name not in filled]
    if extra or missing:
        raise BadInput(fit(extra, missing))


def fit(extra: Sequence[str], missing: Sequence[str]) -> str:
    """The message for weights and a model that are not of one kind, with both lists."""
    return (
        f"the weights do not fit the model; weights without a place in it: {', '.join(folded(extra)) or 'none'}; "
        f"its tensors that are not among the weights: {', '.join(folded(missing)) or 'none'}"
    )


def folded(names: Iterable[str]) -> list[str]:
    """Names that differ in their first index only, as one: ``blocks.{0-5}.mix.join.out.bias``."""

    def shape(name: str) -> str:
        return re.sub(r"(^|\.)\d+(?=\.|$)", r"\1{}", name, count=1)

    short: dict[str, list[int]] = {}
    for name in names:
        number = re.search(r"(?:^|\.)(\d+)(?=\.|$)", name)
        short.setdefault(shape(name), []).append(int(number[1]) if number else -1)
    return [
        name if name.count("{}") == 0 else name.replace("{}", _ranges(indices), 1) for name, indices in short.items()
    ]


def _ranges(indices: list[int]) -> str:
    if len(indices) == 1:
        return str(indices[0])
    runs = []
    for _, run in groupby(enumerate(sorted(indices)), lambda pair: pair[1] - pair[0]):
        members = [index for _, index in run]
        runs.append(f"{members[0]}-{members[-1]}" if len(members) > 1 else str(members[0]))
    return "{" + ",".join(runs) + "}"


def _several(names: Names) -> tuple[str | None, ...]:
    return () if names is None else (names,) if isinstance(names, str) else names


def _holes(pattern: str) -> Iterator[tuple[str, str | None]]:
    """The literal pieces of a pattern, each with the name of the index after it (None after the last)."""
    count = 0
    for text, name, _, _ in Formatter().parse(pattern):
        if name == "":
            name, count = f"_{count}", count + 1
        yield text, name


def _regex(pattern: str) -> re.Pattern[str]:
    seen: set[str] = set()
    regex = ""
    for text, name in _holes(pattern):
        regex += re.escape(text)
        if name is not None:
            regex += f"(?P={name})" if name in seen else rf"(?P<{name}>\d+)"
            seen.add(name)
    return re.compile(regex)


def _frozen(found: re.Match[str]) -> Indices:
    return tuple((name, int(value)) for name, value in sorted(found.groupdict().items()))


def _filled(pattern: str, at: Indices) -> str:
    numbers = dict(at)
    return "".join(text + (str(numbers[name]) if name is not None else "") for text, name in _holes(pattern))


# -- how tensors meet ------------------------------------------------------------------------------------------------


def _loaded(place: Place, theirs: Mapping[str, Tensor], ours: Mapping[str, Tensor], model: nn.Module) -> list[Tensor]:
    """What our tensors of this place become."""
    row, op = place.row, place.row.op
    if isinstance(op, Computed):
        for name in place.theirs:
            _check_computed(op, str(name), theirs[str(name)], model.get_submodule(place.path))
        return []
    if isinstance(op, Zero):
        if row.theirs is None:
            return [torch.zeros_like(ours[name]) for name in place.ours]
        for name in place.theirs:
            _check_zero(str(name), theirs[str(name)], "the model")
        return []
    if row.theirs is None or row.ours is None:  # kept, or dropped, on purpose
        return [ours[name].detach() for name in place.ours]
    there = [theirs[name] for name in place.theirs if name]
    if isinstance(op, Tie):
        for name, value in zip(place.theirs, there, strict=True):
            if not torch.equal(value, there[0]):
                raise BadInput(f"'{name}' and '{place.theirs[0]}' are one tensor in this model, but differ in the file")
        return [there[0]] * len(place.ours)
    return op.load([theirs[name] if name else torch.zeros_like(there[0]) for name in place.theirs])


def _saved(place: Place, ours: Mapping[str, Tensor], model: nn.Module) -> dict[str, Tensor]:
    """Their tensors of this place."""
    row, op = place.row, place.row.op
    like = next(iter(ours.values()))
    if isinstance(op, Computed):
        made = op.table(model.get_submodule(place.path), like, op.rows)
        return {str(name): made for name in place.theirs}
    if isinstance(op, Zero):
        for name in place.ours:
            _check_zero(name, ours[name], "their format")
        return {str(name): torch.zeros(op.shape, dtype=like.dtype, device=like.device) for name in place.theirs}
    if row.theirs is None or row.ours is None:
        return {}
    mine = [ours[name] for name in place.ours]
    if isinstance(op, Tie):
        for name, value in zip(place.ours, mine, strict=True):
            if value is not mine[0] and not torch.equal(value, mine[0]):
                raise BadInput(f"'{name}' and '{place.ours[0]}' are one tensor in their format, but differ here")
        return {str(name): mine[0] for name in place.theirs}
    made_of = list(zip(place.theirs, op.save(mine), strict=True))
    for lacking in (value for name, value in made_of if name is None):
        _check_zero(place.ours[0], lacking, "their format")
    return {name: value for name, value in made_of if name}


def _check_zero(name: str, value: Tensor, other: str) -> None:
    if value.any():
        raise BadInput(f"'{name}' has values, but {other} has no such bias")


def _check_computed(op: Computed, name: str, value: Tensor, module: nn.Module) -> None:
    mine = op.table(module, value, len(value))
    if mine.shape != value.shape:
        raise BadInput(f"'{name}' is {tuple(value.shape)}, our {type(module).__name__} computes {tuple(mine.shape)}")
    far = (mine.double() - value.double()).abs().max().item() if value.numel() else 0.0
    if far > max(1e-6, 4 * torch.finfo(value.dtype).eps):
        raise BadInput(f"'{name}' is not the table that our {type(module).__name__} computes: they differ by {far:.2g}")


def _with_shapes(names: Iterable[str], tensors: Mapping[str, Any]) -> str:
    return " + ".join(f"{name} {tuple(tensors[name].shape)}" for name in names)

"""Beginning from given weights: those of a run, of a saved model (also a BERT, GPT-2 or T5 folder of transformers, or
one of an image model of transformers or timm), or of one that ships with the package.

    same name, same shape             taken
    a head (or the pooler before it)  new, where it is missing there or has another shape
    positions of another grid         drawn larger or smaller, as they are for a larger image (positions.added.grid)
    a model of another kind           its encoder, where both have the same and it stands by itself (CTC, a listener)
    any other difference              an error that names it

The vocabulary is taken too, since the numbers of words mean nothing without it. A run that is resumed goes on with its
own weights; what it once began from need no longer be there.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import torch
from torch import nn

from regard.core.errors import BadInput, RegardError
from regard.core.shapes import Tensor
from regard.positions.added.grid import GridPositions
from regard.training.parallel.sharded_tensor import copy_values
from regard.training.weight_averaging import named_tensors
from regard.weights.folder import load_model, model_folder, read_json

# what reads folders of transformers, by kind
CHECKPOINT_READERS = {"bert": "regard.weights.hf.bert", "gpt2": "regard.weights.hf.gpt2", "t5": "regard.weights.hf.t5"}
# what belongs to a task rather than to the reading of a text or an image
HEAD_PREFIXES = ("head.", "distilled_head.", "represent.", "pool.")


def resolve_source(name: str) -> Path:
    """The folder of a saved model that a name means: a run's, a folder, or one that ships with the package."""
    shipped = Path(__file__).resolve().parents[1] / "zoo" / name
    try:
        asked = model_folder(Path(name).expanduser())
    except BadInput as error:
        raise BadInput(f"train.init_from={name}: {error}") from None
    for place in (asked, shipped):
        if (place / "config.json").is_file():
            return place
    raise BadInput(f"train.init_from={name}: there is no run and no saved model there, and none ships under that name")


@torch.no_grad()
def load_initial_weights(model: nn.Module, source: Path) -> str:
    """Copy the weights that fit into a model, and say in a line what was taken and what is new."""
    try:
        given = _load_source_model(source)
    except RegardError as error:
        raise BadInput(f"cannot begin from {source}: {error}") from None
    if type(given) is not type(model):
        return _load_encoder(model, given, source)
    own, there = named_tensors(model), named_tensors(given)
    new, wrong = [], []
    for name, x in own.items():
        if name in there and there[name].shape == x.shape:
            copy_values(x, there[name])
        elif (drawn := _resize_positions(model, given, name)) is not None:
            copy_values(x, drawn)
        elif name.startswith(HEAD_PREFIXES):
            new.append(name)
        else:
            is_ = tuple(there[name].shape) if name in there else "missing"
            wrong.append(f"{name} is {is_} there, {tuple(x.shape)} here")
    wrong += [f"{name} is not in the model" for name in there if name not in own and not name.startswith(HEAD_PREFIXES)]
    _raise_mismatch(source, wrong)
    left = [name for name in there if name not in own]
    said = f"begins from {source}: {len(own) - len(new)} tensors taken"
    said += f"; new: {', '.join(new)}" if new else ""
    return said + (f"; left there: {', '.join(left)}" if left else "")


def _load_encoder(model: nn.Module, given: nn.Module, source: Path) -> str:
    """Copy the encoder of a model of another kind, the whole of it, and say so."""
    mine, theirs = getattr(model, "encoder", None), getattr(given, "encoder", None)
    if not getattr(mine, "initializes_others", False) or type(mine) is not type(theirs):
        kinds = [type(each).__name__ for each in (given, model)]
        raise BadInput(
            f"cannot begin from {source}: it is of the kind {kinds[0]}; this model is of the kind {kinds[1]}"
        )
    assert isinstance(mine, nn.Module)
    assert isinstance(theirs, nn.Module)
    own, there = named_tensors(mine), named_tensors(theirs)
    pairs = {name: (there.get(name), own.get(name)) for name in {**own, **there}}
    shapes = {name: tuple("missing" if x is None else tuple(x.shape) for x in two) for name, two in pairs.items()}
    _raise_mismatch(source, [f"encoder.{name} is {a} there, {b} here" for name, (a, b) in shapes.items() if a != b])
    for name, x in own.items():
        copy_values(x, there[name])
    return f"begins from the encoder of {source}: {len(own)} tensors taken; everything else is new"


def _raise_mismatch(source: Path, wrong: list[str]) -> None:
    if wrong:
        more = f", and {len(wrong) - 4} more" if len(wrong) > 4 else ""
        raise BadInput(f"cannot begin from {source}: {'; '.join(wrong[:4])}{more}")


def _resize_positions(model: nn.Module, given: nn.Module, name: str) -> Tensor | None:
    """A table of positions for the grid of this model, from one for another grid; None where it is no such table."""
    path, _, last = name.rpartition(".")
    mine, theirs = model.get_submodule(path), given.get_submodule(path) if name in named_tensors(given) else None
    if not (isinstance(mine, GridPositions) and isinstance(theirs, GridPositions) and last == "table"):
        return None
    if (mine.prefix, mine.table.shape[-1]) != (theirs.prefix, theirs.table.shape[-1]):
        return None
    return theirs.vectors(mine.grid, theirs.prefix)


def _load_source_model(source: Path) -> nn.Module:
    """The model of a folder, ours, transformers' or timm's."""
    from regard.weights.checkpoint_formats import find_image_importer

    reader = CHECKPOINT_READERS.get(str(read_json(source / "config.json").get("model_type"))) or find_image_importer(
        source
    )
    if reader is None:
        return load_model(source).model
    given: nn.Module = import_module(reader).load(source)[0]
    return given

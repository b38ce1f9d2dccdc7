"""Initialise a model from given weights.

The source is a run, a saved model (also a BERT, GPT-2 or T5 folder of transformers, or an image model of transformers
or timm), a model that ships with the package, or one in a package of its own: minilm, imagenet (EfficientNet-Lite).

`adopt_source` gives a recipe the architecture and the preprocessing of its source, and rows that its positions reach
(its tokenizer comes along anyway): what is set by name stays (`model.attention=linear`), and so do dropout and the
like, which are no architecture. Then

    same name, same shape             copied
    a head (or the pooler before it)  new, where it is missing in the source or has another shape or other labels
    parameters of a mechanism         new, where the source has another attention mechanism (model.attention)
    positions of another grid         resized, as for a larger image (positions.added.grid)
    tokens that the source lacks      the mean of its embeddings (characters of the training text)
    a model of another class          the part that both have: one module of the same type on either side, with the
                                      same tensors, that is at least half of one of the models (an encoder, a backbone);
                                      its head is left out, its positions are resized
    any other difference              an error that names it

The vocabulary is copied too, and characters are added to one of characters. A resumed run continues with its own
weights; the source need no longer exist.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields, is_dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import nn

from regard.api import PACKAGED_MODELS, package_folder
from regard.attention.protocol import Mechanism
from regard.core.config import from_dict
from regard.core.errors import BadInput, RegardError
from regard.core.shapes import Tensor
from regard.core.spec import Spec, resolve
from regard.modalities.audio import AudioPreprocess
from regard.modalities.image import Preprocess
from regard.models.contract import ImageModel
from regard.positions.added.grid import GridPositions
from regard.training.parallel.sharded_tensor import copy_values
from regard.training.recipe import Recipe, model_family
from regard.training.weight_averaging import named_tensors
from regard.weights.folder import SavedModel, load_model, model_folder, read_json
from regard.weights.hf import sentence_transformers
from regard.weights.other import efficientnet_lite

# importers of transformers folders, by model_type
CHECKPOINT_READERS = {
    "bert": "regard.weights.hf.bert",
    "gpt2": "regard.weights.hf.gpt2",
    "marian": "regard.weights.hf.marian",
    "t5": "regard.weights.hf.t5",
}
# a row for each label
CLASS_HEADS = ("head.", "distilled_head.", "class_head.")
# parameters that belong to a task rather than to the encoder
HEAD_PREFIXES = ("head.", "distilled_head.", "pre_logits.", "pool.", "class_head.", "mask_head.")
# fields of a model's config that regularise it: a recipe keeps its own
REGULARISATION = ("dropout", "drop_path", "layer_drop")


def resolve_source(name: str) -> Path:
    """Return the folder of a saved model by name: a run's, a folder, one that ships or is in a package of its own."""
    if not Path(name).exists():
        if name == "imagenet":
            return efficientnet_lite.find_package()
        if name in PACKAGED_MODELS:
            return package_folder(name)
    shipped = Path(__file__).resolve().parents[1] / "zoo" / name
    try:
        folder = model_folder(Path(name).expanduser())
    except BadInput as error:
        raise BadInput(f"train.init_from={name}: {error}") from None
    for candidate in (folder, shipped):
        if (candidate / "config.json").is_file():
            return candidate
    raise BadInput(
        f"train.init_from={name}: there is no run or saved model there, and no model of that name ships with regard"
    )


@torch.no_grad()
def load_initial_weights(
    model: nn.Module, source: Path, labels: Sequence[str] | None = None, added_tokens: int = 0
) -> str:
    """Copy the weights that fit into a model, and return a line that says what was copied and what is new.

    With `labels`, those of the model, a head for as many other labels is new. `added_tokens` of the model's vocabulary
    stand behind those of the source.
    """
    try:
        saved = load_source(source)
    except RegardError as error:
        raise BadInput(f"cannot initialise from {source}: {error}") from None
    source_model, known = saved.model, (saved.task or {}).get("labels")
    others = bool(labels and known) and [*map(str, labels or ())] != [*map(str, known or ())]
    if type(source_model) is not type(model):
        return _load_part(model, source_model, source)
    own, source_tensors = named_tensors(model), named_tensors(source_model)
    may_differ = (*HEAD_PREFIXES, *_mechanisms(model), *_mechanisms(source_model))
    new, wrong = [], []
    for name, x in own.items():
        if others and name.startswith(CLASS_HEADS) and x.shape[:1] == (len(labels or ()),):
            new.append(name)
        elif name in source_tensors and source_tensors[name].shape == x.shape:
            copy_values(x, source_tensors[name])
        elif (resized := _resize_positions(model, source_model, name)) is not None:
            copy_values(x, resized)
        elif (extended := _extend_tokens(model, source_model, source_tensors.get(name), added_tokens)) is not None:
            copy_values(x, extended)
        elif name.startswith(may_differ):
            new.append(name)
        else:
            shape = tuple(source_tensors[name].shape) if name in source_tensors else "missing"
            wrong.append(f"{name} is {shape} in the source, {tuple(x.shape)} in the model")
    wrong += [
        f"{name} is not in the model" for name in source_tensors if name not in own and not name.startswith(may_differ)
    ]
    _raise_mismatch(source, wrong)
    left = [name for name in source_tensors if name not in own]
    message = f"initialised from {source}: {len(own) - len(new)} tensors copied"
    message += f"; new: {', '.join(new)}" if new else ""
    message += f"; tokens added to its vocabulary: {added_tokens}" if added_tokens else ""
    return message + (f"; not used: {', '.join(left)}" if left else "")


def _mechanisms(model: nn.Module) -> list[str]:
    """Return the beginnings of the names of tensors that belong to attention mechanisms."""
    return [f"{path}." for path, module in model.named_modules() if isinstance(module, Mechanism)]


def _load_part(model: nn.Module, source_model: nn.Module, source: Path) -> str:
    """Copy the largest part that two models of different classes share; return a line that counts all tensors."""
    if isinstance(model, type(source_model)) or isinstance(source_model, type(model)):  # half of a variant is no start
        kinds = [type(each).__name__ for each in (source_model, model)]
        raise BadInput(f"cannot initialise from {source}: it is a {kinds[0]}, this model is a {kinds[1]}")
    parts = sorted(_shared_types(model, source_model), key=lambda pair: -_size(model.get_submodule(pair[0])))
    if not parts:
        kinds = [type(each).__name__ for each in (source_model, model)]
        raise BadInput(
            f"cannot initialise from {source}: it is a {kinds[0]}, this model is a {kinds[1]}, and no part of one type "
            f"makes up half of either"
        )
    path, source_path = parts[0]
    part, source_part = model.get_submodule(path), source_model.get_submodule(source_path)
    own, tensors = named_tensors(part), named_tensors(source_part)
    for name in list(tensors):
        if name not in own and name.startswith(HEAD_PREFIXES):  # a classifier's, where its body is a backbone
            del tensors[name]
        elif name in own and (resized := _resize_positions(part, source_part, name)) is not None:
            tensors[name] = resized
    pairs = {name: (tensors.get(name), own.get(name)) for name in {**own, **tensors}}
    shapes = {name: tuple("missing" if x is None else tuple(x.shape) for x in two) for name, two in pairs.items()}
    stem = f"{path}." if path else ""
    both = f"{source}, a {type(source_model).__name__}, where this is a {type(model).__name__}"
    _raise_mismatch(
        both, [f"{stem}{name} is {a} in the source, {b} in the model" for name, (a, b) in shapes.items() if a != b]
    )
    for name, x in own.items():
        copy_values(x, tensors[name])
    new, unused = len(named_tensors(model)) - len(own), len(named_tensors(source_model)) - len(tensors)
    where = f"{source_path} of {source}" if source_path else str(source)
    return f"initialised {path or 'the model'} from {where}: {len(own)} tensors copied, {new} new, {unused} not used"


def _shared_types(model: nn.Module, source_model: nn.Module) -> list[tuple[str, str]]:
    """Return the paths of modules whose type occurs once in both models, and that are half of one of them or more."""
    own, theirs = _unique_types(model), _unique_types(source_model)
    half = min(_size(model), _size(source_model)) / 2
    return [
        (own[kind], theirs[kind])
        for kind in own.keys() & theirs.keys()
        if _size(model.get_submodule(own[kind])) >= half and _size(source_model.get_submodule(theirs[kind])) >= half
    ]


def _unique_types(model: nn.Module) -> dict[type[nn.Module], str]:
    """Return the path of every module whose type occurs once; containers and layers of torch are no parts."""
    found: dict[type[nn.Module], list[str]] = {}
    for path, module in model.named_modules():
        if not type(module).__module__.startswith("torch.nn."):
            found.setdefault(type(module), []).append(path)
    return {kind: paths[0] for kind, paths in found.items() if len(paths) == 1}


def _size(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def _raise_mismatch(source: Path | str, wrong: list[str]) -> None:
    if wrong:
        more = f", and {len(wrong) - 4} more" if len(wrong) > 4 else ""
        raise BadInput(f"cannot initialise from {source}: {'; '.join(wrong[:4])}{more}")


def _resize_positions(model: nn.Module, source_model: nn.Module, name: str) -> Tensor | None:
    """Return the source's position table resized to this model's grid; None if it is not such a table."""
    path, _, last = name.rpartition(".")
    encoder, source_encoder = (
        model.get_submodule(path),
        source_model.get_submodule(path) if name in named_tensors(source_model) else None,
    )
    if not (isinstance(encoder, GridPositions) and isinstance(source_encoder, GridPositions) and last == "table"):
        return None
    if (encoder.prefix, encoder.table.shape[-1]) != (source_encoder.prefix, source_encoder.table.shape[-1]):
        return None
    return source_encoder.vectors(encoder.grid, source_encoder.prefix)


def _extend_tokens(model: Any, source_model: Any, tensor: Tensor | None, added: int) -> Tensor | None:
    """Return a tensor of the source that has a row for each token, with rows for the tokens that were added."""
    if not added or tensor is None or not len(tensor) == source_model.config.vocab == model.config.vocab - added:
        return None
    return torch.cat([tensor, tensor.mean(0, keepdim=True).expand(added, *tensor.shape[1:])])


def load_source(source: Path) -> SavedModel:
    """Load the model of a folder with its task: ours, one of transformers, sentence-transformers or timm, or ImageNet
    weights in a package."""
    from regard.weights.checkpoint_formats import find_image_importer, labels_in_order, load_image_model

    if efficientnet_lite.is_package(source):
        model, preprocessing = efficientnet_lite.load(efficientnet_lite.packaged_size(source))
        return SavedModel(model, None, {"name": "image_classification", **preprocessing}, None, {})
    if sentence_transformers.is_sentence_transformers_folder(source):
        encoder, text, how = sentence_transformers.load(source)
        return SavedModel(encoder, text, {"name": "embedding", **how}, None, {})
    config = read_json(source / "config.json")
    reader = CHECKPOINT_READERS.get(str(config.get("model_type")))
    if reader is not None:
        labels = labels_in_order(config.get("id2label") or {0: "LABEL_0", 1: "LABEL_1"})  # unnamed: those of no data
        return SavedModel(import_module(reader).load(source)[0], None, {"labels": labels}, None, {})
    return load_image_model(source) if find_image_importer(source) else load_model(source)


def adopt_source(recipe: Recipe, keep: Iterable[str] = ()) -> tuple[Recipe, str]:
    """Return a recipe with the architecture and preprocessing of what it starts from, and a line that says so.

    `keep` are the settings that were given by name ("model.attention", "data.image_size"); they stay. A model of
    another family is adopted if both are image models; otherwise the recipe keeps its own, and a part is shared.
    """
    name = recipe.train.init_from
    if name is None:
        return recipe, ""
    source, kept = resolve_source(name), set(keep)
    try:
        found = load_source(source)
    except RegardError as error:
        raise BadInput(f"cannot initialise from {source}: {error}") from None
    said = _describe_tokenizer(recipe, name, source, kept)
    theirs: Any = getattr(found.model, "config", None)
    family, own = model_family(theirs) if is_dataclass(theirs) else "", model_family(recipe.model)
    if family != own and not (family and isinstance(found.model, ImageModel) and _is_image_model(own)):
        return recipe, _adopted(name, said)
    names = {f.name for f in fields(theirs)} & {f.name for f in fields(recipe.model)}
    stays = [f for f in names if f"model.{f}" in kept or f.endswith(REGULARISATION)]
    model = replace(theirs, **{f: getattr(recipe.model, f) for f in stays})
    changed: dict[str, Any] = {} if model == recipe.model else {"model": model}
    said = [*([_describe(family, model)] if changed else []), *said]
    if (rows := _row_length(recipe, model)) and f"data.{rows}" not in kept:
        changed["data"] = replace(recipe.data, **{rows: model.length})
        said.append(f"rows of {model.length} tokens")
    shown = (found.task or {}).get("preprocess")
    if shown is not None and any(f.name == "preprocess" for f in fields(recipe.data)):
        shown = from_dict(Preprocess if "size" in shown else AudioPreprocess, shown)
        if isinstance(shown, Preprocess):
            side = recipe.data.image_size if "data.image_size" in kept else None
            gray = shown.channels == 1
            if "data.grayscale" in kept and recipe.data.grayscale != gray:
                raise BadInput(f"{name} reads {'grey' if gray else 'colour'} images; leave out data.grayscale")
            changed["data"] = replace(recipe.data, image_size=side, grayscale=gray, preprocess=shown)
            said.append(f"images of {side or shown.size[0]} pixels{', grey' if gray else ''}, normalised as it needs")
        else:
            changed["data"] = replace(recipe.data, preprocess=shown)
            said.append("its preprocessing of audio")
    return replace(recipe, **changed), _adopted(name, said)


def _adopted(name: str, said: list[str]) -> str:
    return f"adopted from {name}: {'; '.join(said)}" if said else ""


def _describe_tokenizer(recipe: Recipe, name: str, source: Path, kept: set[str]) -> list[str]:
    """Return what is said of the source's tokenizer, which a task of texts takes; refuse settings of another one."""
    from regard.tasks.base import load_tokenizer

    if not any(f.name == "tokenizer" for f in fields(recipe.data)):
        return []
    tokenizer = load_tokenizer(source)
    assert tokenizer is not None
    if other := sorted(kept & {"data.tokenizer", "data.vocab_size", "data.lowercase"}):
        raise BadInput(f"train.init_from={name} brings its tokenizer; leave out {', '.join(other)}")
    return [f"its tokenizer ({tokenizer.kind}, {tokenizer.size:,} tokens)"]


def _row_length(recipe: Recipe, model: Any) -> str:
    """Return the data's setting of the length of rows, if it is more than the positions that a model has learned."""
    learned = Spec.parse(getattr(model, "positions", None) or "none").name == "learned" and hasattr(model, "length")
    names = (name for name in ("max_length", "context_length") if learned and hasattr(recipe.data, name))
    return next((name for name in names if getattr(recipe.data, name) > model.length), "")


def _is_image_model(family: str) -> bool:
    from regard.models import MODELS

    return issubclass(resolve(MODELS, family, "model"), ImageModel)


def _describe(family: str, model: Any) -> str:
    """Return a model's family and sizes in words."""
    sizes = {name: getattr(model, name, None) for name in ("width", "layers", "heads", "vocab")}
    return ", ".join([family, *(f"{name} {size}" for name, size in sizes.items() if isinstance(size, int))])

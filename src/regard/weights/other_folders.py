"""What a folder of transformers, sentence-transformers or timm holds, by its small files and the headers of the others.

    text, facts, settings = describe(Path("bert-base-ner"), config)

No weights are read and torch is not imported; `text` is empty for a model that Regard cannot load.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from regard.core.errors import RegardError, shorten
from regard.core.source_reader import read_module

MAX_HEADER = 100 * 2**20  # bytes of the header of a .safetensors file
MAX_LABELS, MAX_VALUE = 8, 60  # labels that are named, and characters of a setting


NO_TASK = "none (the bare model)"


def describe(folder: Path, config: Mapping[str, Any]) -> tuple[str, dict[str, str], dict[str, str]]:
    """Return a sentence about the model of a folder, its facts, and the settings of its config.json."""
    sentences, architecture = (folder / "modules.json").is_file(), config.get("architecture")
    library = "sentence-transformers" if sentences else "timm" if isinstance(architecture, str) else "transformers"
    name = str(architecture) if library == "timm" else _architecture(config)
    task = "embedding" if sentences else _task(folder, name, config)
    facts = {"library": library, "model": name, "task": "-" if task is None else task or NO_TASK}
    if labels := _labels(config):
        named = ", ".join(labels[:MAX_LABELS]) + (", …" if len(labels) > MAX_LABELS else "")
        facts["labels"] = f"{len(labels)}: {named}"
    count = count_parameters(folder)
    facts["parameters"] = f"{count:,}" if count else "not known before the weights are read"
    facts["stored as"] = f"{sum(file.stat().st_size for file in folder.iterdir() if file.is_file()) / 2**20:.1f} MiB"
    if missing := _missing(folder, config):
        facts["missing"] = missing
    settings = {key: shorten(json.dumps(value), MAX_VALUE) for key, value in _settings(config).items()}
    text = f"{name}, saved by {library}."
    return ("" if task is None else text), facts, settings


def count_parameters(folder: Path) -> int:
    """Return the numbers in the .safetensors files of a folder, from their headers; 0 where there are none."""
    return sum(math.prod(shape) for file in folder.glob("*.safetensors") for shape in _shapes(file))


def _shapes(file: Path) -> list[list[int]]:
    """Return the shapes of the tensors of a file; of a damaged one nothing."""
    with file.open("rb") as stream:
        start = stream.read(8)
        length = struct.unpack("<Q", start)[0] if len(start) == 8 else MAX_HEADER + 1
        if length > min(MAX_HEADER, file.stat().st_size):
            return []
        try:
            header = json.loads(stream.read(length))
            shapes = [tensor["shape"] for name, tensor in header.items() if name != "__metadata__"]
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            return []
    return shapes if all(map(_is_shape, shapes)) else []


def _is_shape(value: Any) -> bool:
    return (
        isinstance(value, list) and len(value) <= 8 and all(type(size) is int and 0 <= size < 2**40 for size in value)
    )


def _architecture(config: Mapping[str, Any]) -> str:
    named = config.get("architectures")
    return str(named[0]) if isinstance(named, list) and named else str(config.get("model_type", "?"))


def _task(folder: Path, name: str, config: Mapping[str, Any]) -> str | None:
    """Return the task that Regard loads a model for, "" for the bare model, None for one that it cannot load."""
    text = read_module("regard.weights.hf")
    kind = str(config.get("model_type"))
    if kind in text.DEFAULTS:
        found = text.ARCHITECTURES.get(text.architecture_name(config))
        return None if found is None else found.task or ""
    images = read_module("regard.weights.checkpoint_formats")
    try:
        module = images.find_image_importer(folder)
    except RegardError:
        return None
    tasks = {"detr": "object_detection", "dpt": "depth_estimation", "imagegpt": "image_generation"}
    if kind == "dpt" and "Segmentation" in name:
        return "semantic_segmentation"
    if module is not None and (name.endswith("Model") or config.get("num_classes") == 0):
        return ""
    return None if module is None else tasks.get(kind, "image_classification")


def _labels(config: Mapping[str, Any]) -> list[str]:
    names = config.get("id2label") or config.get("label_names")
    found = names.values() if isinstance(names, Mapping) else names if isinstance(names, (list, tuple)) else ()
    return [shorten(each, MAX_VALUE) for each in found]


def _missing(folder: Path, config: Mapping[str, Any]) -> str:
    """Name what a model that reads text needs besides its weights."""
    is_text = str(config.get("model_type")) in read_module("regard.weights.hf").DEFAULTS
    return "tokenizer.json" if is_text and not (folder / "tokenizer.json").is_file() else ""


def _settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entries of a config.json that describe the model, without its labels."""
    dropped = {"architectures", "id2label", "label2id", "label_names", "transformers_version", "pretrained_cfg"}
    return {key: value for key, value in config.items() if key not in dropped}

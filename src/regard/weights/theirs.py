"""What all folders of Hugging Face transformers have in common: a config.json that says more than ours or less."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from regard.core.errors import BadInput, Unsupported
from regard.core.spec import Spec
from regard.weights.folder import only_holds, read_json

Needed = tuple[Any, bool]  # what a field must be, and whether it is

# what a folder of a model that writes holds
FILES = {"config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"}


def completed(
    theirs: Mapping[str, Any], kind: str, defaults: Mapping[str, Any], fixed: Mapping[str, Any]
) -> dict[str, Any]:
    """What a config.json of this kind says, with what it leaves open; refuses one that differs in what is fixed."""
    if (other := theirs.get("model_type")) != kind:
        raise Unsupported(f"their config.json is that of a {other!r} model; this table reads '{kind}' ones")
    said = {**defaults, **theirs}
    for name, wanted in fixed.items():
        if said[name] != wanted:
            raise Unsupported(f"their config has {name}={said[name]!r}; only {wanted!r} can be read")
    return said


def feed_of(activation: str, feeds: Mapping[str, str]) -> str:
    """Our feed-forward with their activation."""
    if activation not in feeds:
        raise Unsupported(f"their activation '{activation}' is not among: {', '.join(feeds)}")
    return feeds[activation]


def alone(token: Any) -> Any:
    """A token, where it stands alone in a list."""
    return token[0] if isinstance(token, list) and len(token) == 1 else token


def refuse(whose: str, config: Any, needed: Mapping[str, Needed]) -> None:
    """Refuse a model of ours that theirs have no place for: the first field that is not what it must be."""
    for name, (wanted, fits) in needed.items():
        if not fits:
            raise Unsupported(f"{whose} has {name}={wanted!r}, this model {name}={getattr(config, name)!r}")


def softmax_only(config: Any) -> Needed:
    """Attention as theirs have it."""
    return "softmax", isinstance(config.attention, str) and Spec.parse(config.attention).name == "softmax"


def one_of(feeds: Mapping[str, str], config: Any) -> Needed:
    """A feed-forward that theirs have."""
    return " or ".join(dict.fromkeys(feeds.values())), config.feed in feeds.values()


def holds(kind: str, files: set[str]) -> Callable[[Path], bool]:
    """Whether a folder is one of theirs of this kind, and holds nothing else."""

    def is_theirs(folder: Path) -> bool:
        with suppress(BadInput):
            return only_holds(folder, files) and read_json(folder / "config.json").get("model_type") == kind
        return False

    return is_theirs


# -- images ----------------------------------------------------------------------------------------------------------


def timm_architecture(said: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """The name of an architecture of timm that a config.json gives, and what its constructor is told beside it."""
    name, arguments = said.get("architecture"), said.get("model_args") or {}
    if not isinstance(name, str) or not isinstance(arguments, dict):
        raise BadInput("their config.json names no architecture of timm")
    return name, dict(arguments)


def shown_by_timm(said: Mapping[str, Any], config: Any) -> dict[str, Any]:
    """How images are shown to a model of timm, as an ImageClassifier takes it; what is not said is timm's default."""
    how = said.get("pretrained_cfg") or {}
    names = said.get("label_names") or how.get("label_names") or range(config.classes)
    words = said.get("label_descriptions") or how.get("label_descriptions") or {}
    labels = numbered(names) if isinstance(names, dict) else list(names)
    return {
        "labels": [str(words.get(label, label)) for label in labels],
        "image": config.image,
        "channels": config.channels,
        "mean": _each(how.get("mean") or _IMAGENET[0], config.channels),
        "std": _each(how.get("std") or _IMAGENET[1], config.channels),
        "crop": float(how.get("crop_pct") or 0.875),
        "resample": str(how.get("interpolation") or "bicubic"),
    }


def shown_by_transformers(folder: Path, said: Mapping[str, Any], config: Any) -> dict[str, Any]:
    """How images are shown to a model of transformers, as an ImageClassifier takes it.

    preprocessor_config.json says it where it is there. Theirs may squeeze an image into a square; ours cuts its middle
    out.
    """
    file = folder / "preprocessor_config.json"
    how = read_json(file) if file.is_file() else {}
    names = said.get("id2label") or {n: f"LABEL_{n}" for n in range(config.classes)}
    size, cut = _side(how.get("size")), _side(how.get("crop_size"))
    crop = cut / size if how.get("do_center_crop") and size and cut and cut < size else 1.0
    return {
        "labels": [str(name) for name in numbered(names)],
        "image": config.image,
        "channels": config.channels,
        "mean": list(how.get("image_mean") or [0.5] * config.channels),
        "std": list(how.get("image_std") or [0.5] * config.channels),
        "crop": crop,
        "resample": {0: "nearest", 1: "lanczos", 2: "bilinear", 3: "bicubic"}.get(how.get("resample", 2), "bilinear"),
    }


def numbered(names: Mapping[Any, Any]) -> list[Any]:
    """Labels by their numbers, in order."""
    try:
        return [names[key] for key in sorted(names, key=int)]
    except (TypeError, ValueError):
        raise BadInput("the labels of their config.json are not numbered 0, 1, 2, ...") from None


def holds_timm(files: set[str]) -> Callable[[Path], bool]:
    """Whether a folder is one of timm's, and holds nothing else."""

    def is_theirs(folder: Path) -> bool:
        with suppress(BadInput):
            return only_holds(folder, files) and "architecture" in read_json(folder / "config.json")
        return False

    return is_theirs


_IMAGENET = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # mean and deviation of the photos most models are trained on


def _each(values: Any, channels: int) -> list[float]:
    """A number for every channel; their mean, where a model was told of three colours and reads another number."""
    return list(values) if len(values) == channels else [sum(values) / len(values)] * channels


def _side(size: Any) -> int | None:
    """The pixels of a side, which are written down in three ways."""
    if isinstance(size, Mapping):
        size = size.get("shortest_edge") or size.get("height")
    return size if isinstance(size, int) else None

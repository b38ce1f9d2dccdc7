"""Build models, inputs and losses on fake tensors, which have shapes but no data.

    with fake_tensors():                                    # a hundred billion parameters in no memory
        model = build(resolve_config("gpt", "xl", []))
        batch = make_batch(model, InputShape(batch=8, length=1024))

The inputs follow from the argument names of the model's `forward`, so a new model needs nothing here: tokens, source
and target are token ids, images are pixels, lengths are those of full rows. The loss is cross-entropy as in training:
the fused one where `forward` takes a loss, else on the logits.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import MISSING, dataclass, fields, is_dataclass
from importlib import import_module
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from regard.blocks.mixture_of_experts import moe_layers
from regard.core.config import from_dict, missing_fields, override
from regard.core.errors import BadInput, RegardError, UnknownName, Unsupported, did_you_mean
from regard.core.shapes import Tensor, pair
from regard.core.spec import resolve
from regard.models import MODELS
from regard.positions.added.learned import LearnedPositions

VOCABULARY = 8000  # default vocabulary, as in `regard show`
DEFAULT_LENGTH, DEFAULT_IMAGE_SIZE = 128, 224  # if neither the caller nor the model gives one
HANDWRITING_LENGTH = 5  # characters per line of handwriting
SENTENCE_LENGTH = 8  # words per sentence of a story
MASK_RATE = 0.15  # of the tokens, in masked language modelling
MAY_BE_ZERO = ("pad", "bos", "eos", "num_classes", "num_prefix_tokens", "num_frames", "frozen_stages")  # of a Config


@dataclass(frozen=True)
class InputShape:
    """Size of a batch of inputs."""

    batch: int = 1
    length: int | None = None  # tokens; None: the model's own, else 128
    source: int | None = None  # of a source; None: as `length`
    target: int | None = None  # of a target; None: as `length`
    image: tuple[int, int] | None = None  # rows and columns of pixels; None: the model's own, else 224
    channels: int | None = None


# -- building ----------------------------------------------------------------------------------------------------------


@contextmanager
def fake_tensors() -> Iterator[None]:
    """Inside the context, tensors have no data and take no memory."""
    with FakeTensorMode(allow_non_fake_inputs=True):
        yield


class _FakeScalars(TorchDispatchMode):
    """Initialise fake weights: where torch reads a value to decide what to redraw, answer that nothing is."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten._local_scalar_dense.default and isinstance(args[0], FakeTensor):
            return {torch.bool: False}.get(args[0].dtype, 1)
        return func(*args, **(kwargs or {}))


def parse_model_name(spec: str) -> tuple[str, str | None]:
    """Return model and size of ``gpt:xl``, ``vit-b16`` or ``gpt``."""
    name, colon, size = spec.partition(":")
    if not colon and name not in MODELS:
        family, dash, rest = spec.partition("-")
        if dash and family in MODELS:
            if rest not in (sizes := _model_module(family).SIZES):
                raise UnknownName(f"{family} has no size '{rest}'; {did_you_mean(rest, sizes)}")
            return family, rest
    if name not in MODELS:
        owners = {size: family for family in MODELS for size in _model_module(family).SIZES}
        hint = f"{name} is a size: regard cost {owners[name]}:{name}" if name in owners else did_you_mean(name, MODELS)
        raise UnknownName(f"no model is called '{name}'; {hint}")
    sizes = _model_module(name).SIZES
    if colon and size not in sizes:
        raise UnknownName(f"{name} has no size '{size}'; {did_you_mean(size, sizes)}")
    return name, size if colon else None


def resolve_config(name: str, size: str | None, settings: Sequence[str]) -> Any:
    """Return the Config of a model and size with ``key=value`` settings; the default vocabulary is 8,000 tokens."""
    module = _model_module(name)
    values = dict(module.SIZES[size]) if size is not None else {}
    if any(f.name == "vocab" for f in fields(module.Config)):
        values.setdefault("vocab", VOCABULARY)
    names = {setting.split("=")[0].strip() for setting in settings}
    for f in fields(module.Config):  # fields without a default must exist to be overridden
        if f.name in names and f.default is MISSING:
            values.setdefault(f.name, 1)
    try:
        config = from_dict(module.Config, values)
    except TypeError as error:  # a field without a default
        raise RegardError(f"{name} needs more settings: {missing_fields(error)}") from None
    return override(config, settings)


def assumed_vocabulary(name: str, size: str | None, settings: Sequence[str]) -> str:
    """Return a note if the vocabulary size was assumed, else an empty string."""
    module = _model_module(name)
    names = {
        *(module.SIZES[size] if size is not None else {}),
        *(setting.split("=")[0].strip() for setting in settings),
    }
    if "vocab" in names or not any(f.name == "vocab" for f in fields(module.Config)):
        return ""
    return f"no vocabulary was given: {VOCABULARY:,} tokens are assumed (set vocab=...)"


def build(config: Any) -> nn.Module:
    """Return the model of a Config; raise `BadInput` for values that make no model."""
    for name, (module, _) in MODELS.items():
        if module == type(config).__module__:
            for field in fields(config):
                value = getattr(config, field.name)
                if field.type in ("int", int) and value < (minimum := 0 if field.name in MAY_BE_ZERO else 1):
                    raise BadInput(f"{field.name} must be at least {minimum}, got {value}")
            try:
                with _FakeScalars():
                    model: nn.Module = resolve(MODELS, name, "model")(config)
            except (RuntimeError, ValueError, ZeroDivisionError) as error:
                raise BadInput(f"{name} cannot have this shape: {_first_line(error)}") from None
            _check_positions(model)
            for mixture in moe_layers(model):
                mixture.group_sizes = _balanced_counts  # type: ignore[method-assign]
            return model
    raise RegardError(f"{type(config).__module__}.{type(config).__name__} is not the Config of a registered model")


def _model_module(name: str) -> Any:
    return import_module(MODELS[name][0])


def _check_positions(model: nn.Module) -> None:
    """Check lengths by shape, since learned positions cannot check the values of fake indices."""

    def check(module: LearnedPositions, args: tuple[Any, ...]) -> None:
        needed = args[1].shape[1]
        if needed > module.length:
            raise BadInput(f"{needed} positions are needed, but {module.length} are learned: set length={needed}")

    for module in model.modules():
        if isinstance(module, LearnedPositions):
            module.register_forward_pre_hook(check)


def _balanced_counts(counts: Tensor, rows: int) -> list[int]:
    """Return equal token counts for all experts, since real ones depend on values."""
    quotient, remainder = divmod(rows, len(counts))
    return [quotient + (i < remainder) for i in range(len(counts))]


# -- inputs ------------------------------------------------------------------------------------------------------------


def make_batch(model: nn.Module, shape: InputShape, lengths: bool = True) -> dict[str, Tensor]:
    """Return a batch of the inputs of the model's `forward`, by name."""
    parameters = inspect.signature(model.forward).parameters
    batch: dict[str, Tensor] = {}
    for name, parameter in parameters.items():
        if name in INPUT_MAKERS:
            value = INPUT_MAKERS[name](model, shape)
            if value is None or (name.endswith("lengths") and not lengths):
                continue
            batch[name] = value
        elif parameter.default is inspect.Parameter.empty and parameter.kind is not inspect.Parameter.VAR_KEYWORD:
            raise Unsupported(
                f"{type(model).__name__} takes '{name}', which regard cost cannot make; "
                f"known inputs: {', '.join(sorted(INPUT_MAKERS))}"
            )
    return batch


def count_items(model: nn.Module, shape: InputShape) -> tuple[int, str]:
    """Return the number of items of a batch, and their unit: tokens that are predicted, images or clips."""
    parameters = inspect.signature(model.forward).parameters
    for name in ("target", "tokens", "words"):
        if name in parameters:
            return shape.batch * row_length(model, shape, name), "tokens"
    if "frames" in parameters:
        return shape.batch * row_length(model, shape), "frames"
    if "elements" in parameters:
        return shape.batch * row_length(model, shape), "elements"
    if "nodes" in parameters:
        return shape.batch * row_length(model, shape), "nodes"
    if "sentences" in parameters:
        return shape.batch * row_length(model, shape), "sentences"
    if "points" in parameters:
        return shape.batch * row_length(model, shape), "points"
    if {"timesteps", "vectors"} & {*parameters}:
        return shape.batch * row_length(model, shape), "steps"
    if {"images", "image"} & {*parameters}:
        return shape.batch, "clips" if getattr(getattr(model, "config", None), "num_frames", 0) else "images"
    return shape.batch, "rows"


def row_length(model: nn.Module, shape: InputShape, side: str = "tokens") -> int:
    """Return the tokens per row."""
    config_length = getattr(getattr(model, "config", None), "length", None) if side == "tokens" else None
    choices = ({"source": shape.source, "target": shape.target}.get(side), shape.length, config_length, DEFAULT_LENGTH)
    length = next(int(n) for n in choices if n is not None)
    if length < 1:
        raise BadInput(f"length must be at least 1, got {length}")
    return length


def image_shape(config: Any, shape: InputShape) -> tuple[int, int, int]:
    """Return channels, height and width of an image; a captioner's encoder has them in a Config of its own."""
    config = getattr(config, "encoder", config)
    config_size = getattr(config, "image_size", None) or DEFAULT_IMAGE_SIZE
    y, x = shape.image or (config_size if isinstance(config_size, tuple) else (config_size, config_size))
    return shape.channels or getattr(config, "channels", None) or 3, y, x


def _token_ids(side: str) -> Callable[[nn.Module, InputShape], Tensor]:
    return lambda model, shape: torch.zeros(shape.batch, row_length(model, shape, side), dtype=torch.long)


def _full_lengths(side: str) -> Callable[[nn.Module, InputShape], Tensor]:
    return lambda model, shape: torch.full((shape.batch,), row_length(model, shape, side))


def _images(model: nn.Module, shape: InputShape) -> Tensor:
    """Return images, clips if the Config has `num_frames`, intensities as integers if it has `levels`.

    A model with a palette gets the numbers of its colours.
    """
    config = getattr(model, "config", None)
    channels, y, x = image_shape(config, shape)
    channels = 1 if hasattr(model, "palette") else channels
    frames = getattr(config, "num_frames", 0)
    dtype = torch.uint8 if hasattr(config, "levels") else None
    return torch.zeros(shape.batch, channels, *((frames,) if frames else ()), y, x, dtype=dtype)


def _small_images(model: nn.Module, shape: InputShape) -> Tensor | None:
    """Return the images that an Image Transformer enlarges, if it does."""
    config: Any = model.config
    if config.condition_size is None:
        return None
    return torch.zeros(shape.batch, config.channels, *pair(config.condition_size), dtype=torch.uint8)


def _latent_noise(model: nn.Module, shape: InputShape) -> Tensor | None:
    """Return noise for a model that asks for it; one whose noise is optional draws its own."""
    if inspect.signature(model.forward).parameters["noise"].default is None:
        return None
    config: Any = model.config
    return torch.zeros(shape.batch, config.steps, config.latent)


def _vectors(field: str) -> Callable[[nn.Module, InputShape], Tensor]:
    """Return a maker of one vector per step (or one class id, for discrete actions)."""

    def make(model: nn.Module, shape: InputShape) -> Tensor:
        config: Any = model.config
        steps = shape.batch, row_length(model, shape)
        if field == "action_dim" and config.action_type == "discrete":
            return torch.zeros(steps, dtype=torch.long)
        return torch.zeros(*steps, getattr(config, field))

    return make


def _char_ids(model: nn.Module, shape: InputShape) -> Tensor:
    """Return character ids as if all words differed and had the maximum length."""
    config: Any = model.config
    return torch.zeros(
        shape.batch * row_length(model, shape), config.max_word_length + len(config.filters), dtype=torch.long
    )


INPUT_MAKERS: dict[str, Callable[[nn.Module, InputShape], Any]] = {
    "tokens": _token_ids("tokens"),
    "words": _token_ids("words"),
    "spelled": _char_ids,
    "source": _token_ids("source"),
    "target": _token_ids("target"),
    "source_lengths": _full_lengths("source"),
    "target_lengths": _full_lengths("target"),
    "frames": _vectors("input_dim"),
    "frame_lengths": _full_lengths("tokens"),
    "elements": _vectors("input_dim"),
    "places": lambda model, shape: torch.zeros(shape.batch, 2),
    "nodes": _vectors("input_dim"),
    "edges": lambda model, shape: torch.ones(
        shape.batch, row_length(model, shape), row_length(model, shape), dtype=torch.long
    ),
    "vectors": _vectors("input_dim"),
    "sentences": lambda model, shape: torch.zeros(
        shape.batch, row_length(model, shape), SENTENCE_LENGTH, dtype=torch.long
    ),
    "story_lengths": _full_lengths("tokens"),
    "questions": lambda model, shape: torch.zeros(shape.batch, SENTENCE_LENGTH, dtype=torch.long),
    "points": lambda model, shape: torch.zeros(shape.batch, row_length(model, shape), 3),
    "text": lambda model, shape: torch.zeros(shape.batch, HANDWRITING_LENGTH, dtype=torch.long),
    "returns": lambda model, shape: torch.zeros(shape.batch, row_length(model, shape)),
    "states": _vectors("state_dim"),
    "actions": _vectors("action_dim"),
    "timesteps": _token_ids("tokens"),
    "images": _images,
    "condition": _small_images,
    "noise": _latent_noise,
    "image": _images,
    "pixels": _images,
}


# -- losses ------------------------------------------------------------------------------------------------------------


def training_loss(
    model: nn.Module, batch: dict[str, Tensor], during: Callable[[str], Any] = nullcontext, is_cpu: bool = False
) -> Tensor:
    """Return the training loss. A fused loss, which also computes the head's gradients, is a phase of its own."""
    parameters, head = inspect.signature(model.forward).parameters, getattr(model, "head", None)
    if "loss" in parameters and (isinstance(head, nn.Linear) or hasattr(head, "words")):
        from regard.losses.fused_linear_cross_entropy import CUDA_CHUNK_ROWS, fused_linear_cross_entropy

        def fused_loss(x: Tensor, weight: Tensor, targets: Tensor, bias: Tensor | None = None) -> Tensor:
            with during("loss"):
                return fused_linear_cross_entropy(x, weight, targets, None if is_cpu else CUDA_CHUNK_ROWS, bias=bias)

        ids = next(name for name in ("target", "tokens", "words") if name in batch)
        targets, positions = torch.zeros_like(batch[ids]), dict[str, Tensor]()
        if "at" in parameters:  # only masked tokens are predicted
            targets = targets[:, : max(1, round(MASK_RATE * targets.shape[1]))]
            positions = {"at": targets}
        found: Any = model(**batch, **positions, targets=targets, loss=fused_loss)
        if isinstance(found, tuple):  # token logits, and other outputs of a pretraining head
            token_loss, *other_outputs = found
            return torch.stack([token_loss.float(), *(x.float().sum() for x in other_outputs)]).sum()
        total: Tensor = found
        return total
    out = model(**batch)
    if isinstance(out, Tensor) and out.ndim in (2, 3, 5):  # logits B V, B N V or B C Y X V
        labels = torch.zeros(out.shape[:-1], dtype=torch.long, device=out.device)
        return F.cross_entropy(out.flatten(0, -2).float(), labels.flatten(), label_smoothing=0.1, reduction="sum")
    floats = [x.float().sum() for x in tree_leaves(out) if isinstance(x, Tensor) and x.is_floating_point()]
    return torch.stack(floats).sum()


def changed_settings(config: Any) -> dict[str, Any]:
    """Return the fields of a Config that differ from their defaults."""
    if not is_dataclass(config):
        return {}
    return {f.name: getattr(config, f.name) for f in fields(config) if getattr(config, f.name) != f.default}


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]

"""A model in a folder.

    config.json         format number, version, the model's name and Config, its task, a sha256 of every file below
    model.safetensors   the weights, tied tensors once; float16 and int8 (weights.int8) are converted to float32 on
                        loading
    tokenizer.json      the tokenizer, if any (with tokenizer_config.json, which names its special tokens)
    domain.safetensors  what its inputs look like (modalities.domain), if that was calibrated
    README.md           the model card, if any

A folder is written under a temporary name and renamed when it is complete: a full disk or a crash leaves the old folder
unchanged. A folder with other files is never replaced. Nothing in it is ever executed.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import os
import secrets
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import nn
from torch.nn.modules.module import register_module_parameter_registration_hook
from torch.overrides import TorchFunctionMode

import regard
from regard.core.config import to_dict
from regard.core.errors import BadInput, RegardError, UnknownName
from regard.core.shapes import Tensor
from regard.core.skip_init import skip_init
from regard.modalities.domain import FILE as DOMAIN
from regard.modalities.domain import Domain, load_domains, save_domains
from regard.models import MODELS, build
from regard.tokens.tokenizer import Tokenizer
from regard.weights.int8 import dequantize_int8, quantize_int8
from regard.weights.table import mismatch_message

log = logging.getLogger("regard")

# folders of transformers that can be read: model_type -> module
HF_IMPORTERS = {
    **{kind: f"hf.{kind}" for kind in ("bert", "gpt2", "marian", "t5")},
    **{kind: f"hf.{kind}" for kind in ("deit", "detr", "dpt", "swin", "swinv2", "vit")},
    "imagegpt": "hf.image_gpt",
    "parakeet_ctc": "hf.parakeet",
    "wav2vec2-conformer": "hf.wav2vec2_conformer",
}
FORMAT = 3
CONVERTED = (1, 2)  # formats with old names of fields and tensors; a script converts them

# Migrations of a config.json from format n to n + 1; tests/weights/formats has an example of every format.
MIGRATIONS: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {}

CONFIG, WEIGHTS, CARD = "config.json", "model.safetensors", "README.md"
FILES = {CONFIG, WEIGHTS, CARD, DOMAIN, "tokenizer.json", "tokenizer_config.json"}


@dataclass(frozen=True, eq=False)
class SavedModel:
    """The content of a folder."""

    model: nn.Module  # in eval mode
    text: Tokenizer | None
    task: dict[str, Any] | None  # {"name": ..., and the arguments of its class}
    card: str | None
    config: dict[str, Any]  # config.json after migration
    domains: Mapping[str, Domain] = field(default_factory=dict)  # of its inputs, by name


def save_model(
    folder: str | Path,
    model: nn.Module,
    text: Tokenizer | None = None,
    task: Mapping[str, Any] | None = None,
    card: str | None = None,
    dtype: torch.dtype | str | None = None,
    domains: Mapping[str, Domain] | None = None,
) -> None:
    """Save a model; `dtype` ("float16", "int8") is that of the stored weights, which are loaded as float32."""
    model = getattr(model, "_orig_mod", model)  # of torch.compile
    name = _name(model)
    settings = to_dict(model.config)
    _check_rebuilds(name, settings, model)
    tensors, tied = _deduplicate(model.state_dict())
    compute, eight = _dtype(tensors), dtype in ("int8", torch.int8)
    storage = torch.int8 if eight else None if dtype is None else _named_dtype(dtype)
    if eight:
        tensors = quantize_int8(tensors)
    elif storage is not None:
        tensors = {name: _cast(name, value, storage) for name, value in tensors.items()}
    config: dict[str, Any] = {
        "format": FORMAT,
        "regard": regard.__version__,
        "model": name,
        "config": settings,
        "task": None if task is None else dict(task),
        "dtype": str(compute).removeprefix("torch."),
        "storage": str(storage or compute).removeprefix("torch."),
        "tied": tied,
    }
    try:
        json.dumps(config, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise BadInput(f"the task or the Config has a value that JSON cannot represent: {error}") from None
    with atomic_folder(Path(folder), _is_saved_model) as new:
        write_tensors(new / WEIGHTS, tensors)
        if text is not None:
            text.save(new)
        if domains:
            save_domains(new / DOMAIN, domains)
        hashed = {file.name: _sha256(file) for file in sorted(new.iterdir())}
        write_json(new / CONFIG, config | {"files": hashed})
        if card is not None:
            write_text(new / CARD, card)


def load_model(folder: str | Path, device: str | torch.device = "cpu") -> SavedModel:
    """Load the model of a folder, in eval mode, with everything that was saved with it."""
    folder = Path(folder)
    if folder.is_file():
        raise BadInput(f"{folder} is a file; give the folder that holds {CONFIG} and {WEIGHTS}")
    if not folder.is_dir():
        raise BadInput(f"there is no folder {folder}; give one that regard.save wrote")
    config = _migrate(read_json(folder / CONFIG), folder)
    _check_files(folder, config)
    tensors = _tensors(folder / WEIGHTS)
    tensors = dequantize_int8(tensors) if config.get("storage") == "int8" else tensors
    model = _build(config, tensors, folder)
    with config_errors(folder):
        _load_weights(model, tensors, config, folder)
    try:
        model = model.to(device)
    except (RuntimeError, AssertionError) as error:  # no such device, or no support for it
        raise BadInput(f"cannot put the model on '{device}': {str(error).splitlines()[0]}") from None
    text = Tokenizer.load(folder) if "tokenizer.json" in config["files"] else None
    card = (folder / CARD).read_text(encoding="utf-8", errors="replace") if (folder / CARD).is_file() else None
    domains = load_domains(folder / DOMAIN) if DOMAIN in config["files"] else {}
    return SavedModel(model.eval(), text, config["task"], card, config, domains)


def add_domains(folder: Path, domains: Mapping[str, Domain]) -> None:
    """Store the domains of a saved model's inputs beside it; its weights stay as they are."""
    config = read_json(folder / CONFIG)
    save_domains(folder / DOMAIN, domains)
    config["files"] = dict(sorted({**config["files"], DOMAIN: _sha256(folder / DOMAIN)}.items()))
    write_json(folder / CONFIG, config)


def model_folder(folder: Path) -> Path:
    """Return the folder of the model; in a run, it is inside, once the run has ended."""
    if (folder / CONFIG).is_file():
        return folder
    if (folder / "model" / CONFIG).is_file():
        return folder / "model"
    if (folder / "recipe.json").is_file():
        raise BadInput(
            f"the run in {folder} has not ended, so it has no model yet: regard train --resume --out {folder}"
        )
    return folder


# -- saving ----------------------------------------------------------------------------------------------------------


def _name(model: nn.Module) -> str:
    """Return the name of a class in MODELS."""
    cls = type(model)
    for name, (module, attribute) in MODELS.items():
        if (cls.__module__, cls.__qualname__) == (module, attribute):
            return name
    raise BadInput(
        f"{cls.__name__} is not registered, so it could not be loaded again; register it: "
        f"regard.models.MODELS['{cls.__name__.lower()}'] = ('{cls.__module__}', '{cls.__qualname__}')"
    )


def _check_rebuilds(name: str, settings: dict[str, Any], model: nn.Module) -> None:
    """Raise `BadInput` unless the Config builds the tensors that the model has."""
    with torch.device("meta"), skip_init():
        rebuilt = build(name, **settings).state_dict()
    mine = model.state_dict()
    extra = [n for n in mine if n not in rebuilt or rebuilt[n].shape != mine[n].shape]
    missing = [n for n in rebuilt if n not in mine]
    if extra or missing:
        raise BadInput(
            f"the model differs from its Config and could not be loaded again: {mismatch_message(extra, missing)}"
        )


def _deduplicate(state: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Return every tensor once, under its first name and contiguous, and the other names of each."""
    first: dict[Any, str] = {}
    tensors: dict[str, Tensor] = {}
    tied: dict[str, str] = {}
    for name, value in state.items():
        key = (value.data_ptr(), value.shape, value.stride(), value.dtype) if value.numel() else name
        if key in first:
            tied[name] = first[key]
        else:
            first[key] = name
            tensors[name] = value.detach().cpu()
    # A weight may be stored column by column or be a view of a larger one; the copy is neither.
    return {n: v.clone(memory_format=torch.contiguous_format) for n, v in tensors.items()}, tied


def _dtype(tensors: Mapping[str, Tensor]) -> torch.dtype:
    """Return the one floating-point dtype of a model."""
    found = {value.dtype for value in tensors.values() if value.is_floating_point()}
    if len(found) > 1:
        kinds = ", ".join(sorted(str(kind).removeprefix("torch.") for kind in found))
        raise BadInput(
            f"the model's weights have several dtypes ({kinds}); convert them to one first, as with model.float()"
        )
    return found.pop() if found else torch.get_default_dtype()


def _named_dtype(dtype: torch.dtype | str) -> torch.dtype:
    found = getattr(torch, dtype, None) if isinstance(dtype, str) else dtype
    if not isinstance(found, torch.dtype) or not found.is_floating_point:
        raise BadInput(f"weights cannot be stored as {dtype!r}; choose float16, bfloat16, float32, float64 or int8")
    return found


def _cast(name: str, value: Tensor, storage: torch.dtype) -> Tensor:
    if not value.is_floating_point():
        return value
    cast, most = value.to(storage), torch.finfo(storage).max
    low, high = value.aminmax() if value.numel() else (value.new_zeros(()), value.new_zeros(()))
    beyond = float(low) < -most or float(high) > most  # a large finite weight would become infinite
    if beyond and not torch.equal(cast.isinf(), value.isinf()):
        kind = str(storage).removeprefix("torch.")
        raise BadInput(f"'{name}' has values too large for {kind}; store it as bfloat16 or float32")
    return cast


@contextmanager
def atomic_folder(folder: Path, is_replaceable: Callable[[Path], bool]) -> Iterator[Path]:
    """Yield a temporary folder that replaces `folder` on success and is removed on failure.

    An existing folder must be empty or satisfy `is_replaceable`.
    """
    folder = folder.resolve()
    if folder.exists() and not folder.is_dir():
        raise BadInput(f"{folder} is a file; give a folder to save into")
    if folder.is_dir() and any(folder.iterdir()) and not is_replaceable(folder):
        raise BadInput(f"{folder} holds other things, which would be lost; save into a new folder")
    mark = secrets.token_hex(4)
    new, old = folder.with_name(f".{folder.name}.{mark}.new"), folder.with_name(f".{folder.name}.{mark}.old")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        new.mkdir()
        yield new
        for file in new.iterdir():
            _fsync(file)
        _fsync(new)
        if folder.exists():
            os.rename(folder, old)
        try:
            os.rename(new, folder)
        except BaseException:
            if old.exists():
                os.rename(old, folder)
            raise
        with suppress(OSError):  # it is renamed; only the sync failed
            _fsync(folder.parent)
    except (OSError, SafetensorError) as error:  # safetensors raises its own error for a failed write
        why = getattr(error, "strerror", None) or str(error)
        left = f"what was there is now {old}" if old.exists() else "nothing was changed"
        raise BadInput(f"cannot save into {folder}: {why}; {left}") from None
    finally:
        shutil.rmtree(new, ignore_errors=True)
        if folder.exists():
            shutil.rmtree(old, ignore_errors=True)


def contains_only(folder: Path, names: set[str]) -> bool:
    """Whether a folder has a config.json and nothing but these files."""
    found = {entry.name for entry in folder.iterdir()}
    return CONFIG in found and found <= names


def write_tensors(file: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write a safetensors file with the usual permissions (safetensors itself allows only the owner)."""
    save_file({name: value.contiguous() for name, value in tensors.items()}, file, metadata={"format": "pt"})
    file.chmod(file.parent.stat().st_mode & 0o666)


def write_json(file: Path, value: Mapping[str, Any]) -> None:
    """Write a JSON object."""
    write_text(file, json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def write_text(file: Path, text: str) -> None:
    """Write text as UTF-8."""
    file.write_text(text, encoding="utf-8", newline="\n")


def _fsync(path: Path) -> None:
    """Flush a file or, on POSIX, a folder to disk."""
    if path.is_dir() and os.name != "posix":
        return
    handle = os.open(path, os.O_RDONLY if os.name == "posix" else os.O_RDWR)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _is_saved_model(folder: Path) -> bool:
    with suppress(RegardError):
        config = read_json(folder / CONFIG)
        return contains_only(folder, FILES) and "format" in config and "regard" in config
    return False


# -- loading ---------------------------------------------------------------------------------------------------------


def read_json(file: Path) -> dict[str, Any]:
    """Return the object of a JSON file."""
    try:
        value = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise BadInput(f"there is no {file.name} in {file.parent}") from None
    except OSError as error:
        raise BadInput(f"cannot read {file}: {error.strerror}") from None
    except (ValueError, RecursionError):  # not UTF-8, not JSON, or nested too deeply
        raise BadInput(f"{file} is damaged: it is not JSON, or nested too deeply") from None
    if not isinstance(value, dict):
        raise BadInput(f"{file} is damaged: it holds no JSON object")
    return value


def read_tensors(folder: Path) -> dict[str, Tensor]:
    """Return the tensors of a folder of another library, of one file or of several that an index names.

    Pickles are read with weights_only.
    """
    if (folder / WEIGHTS).is_file():
        return _tensors(folder / WEIGHTS)
    if (folder / f"{WEIGHTS}.index.json").is_file():
        return _read_shards(folder)
    file = folder / "pytorch_model.bin"
    if not file.is_file():
        raise BadInput(f"there is no {WEIGHTS} (nor pytorch_model.bin) in {folder}")
    try:
        found = torch.load(file, map_location="cpu", weights_only=True)
    except OSError as error:
        raise BadInput(f"cannot read {file}: {error.strerror or error}") from None
    except Exception as error:  # torch.load raises various errors for a damaged file
        raise BadInput(f"{file} is damaged or no file of tensors: {str(error).splitlines()[0]}") from None
    if not isinstance(found, dict):
        raise BadInput(f"{file} holds a {type(found).__name__}, not named tensors")
    _warn_not_finite(found, file)
    return found


def _read_shards(folder: Path) -> dict[str, Tensor]:
    """Return the tensors of the files that model.safetensors.index.json names."""
    index = folder / f"{WEIGHTS}.index.json"
    files = read_json(index).get("weight_map")
    if not isinstance(files, dict) or not files:
        raise BadInput(f"{index} is damaged: it has no weight_map from tensors to files")
    found: dict[str, Tensor] = {}
    for name in dict.fromkeys(files.values()):
        if not isinstance(name, str) or Path(name).name != name or not name.endswith(".safetensors"):
            raise BadInput(f"{index} names {name!r}; expected the name of a .safetensors file in the same folder")
        if not (folder / name).is_file():
            raise BadInput(f"there is no {name} in {folder}, though {index.name} lists it; copy the whole folder")
        found |= _tensors(folder / name)
    if missing := [name for name in files if name not in found]:
        raise BadInput(f"{index} lists tensors that its files lack: {', '.join(missing[:3])}")
    return found


@contextmanager
def building(config: Any, tensors: Mapping[str, Tensor], folder: Path) -> Iterator[None]:
    """Build a model of a Config (or its fields) within this block, without random initialisation.

    Raise `BadInput` as soon as it is larger than the tensors of its folder could fill: a config.json may ask for a
    billion layers. Tensors that are tied or dropped may make it twice as large.
    """
    fields = config if isinstance(config, Mapping) else vars(config)
    most = max(len(tensors), 1000)
    for name, value in fields.items():
        layers = sum(value) if isinstance(value, (tuple, list)) and all(isinstance(n, int) for n in value) else value
        if "layers" in name and isinstance(layers, int) and layers > most:
            raise BadInput(
                f"{folder / CONFIG} asks for {name}={layers:,}, but its weights are {len(tensors):,} tensors"
            )
    stored = sum(value.numel() for value in tensors.values() if isinstance(value, Tensor))
    left = largest = 2 * stored + 10_000_000
    too_large = BadInput(f"{folder / CONFIG} asks for a larger model than the {stored:,} weights of its folder")

    def count(module: nn.Module, name: str, parameter: Any) -> None:
        nonlocal left
        left -= 0 if parameter is None else parameter.numel()
        if left < 0:
            raise too_large

    hook = register_module_parameter_registration_hook(count)
    try:
        with skip_init(), _NoTensorAbove(4 * largest, too_large):
            yield
    except (TypeError, ValueError, RuntimeError, AssertionError, OverflowError, MemoryError) as error:
        # torch's errors for impossible sizes
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise BadInput(f"{folder / CONFIG} does not describe a model that can be built: {reason}") from None
    finally:
        hook.remove()


SHAPED = frozenset({
    "empty", "zeros", "ones", "full", "rand", "randn", "randint", "new_empty", "new_zeros", "new_ones", "new_full"
})  # fmt: skip
COUNTED = frozenset({"arange", "eye", "linspace"})


class _NoTensorAbove(TorchFunctionMode):
    """Raise an error before a tensor of more than `most` numbers is made of nothing: `randn` would fill it first.

    A TorchDispatchMode would see operations within operations too, but it imports torch._dynamo: two seconds.
    """

    def __init__(self, most: int, error: BadInput) -> None:
        super().__init__()
        self.most, self.error = most, error

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if _count_numbers(getattr(func, "__name__", ""), args, kwargs) > self.most:
            raise self.error
        return func(*args, **kwargs)


def _count_numbers(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> int:
    """Return how many numbers a call makes of nothing; 0 for other functions."""
    if name in COUNTED:
        return max((abs(int(n)) for n in args if isinstance(n, (int, float))), default=0)
    if name not in SHAPED:
        return 0
    sizes = [value for value in (kwargs.get("size"), *args) if isinstance(value, (tuple, list))]
    size = sizes[0] if sizes else [value for value in args if isinstance(value, int)]
    return math.prod(n for n in size if isinstance(n, int))


@contextmanager
def config_errors(folder: Path) -> Iterator[None]:
    """Turn the error that a value of the wrong kind in config.json causes into one line of `BadInput`."""
    try:
        yield
    except (TypeError, ValueError, KeyError, AttributeError, IndexError, OverflowError, RecursionError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise BadInput(f"{folder / CONFIG} has a value of the wrong kind: {reason}") from error


def _warn_not_finite(tensors: Mapping[str, Any], file: Path) -> None:
    """Warn about tensors with NaN or infinite values."""
    wrong = [name for name, value in tensors.items() if isinstance(value, Tensor) and not _is_finite(value)]
    if wrong:
        more = f" and {len(wrong) - 3} more" if len(wrong) > 3 else ""
        log.warning("%s has NaN or infinite weights (%s%s): do not trust its outputs", file, ", ".join(wrong[:3]), more)


def _is_finite(tensor: Tensor) -> bool:
    if not tensor.is_floating_point() or tensor.is_sparse:
        return True
    total = tensor.sum(dtype=torch.float32)  # one pass without a copy; a sum may also overflow
    return bool(total.isfinite()) or bool(tensor.isfinite().all())


def _migrate(config: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Return the configuration in the current format."""
    if "format" not in config and "model_type" in config:
        name = str(config["model_type"])
        if name not in HF_IMPORTERS:
            known = ", ".join(HF_IMPORTERS)
            raise BadInput(f"{folder} is a '{name}' folder of transformers; supported: {known}")
        reader = HF_IMPORTERS[name]
        raise BadInput(f"{folder} is a '{name}' folder of transformers; read it with regard.weights.{reader}.load")
    number = config.get("format")
    if not isinstance(number, int) or isinstance(number, bool):
        raise BadInput(f"{folder / CONFIG} has no format number; it was not written by regard.save")
    if number > FORMAT:
        raise BadInput(
            f"{folder} is of format {number}, written by Regard {config.get('regard', '?')}; this is Regard "
            f"{regard.__version__}, which reads formats up to {FORMAT}: pip install -U regard"
        )
    if number in CONVERTED:
        raise BadInput(
            f"{folder} is of format {number}, from before names changed; convert it (the weights stay the same): "
            f"python scripts/convert_models.py {folder}"
        )
    while number < FORMAT:
        if number not in MIGRATIONS:
            raise BadInput(f"{folder} is of format {number}, which no version of Regard has written")
        config = MIGRATIONS[number](config)
        number += 1
    kinds = {"model": str, "config": dict, "files": dict, "tied": dict, "dtype": str, "task": (dict, type(None))}
    for key, kind in kinds.items():
        if key not in config or not isinstance(config[key], kind):  # type: ignore[arg-type]
            raise BadInput(f"{folder / CONFIG} is damaged: '{key}' is missing or of the wrong kind")
    return config


def _check_files(folder: Path, config: dict[str, Any]) -> None:
    """Raise `BadInput` if a file is missing or differs from its hash."""
    for name in (WEIGHTS, *(name for name in config["files"] if name != WEIGHTS)):
        file = folder / name
        if name not in FILES or name not in config["files"]:
            raise BadInput(f"{folder / CONFIG} is damaged: its list of files is not one that regard.save writes")
        if file.is_dir():
            raise BadInput(f"{file} is a folder, but should be a file")
        if not file.is_file():
            raise BadInput(f"there is no {name} in {folder}, though its config.json lists it; copy the whole folder")
        try:
            same = _sha256(file) == config["files"][name]
        except OSError as error:
            raise BadInput(f"cannot read {file}: {error.strerror}") from None
        if not same:
            raise BadInput(f"{file} is damaged, cut short or changed since it was saved; copy the folder again")


def _sha256(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _tensors(file: Path) -> dict[str, Tensor]:
    try:
        found: dict[str, Tensor] = load_file(file)
    except (SafetensorError, OSError) as error:
        raise BadInput(f"{file} is damaged: it is no safetensors file ({error})") from None
    _warn_not_finite(found, file)
    return found


def _build(config: dict[str, Any], tensors: Mapping[str, Tensor], folder: Path) -> nn.Module:
    """Build the model without random initialisation."""
    dtype = _named_dtype(config["dtype"])
    try:
        with building(config["config"], tensors, folder):
            return build(config["model"], **config["config"]).to(dtype)
    except UnknownName as error:
        if config["model"] in MODELS:
            raise
        hint = "if a file of yours registers it, name the file in REGARD_PLUGINS"
        raise UnknownName(f"cannot load {folder}: {error} ({hint})") from None


def _load_weights(model: nn.Module, tensors: dict[str, Tensor], config: dict[str, Any], folder: Path) -> None:
    """Copy the weights; all names and shapes must match the model."""
    stored = dict(tensors)
    for name, first in config["tied"].items():
        if first in tensors:
            stored[name] = tensors[first]
    state = model.state_dict(keep_vars=True)
    extra, missing = [n for n in stored if n not in state], [n for n in state if n not in stored]
    if extra or missing:
        raise BadInput(f"{folder}: " + mismatch_message(extra, missing))
    wrong = [
        f"{name} is {tuple(stored[name].shape)}, the config says {tuple(state[name].shape)}"
        for name in state
        if stored[name].shape != state[name].shape
    ]
    if wrong:
        more = f", and {len(wrong) - 8} more" if len(wrong) > 8 else ""
        raise BadInput(f"{folder}: the weights do not fit the config: {'; '.join(wrong[:8])}{more}")
    with torch.no_grad():
        for name, value in state.items():
            value.copy_(stored[name])

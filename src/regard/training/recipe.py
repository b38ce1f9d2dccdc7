"""Recipes: a model, a task, data and training settings, as one frozen value that a file can hold.

    recipe = load_recipe("transformer_multi30k")                       # recipes/transformer_multi30k.py
    recipe = override_recipe(recipe, ["train.steps=200", "model.attention=softmax", "data.target=fr"])

A recipe file has a docstring (its card) and a function ``recipe() -> Recipe``. The resolved recipe is stored with the
checkpoints as JSON, from which `from_json` builds it again without the recipe file: each part is named by its registry
(MODELS, TASKS, DATA) and its fields are plain values.
"""

from __future__ import annotations

import ast
import importlib.util
import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

from torch import nn

import regard
from regard.core import config, spec
from regard.core.config import field
from regard.core.errors import BadInput, RegardError, UnknownName, did_you_mean
from regard.core.files import atomic_write
from regard.core.plugins import load_plugins
from regard.core.spec import Registry, resolve
from regard.core.validation import Range, validate
from regard.data import DATA
from regard.models import MODELS
from regard.tasks import TASKS

FORMAT = 1
RESERVED_NAMES = ("images", "labelled-texts", "pairs", "text", "audio")  # kinds of one's own data (own_data)


@dataclass(frozen=True)
class Train:
    """Training settings. Updates are counted from 1; "each epoch" means after the update that finished one."""

    steps: int = 10_000  # updates
    max_minutes: float = field(0.0, low=0)  # stop after so many of this session, whatever the step; 0: no limit
    # minutes of the whole run, evaluations counted, over all processes that resume it: the schedule ends with them or
    # with `steps`, whichever comes first, so such a run is not repeatable to the bit; 0: `steps` alone
    budget_minutes: float = field(0.0, low=0)
    seed: int = field(1, low=-(2**63), below=2**64)
    init_from: str | None = (
        None  # initial weights: a run, the folder of a saved model, or a shipped model (init_from.py)
    )
    device: str = "auto"  # auto: the GPU if there is one
    precision: Literal["auto", "float32", "bfloat16"] = "auto"  # auto: bfloat16 autocast on a GPU, float32 elsewhere
    compile: bool | None = None  # None: on a GPU with a C++ compiler
    # every kind of block once, instead of the model as one graph; None: where most weights are in repeated blocks
    compile_blocks: bool | None = None
    graph: Literal["auto", "on", "off"] = "auto"  # updates as CUDA graphs; auto: on one GPU, for tested tasks
    deterministic: bool = False  # use deterministic algorithms only (on a CPU all are)
    data_parallel: Literal["auto", "ddp", "fsdp"] = "auto"  # over the processes of torchrun: copies or shards
    tensor_parallel: int = 1  # processes that share the heads and hidden units of every block
    gradient_checkpointing: bool = False  # store only the inputs of blocks and recompute the rest in the backward pass
    num_workers: int = 1  # threads that make batches
    gradient_accumulation_steps: int = 1  # batches an update
    optimizer: str = "adamw"  # a spec: adamw, adam, muon, adafactor, sgd
    learning_rate: float = field(1e-3, low=0)  # the peak
    schedule: Literal["inverse_sqrt", "cosine", "linear", "wsd", "one_cycle", "constant"] = "inverse_sqrt"
    warmup_steps: int = field(4000, low=0)
    min_learning_rate_ratio: float = field(0.0, low=0, high=1)  # end of the schedule, relative to the peak
    betas: tuple[float, float] = field((0.9, 0.98), low=0, below=1)
    eps: float = field(1e-9, low=0)
    weight_decay: float = field(0.0, low=0)  # of matrices only
    layer_decay: float = field(1.0, above=0, high=1)  # the rate of a layer, as a share of that of the layer above it
    clip_grad_norm: float = field(0.0, low=0)  # the largest norm of a gradient; 0: none
    ema_decay: float = field(0.0, low=0, below=1)  # decay of the moving average of the weights; 0: none
    average_checkpoints: int = 1  # number of last regular checkpoints averaged at the end
    eval_interval: int = field(0, low=0)  # updates between evaluations on the validation split; 0: each epoch
    score_interval: int = field(1, low=0)  # decode and score at every n-th evaluation; 0: never, the loss alone decides
    metric: str = "loss"  # metric of "best" and patience
    patience: int = field(0, low=0)  # stop after this many evaluations without improvement; 0: never
    save_interval: int = field(0, low=0)  # updates between checkpoints; 0: each epoch
    keep_checkpoints: int = field(2, low=0)  # number of newest checkpoints to keep for resuming
    log_interval: int = 50  # updates between rows of metrics.jsonl
    loggers: tuple[str, ...] = ()  # tensorboard, wandb
    final_weights: Literal["auto", "last", "best", "ema", "average"] = "auto"  # auto: the best on validation
    save_dtype: Literal["float32", "float16", "int8"] = "float32"  # of the saved model; it is evaluated as it is stored


@dataclass(frozen=True)
class Recipe:
    """What to train and how: the configs of a model, a task and data, and training settings."""

    model: Any
    task: Any
    data: Any
    train: Train = Train()
    name: str = "recipe"

    def __post_init__(self) -> None:
        for group in ("model", "task", "data", "train"):
            if is_dataclass(part := getattr(self, group)):
                validate(part, f"{group}.", vocab=Range(low=0))  # 0: the data decide


# -- finding and loading -----------------------------------------------------------------------------------------------


def recipe_folders() -> list[Path]:
    """Return the folders of recipes: in the installed package, or next to it in a checkout."""
    package = Path(regard.__file__).resolve().parent
    return [path for path in (package / "recipes", package.parents[1] / "recipes") if path.is_dir()]


def list_recipes() -> dict[str, Path]:
    """Return the files of all recipes by name."""
    found = {file.stem: file for folder in reversed(recipe_folders()) for file in folder.glob("*.py")}
    return {name: found[name] for name in sorted(found) if not name.startswith("_")}


def recipe_name(name: str | Path) -> str:
    """Return the name of a recipe, or of the recipe in a file."""
    return Path(name).stem if Path(name).suffix == ".py" else str(name)


def recipe_card(name: str | Path) -> str:
    """Return a recipe's docstring, without running the file."""
    return ast.get_docstring(ast.parse(_recipe_file(name).read_text(encoding="utf-8"))) or ""


def load_recipe(name: str | Path) -> Recipe:
    """Load a recipe by name, from a file, or from the recipe.json of a run."""
    if Path(name).name == "recipe.json" and Path(name).is_file():
        return load_saved_recipe(Path(name).parent)
    file = _recipe_file(name)
    try:
        found = _recipe_module(file).recipe()
    except RegardError:
        raise
    except Exception as error:  # any error in the user's file
        raise BadInput(f"cannot load the recipe {file}: {type(error).__name__}: {error}") from error
    if not isinstance(found, Recipe):
        raise BadInput(f"{file}: recipe() returned a {type(found).__name__}, expected a Recipe")
    return replace(found, name=file.stem)


def _recipe_module(file: Path) -> ModuleType:
    """Run a recipe file; one that is also a plugin is not run twice, so that its classes stay those registered."""
    load_plugins()
    name, path = f"regard_recipe_{file.stem}", str(file.resolve())
    for module in list(sys.modules.values()):
        if getattr(module, "__file__", None) == path and module.__name__ != name:
            return module
    found = importlib.util.spec_from_file_location(name, file)
    if found is None or found.loader is None:
        raise BadInput(f"{file} is not a Python file")
    made = importlib.util.module_from_spec(found)
    sys.modules[name] = made  # dataclasses and registries find it by name
    with _shared_modules(file.resolve().parent):
        found.loader.exec_module(made)
    return made


@contextmanager
def _shared_modules(folder: Path) -> Iterator[None]:
    """Let a recipe import what its family shares: modules that start with _, beside it or among the package's recipes.

    They are forgotten afterwards, so that another folder may have modules of the same names.
    """
    places = [str(folder), *map(str, recipe_folders())]
    before, path = set(sys.modules), list(sys.path)
    sys.path[:0] = places
    try:
        yield
    finally:
        sys.path[:] = path
        for name in set(sys.modules) - before:
            if name.startswith("_") and str(Path(getattr(sys.modules[name], "__file__", None) or ".").parent) in places:
                del sys.modules[name]


def _recipe_file(name: str | Path) -> Path:
    path = Path(name)
    if path.suffix == ".py":
        if not path.is_file():
            raise BadInput(f"there is no recipe file {path}")
        if path.stem in RESERVED_NAMES:
            raise BadInput(f"a recipe cannot be called '{path.stem}', which is a kind of data; rename {path}")
        return path
    known = list_recipes()
    if str(name) not in known:
        raise UnknownName(f"no recipe is called '{name}'; {did_you_mean(str(name), known)}")
    return known[str(name)]


# -- changing ----------------------------------------------------------------------------------------------------------

GROUPS = ("model", "task", "data", "train")


def override_recipe(recipe: Recipe, settings: Iterable[str]) -> Recipe:
    """Return the recipe with ``group.key=value`` settings applied; names and types are checked."""
    settings = list(settings)
    for setting in settings:
        group = setting.split("=")[0].split(".")[0].strip()
        if "=" not in setting:
            raise RegardError(f"cannot parse the setting {setting!r}; write key=value, for example train.steps=200")
        if group not in GROUPS:
            raise UnknownName(f"no setting is called '{setting.split('=')[0]}'; settings begin with one of "
                              f"{', '.join(f'{g}.' for g in GROUPS)} ({did_you_mean(group, GROUPS)})")  # fmt: skip
    return config.override(recipe, settings)


QUICK_SIZES = {"width": 32, "ffn": 64, "hidden": 32, "heads": 2, "layers": 1, "encoder_layers": 1, "decoder_layers": 1}
QUICK_SIZES["conv_width"] = QUICK_SIZES["width"]  # attention_asr's encoder then fits CTC's (train.init_from)


def quick_recipe(recipe: Recipe) -> Recipe:
    """Return the recipe shrunk to seconds: a tiny model, a few hundred rows, a dozen updates; every part still runs."""
    sizes_in_config = {f.name: getattr(recipe.model, f.name) for f in fields(recipe.model) if f.name in QUICK_SIZES}
    sizes = {name: _shrink(size, QUICK_SIZES[name]) for name, size in sizes_in_config.items() if size is not None}
    if getattr(recipe.model, "kv_heads", None):
        sizes["kv_heads"] = 1
    train = replace(
        recipe.train,
        steps=12,
        warmup_steps=min(recipe.train.warmup_steps, 4),
        eval_interval=6,
        score_interval=min(recipe.train.score_interval, 1),
        save_interval=4,
        log_interval=4,
        average_checkpoints=min(recipe.train.average_checkpoints, 2),
    )
    parts = replace(recipe.model, **sizes), recipe.task, recipe.data
    model, task, data = (part.quick() if hasattr(part, "quick") else part for part in parts)
    return replace(recipe, model=model, task=task, data=data, train=train)


def _shrink(size: Any, limit: int) -> Any:
    """Limit a size, or each size of a tuple."""
    return tuple(min(each, limit) for each in size) if isinstance(size, (tuple, list)) else min(size, limit)


# -- to and from JSON --------------------------------------------------------------------------------------------------


def to_json(recipe: Recipe) -> dict[str, Any]:
    """Return the recipe as plain values."""
    return {
        "format": FORMAT,
        "regard": regard.__version__,
        "name": recipe.name,
        "model": {"family": model_family(recipe.model), **config.to_dict(recipe.model)},
        "task": {"name": _registered_name(TASKS, recipe.task, "task"), **config.to_dict(recipe.task)},
        "data": {"name": _registered_name(DATA, recipe.data, "data"), **config.to_dict(recipe.data)},
        "train": config.to_dict(recipe.train),
    }


def from_json(values: Mapping[str, Any], where: object = "the recipe") -> Recipe:
    """Build a recipe from plain values; a newer format is an error."""
    if not isinstance(values, Mapping) or not {"format", *GROUPS} <= values.keys():
        raise BadInput(f"{where} is not a stored recipe")
    if values["format"] > FORMAT:
        raise BadInput(f"{where} has format {values['format']}, this version reads up to {FORMAT}: update regard")
    model, task, data = (dict(values[group]) for group in GROUPS[:3])
    return Recipe(
        config.from_dict(config_class(model.pop("family")), model),
        config.from_dict(spec.config_class(TASKS, task.pop("name"), "task"), task),
        config.from_dict(resolve(DATA, data.pop("name"), "data"), data),
        config.from_dict(Train, values["train"]),
        str(values.get("name", "recipe")),
    )


def save_recipe(recipe: Recipe, folder: Path) -> None:
    """Write recipe.json."""
    atomic_write((json.dumps(to_json(recipe), indent=2, ensure_ascii=False) + "\n").encode(), folder / "recipe.json")


def load_saved_recipe(folder: Path) -> Recipe:
    """Load the recipe of a run."""
    file = folder / "recipe.json"
    try:
        values = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadInput(
            f"{folder} holds no run: cannot read {file} ({(error.strerror or str(error)).lower()})"
        ) from None
    except ValueError:
        raise BadInput(f"{file} is damaged: it is not JSON") from None
    return from_json(values, file)


def changed_settings(old: Recipe, new: Recipe) -> dict[str, tuple[Any, Any]]:
    """Return the settings in which two recipes differ: name -> (old, new)."""
    a, b = to_json(old), to_json(new)
    pairs = {f"{g}.{key}": (a[g].get(key), b[g].get(key)) for g in GROUPS for key in {*a[g], *b[g]}}
    return {key: pair for key, pair in sorted(pairs.items()) if pair[0] != pair[1]}


# -- models ------------------------------------------------------------------------------------------------------------


def model_family(model: Any) -> str:
    """Return the registered name of the model that a config belongs to."""
    return _registered_name(MODELS, model, "model")


def config_class(name: str) -> type:
    """Return the config class of a model."""
    return spec.config_class(MODELS, name, "model")


def task_config_class(name: str) -> Any:
    """Return the config class of a task."""
    return spec.config_class(TASKS, name, "task")


def build(model: Any) -> nn.Module:
    """Build the model of a config."""
    built: nn.Module = resolve(MODELS, model_family(model), "model")(model)
    return built


def _registered_name(table: Registry, value: Any, kind: str) -> str:
    """Return the name under which a registry holds a config: its own class or, of several in a module, its owner."""
    where = type(value).__module__
    names = [name for name, (module, _) in table.items() if module == where] if is_dataclass(value) else []
    for name in names:
        cls = resolve(table, name, kind)
        if type(value) in (cls, getattr(cls, "Config", None)):
            return name
    if names:
        return names[0]
    registry = "DATA" if kind == "data" else f"{kind.upper()}S"
    raise RegardError(
        f"the {kind} of a recipe is a {where}.{type(value).__name__}, which is not registered; add its module to "
        f"{registry}, so that a file can name it"
    )

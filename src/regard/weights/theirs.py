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

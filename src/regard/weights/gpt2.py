"""GPT-2 of Hugging Face transformers (`GPT2LMHeadModel`), both ways.

    theirs                                            ours
    Conv1D: matrices as they stand behind x           Linear: transposed
    c_attn (q, k, v by thirds)                        one qkv matrix, rows by head
    wte, lm_head                                      embed and head, tied
    wpe                                               learned positions
    a bias everywhere                                 the same, or zeros where ours has none

    model, text = gpt2.load("gpt2")                   a folder with config.json and model.safetensors
    gpt2.save("mine", model, text)                    GPT2LMHeadModel.from_pretrained("mine") reads it

Radford et al.: Language Models are Unsupervised Multitask Learners. 2019
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from regard.core.config import from_dict
from regard.core.errors import BadInput, Unsupported
from regard.core.spec import Spec
from regard.models.gpt import GPT, Config
from regard.weights.folder import only_holds, read_json, read_tensors, replacing, write_json, write_tensors
from regard.weights.table import Row, read, same, tie, transpose, view, write, zero

if TYPE_CHECKING:
    from regard.tokens.text import Text

# theirs -> ours; of two, the last is written
FEEDS = {
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_new": "gelu_tanh",
    "gelu": "gelu",
    "relu": "relu",
    "swish": "silu",
    "silu": "silu",
}


def table(config: Config) -> list[Row]:
    """The rows for a model of ours with this configuration."""
    _check(config)
    there, here = "transformer.h.{}", "decoder.blocks.{}"
    by_head = {"three": 3, "h": config.heads}
    rows = [
        Row(("transformer.wte.weight", "lm_head.weight"), ("embed.weight", "head.weight"), tie)
        if config.tied
        else Row("transformer.wte.weight", "embed.weight", same),
        Row("transformer.wpe.weight", "decoder.positions.table.weight", same),
        Row(f"{there}.ln_1.weight", f"{here}.mix_norm.weight", same),
        Row(
            f"{there}.attn.c_attn.weight",
            f"{here}.mix.project.qkv.weight",
            view("c (three h d) -> (h three d) c", **by_head),
        ),
        Row(f"{there}.attn.c_proj.weight", f"{here}.mix.join.out.weight", transpose),
        Row(f"{there}.ln_2.weight", f"{here}.feed_norm.weight", same),
        Row(f"{there}.mlp.c_fc.weight", f"{here}.feed.up.weight", transpose),
        Row(f"{there}.mlp.c_proj.weight", f"{here}.feed.down.weight", transpose),
        Row("transformer.ln_f.weight", "decoder.norm.weight", same),
    ]
    if not config.tied:
        rows.append(Row("lm_head.weight", "head.weight", same))
    if not config.bias:
        return [*rows, *(Row(name, None, zero(size)) for name, size in _biases(config))]
    return [
        *rows,
        Row(f"{there}.ln_1.bias", f"{here}.mix_norm.bias", same),
        Row(f"{there}.attn.c_attn.bias", f"{here}.mix.project.qkv.bias", view("(three h d) -> (h three d)", **by_head)),
        Row(f"{there}.attn.c_proj.bias", f"{here}.mix.join.out.bias", same),
        Row(f"{there}.ln_2.bias", f"{here}.feed_norm.bias", same),
        Row(f"{there}.mlp.c_fc.bias", f"{here}.feed.up.bias", same),
        Row(f"{there}.mlp.c_proj.bias", f"{here}.feed.down.bias", same),
        Row("transformer.ln_f.bias", "decoder.norm.bias", same),
    ]


def ours(theirs: Mapping[str, Any]) -> Config:
    """Our configuration from their config.json; what it does not say is what transformers takes it to be."""
    if (kind := theirs.get("model_type")) != "gpt2":
        raise Unsupported(f"their config.json is that of a {kind!r} model; this table reads 'gpt2' ones")
    said = _DEFAULTS | dict(theirs)
    for name, wanted in _FIXED.items():
        if said[name] != wanted:
            raise Unsupported(f"their config has {name}={said[name]!r}; only {wanted!r} can be read")
    if said["embd_pdrop"] != said["resid_pdrop"]:
        raise Unsupported(
            f"their embd_pdrop and resid_pdrop differ ({said['embd_pdrop']} and {said['resid_pdrop']}); ours are one"
        )
    if said["activation_function"] not in FEEDS:
        raise Unsupported(f"their activation '{said['activation_function']}' is not among: {', '.join(FEEDS)}")
    eos = said["eos_token_id"]
    values = {field: said[name] for field, name in _FIELDS.items()} | {
        "feed": FEEDS[said["activation_function"]],
        "eos": eos[0] if isinstance(eos, list) and len(eos) == 1 else eos,
    }
    return from_dict(Config, values)


def theirs(config: Config) -> dict[str, Any]:
    """Their config.json from our configuration."""
    _check(config)
    return {
        "model_type": "gpt2",
        "architectures": ["GPT2LMHeadModel"],
        **{name: getattr(config, field) for field, name in _FIELDS.items()},
        "embd_pdrop": config.dropout,
        "activation_function": {ours: theirs for theirs, ours in FEEDS.items()}[config.feed],
        "bos_token_id": config.eos,
        "eos_token_id": config.eos,
        **_FIXED,
    }


def load(folder: str | Path) -> tuple[GPT, Text | None]:
    """A model from a local folder of theirs, in eval mode, and its vocabulary where a tokenizer.json is there."""
    from regard.tokens.text import Text

    folder = Path(folder)
    config = ours(read_json(folder / "config.json"))
    state = _named(read_tensors(folder))
    with torch.random.fork_rng(devices=[]):
        model = GPT(config)
    read(table(config), state, model)
    text = Text.load(folder) if (folder / "tokenizer.json").is_file() else None
    return model.eval(), text


def save(folder: str | Path, model: GPT, text: Text | None = None) -> None:
    """Write a folder that transformers' `GPT2LMHeadModel.from_pretrained` reads; all of it or nothing."""
    config = model.config
    state = write(table(config), model)
    if config.tied:
        del state["lm_head.weight"]  # as theirs do: one name of the shared table
    with replacing(Path(folder), _is_theirs) as new:
        write_json(new / "config.json", theirs(config))
        write_json(new / "generation_config.json", {"bos_token_id": config.eos, "eos_token_id": config.eos})
        write_tensors(new / "model.safetensors", state)
        if text is not None:
            text.save(new)


_FIELDS = {  # ours -> theirs, where they mean the same
    "vocab": "vocab_size",
    "width": "n_embd",
    "heads": "n_head",
    "layers": "n_layer",
    "ffn": "n_inner",
    "length": "n_positions",
    "dropout": "resid_pdrop",
    "attention_dropout": "attn_pdrop",
    "tied": "tie_word_embeddings",
}

# What a GPT-2 must have for ours to be the same.
_FIXED: dict[str, Any] = {
    "layer_norm_epsilon": 1e-5,
    "scale_attn_weights": True,
    "scale_attn_by_inverse_layer_idx": False,
    "reorder_and_upcast_attn": False,
    "add_cross_attention": False,
}

# What transformers assumes of a config.json that does not say.
_DEFAULTS: dict[str, Any] = {
    **_FIXED,
    "vocab_size": 50257,
    "n_embd": 768,
    "n_head": 12,
    "n_layer": 12,
    "n_inner": None,
    "n_positions": 1024,
    "activation_function": "gelu_new",
    "resid_pdrop": 0.1,
    "embd_pdrop": 0.1,
    "attn_pdrop": 0.1,
    "tie_word_embeddings": True,
    "eos_token_id": 50256,
}

_FILES = {"config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"}


def _biases(config: Config) -> Iterator[tuple[str, int]]:
    """Every bias of theirs by name, and how long it is: zeros where ours has none."""
    width, hidden = config.width, config.ffn or 4 * config.width
    each = {"ln_1": width, "attn.c_attn": 3 * width, "attn.c_proj": width, "ln_2": width, "mlp.c_fc": hidden}
    for layer in range(config.layers):
        for name, size in {**each, "mlp.c_proj": width}.items():
            yield f"transformer.h.{layer}.{name}.bias", size
    yield "transformer.ln_f.bias", width


def _named(state: Mapping[str, Any]) -> dict[str, Any]:
    """Their tensors under the names of today: files of the body alone lack the first word, old ones keep a mask."""
    named = {}
    for name, value in state.items():
        body = name if name.startswith(("transformer.", "lm_head.")) else f"transformer.{name}"
        if not body.endswith((".attn.bias", ".attn.masked_bias")):  # not to be learned: who may look at whom
            named[body] = value
    return named


def _check(config: Config) -> None:
    """Refuse what GPT-2 has no place for."""
    needed: dict[str, tuple[Any, bool]] = {
        "norm_kind": ("layer", config.norm_kind == "layer"),
        "qk_norm": (None, config.qk_norm is None),
        "groups": (None, config.groups in (None, config.heads)),
        "attention": ("softmax", isinstance(config.attention, str) and Spec.parse(config.attention).name == "softmax"),
        "feed": (" or ".join(dict.fromkeys(FEEDS.values())), config.feed in FEEDS.values()),
        "positions": ("learned", config.positions == "learned"),
    }
    for name, (wanted, fits) in needed.items():
        if not fits:
            raise Unsupported(f"GPT-2 has {name}={wanted!r}, this model {name}={getattr(config, name)!r}")


def _is_theirs(folder: Path) -> bool:
    with suppress(BadInput):
        return only_holds(folder, _FILES) and read_json(folder / "config.json").get("model_type") == "gpt2"
    return False

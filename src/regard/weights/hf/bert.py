"""BERT of Hugging Face transformers, with each of its heads, import and export.

    transformers                                      Regard
    query, key, value                                 one qkv matrix, rows by head
    word_embeddings, cls.predictions.decoder          embed and head.words, tied
    position, token_type_embeddings                   learned positions, segment
    BertModel                                         head None
    BertForPreTraining, BertForMaskedLM               pretraining, masked
    BertForSequenceClassification                     classes(K)
    BertForTokenClassification                        tags(K)
    BertForQuestionAnswering                          span
    BertForNextSentencePrediction                     next_sentence

    model, text = bert.load("bert-base-uncased")      a folder with config.json and model.safetensors
    model, text = bert.load(folder, head=None)        without its head
    bert.save("mine", model, text)                    BertForMaskedLM.from_pretrained("mine") reads it
    bert.save("mine", regard.load("runs/sst2"))       the same of a predictor, with its labels

The head is the one of the architecture that config.json names; a file without its tensors is refused. Without an
architecture, the tensors decide.

Devlin, Chang, Lee, Toutanova: BERT. NAACL 2019. arXiv:1810.04805
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.core.config import from_dict
from regard.core.errors import BadInput, Unsupported
from regard.core.spec import Spec
from regard.models.bert import BERT, Config
from regard.weights.checkpoint_formats import (
    build_model,
    check_requirements,
    feedforward_for,
    fill_defaults,
    is_hf_folder,
    label_maps,
    load_tokenizer,
    requires_feedforward,
    requires_softmax,
    write_folder,
)
from regard.weights.folder import read_json, read_tensors
from regard.weights.table import Row, export_state_dict, linear, same, stack, tie

if TYPE_CHECKING:
    from regard.tokens.tokenizer import Tokenizer

# transformers -> Regard; of two, the last is exported
FEEDS = {"gelu_pytorch_tanh": "gelu_tanh", "gelu_new": "gelu_tanh", "gelu": "gelu", "relu": "relu", "silu": "silu"}

# Regard -> transformers
CLASSES = {
    None: "BertModel",
    "pretraining": "BertForPreTraining",
    "masked": "BertForMaskedLM",
    "classes": "BertForSequenceClassification",
    "tags": "BertForTokenClassification",
    "span": "BertForQuestionAnswering",
    "next_sentence": "BertForNextSentencePrediction",
}

STORED_HEAD = "stored"  # the head of the folder
_WORD_HEADS = ("pretraining", "masked")


def table(config: Config) -> list[Row]:
    """Return the rows for a model with this Config."""
    _check(config)
    kind = _head_name(config.head)
    body = "" if kind is None else "bert."
    there, here = f"{body}encoder.layer.{{}}", "encoder.blocks.{}"
    rows = [
        Row(f"{body}embeddings.token_type_embeddings.weight", "segment.weight", same),
        Row(f"{body}embeddings.position_embeddings.weight", "encoder.positions.table.weight", same),
        Row(f"{body}embeddings.position_ids", None, reason="0, 1, 2, ...: nothing to learn"),
        *linear(f"{body}embeddings.LayerNorm", "encoder.embed_norm"),
        *(
            Row(
                tuple(f"{there}.attention.self.{name}.{part}" for name in ("query", "key", "value")),
                f"{here}.mix.project.qkv.{part}",
                stack("three (h d) ... -> (h three d) ...", three=3, h=config.heads),
            )
            for part in ("weight", "bias")
        ),
        *linear(f"{there}.attention.output.dense", f"{here}.mix.join.out"),
        *linear(f"{there}.attention.output.LayerNorm", f"{here}.mix_norm"),
        *linear(f"{there}.intermediate.dense", f"{here}.feed.up"),
        *linear(f"{there}.output.dense", f"{here}.feed.down"),
        *linear(f"{there}.output.LayerNorm", f"{here}.feed_norm"),
    ]
    words = f"{body}embeddings.word_embeddings.weight"
    if kind in _WORD_HEADS:
        rows += [
            Row((words, "cls.predictions.decoder.weight"), ("embed.weight", "head.words.weight"), tie),
            Row(("cls.predictions.bias", "cls.predictions.decoder.bias"), "head.words.bias", tie),
            *linear("cls.predictions.transform.dense", "head.transform"),
            *linear("cls.predictions.transform.LayerNorm", "head.norm"),
        ]
    else:
        rows += [
            Row(words, "embed.weight", same),
            *_dropped_rows("cls.predictions", _MLM_HEAD, "a head that predicts words"),
        ]
    if kind in ("pretraining", "next_sentence"):
        rows += linear("cls.seq_relationship", "head.next")
    else:
        rows += _dropped_rows("cls.seq_relationship", ("weight", "bias"), "a head that predicts what follows")
    if kind in (None, "pretraining", "classes", "next_sentence"):
        rows += linear(f"{body}pooler.dense", "pool")
    else:
        rows += _dropped_rows(f"{body}pooler.dense", ("weight", "bias"), "read only by heads over the whole text")
    external = {"classes": "classifier", "tags": "classifier", "span": "qa_outputs"}.get(kind or "")
    if external is not None:
        rows += linear(external, "head.out")
    return rows


def import_config(external: Mapping[str, Any], head: str | None = STORED_HEAD) -> Config:
    """Convert a config.json to a Config; missing fields have the defaults of transformers."""
    head = _head_of_config(external) if head == STORED_HEAD else head
    tied = {} if _head_name(head) in _WORD_HEADS else {"tie_word_embeddings": True}  # without words nothing is tied
    raw = fill_defaults({**external, **tied}, "bert", _DEFAULTS, _FIXED)
    values = {field: raw[name] for field, name in _FIELDS.items()}
    return from_dict(Config, values | {"feedforward": feedforward_for(raw["hidden_act"], FEEDS), "head": head})


def export_config(config: Config) -> dict[str, Any]:
    """Convert a Config to a config.json."""
    _check(config)
    kind, count = _head_name(config.head), _head_classes(config.head)
    labels = label_maps(count or 0)
    return {
        "model_type": "bert",
        "architectures": [CLASSES[kind]],
        **{name: getattr(config, field) for field, name in _FIELDS.items()},
        "intermediate_size": 4 * config.width if config.ffn is None else config.ffn,
        "hidden_act": {internal: external for external, internal in FEEDS.items()}[config.feedforward],
        **labels,
        **_FIXED,
    }


def load(folder: str | Path, head: str | None = STORED_HEAD) -> tuple[BERT, Tokenizer | None]:
    """Load a local folder; return the model in eval mode, and its tokenizer or None.

    `head` is the spec of a head; by default that of the folder.
    """
    folder = Path(folder)
    state = _normalize_keys(read_tensors(folder))
    external = read_json(folder / "config.json")
    config = import_config(external, _stored_head(external, state, folder) if head == STORED_HEAD else head)
    model = build_model(BERT, config, table(config), _with_body_prefix(state, config.head is not None), folder)
    text = load_tokenizer(folder, ("tokenizer.json", "vocab.txt"))
    if text is not None and text.size > config.vocab:
        raise BadInput(f"the tokenizer of {folder} has {text.size} tokens, its weights have {config.vocab}")
    return model, text


def save(folder: str | Path, what: Any, text: Tokenizer | None = None) -> None:
    """Write a folder for transformers, atomically: of a BERT, or of a predictor with its tokenizer and labels."""
    model: BERT = what if isinstance(what, BERT) else what.model
    text = getattr(what, "text", None) if text is None else text
    labels = label_maps(getattr(what, "labels", None) or ())
    config = model.config
    state = export_state_dict(table(config), model)
    for copy in ("cls.predictions.decoder.weight", "cls.predictions.decoder.bias"):
        state.pop(copy, None)  # as transformers: one name of shared tensors
    pad = {} if text is None else {"pad_token_id": text.pad}
    files = {"config.json": export_config(config) | labels | pad}
    write_folder(folder, files, state, is_hf_folder("bert", _FILES), text)


_FIELDS = {  # Config -> config.json
    "vocab": "vocab_size",
    "width": "hidden_size",
    "heads": "num_attention_heads",
    "layers": "num_hidden_layers",
    "ffn": "intermediate_size",
    "length": "max_position_embeddings",
    "segments": "type_vocab_size",
    "dropout": "hidden_dropout_prob",
    "attention_dropout": "attention_probs_dropout_prob",
    "eps": "layer_norm_eps",
}

# Required values of a config.json.
_FIXED: dict[str, Any] = {
    "position_embedding_type": "absolute",
    "is_decoder": False,
    "add_cross_attention": False,
    "tie_word_embeddings": True,
}

# Defaults of transformers.
_DEFAULTS: dict[str, Any] = {
    **_FIXED,
    "vocab_size": 30522,
    "hidden_size": 768,
    "num_attention_heads": 12,
    "num_hidden_layers": 12,
    "intermediate_size": 3072,
    "max_position_embeddings": 512,
    "type_vocab_size": 2,
    "hidden_dropout_prob": 0.1,
    "attention_probs_dropout_prob": 0.1,
    "layer_norm_eps": 1e-12,
    "hidden_act": "gelu",
}

_FILES = {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"}
_MLM_HEAD = (
    "bias",
    "decoder.weight",
    "decoder.bias",
    *(f"transform.{part}.{name}" for part in ("dense", "LayerNorm") for name in ("weight", "bias")),
)


def _dropped_rows(external: str, parts: tuple[str, ...], reason: str) -> list[Row]:
    """Return the rows of tensors that this model does not have."""
    return [Row(f"{external}.{part}", None, reason=reason) for part in parts]


def _head_name(head: str | None) -> str | None:
    return None if head is None else Spec.parse(head).name


def _head_classes(head: str | None) -> int | None:
    """Return the number of classes of a head."""
    if head is None or (spec := Spec.parse(head)).name not in ("classes", "tags"):
        return None
    return int(spec.args[0] if spec.args else spec.kwargs[spec.name])


def _head_of_config(raw: Mapping[str, Any]) -> str | None:
    """Return the head that a config.json names; None for a bare BertModel."""
    named = next(iter(raw.get("architectures") or ()), "BertModel")
    kind = next((head for head, external in CLASSES.items() if external == named), named)
    if kind == named:
        raise Unsupported(f"{named} is not supported; choose one of: {', '.join(CLASSES.values())}")
    labels = len(raw.get("id2label") or ()) or raw.get("num_labels", 2)
    return f"{kind}({labels})" if kind in ("classes", "tags") else kind


# A tensor that only a file with this head has.
_SIGNS = {
    "pretraining": ("cls.seq_relationship.weight", "cls.predictions.transform.dense.weight"),
    "masked": ("cls.predictions.transform.dense.weight",),
    "classes": ("classifier.weight",),
    "tags": ("classifier.weight",),
    "span": ("qa_outputs.weight",),
    "next_sentence": ("cls.seq_relationship.weight",),
}


def _stored_head(external: Mapping[str, Any], state: Mapping[str, Any], folder: Path) -> str | None:
    """Return the head of a folder: that of its architecture, whose tensors must be there; else that of its tensors."""
    if not external.get("architectures"):
        return _head_of_tensors(state)
    head = _head_of_config(external)
    missing = [name for name in _SIGNS.get(_head_name(head) or "", ()) if name not in state]
    if missing:
        raise BadInput(
            f"config.json of {folder} names {external['architectures'][0]}, but its weights have no {missing[0]}; "
            f"they are those of a {CLASSES[_head_name(_head_of_tensors(state))]}"
        )
    if (count := _head_classes(head)) is not None and count != (rows := len(state["classifier.weight"])):
        raise BadInput(f"config.json of {folder} has {count} labels, but its classifier has {rows} rows")
    return head


def _head_of_tensors(state: Mapping[str, Any]) -> str | None:
    """Return the head whose tensors are present."""
    if "cls.seq_relationship.weight" in state:
        return "pretraining"
    if "cls.predictions.transform.dense.weight" in state:
        return "masked"
    if "qa_outputs.weight" in state:
        return "span"
    if "classifier.weight" in state:
        pools = any(name.endswith("pooler.dense.weight") for name in state)
        return f"{'classes' if pools else 'tags'}({len(state['classifier.weight'])})"
    return None


def _normalize_keys(state: Mapping[str, Any]) -> dict[str, Any]:
    """Rename tensors to current names: the first published files call weight and bias of a norm gamma and beta."""
    old = {"gamma": "weight", "beta": "bias"}
    parts = {name: name.rpartition(".") for name in state}
    return {f"{stem}.{old.get(last, last)}" if stem else last: state[n] for n, (stem, _, last) in parts.items()}


def _with_body_prefix(state: Mapping[str, Any], inside: bool) -> dict[str, Any]:
    """Add or remove the prefix "bert." of the body's tensors, as the class has them."""
    heads = ("cls.", "classifier.", "qa_outputs.")
    bare = {name.removeprefix("bert."): value for name, value in state.items()}
    return {f"bert.{n}" if inside and not n.startswith(heads) else n: value for n, value in bare.items()}


def _check(config: Config) -> None:
    """Raise `Unsupported` for a model that the format cannot represent."""
    needed = {
        "norm_kind": ("layer", config.norm_kind == "layer"),
        "attention": requires_softmax(config),
        "feedforward": requires_feedforward(FEEDS, config),
        "positions": ("learned", config.positions == "learned"),
        "head": (
            "one that reads the [CLS] vector",
            config.head is None or "pool" not in Spec.parse(config.head).kwargs,
        ),
    }
    check_requirements("BERT", config, needed)

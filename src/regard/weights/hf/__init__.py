"""Checkpoints of Hugging Face transformers: text models, found by the architecture that config.json names.

    model, tokenizer, task, arguments = load_folder("bert-base-ner")     # task "tagging", arguments {"labels": [...]}

`ARCHITECTURES` says which module reads a folder and what the model is used for; image models are found in
`checkpoint_formats`. A new architecture is one row here and a table of rows in its module.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from regard.core.errors import Unsupported
from regard.weights.folder import CONFIG, config_errors, read_json

if TYPE_CHECKING:
    from torch import nn

    from regard.tokens.tokenizer import Tokenizer


log = logging.getLogger("regard")


class Architecture(NamedTuple):
    """The module that reads a checkpoint, and the task of its model; None: hidden states, no task."""

    module: str
    task: str | None


_BERT, _GPT2, _T5 = "regard.weights.hf.bert", "regard.weights.hf.gpt2", "regard.weights.hf.t5"

ARCHITECTURES: dict[str, Architecture] = {
    "MarianMTModel": Architecture("regard.weights.hf.marian", "translation"),
    "BertModel": Architecture(_BERT, None),
    "BertForPreTraining": Architecture(_BERT, "masked_lm"),
    "BertForMaskedLM": Architecture(_BERT, "masked_lm"),
    "BertForNextSentencePrediction": Architecture(_BERT, "classification"),
    "BertForSequenceClassification": Architecture(_BERT, "classification"),
    "BertForTokenClassification": Architecture(_BERT, "tagging"),
    "BertForQuestionAnswering": Architecture(_BERT, "extractive_qa"),
    "GPT2Model": Architecture(_GPT2, None),
    "GPT2LMHeadModel": Architecture(_GPT2, "language_modeling"),
    "T5Model": Architecture(_T5, None),
    "T5ForConditionalGeneration": Architecture(_T5, "text_to_text"),
}
# Of a config.json that names no architecture, by its model_type.
DEFAULTS = {
    "marian": "MarianMTModel",
    "bert": "BertForMaskedLM",
    "gpt2": "GPT2LMHeadModel",
    "t5": "T5ForConditionalGeneration",
}


class Checkpoint(NamedTuple):
    """A loaded folder: the model in eval mode, its tokenizer, its task, and what else its predictor is built with."""

    model: nn.Module
    tokenizer: Tokenizer | None
    task: str | None
    arguments: dict[str, Any]


def model_type(folder: Path) -> str:
    """Return the model_type of a folder of transformers; "" for any other folder."""
    config = read_json(folder / CONFIG) if (folder / CONFIG).is_file() else {}
    return "" if "format" in config else str(config.get("model_type", ""))


def architecture_name(config: Mapping[str, Any]) -> str:
    """Return the architecture that a config.json names, or the usual one of its model_type."""
    named = config.get("architectures")
    if isinstance(named, list) and named:
        return str(named[0])
    return DEFAULTS[str(config["model_type"])]


def load_folder(folder: str | Path) -> Checkpoint:
    """Load a text model of transformers, chosen by the architecture in its config.json."""
    folder = Path(folder)
    config = read_json(folder / CONFIG)
    name = architecture_name(config)
    if name not in ARCHITECTURES:
        kind = str(config["model_type"])
        known = ", ".join(each for each in ARCHITECTURES if each.lower().startswith(kind))
        raise Unsupported(f"{folder} holds a {name}, which is not supported; supported for '{kind}': {known}")
    found = ARCHITECTURES[name]
    with config_errors(folder):
        model, tokenizer = import_module(found.module).load(folder)
        arguments = _arguments(name, found.task, config, folder)
        if found.task in GENERATING_TASKS and tokenizer is not None:
            banned = {tokenizer.pad} - {tokenizer.eos}
            arguments |= _generation_arguments(folder, config, found.task, banned)
        return Checkpoint(model, tokenizer, found.task, arguments)


GENERATING_TASKS = ("translation", "text_to_text", "language_modeling")


def _generation_arguments(folder: Path, config: Mapping[str, Any], task: str, banned: set[int]) -> dict[str, Any]:
    """Return the arguments of a predictor that writes text; log a warning about settings that it cannot honour."""
    from regard.weights.hf.generation import read_settings

    continues = task == "language_modeling"
    found = read_settings(folder, config, continues, banned)
    if found.ignored:
        log.warning("the generation settings of %s have %s, which is ignored", folder, ", ".join(found.ignored))
    longest = {} if continues or found.max_new_tokens is None else {"max_new_tokens": found.max_new_tokens}
    return {"option_defaults": found.options} | longest


def _arguments(name: str, task: str | None, config: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Return what a predictor needs besides model and tokenizer."""
    from regard.weights.checkpoint_formats import check_single_label, labels_in_order

    if name == "BertForNextSentencePrediction":
        return {"labels": ["follows", "does not follow"]}
    if task == "classification":
        check_single_label(config)
    if task in ("classification", "tagging"):
        count = config.get("num_labels", 2)
        return {"labels": labels_in_order(config.get("id2label") or {n: f"LABEL_{n}" for n in range(count)})}
    if task == "translation":  # opus-mt-en-de: the only place where the languages are written
        name = str(config.get("_name_or_path") or folder.name).rstrip("/").split("/")[-1]
        source, target = name.split("-")[-2:] if name.count("-") > 1 else ("source", "target")
        return {"source": source, "target": target}
    return {}

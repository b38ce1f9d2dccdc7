"""Folders of sentence-transformers: a BERT, its pooling, its prompt and its maximum length.

    modules.json                         Transformer, Pooling, perhaps Normalize
    1_Pooling/config.json                mean of the tokens, the first, or the largest; with the prompt's or without
    sentence_bert_config.json            max_seq_length: 256 for all-MiniLM-L6-v2, though its positions reach 512;
                                         do_lower_case
    tokenizer_config.json                model_max_length, where sentence_bert_config.json has none
    config_sentence_transformers.json    prompts and default_prompt_name, truncate_dim

Weights and tokenizer are loaded by weights.hf.bert. sentence-transformers truncates longer texts silently; here they
raise an error or are split (tasks.text.embedder).

Reimers, Gurevych: Sentence-BERT. EMNLP 2019. arXiv:1908.10084; Wang et al.: MiniLM. NeurIPS 2020. arXiv:2002.10957
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.core.errors import BadInput, Unsupported
from regard.weights.folder import config_errors, read_json
from regard.weights.hf import bert

if TYPE_CHECKING:
    from regard.models.bert import BERT
    from regard.tokens.tokenizer import Tokenizer

POOLING_MODES = {"mean": "mean", "cls": "first", "max": "max"}  # sentence-transformers 6 -> Regard
FLAGS = {  # up to version 5, one flag for each mode
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}


# Required values of sentence_bert_config.json of version 6, where it has them.
_TEXT = {"text": {"method": "forward", "method_output_name": "last_hidden_state"}}
FIXED: dict[str, Any] = {
    "transformer_task": "feature-extraction",
    "modality_config": _TEXT,
    "module_output_name": "token_embeddings",
    "processing_kwargs": None,
    "query_expansion": None,
}


def is_sentence_transformers_folder(folder: Path) -> bool:
    """Whether a folder is one of sentence-transformers."""
    return (folder / "modules.json").is_file()


def load(folder: str | Path) -> tuple[BERT, Tokenizer, dict[str, Any]]:
    """Return the model in eval mode, its tokenizer, and the other arguments of a TextEmbedder."""
    folder = Path(folder)
    kinds, places = _modules(folder)
    if kinds not in (["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"]):
        raise Unsupported(
            f"modules {', '.join(kinds)} in {folder} are not supported; expected Transformer, Pooling, Normalize"
        )
    with config_errors(folder):
        return _load(folder, kinds, places)


def _load(folder: Path, kinds: list[str], places: list[str]) -> tuple[BERT, Tokenizer, dict[str, Any]]:
    body = folder / places[0]
    raw = _read(body / "sentence_bert_config.json")
    _check_fixed(raw, "sentence_bert_config.json", FIXED)
    model, text = bert.load(body, head=None)
    if text is None:
        raise BadInput(f"there is no tokenizer in {body}; copy the whole folder")
    longest = raw.get("max_seq_length") or _read(body / "tokenizer_config.json").get("model_max_length")
    limit = model.config.length
    how = {
        "normalize": "Normalize" in kinds,
        "max_length": min(longest, limit) if isinstance(longest, (int, float)) else limit,
        **_pooling(folder / places[1]),
        **_defaults(folder),
    }
    return model, text.lowercased() if raw.get("do_lower_case") else text, how


def _read(file: Path) -> dict[str, Any]:
    """Return the content of a JSON file; nothing if there is none."""
    return read_json(file) if file.is_file() else {}


def _check_fixed(raw: dict[str, Any], file: str, fixed: dict[str, Any]) -> None:
    """Raise `Unsupported` for a field that would make other vectors."""
    for name, expected in fixed.items():
        if raw.get(name) and raw[name] != expected:
            raise Unsupported(f"{name}={raw[name]!r} in {file} is not supported; expected {expected!r}")


def _defaults(folder: Path) -> dict[str, Any]:
    """Return the prompt that is written before every text, and the length of vectors."""
    raw = _read(folder / "config_sentence_transformers.json")
    _check_fixed(raw, "config_sentence_transformers.json", {"model_type": "SentenceTransformer"})
    name, prompts = raw.get("default_prompt_name"), raw.get("prompts") or {}
    if name is not None and name not in prompts:
        raise BadInput(
            f"the default prompt '{name}' of {folder} is none of its prompts: {', '.join(prompts) or 'none'}"
        )
    return {"prompt": prompts[name] if name is not None else "", "truncate_dim": raw.get("truncate_dim")}


def _modules(folder: Path) -> tuple[list[str], list[str]]:
    """Return the modules by the last word of their type, and the folder of each."""
    try:
        found = json.loads((folder / "modules.json").read_text(encoding="utf-8"))
        ordered = sorted(found, key=lambda part: part["idx"])
        return [str(part["type"]).rpartition(".")[2] for part in ordered], [str(part["path"]) for part in ordered]
    except OSError as error:
        raise BadInput(f"cannot read {folder / 'modules.json'}: {error.strerror}") from None
    except (ValueError, TypeError, KeyError):
        raise BadInput(f"{folder / 'modules.json'} is damaged: it is no list of modules") from None


def _pooling(folder: Path) -> dict[str, Any]:
    """Return how tokens are pooled, and whether those of the prompt are."""
    raw = read_json(folder / "config.json")
    modes = raw.get("pooling_mode") or [mode for flag, mode in FLAGS.items() if raw.get(flag)] or "mean"
    modes = [modes] if isinstance(modes, str) else modes
    if len(modes) != 1 or modes[0] not in POOLING_MODES:
        known = ", ".join(POOLING_MODES)
        raise Unsupported(f"pooling {' and '.join(modes)} in {folder} is not supported; expected one of: {known}")
    return {"pooling": POOLING_MODES[modes[0]], "include_prompt": bool(raw.get("include_prompt", True))}

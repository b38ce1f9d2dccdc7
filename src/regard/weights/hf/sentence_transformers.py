"""Folders of sentence-transformers: a BERT, its pooling and its maximum length.

    modules.json                 Transformer, Pooling, perhaps Normalize
    1_Pooling/config.json        mean of the tokens, the first, or the largest
    sentence_bert_config.json    max_seq_length: 256 for all-MiniLM-L6-v2, though its positions reach 512

Weights and tokenizer are loaded by weights.hf.bert. sentence-transformers truncates longer texts silently; here they
raise an error or are split (tasks.text.embedder).

Reimers, Gurevych: Sentence-BERT. EMNLP 2019. arXiv:1908.10084; Wang et al.: MiniLM. NeurIPS 2020. arXiv:2002.10957
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.core.errors import BadInput, Unsupported
from regard.weights.folder import read_json
from regard.weights.hf import bert

if TYPE_CHECKING:
    from regard.models.bert import BERT
    from regard.tokens.tokenizer import Tokenizer

POOLING_MODES = {  # sentence-transformers -> Regard
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_cls_token": "first",
    "pooling_mode_max_tokens": "max",
}


def is_sentence_transformers_folder(folder: Path) -> bool:
    """Whether a folder is one of sentence-transformers."""
    return (folder / "modules.json").is_file()


def load(folder: str | Path) -> tuple[BERT, Tokenizer, dict[str, Any]]:
    """Return the model in eval mode, its tokenizer, and pooling, normalize and max_length of a TextEmbedder."""
    folder = Path(folder)
    kinds, places = _modules(folder)
    if kinds not in (["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"]):
        raise Unsupported(
            f"modules {', '.join(kinds)} in {folder} are not supported; expected Transformer, Pooling, Normalize"
        )
    body = folder / places[0]
    raw = read_json(body / "sentence_bert_config.json") if (body / "sentence_bert_config.json").is_file() else {}
    if raw.get("do_lower_case"):
        raise Unsupported(f"{folder} has do_lower_case=True outside of its tokenizer, which is not supported")
    model, text = bert.load(body, head=None)
    if text is None:
        raise BadInput(f"there is no tokenizer in {body}; copy the whole folder")
    longest = min(int(raw.get("max_seq_length") or model.config.length), model.config.length)
    return model, text, {"pooling": _pool(folder / places[1]), "normalize": "Normalize" in kinds, "max_length": longest}


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


def _pool(folder: Path) -> str:
    raw = read_json(folder / "config.json")
    modes = [name for name, value in raw.items() if name.startswith("pooling_mode_") and value is True]
    if len(modes) != 1 or modes[0] not in POOLING_MODES:
        raise Unsupported(
            f"pooling {', '.join(modes) or 'none'} in {folder} is not supported; use {', '.join(POOLING_MODES)}"
        )
    return POOLING_MODES[modes[0]]

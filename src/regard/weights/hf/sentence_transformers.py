"""Folders of sentence-transformers: a BERT, how its vectors are pooled, and how long a text it was made for.

    modules.json                 Transformer, Pooling, perhaps Normalize
    1_Pooling/config.json        mean of the tokens, the first, or the largest
    sentence_bert_config.json    max_seq_length: 256 for all-MiniLM-L6-v2, though its positions reach 512

Weights and vocabulary are read by weights.bert. sentence-transformers cuts a longer text off without a word; here the
length is given to whoever reads, and a longer text is refused or read in parts (tasks.text.embedder).

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

POOLING_MODES = {  # theirs -> ours
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_cls_token": "first",
    "pooling_mode_max_tokens": "max",
}


def is_sentence_transformers_folder(folder: Path) -> bool:
    """Whether a folder is one of sentence-transformers."""
    return (folder / "modules.json").is_file()


def load(folder: str | Path) -> tuple[BERT, Tokenizer, dict[str, Any]]:
    """The model in eval mode, its vocabulary, and what an TextEmbedder is made with: pool, normal, longest."""
    folder = Path(folder)
    kinds, places = _modules(folder)
    if kinds not in (["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"]):
        raise Unsupported(
            f"{folder} has the parts {', '.join(kinds)}; only Transformer, Pooling, Normalize can be read"
        )
    body = folder / places[0]
    said = read_json(body / "sentence_bert_config.json") if (body / "sentence_bert_config.json").is_file() else {}
    if said.get("do_lower_case"):
        raise Unsupported(f"{folder} lowers its texts before the vocabulary does; this cannot be read")
    model, text = bert.load(body, head=None)
    if text is None:
        raise BadInput(f"there is no vocabulary in {body}; copy the whole folder")
    longest = min(int(said.get("max_seq_length") or model.config.length), model.config.length)
    return model, text, {"pooling": _pool(folder / places[1]), "normalize": "Normalize" in kinds, "max_length": longest}


def _modules(folder: Path) -> tuple[list[str], list[str]]:
    """The parts by the last word of their type, and the folder of each."""
    try:
        found = json.loads((folder / "modules.json").read_text(encoding="utf-8"))
        ordered = sorted(found, key=lambda part: part["idx"])
        return [str(part["type"]).rpartition(".")[2] for part in ordered], [str(part["path"]) for part in ordered]
    except OSError as error:
        raise BadInput(f"cannot read {folder / 'modules.json'}: {error.strerror}") from None
    except (ValueError, TypeError, KeyError):
        raise BadInput(f"{folder / 'modules.json'} is damaged: it is no list of parts") from None


def _pool(folder: Path) -> str:
    said = read_json(folder / "config.json")
    asked = [name for name, value in said.items() if name.startswith("pooling_mode_") and value is True]
    if len(asked) != 1 or asked[0] not in POOLING_MODES:
        raise Unsupported(
            f"{folder} pools by {', '.join(asked) or 'nothing'}; only one of {', '.join(POOLING_MODES)} is read"
        )
    return POOLING_MODES[asked[0]]

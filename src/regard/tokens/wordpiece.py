"""BERT's way of cutting text: words and signs apart, then the longest known start of each word.

    "Déjà-vu, unaffable!"  ->  deja - vu , una ##ffa ##ble !

Control characters go, Chinese characters stand alone, and where case is forgotten accents are too. A word of over 100
characters, or one that cannot be spelled, is [UNK] as a whole. Published vocabularies come as vocab.txt, one piece a
line; how to treat case is said by the tokenizer_config.json beside it, and where nothing is said it is forgotten.

Wu et al.: Google's Neural Machine Translation System (WordPiece). 2016. arXiv:1609.08144
Devlin, Chang, Lee, Toutanova: BERT. NAACL 2019. arXiv:1810.04805
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer as HFTokenizer
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors

from regard.core.errors import BadInput

BERT_SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")  # ids 0 to 4 of every BERT vocabulary trained here
MAX_WORD_CHARS = 100  # characters of a word that is looked up at all


def bert_tokenizer(
    vocabulary: Mapping[str, int] | None = None,
    lower: bool = True,
    accents: bool | None = None,
    chinese: bool = True,
) -> HFTokenizer:
    """BERT's tokenizer over a vocabulary; `accents` None: stripped where case is forgotten."""
    known = dict(vocabulary or {mark: i for i, mark in enumerate(BERT_SPECIAL_TOKENS)})
    tokenizer = HFTokenizer(models.WordPiece(known, unk_token="[UNK]", max_input_chars_per_word=MAX_WORD_CHARS))
    tokenizer.normalizer = normalizers.BertNormalizer(
        clean_text=True, handle_chinese_chars=chinese, strip_accents=accents, lowercase=lower
    )
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece("##", cleanup=True)
    ends = [(mark, known[mark]) for mark in ("[CLS]", "[SEP]")]
    tokenizer.post_processor = processors.TemplateProcessing(  # for other programs: here marks are never added
        single="[CLS]:0 $A:0 [SEP]:0", pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1", special_tokens=ends
    )
    tokenizer.add_special_tokens([mark for mark in BERT_SPECIAL_TOKENS if mark in known])
    return tokenizer


def read_vocab(file: Path, config: Mapping[str, Any]) -> HFTokenizer:
    """A published vocab.txt, treated as its tokenizer_config.json says."""
    try:
        lines = file.read_text(encoding="utf-8").split("\n")
    except OSError as error:
        raise BadInput(f"cannot read {file}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise BadInput(f"{file} is damaged: it is not UTF-8 text") from None
    pieces = [line.removesuffix("\r") for line in lines]
    vocabulary = {piece: i for i, piece in enumerate(pieces if pieces[-1] else pieces[:-1])}
    if missing := [mark for mark in BERT_SPECIAL_TOKENS[:4] if mark not in vocabulary]:
        raise BadInput(f"{file} is no vocabulary of BERT: it has no {', '.join(missing)}")
    return bert_tokenizer(
        vocabulary,
        lower=bool(config.get("do_lower_case", True)),
        accents=config.get("strip_accents"),
        chinese=bool(config.get("tokenize_chinese_chars", True)),
    )


def inner_characters(characters: Iterable[str]) -> list[str]:
    """Those that can stand inside a word; a sign never does, so no piece has to begin with it."""
    apart = normalizers.BertNormalizer(lowercase=False).normalize_str  # Chinese characters
    split = pre_tokenizers.BertPreTokenizer().pre_tokenize_str  # signs
    return [c for c in characters if len(split(apart(f"a{c}"))) == 1]

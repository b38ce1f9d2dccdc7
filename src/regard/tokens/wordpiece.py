"""WordPiece, BERT's tokenizer: split into words and punctuation, then greedily into the longest known pieces.

    "Déjà-vu, unaffable!"  ->  deja - vu , una ##ffa ##ble !

Control characters are removed, Chinese characters are words, and an uncased vocabulary strips accents too. A word of
over 100 characters, or one that pieces cannot spell, is [UNK] as a whole. Published vocabularies are a vocab.txt, one
piece a line; its tokenizer_config.json says whether it is cased (default: uncased).

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
MAX_WORD_CHARS = 100  # a longer word is [UNK]


def bert_tokenizer(
    vocabulary: Mapping[str, int] | None = None,
    lower: bool = True,
    accents: bool | None = None,
    chinese: bool = True,
) -> HFTokenizer:
    """Return BERT's tokenizer for a vocabulary; `accents` None: stripped if `lower`."""
    known = dict(vocabulary or {mark: i for i, mark in enumerate(BERT_SPECIAL_TOKENS)})
    tokenizer = HFTokenizer(models.WordPiece(known, unk_token="[UNK]", max_input_chars_per_word=MAX_WORD_CHARS))
    tokenizer.normalizer = normalizers.BertNormalizer(
        clean_text=True, handle_chinese_chars=chinese, strip_accents=accents, lowercase=lower
    )
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece("##", cleanup=True)
    ends = [(mark, known[mark]) for mark in ("[CLS]", "[SEP]")]
    tokenizer.post_processor = processors.TemplateProcessing(  # for other programs; here special tokens are never added
        single="[CLS]:0 $A:0 [SEP]:0", pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1", special_tokens=ends
    )
    tokenizer.add_special_tokens([mark for mark in BERT_SPECIAL_TOKENS if mark in known])
    return tokenizer


def read_vocab(file: Path, config: Mapping[str, Any]) -> HFTokenizer:
    """Read a published vocab.txt, with the settings of its tokenizer_config.json."""
    try:
        lines = file.read_text(encoding="utf-8").split("\n")
    except OSError as error:
        raise BadInput(f"cannot read {file}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise BadInput(f"{file} is damaged: it is not UTF-8 text") from None
    pieces = [line.removesuffix("\r") for line in lines]
    vocabulary = {piece: i for i, piece in enumerate(pieces if pieces[-1] else pieces[:-1])}
    if missing := [mark for mark in BERT_SPECIAL_TOKENS[:4] if mark not in vocabulary]:
        raise BadInput(f"{file} is no BERT vocabulary: {', '.join(missing)} missing")
    return bert_tokenizer(
        vocabulary,
        lower=bool(config.get("do_lower_case", True)),
        accents=config.get("strip_accents"),
        chinese=bool(config.get("tokenize_chinese_chars", True)),
    )


def inner_characters(characters: Iterable[str]) -> list[str]:
    """Return the characters that occur inside a word; punctuation never does, so no ## piece starts with it."""
    isolate = normalizers.BertNormalizer(lowercase=False).normalize_str  # Chinese characters
    split = pre_tokenizers.BertPreTokenizer().pre_tokenize_str  # punctuation
    return [c for c in characters if len(split(isolate(f"a{c}"))) == 1]

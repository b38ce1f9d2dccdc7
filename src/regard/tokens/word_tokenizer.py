"""Word tokenizer: split text at spaces and punctuation into whole words, with a vocabulary of the frequent ones.

    "I don't know Mr. Hu-Li."   ->   I  don't  know  Mr.  Hu-Li  .

For models that read the characters of a word or have a vector for every word, and for data of tagged words. The
vocabulary is a `Tokenizer` of kind "word" that splits in the same way and loses only the spaces; `Tokenizer.train` with
that kind also splits at apostrophes and hyphens, reversibly.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from tokenizers import Regex, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as HFTokenizer

from regard.core.errors import BadInput
from regard.tokens.tokenizer import ROLES, SPECIAL_TOKENS, Tokenizer

# Titles and abbreviations with periods, words with apostrophes and hyphens, numbers, and any other sign by itself.
WORD_PATTERN = (
    r"(?i:mr|mrs|ms|dr|st|jr|sr)\.|\p{L}\.(?:\p{L}\.)+|[\p{L}\p{M}]+(?:['’\-][\p{L}\p{M}]+)*"
    r"|\p{N}+(?:[.,:]\p{N}+)*|[^\p{L}\p{M}\p{N}\s]"
)
_SPLIT = pre_tokenizers.Split(Regex(WORD_PATTERN), "removed", invert=True)


def split_words(line: str) -> list[str]:
    """Split a line into words and punctuation."""
    try:
        return [word for word, _ in _SPLIT.pre_tokenize_str(line)]
    except (TypeError, UnicodeEncodeError):
        raise BadInput(f"expected text to split into words, got {line!r:.60}") from None


def build_vocabulary(
    sentences: Iterable[Sequence[str]], size: int, min_count: int = 1, lower: bool = False
) -> Tokenizer:
    """Build a tokenizer of the most frequent words: at most `size` with the special tokens, each `min_count` times."""
    counts: Counter[str] = Counter()
    for words in sentences:
        counts.update(words)
    if lower:
        small: Counter[str] = Counter()
        for word, n in counts.items():
            small[word.lower()] += n
        counts = small
    for special in (*SPECIAL_TOKENS, ""):
        counts.pop(special, None)
    ranked = sorted((word for word, n in counts.items() if n >= min_count), key=lambda word: (-counts[word], word))
    if not ranked:
        raise BadInput(f"no word occurs {min_count} times; lower min_count or use more text")
    known = [*SPECIAL_TOKENS, *ranked[: size - len(SPECIAL_TOKENS)]]
    tokenizer = HFTokenizer(models.WordLevel({word: i for i, word in enumerate(known)}, unk_token="<unk>"))
    if lower:
        tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(WORD_PATTERN), "removed", invert=True)
    tokenizer.add_special_tokens(list(SPECIAL_TOKENS))
    return Tokenizer(tokenizer, dict(zip(ROLES, SPECIAL_TOKENS, strict=True)))


def word_ids(tokenizer: Tokenizer) -> dict[str, int]:
    """Return every word of a vocabulary with its id, without special tokens."""
    special = {tokenizer.pad, tokenizer.bos, tokenizer.eos, tokenizer.unk}
    return {word: i for i, word in enumerate(tokenizer.pieces(range(tokenizer.size))) if i not in special}

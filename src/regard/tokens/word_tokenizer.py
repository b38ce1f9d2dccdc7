"""Words: text cut at spaces and signs, each word whole, however rare; and a vocabulary of the frequent ones.

    "I don't know Mr. Hu-Li."   ->   I  don't  know  Mr.  Hu-Li  .

For models that look at a word's letters or keep a vector for every word, and for data that come cut into words with a
tag each. The vocabulary is a `Text` of kind "word" that cuts in the same way and forgets only the spaces; `Tokenizer.train`
with that kind cuts words apart at apostrophes and hyphens, and remembers how to put them together again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from tokenizers import Regex, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as HFTokenizer

from regard.core.errors import BadInput
from regard.tokens.tokenizer import ROLES, SPECIAL_TOKENS, Tokenizer

# Titles and letters with points, words with what joins their parts, numbers, and any other sign by itself.
WORD_PATTERN = (
    r"(?i:mr|mrs|ms|dr|st|jr|sr)\.|\p{L}\.(?:\p{L}\.)+|[\p{L}\p{M}]+(?:['’\-][\p{L}\p{M}]+)*"
    r"|\p{N}+(?:[.,:]\p{N}+)*|[^\p{L}\p{M}\p{N}\s]"
)
_SPLIT = pre_tokenizers.Split(Regex(WORD_PATTERN), "removed", invert=True)


def split_words(line: str) -> list[str]:
    """The words and signs of a line."""
    try:
        return [word for word, _ in _SPLIT.pre_tokenize_str(line)]
    except (TypeError, UnicodeEncodeError):
        raise BadInput(f"this is not text that can be cut into words: {line!r:.60}") from None


def build_vocabulary(
    sentences: Iterable[Sequence[str]], size: int, min_count: int = 1, lower: bool = False
) -> Tokenizer:
    """The most frequent words, at most `size` with the special ones, that occur `least` times or more."""
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
        raise BadInput(f"no word occurs {min_count} times: there is no vocabulary to make of this text")
    known = [*SPECIAL_TOKENS, *ranked[: size - len(SPECIAL_TOKENS)]]
    tokenizer = HFTokenizer(models.WordLevel({word: i for i, word in enumerate(known)}, unk_token="<unk>"))
    if lower:
        tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(WORD_PATTERN), "removed", invert=True)
    tokenizer.add_special_tokens(list(SPECIAL_TOKENS))
    return Tokenizer(tokenizer, dict(zip(ROLES, SPECIAL_TOKENS, strict=True)))


def word_ids(tokenizer: Tokenizer) -> dict[str, int]:
    """Every word of a vocabulary with its number; the special ones are not among them."""
    marks = {tokenizer.pad, tokenizer.bos, tokenizer.eos, tokenizer.unk}
    return {word: i for i, word in enumerate(tokenizer.pieces(range(tokenizer.size))) if i not in marks}

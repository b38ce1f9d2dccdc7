"""Tokenizers: text to token ids and back, with a vocabulary trained here or loaded.

    kind        pieces are                           decoding restores            unseen characters
    bytes       byte pairs, merged by frequency      the text, byte for byte      cannot happen
    bpe         character pairs, merged likewise     the text, spaces normalised  <unk>
    unigram     the likeliest split of a word        the text, spaces normalised  <unk>
    wordpiece   the longest known start of a word    the text, spaces normalised  <unk> (the word)
    word        words and punctuation                the text, spaces normalised  <unk> (the word)
    char        characters                           the text                     <unk>
    bert        the longest known start of a word    words, separated by spaces   [UNK] (the word)

Spaces: `bytes`, `bpe` and `unigram` put a space into the piece that follows ("▁dog"), and one before the first word
too, so that a word has the same piece everywhere. `word` and `wordpiece` mark punctuation instead: "￭" on the side
where a sign touches its neighbour, so "(so-so)." becomes (￭ so ￭-￭ so ￭) ￭. and decodes exactly. `bert` is BERT's own
WordPiece (tokens/wordpiece.py): it loses spaces, and its special tokens have BERT's names. The saved file is a Hugging
Face tokenizer.json, which other programs can load.

Special tokens are never parsed from text: "</s>" in a line is four characters, not the end of it.

Sennrich, Haddow, Birch: Neural Machine Translation of Rare Words with Subword Units. ACL 2016. arXiv:1508.07909
Kudo: Subword Regularization. ACL 2018. arXiv:1804.10959
Wu et al.: Google's Neural Machine Translation System (WordPiece). 2016. arXiv:1609.08144
Radford et al.: Language Models are Unsupervised Multitask Learners (pairs of bytes). 2019
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers, trainers
from tokenizers import Tokenizer as HFTokenizer

from regard.core.errors import BadInput, RegardError, UnknownName, did_you_mean
from regard.core.files import atomic_write
from regard.tokens import sentencepiece, wordpiece

KINDS = ("bytes", "bpe", "wordpiece", "unigram", "word", "char", "bert")
SPECIAL_TOKENS = ("<pad>", "<s>", "</s>", "<unk>")  # ids 0 1 2 3 of every vocabulary trained here
ROLES = ("pad", "bos", "eos", "unk")
OPTIONAL_ROLES = ("mask",)  # not every vocabulary has one

# Usual names, best known first: (Regard, RoBERTa, BART, T5, Marian, Llama), BERT, Gemma, GPT-2 and its relatives.
SPECIAL_NAMES = {
    "pad": ("<pad>", "[PAD]", "<|pad|>", "<|padding|>", "<|finetune_right_pad_id|>", "<PAD>"),
    "bos": ("<s>", "[CLS]", "<bos>", "[BOS]", "<|begin_of_text|>", "<|startoftext|>", "<|endoftext|>", "<BOS>"),
    "eos": ("</s>", "[SEP]", "<eos>", "[EOS]", "<|end_of_text|>", "<|endoftext|>", "<EOS>"),
    "unk": ("<unk>", "[UNK]", "<|unk|>", "<UNK>"),
    "mask": ("<mask>", "[MASK]"),
}

MAX_EXPANSION = 64  # of a text by a normalizer: Unicode's own forms need 18

SPACE, JOINER = "▁", "￭"


class Tokenizer:
    """A vocabulary that encodes text to token ids and decodes them; made by `Tokenizer.train` or `Tokenizer.load`.

    `pad`, `bos`, `eos` and `unk` are the ids of the special tokens (of BERT: [PAD], [CLS], [SEP], [UNK]), `mask` that
    of [MASK] or None, `size` the number of embeddings that are needed, `kind` one of `KINDS`.
    """

    kind: str
    size: int
    pad: int
    bos: int
    eos: int
    unk: int
    mask: int | None

    def __init__(self, tokenizer: HFTokenizer, special: Mapping[str, str] | None = None) -> None:
        layout = json.loads(tokenizer.to_str())
        self._special = _find_special(tokenizer, layout, special or {})
        self.pad, self.bos, self.eos, self.unk = (self._special[role] for role in ROLES)
        self.mask = self._special.get("mask")
        self.kind = _kind(layout)
        self.size = 1 + max(tokenizer.get_vocab(with_added_tokens=True).values())
        declared = {token["id"] for token in layout["added_tokens"] if token["special"]}
        # Some files have them as plain words; declared special, they are skipped when decoding.
        tokenizer.add_special_tokens([tokenizer.id_to_token(i) for i in set(self._special.values()) - declared])
        tokenizer.encode_special_tokens = True  # "</s>" in a line is four characters
        tokenizer.no_padding()
        tokenizer.no_truncation()
        self._tokenizer = tokenizer
        self._special_ids = declared | set(self._special.values())
        self._render = _renderer(layout)

    # -- train, load, save ---------------------------------------------------------------------------------------------

    @classmethod
    def train(cls, lines: Iterable[str], kind: str = "bytes", size: int = 8000, lower: bool = False) -> Tokenizer:
        """Train a vocabulary of at most `size` pieces, deterministically; `lower` converts text to lower case."""
        if kind not in KINDS:
            raise UnknownName(f"no vocabulary is of kind '{kind}'; {did_you_mean(kind, KINDS)}")
        names = wordpiece.BERT_SPECIAL_TOKENS if kind == "bert" else SPECIAL_TOKENS
        min_size = len(names) + (256 if kind == "bytes" else 1)
        if size < min_size:
            raise BadInput(f"size of a vocabulary of kind '{kind}' must be at least {min_size}, got {size}")
        try:
            tokenizer = _TRAIN[kind](_lines(lines), size, lower)
        except UnicodeEncodeError as error:
            raise BadInput(f"a line to train on is not valid Unicode: {error.reason}") from None
        roles = ("pad", "unk", "bos", "eos", "mask") if kind == "bert" else ROLES
        return cls(tokenizer, dict(zip(roles, names, strict=True)))

    @classmethod
    def load(cls, path: str | Path, special: Mapping[str, str] | None = None) -> Tokenizer:
        """Load a tokenizer.json, the vocab.txt of a BERT (`path` is the file or its folder), or a SentencePiece model.

        Special tokens are those that tokenizer_config.json in that folder names, else those with a usual name;
        `special` overrides both: ``special={"pad": "<blank>", "eos": "<end>"}``.
        """
        path = Path(path)
        file = path / "tokenizer.json" if path.is_dir() else path
        if path.is_dir() and not file.is_file() and (path / "vocab.txt").is_file():
            file = path / "vocab.txt"
        if not file.is_file():
            raise BadInput(f"there is no tokenizer at {file}; give a tokenizer.json or the folder that holds one")
        if file.suffix in sentencepiece.SUFFIXES:
            with _tokenizer_errors(f"{file} is not a tokenizer that can be read"):
                tokenizer, roles = sentencepiece.read_model(file)
                return cls(tokenizer, roles | dict(special or {}))
        if file.suffix == ".txt":
            config_file = file.with_name("tokenizer_config.json")
            config = json.loads(_read_json(config_file)) if config_file.is_file() else {}
            return cls(wordpiece.read_vocab(file, config), special)
        text = _read_json(file)
        with _tokenizer_errors(f"{file} is not a tokenizer that can be read"):
            _check_expansion(json.loads(text))
            return cls(HFTokenizer.from_str(text), _special_from_config(file) | dict(special or {}))

    def save(self, path: str | Path) -> None:
        """Write tokenizer.json and, into a folder, a tokenizer_config.json that names the special tokens.

        A path that ends in .json is a file; any other is a folder, created if missing.
        """
        path = Path(path)
        if path.suffix == ".json":
            if not self._has_usual_names():
                raise BadInput(f"cannot write {path} alone: its special tokens have unusual names; save to a folder")
            _write(path, self._tokenizer.to_str(pretty=True))
            return
        names = {f"{role}_token": self._tokenizer.id_to_token(i) for role, i in self._special.items()}
        if self.kind == "bert":
            names |= {"cls_token": names["bos_token"], "sep_token": names["eos_token"]}
        config = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False} | names
        _write(path / "tokenizer_config.json", json.dumps(config, indent=2, ensure_ascii=False) + "\n")
        _write(path / "tokenizer.json", self._tokenizer.to_str(pretty=True))

    def lowercased(self) -> Tokenizer:
        """Return a tokenizer with this vocabulary that converts text to lower case first."""
        other = HFTokenizer.from_str(self._tokenizer.to_str())
        steps = [normalizers.Lowercase(), *([] if other.normalizer is None else [other.normalizer])]
        other.normalizer = normalizers.Sequence(steps)
        return _rebuild(other.to_str(), self.__reduce__()[1][1])

    def with_characters(self, text: str) -> Tokenizer:
        """Return a tokenizer of characters that also knows those of a text; the ids of the others stay."""
        if self.kind != "char":
            raise BadInput(f"characters can be added to a vocabulary of kind 'char', got '{self.kind}'")
        layout = json.loads(self._tokenizer.to_str())
        known, normalizer = layout["model"]["vocab"], self._tokenizer.normalizer
        new = set(text if normalizer is None else normalizer.normalize_str(text)) - known.keys()
        known |= {character: self.size + n for n, character in enumerate(sorted(new))}
        return _rebuild(json.dumps(layout), self.__reduce__()[1][1])

    # -- encode, decode ------------------------------------------------------------------------------------------------

    def encode(self, lines: Sequence[str]) -> list[list[int]]:
        """Return the token ids of every line, without special tokens."""
        if isinstance(lines, str):
            raise BadInput("encode takes a list of lines; for a single line use encode_one")
        with _tokenizer_errors("this vocabulary cannot encode the text"):  # one without an unknown token
            try:
                return [e.ids for e in self._tokenizer.encode_batch_fast(list(lines), add_special_tokens=False)]
            except (TypeError, UnicodeEncodeError):
                raise BadInput(_not_text(lines)) from None

    def encode_one(self, line: str) -> list[int]:
        """Return the token ids of one line, without special tokens."""
        return self.encode([line])[0]

    def offsets(self, line: str) -> list[tuple[int, int]]:
        """Return the characters (begin, end) of each token of a line, without the space before a word.

        The bytes of one character have the same offsets.
        """
        self.encode([line])  # raises if this is no text
        found = self._tokenizer.encode(line, add_special_tokens=False).offsets
        return [(end - len(line[begin:end].lstrip() or line[begin:end]), end) for begin, end in found]

    def with_special_tokens(
        self, first: Sequence[int], second: Sequence[int] | None = None
    ) -> tuple[list[int], list[int]]:
        """Return one text or two with special tokens, and the segment of each token.

        ``[CLS] first [SEP]`` is segment 0, ``second [SEP]`` segment 1.
        """
        tokens = [self.bos, *first, self.eos]
        second_tokens = [] if second is None else [*second, self.eos]
        return tokens + second_tokens, [0] * len(tokens) + [1] * len(second_tokens)

    def decode(self, ids: Sequence[Sequence[int]]) -> list[str]:
        """Return the text of every row, without special tokens (the unknown token included)."""
        with _tokenizer_errors("this vocabulary cannot decode the tokens"):
            try:
                return self._tokenizer.decode_batch([list(row) for row in ids], skip_special_tokens=True)
            except (TypeError, OverflowError):
                raise BadInput("decode takes rows of token ids: lists of integers from 0 up") from None

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """Return a readable form of every token, as a label: "▁dog", "##s", "⟨e2⟩" for a single byte, "<s>"."""
        return [self._piece(int(i)) for i in ids]

    def _piece(self, i: int) -> str:
        token = self._tokenizer.id_to_token(i) if 0 <= i < 2**32 else None
        if token is None:
            return f"⟨{i}⟩"
        return token if i in self._special_ids else self._render(token)

    def _has_usual_names(self) -> bool:
        """Whether the special tokens can be identified by their names alone."""
        try:
            return _find_special(self._tokenizer, json.loads(self._tokenizer.to_str()), {}) == self._special
        except BadInput:
            return False

    def __len__(self) -> int:
        return self.size

    def __repr__(self) -> str:
        return f"Tokenizer(kind={self.kind!r}, size={self.size})"

    def __reduce__(self) -> tuple[Any, ...]:  # with the roles of special tokens
        names = {role: self._tokenizer.id_to_token(i) for role, i in self._special.items()}
        return _rebuild, (self._tokenizer.to_str(), names)


def _rebuild(serialized: str, special: dict[str, str]) -> Tokenizer:
    return Tokenizer(HFTokenizer.from_str(serialized), special)


# -- training, one function a kind -------------------------------------------------------------------------------------

# A word or a run of punctuation, with the space before it. No piece then crosses "<s>" or "</s>".
WORDS_AND_PUNCTUATION = rf"{SPACE}?[\p{{L}}\p{{M}}\p{{N}}]+|{SPACE}?[^\p{{L}}\p{{M}}\p{{N}}{SPACE}]+|{SPACE}+"


def _train_bytes(lines: Iterator[str], size: int, lower: bool) -> HFTokenizer:
    tokenizer = HFTokenizer(models.BPE())
    # Always prepend a space and strip one when decoding: unlike "prepend where there is none", this is exact.
    tokenizer.normalizer = _chain([normalizers.Lowercase()] * lower + [normalizers.Prepend(" ")])
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.decoder = decoders.Sequence([decoders.ByteLevel(), decoders.Strip(" ", 1, 0)])
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        min_frequency=2,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        special_tokens=list(SPECIAL_TOKENS),
        show_progress=False,
    )
    tokenizer.train_from_iterator(lines, trainer)
    return tokenizer


def _train_bpe(lines: Iterator[str], size: int, lower: bool) -> HFTokenizer:
    tokenizer = HFTokenizer(models.BPE(unk_token="<unk>", fuse_unk=True))
    _use_metaspace(tokenizer, lower)
    texts, _ = _known_characters(tokenizer, lines, size - len(SPECIAL_TOKENS))
    trainer = trainers.BpeTrainer(
        vocab_size=size, min_frequency=2, special_tokens=list(SPECIAL_TOKENS), show_progress=False
    )
    _train_normalised(tokenizer, texts, trainer)
    return tokenizer


def _train_unigram(lines: Iterator[str], size: int, lower: bool) -> HFTokenizer:
    tokenizer = HFTokenizer(models.Unigram())
    _use_metaspace(tokenizer, lower)
    texts, _ = _known_characters(tokenizer, lines, size - len(SPECIAL_TOKENS))
    # Train more pieces than needed and cut here: the trainer's own cut among equal scores differs from run to run.
    trainer = trainers.UnigramTrainer(
        vocab_size=size + size // 8 + 8, special_tokens=list(SPECIAL_TOKENS), unk_token="<unk>", show_progress=False
    )
    _train_normalised(tokenizer, texts, trainer)
    pieces = _stable_pieces(
        json.loads(tokenizer.to_str())["model"]["vocab"][len(SPECIAL_TOKENS) :], size - len(SPECIAL_TOKENS)
    )
    tokenizer.model = models.Unigram([(s, 0.0) for s in SPECIAL_TOKENS] + pieces, SPECIAL_TOKENS.index("<unk>"), False)
    return tokenizer


def _stable_pieces(scored: list[tuple[str, float]], capacity: int) -> list[tuple[str, float]]:
    """Return the best pieces and all characters, with scores that are the same in every run.

    The trainer sums in the order of a hash table: the last digits of scores vary, and characters that no likely split
    uses get the lowest score plus 0, 1, 2, ... times 0.0001 in varying order. Here all of these get the lowest.
    """
    floor = min((score for _, score in scored), default=0.0)
    stable = []
    for piece, score in scored:
        steps = (score - floor) / 0.0001
        unused = len(piece) == 1 and abs(steps - round(steps)) < 1e-5 and round(steps) < len(scored)
        stable.append((piece, round(floor if unused else score, 5)))
    stable.sort(key=lambda item: (-item[1], item[0]))
    remaining = capacity - sum(len(piece) == 1 for piece, _ in stable)  # all characters stay: they spell rare words
    longer = {piece for piece, _ in [item for item in stable if len(item[0]) > 1][: max(0, remaining)]}
    return [item for item in stable if len(item[0]) == 1 or item[0] in longer]


def _train_wordpiece(lines: Iterator[str], size: int, lower: bool) -> HFTokenizer:
    tokenizer = HFTokenizer(models.WordPiece(unk_token="<unk>"))
    _use_joiners(tokenizer, lower)
    texts, characters = _known_characters(tokenizer, lines, (size - len(SPECIAL_TOKENS)) // 2)
    # As special tokens the characters get fixed ids, by which the trainer breaks ties; otherwise it numbers them in the
    # order of a hash table, which varies. Punctuation with joiners is a piece from the start.
    letters = characters + [f"##{c}" for c in characters]
    signs = Counter(word for text in texts for word in text.split() if JOINER in word)
    common = sorted((s for s, n in signs.items() if n > 1), key=lambda s: (-signs[s], s))
    letters += common[: max(0, size - len(SPECIAL_TOKENS) - len(letters))]
    trainer = trainers.WordPieceTrainer(
        vocab_size=size, min_frequency=2, special_tokens=[*SPECIAL_TOKENS, *letters], show_progress=False
    )
    _train_normalised(tokenizer, texts, trainer)
    vocabulary = tokenizer.get_vocab()
    tokenizer = HFTokenizer(models.WordPiece(vocabulary, unk_token="<unk>"))
    _use_joiners(tokenizer, lower)
    tokenizer.add_special_tokens(list(SPECIAL_TOKENS))
    return tokenizer


def _train_bert(lines: Iterator[str], size: int, lower: bool) -> HFTokenizer:
    tokenizer = wordpiece.bert_tokenizer(lower=lower)
    texts, characters = _known_characters(tokenizer, lines, (size - len(wordpiece.BERT_SPECIAL_TOKENS)) // 2)
    letters = characters + [f"##{c}" for c in wordpiece.inner_characters(characters)]  # fixed ids, as above
    trainer = trainers.WordPieceTrainer(
        vocab_size=size, min_frequency=2, special_tokens=[*wordpiece.BERT_SPECIAL_TOKENS, *letters], show_progress=False
    )
    _train_normalised(tokenizer, texts, trainer)
    return wordpiece.bert_tokenizer(tokenizer.get_vocab(), lower=lower)


def _train_word(lines: Iterator[str], size: int, lower: bool) -> HFTokenizer:
    tokenizer = HFTokenizer(models.WordLevel(unk_token="<unk>"))
    _use_joiners(tokenizer, lower)
    return _train_word_level(tokenizer, lines, size)


def _train_char(lines: Iterator[str], size: int, lower: bool) -> HFTokenizer:
    tokenizer = HFTokenizer(models.WordLevel(unk_token="<unk>"))
    tokenizer.normalizer = _chain([normalizers.NFC()] + [normalizers.Lowercase()] * lower)
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    tokenizer.decoder = decoders.Fuse()
    return _train_word_level(tokenizer, lines, size)


def _train_word_level(tokenizer: HFTokenizer, lines: Iterator[str], size: int) -> HFTokenizer:
    trainer = trainers.WordLevelTrainer(vocab_size=size, special_tokens=list(SPECIAL_TOKENS), show_progress=False)
    tokenizer.train_from_iterator(lines, trainer)
    return tokenizer


def _train_normalised(tokenizer: HFTokenizer, texts: list[str], trainer: Any) -> None:
    """Train on texts that are normalised already."""
    normalizer, tokenizer.normalizer = tokenizer.normalizer, None
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.normalizer = normalizer


_TRAIN: dict[str, Callable[[Iterator[str], int, bool], HFTokenizer]] = {
    "bytes": _train_bytes,
    "bpe": _train_bpe,
    "wordpiece": _train_wordpiece,
    "unigram": _train_unigram,
    "word": _train_word,
    "char": _train_char,
    "bert": _train_bert,
}


def _chain(parts: list[Any]) -> Any:
    return parts[0] if len(parts) == 1 else normalizers.Sequence(parts)


def _normalizers(lower: bool) -> list[Any]:
    """NFC, lower case if `lower`, single spaces, none at the ends."""
    spaces = [normalizers.Replace(Regex(r"\s+"), " "), normalizers.Strip()]
    return [normalizers.NFC(), *([normalizers.Lowercase()] * lower), *spaces]


def _use_metaspace(tokenizer: HFTokenizer, lower: bool) -> None:
    tokenizer.normalizer = _chain(_normalizers(lower))
    spaced = pre_tokenizers.Metaspace(replacement=SPACE, prepend_scheme="always", split=False)
    split = pre_tokenizers.Split(Regex(WORDS_AND_PUNCTUATION), "isolated")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([spaced, split])
    tokenizer.decoder = decoders.Metaspace(replacement=SPACE, prepend_scheme="always")


def _use_joiners(tokenizer: HFTokenizer, lower: bool) -> None:
    before = normalizers.Replace(Regex(r"(?<=\S)(?=[^\w\s])"), f" {JOINER}")
    after = normalizers.Replace(Regex(rf"(?<=[^\w\s{JOINER}])(?=\w)"), f"{JOINER} ")
    tokenizer.normalizer = _chain([*_normalizers(lower), before, after])
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    joined = [decoders.Replace(f" {JOINER}", ""), decoders.Replace(f"{JOINER} ", ""), decoders.Replace(JOINER, "")]
    tokenizer.decoder = decoders.Sequence([decoders.WordPiece("##", cleanup=False), decoders.Fuse(), *joined])


def _known_characters(tokenizer: HFTokenizer, lines: Iterator[str], capacity: int) -> tuple[list[str], list[str]]:
    """Return the lines without the rarest characters, beyond `capacity`, and the characters that remain."""
    texts = [tokenizer.normalizer.normalize_str(line) for line in lines]
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(text)
    del counts[" "], counts[SPACE]  # the same in pieces, and always known
    ranked = sorted(counts, key=lambda c: (-counts[c], c))
    frequent, rare = ranked[: capacity - 1], ranked[capacity - 1 :]
    dropped = str.maketrans(dict.fromkeys([SPACE, *rare], " "))
    return [text.translate(dropped) for text in texts], sorted(frequent)


def _lines(lines: Iterable[str]) -> Iterator[str]:
    if isinstance(lines, (str, bytes)):
        raise BadInput("train takes an iterable of lines, not one string; for a file: open(path, encoding='utf-8')")
    has_text = False
    for line in lines:
        if not isinstance(line, str):
            raise BadInput(f"lines to train on must be strings, got a {type(line).__name__}")
        has_text = has_text or bool(line.strip())
        yield line
    if not has_text:
        raise BadInput("there is no text to train on")


# -- loading -----------------------------------------------------------------------------------------------------------


def _types(part: Any) -> set[str]:
    """Return the types of a part of a tokenizer.json and of the parts inside it."""
    if isinstance(part, list):
        return set().union(*map(_types, part))
    if isinstance(part, dict):
        return {str(part.get("type"))}.union(*map(_types, part.values()))
    return set()


def _kind(layout: dict[str, Any]) -> str:
    model, decoder = layout["model"]["type"], _types(layout["decoder"])
    if model == "BPE":
        return "bytes" if "ByteLevel" in decoder | _types(layout["pre_tokenizer"]) else "bpe"
    if model == "WordLevel":
        return "char" if decoder == {"Fuse"} else "word"
    if model == "WordPiece" and "BertPreTokenizer" in _types(layout["pre_tokenizer"]):
        return "bert"
    return str(model).lower()  # WordPiece, Unigram


def _find_special(tokenizer: HFTokenizer, layout: dict[str, Any], named: Mapping[str, str]) -> dict[str, int]:
    """Return the ids of pad, bos, eos and unk: as named, else by the usual names, else by a substitute."""
    for role, name in named.items():
        if role not in (*ROLES, *OPTIONAL_ROLES):
            raise UnknownName(f"no special token is called '{role}'; {did_you_mean(role, (*ROLES, *OPTIONAL_ROLES))}")
        if tokenizer.token_to_id(name) is None:
            raise BadInput(f"the vocabulary has no token {name!r} to be its '{role}'")
    added = {token["content"]: token["id"] for token in layout["added_tokens"]}
    found: dict[str, int] = {}
    for role in (*ROLES, *OPTIONAL_ROLES):
        names = (named[role],) if role in named else SPECIAL_NAMES[role]
        # Declared special tokens first: a large vocabulary may have "</s>" as a piece of some web page.
        candidates = [added[n] for n in names if n in added] + [
            i for i in map(tokenizer.token_to_id, names) if i is not None
        ]
        if candidates:
            found[role] = candidates[0]
    model = layout["model"]
    if "unk" not in found and (i := model.get("unk_id")) is not None:
        found["unk"] = i
    if "unk" not in found and (i := tokenizer.token_to_id(model.get("unk_token") or "")) is not None:
        found["unk"] = i
    if "eos" in found:
        found.setdefault("bos", found.get("pad", found["eos"]))  # T5 and Marian start decoding with <pad>
        found.setdefault("pad", found["eos"])  # GPT-2 has one special token
        if _kind(layout) == "bytes" or model.get("byte_fallback"):
            found.setdefault("unk", found["eos"])  # nothing is unknown to bytes
    if missing := [role for role in ROLES if role not in found]:
        example = ", ".join(f"{role!r}: '...'" for role in missing)
        available = ", ".join(list(added)[:8]) or "none"
        raise BadInput(
            f"cannot tell which token is {' or '.join(missing)}; pass special={{{example}}} "
            f"(special tokens: {available})"
        )
    return found


def _special_from_config(file: Path) -> dict[str, str]:
    """Return the special tokens that a tokenizer_config.json in the same folder names."""
    config_file = file.with_name("tokenizer_config.json")
    if file.name != "tokenizer.json" or not config_file.is_file():
        return {}
    config = json.loads(_read_json(config_file))
    vocabulary = json.loads(_read_json(file))
    added_tokens = {token["content"] for token in vocabulary.get("added_tokens") or ()}
    named: dict[str, str] = {}
    for role in (*ROLES, *OPTIONAL_ROLES):
        bert_role = {"bos": "cls", "eos": "sep"}.get(role, role)  # BERT's names
        value: Any = config.get(f"{role}_token") or config.get(f"{bert_role}_token")
        name: Any = value.get("content") if isinstance(value, dict) else value
        if name in added_tokens:  # some files name tokens that transformers adds at load time
            named[role] = name
    return named


@contextmanager
def _tokenizer_errors(what: str) -> Iterator[None]:
    """Turn an error of the tokenizers library, a panic too, into one line of `BadInput`."""
    try:
        yield
    except RegardError:
        raise
    except BaseException as error:  # tokenizers raises plain Exception; a Rust panic is no Exception
        if isinstance(error, Exception) or type(error).__name__ == "PanicException":
            raise BadInput(f"{what}: {_first_line(error)}") from None
        raise


def _check_expansion(layout: dict[str, Any]) -> None:
    """Raise `BadInput` if normalizer or decoder can make a text more than `MAX_EXPANSION` times as long."""
    for part in ("normalizer", "decoder"):
        if (factor := _expansion(layout.get(part))) > MAX_EXPANSION:
            raise BadInput(f"its {part} can make a text {factor:,} times as long; at most {MAX_EXPANSION} is accepted")


def _expansion(part: Any) -> int:
    """Return how many times as long, at most, a normalizer or decoder makes a text of one character."""
    if not isinstance(part, dict):
        return 1
    steps = part.get("normalizers") or part.get("decoders")
    if isinstance(steps, list):
        return math.prod(map(_expansion, steps))
    if part.get("type") == "Prepend":
        return 1 + len(str(part.get("prepend")))
    if part.get("type") != "Replace":
        return 1
    pattern = part.get("pattern")
    if isinstance(pattern, dict) and pattern.get("String"):
        return max(1, -(-len(str(part.get("content"))) // len(str(pattern["String"]))))
    return 1 + len(str(part.get("content")))  # a regular expression may match between characters


def _read_json(file: Path) -> str:
    """Return the text of a file that is one JSON object."""
    try:
        text = file.read_text(encoding="utf-8")
        value = json.loads(text)
    except OSError as error:
        raise BadInput(f"cannot read {file}: {error.strerror}") from None
    except (ValueError, RecursionError):  # not UTF-8, not JSON, or nested too deeply
        raise BadInput(f"{file} is damaged: it is not JSON, or nested too deeply") from None
    if not isinstance(value, dict):
        raise BadInput(f"{file} is damaged: it holds no JSON object")
    return text


def _write(file: Path, text: str) -> None:
    """Write a file atomically; create its folder if missing."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(f"cannot create the folder {file.parent}: {error.strerror}") from None
    atomic_write(text.encode("utf-8"), file)


# -- labels of tokens --------------------------------------------------------------------------------------------------


def _renderer(layout: dict[str, Any]) -> Callable[[str], str]:
    """Return the function from a token of this vocabulary to its readable form."""
    suffix = layout["model"].get("end_of_word_suffix") or ""
    if _kind(layout) == "bytes":
        return lambda token: _visible(
            b"".join(map(_byte, token.removesuffix(suffix))).decode("utf-8", "surrogateescape")
        )
    joined = _kind(layout) in ("word", "wordpiece")

    def render(token: str) -> str:
        if token.startswith("<0x") and token.endswith(">") and len(token) == 6:  # byte fallback
            return _visible(bytes.fromhex(token[3:5]).decode("utf-8", "surrogateescape"))
        bare = token.replace(JOINER, "") if joined else token.removesuffix(suffix)
        return _visible(token if bare in ("", "##") else bare)

    return render


def _byte_letters() -> dict[str, bytes]:
    """Return GPT-2's 256 letters for bytes: a printable byte is its own letter, the others are numbered from 256."""
    printable = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAC + 1), *range(0xAE, 0xFF + 1)]
    others = (b for b in range(256) if b not in printable)
    return {chr(b): bytes([b]) for b in printable} | {chr(256 + i): bytes([b]) for i, b in enumerate(others)}


_BYTE_OF_LETTER = _byte_letters()


def _byte(letter: str) -> bytes:
    return _BYTE_OF_LETTER.get(letter) or letter.encode("utf-8")


def _visible(text: str) -> str:
    """Show spaces as ▁, line ends as ↵, single bytes and unprintable characters as numbers in brackets."""
    return "".join(map(_visible_char, text))


def _visible_char(c: str) -> str:
    if c in " \n\t":
        return {" ": SPACE, "\n": "↵", "\t": "⇥"}[c]
    if c.isprintable():
        return c
    return f"⟨{ord(c) - 0xDC00:02x}⟩" if 0xDC80 <= ord(c) <= 0xDCFF else f"⟨U+{ord(c):04X}⟩"


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def _not_text(lines: Sequence[Any]) -> str:
    for n, line in enumerate(lines):
        if not isinstance(line, str):
            return f"line {n} is a {type(line).__name__}, not text"
        try:
            line.encode("utf-8")
        except UnicodeEncodeError as error:
            return f"line {n} is not valid Unicode: {error.reason} at character {error.start}"
    return "encode takes a list of lines of text"

"""SentencePiece models: equal to the package where it is installed, refused where damaged or not supported."""

import io
import random
import struct
from contextlib import suppress

import pytest

from regard.core.errors import BadInput, RegardError, Unsupported
from regard.tokens.tokenizer import Tokenizer

TEXTS = [
    "the cat sits on the mat", "a dog and a cat ran over the old bridge", "does the dog see it ?", "Überall läuft er",
    "number 1, 2 and 30", "we saw them under the bridge", "an old man and the sea",
]  # fmt: skip
ODD = [
    "",
    " ",
    "  two   spaces ",
    "tab\there",
    "ﬁne ①",
    "日本",
    "😀 cat",
    "x" * 200,
    "a\nb",
    "▁under",
    "naïve",
    "1,2.5",
]


def field(number, value):
    """Return a field of a message of protocol buffers."""
    if isinstance(value, float):
        return bytes([number << 3 | 5]) + struct.pack("<f", value)
    if isinstance(value, int):
        tag, value = number << 3, value % 2**64
    else:
        tag, content = number << 3 | 2, value.encode() if isinstance(value, str) else value
        return _varint(tag) + _varint(len(content)) + content
    return _varint(tag) + _varint(value)


def _varint(value):
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    return bytes([*found, value])


def model(pieces, kind=1, trainer=b"", normalizer=b""):
    content = b"".join(field(1, field(1, text) + field(2, float(score)) + field(3, of)) for text, score, of in pieces)
    return content + field(2, field(3, kind) + trainer) + field(3, normalizer)


CONTROL = [("<unk>", 0, 2), ("<s>", 0, 3), ("</s>", 0, 3)]
WORDS = [
    (piece, -1 - n / 8, 1) for n, piece in enumerate(["▁the", "▁c", "at", "▁", "t", "h", "e", "c", "a", "</", "s>"])
]


def load(tmp_path, *parts, **settings):
    (tmp_path / "own.model").write_bytes(model(*parts, **settings))
    return Tokenizer.load(tmp_path / "own.model")


def test_pieces_and_ids_are_those_of_the_file(tmp_path):
    text = load(tmp_path, [*CONTROL, *WORDS])
    assert (text.kind, text.size, text.unk, text.bos, text.eos, text.pad) == ("unigram", 14, 0, 1, 2, 2)
    assert text.pieces(text.encode_one("the  cat")) == ["▁the", "▁c", "at"]
    assert text.decode([text.encode_one(" the cat  the ")]) == ["the cat the"]
    text.save(tmp_path / "saved")
    assert Tokenizer.load(tmp_path / "saved").encode_one("the cat") == text.encode_one("the cat")


def test_special_tokens_are_the_ones_that_the_file_names(tmp_path):
    trainer = field(40, 2) + field(41, -1) + field(42, 1) + field(43, 0)
    text = load(tmp_path, [("<pad>", 0, 3), ("</s>", 0, 3), ("<unk>", 0, 2), *WORDS], trainer=trainer)
    assert (text.pad, text.eos, text.unk, text.bos) == (0, 1, 2, 0)  # bos: where T5 starts


def test_a_control_token_in_a_text_is_letters(tmp_path):
    text = load(tmp_path, [*CONTROL, *WORDS])
    ids = text.encode_one("the</s>")
    assert not {text.bos, text.eos} & {*ids}


def test_neighbours_are_merged_by_score(tmp_path):
    pieces = [
        ("<unk>", 0, 2),
        ("</s>", 0, 3),
        ("ab", -1, 1),
        ("bc", -0.5, 1),
        ("abc", -3, 1),
        *[(c, -9, 1) for c in "▁abc"],
    ]
    text = load(tmp_path, pieces, kind=2, trainer=field(42, 1) + field(41, -1))
    assert text.pieces(text.encode_one("abc")) == ["▁", "abc"]
    assert text.pieces(text.encode_one("abcb")) == ["▁", "abc", "b"]
    text = load(tmp_path, [each for each in pieces if each[0] != "abc"], kind=2, trainer=field(42, 1) + field(41, -1))
    assert text.pieces(text.encode_one("abc")) == ["▁", "a", "bc"]  # bc has the higher score


@pytest.mark.parametrize(
    ("pieces", "settings", "message"),
    [
        ([*CONTROL, *WORDS], {"kind": 3}, "a model of whole words"),
        ([*CONTROL, *WORDS], {"trainer": field(24, 1)}, "spaces behind words"),
        ([*CONTROL, *WORDS], {"normalizer": field(5, 0)}, "spaces that are not written"),
        ([*CONTROL, *WORDS, ("x", -1, 5)], {}, "unused pieces"),
        ([*CONTROL, *WORDS, ("x", -1, 4)], {"kind": 2}, "user-defined pieces of bpe"),
    ],
)
def test_what_is_not_read_is_named(tmp_path, pieces, settings, message):
    with pytest.raises(Unsupported, match=message):
        load(tmp_path, pieces, **settings)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"hello",
        model([]),
        model([*CONTROL, *CONTROL]),
        model(WORDS),
        model([*CONTROL, *WORDS])[:-40],
        field(1, 7) + model(CONTROL),
        field(1, field(1, b"\xff")) + model(CONTROL),
        field(1, field(1, "x") + field(2, "y")) + model(CONTROL),
        model([*CONTROL, ("x" * 2000, -1, 1)]),
        model([*CONTROL, *WORDS], normalizer=field(2, b"\x01\0\0\0\0" + b"x" * 500)),
        model([*CONTROL, *WORDS], normalizer=field(2, b"\x01")),
        b"\xff" * 40,
    ],
)
def test_a_damaged_file_is_refused(tmp_path, content):
    (tmp_path / "own.model").write_bytes(content)
    with pytest.raises(BadInput, match=r"own\.model"):
        Tokenizer.load(tmp_path / "own.model")


@pytest.mark.parametrize(
    "settings",
    [
        {"model_type": "unigram"},
        {"model_type": "bpe"},
        {"model_type": "char"},
        {"model_type": "unigram", "byte_fallback": True, "vocab_size": 360},
        {"model_type": "bpe", "byte_fallback": True, "vocab_size": 360, "normalization_rule_name": "identity"},
        {"model_type": "bpe", "split_by_whitespace": False, "remove_extra_whitespaces": False},
        {"model_type": "unigram", "pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1, "add_dummy_prefix": False},
        {"model_type": "unigram", "user_defined_symbols": ["xx", "."], "normalization_rule_name": "nmt_nfkc_cf"},
    ],
)
def test_ids_and_texts_equal_those_of_the_package(tmp_path, settings):
    package = pytest.importorskip("sentencepiece")
    content = io.BytesIO()
    known = {"vocab_size": 70, "hard_vocab_limit": settings["model_type"] == "bpe", "minloglevel": 2}
    package.SentencePieceTrainer.train(sentence_iterator=iter(TEXTS * 3), model_writer=content, **known | settings)
    (tmp_path / "own.model").write_bytes(content.getvalue())
    text, peer = Tokenizer.load(tmp_path / "own.model"), package.SentencePieceProcessor()
    peer.load(str(tmp_path / "own.model"))
    dice = random.Random(0)
    lines = [*TEXTS, *ODD, *("".join(dice.choices("abcdeot .,äüX1", k=dice.randrange(30))) for _ in range(100))]
    ids = text.encode(lines)
    assert ids == peer.encode(lines)
    assert text.size == peer.vocab_size()
    assert text.eos == peer.eos_id()
    known_ids = [row for row in ids[: len(TEXTS)] if peer.unk_id() not in row]
    assert known_ids
    assert text.decode(known_ids) == peer.decode(known_ids)


def test_no_change_of_a_file_does_more_than_be_refused(tmp_path):
    dice, content = random.Random(0), model([*CONTROL, *WORDS])
    for _ in range(150):
        changed = bytearray(content)
        for _ in range(dice.randrange(1, 4)):
            changed[dice.randrange(len(changed))] = dice.randrange(256)
        (tmp_path / "own.model").write_bytes(changed)
        with suppress(RegardError):
            text = Tokenizer.load(tmp_path / "own.model")
            text.decode(text.encode(["the cat </s>", ""]))

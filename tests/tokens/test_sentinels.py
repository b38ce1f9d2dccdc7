"""Sentinels: T5's own vocabularies, and those that get some here."""

import pytest

from regard.tokens.sentinels import add_sentinels, encode_with_sentinels, sentinel_ids
from regard.tokens.tokenizer import KINDS, Tokenizer

LINES = ["thank you for inviting me to your party last week", "a dog runs , and a cat sleeps"] * 5


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "bert"])
def test_sentinels_are_appended_to_a_vocabulary(kind, tmp_path):
    plain = Tokenizer.train(LINES, kind=kind, size=300)
    text = add_sentinels(plain, 7)
    assert sentinel_ids(plain) == []
    assert sentinel_ids(text) == list(range(plain.size, plain.size + 7))
    assert text.size == plain.size + 7
    assert (text.pad, text.bos, text.eos, text.unk) == (plain.pad, plain.bos, plain.eos, plain.unk)
    assert text.encode(LINES) == plain.encode(LINES)
    assert text.decode([[*text.encode_one(LINES[0]), *sentinel_ids(text)]]) == plain.decode(
        [plain.encode_one(LINES[0])]
    )
    text.save(tmp_path)
    assert sentinel_ids(Tokenizer.load(tmp_path)) == sentinel_ids(text)


def test_names_of_sentinels_are_parsed_only_by_encode_with_sentinels():
    text = add_sentinels(Tokenizer.train(LINES, size=300), 3)
    line = "thank you <extra_id_0> me<extra_id_2>"
    assert not set(sentinel_ids(text)) & set(text.encode_one(line))
    first, _, third = sentinel_ids(text)
    assert encode_with_sentinels(text, [line]) == [
        [*text.encode_one("thank you"), first, *text.encode_one("me"), third]
    ]
    assert encode_with_sentinels(text, ["a <extra_id_9> b"])[0] == [
        *text.encode_one("a"), *text.encode_one("<extra_id_9>"), *text.encode_one("b")
    ]  # fmt: skip
    assert encode_with_sentinels(Tokenizer.train(LINES, size=300), [line]) == Tokenizer.train(LINES, size=300).encode(
        [line]
    )


def test_a_t5_vocabulary_encodes_like_transformers(tmp_path):
    transformers = pytest.importorskip("transformers")
    words = sorted({word for line in LINES for word in line.split()})
    pieces = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0)]
    pieces += [(f"▁{word}", -2.0 - n / 10) for n, word in enumerate(words)]
    pieces += [("▁", -4.0)] + [(letter, -8.0) for letter in "abcdefghijklmnopqrstuvwxyz,."]
    peer = transformers.T5Tokenizer(vocab=pieces, extra_ids=10)
    peer.save_pretrained(tmp_path)
    text = Tokenizer.load(tmp_path)
    assert text.kind == "unigram"
    assert (text.pad, text.bos, text.eos, text.unk) == (0, 0, 1, 2)  # it begins to write with <pad>
    assert sentinel_ids(text) == [peer.convert_tokens_to_ids(f"<extra_id_{n}>") for n in range(10)]
    for line in [*LINES, "  two  spaces ", "unknown: ÄÖ zebra.", "party"]:
        assert [*text.encode_one(line), text.eos] == peer(line).input_ids, line
    for line in ("thank you <extra_id_0> me to your party <extra_id_1> week", "<extra_id_3> a dog <extra_id_9>"):
        assert [*encode_with_sentinels(text, [line])[0], text.eos] == peer(line).input_ids
    ids = peer(LINES[0]).input_ids
    assert text.decode([ids]) == [peer.decode(ids, skip_special_tokens=True)]

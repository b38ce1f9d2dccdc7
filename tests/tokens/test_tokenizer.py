from __future__ import annotations

import json
import os
import pickle
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as HFTokenizer
from tokenizers import decoders, models, pre_tokenizers

from regard.core.errors import BadInput, RegardError, UnknownName
from regard.tokens.tokenizer import KINDS, SPECIAL_TOKENS, Tokenizer

LINES = [
    "Two young men stand in the kitchen, and both of them are laughing.",
    "Zwei junge Männer stehen in der Küche (und lachen).",
    "A man in a well-worn coat doesn't look at the dog; the dog looks at him!",
    "“Where is the dog?” – “In the kitchen,” said the man... “laughing.”",
    "Der Hund läuft: 25 Meter, dann 30 Meter, dann 25 Meter. #hund @meer 50% a/b",
    "The old men walk and talk, walking and talking, in the old kitchen.",
] * 3
TRAINED = {kind: Tokenizer.train(LINES, kind, size=400) for kind in KINDS}
OURS = [kind for kind in KINDS if kind != "bert"]  # whose text comes back with its spaces; BERT's: test_wordpiece.py


def tidy(line: str) -> str:
    return " ".join(line.split())


# -- training ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", OURS)
def test_special_tokens_come_first_and_the_size_is_respected(kind):
    for size in (270, 400):
        text = Tokenizer.train(LINES, kind, size=size)
        assert (text.pad, text.bos, text.eos, text.unk) == (0, 1, 2, 3)
        assert text.pieces(range(4)) == list(SPECIAL_TOKENS)
        assert text.kind == kind
        assert text.size == len(text) <= size
        assert max(i for row in text.encode(LINES) for i in row) < text.size


@pytest.mark.parametrize("kind", ["bpe", "unigram", "wordpiece", "word", "char"])
def test_characters_beyond_the_size_are_unknown(kind):
    text = Tokenizer.train(LINES, kind, size=30)
    assert text.size <= 30
    assert any(text.unk in row for row in text.encode(LINES))


TRAIN_ALL = """
import sys, hashlib
from regard.tokens.tokenizer import KINDS, Tokenizer
lines = sys.stdin.buffer.read().decode().splitlines()
print([hashlib.sha256(Tokenizer.train(lines, k, 300)._tokenizer.to_str().encode()).hexdigest()[:12] for k in KINDS])
"""


def test_training_is_the_same_in_every_process():
    command = [sys.executable, "-c", TRAIN_ALL]  # another process each time: hash tables are seeded when it starts
    output = [
        subprocess.run(command, input="\n".join(LINES).encode(), capture_output=True, check=True, timeout=600)
        for _ in range(3)
    ]
    assert output[0].stdout == output[1].stdout == output[2].stdout


@pytest.mark.parametrize("kind", KINDS)
def test_internal_markers_in_the_text_do_no_harm(kind):
    odd = ["▁the▁dog ￭ ##s Ġ ￭-￭ <0x41> 50 ▁", "￭", "▁"] * 5
    text = Tokenizer.train([*LINES, *odd], kind, size=400)
    assert text.size <= 400
    assert [len(row) > 0 for row in text.encode(odd[:1])] == [True]
    assert len(text.decode(text.encode(odd))) == len(odd)
    assert text.decode(text.encode(LINES)) == LINES or kind == "bert"


def test_lower_ignores_case():
    for kind in KINDS:
        text = Tokenizer.train(LINES, kind, size=400, lower=True)
        assert text.encode_one("THE DOG") == text.encode_one("the dog")
        assert text.decode([text.encode_one("The Dog")]) == ["the dog"]


@pytest.mark.parametrize(
    ("lines", "kind", "size", "error", "says"),
    [
        (LINES, "byte", 400, UnknownName, "did you mean 'bytes'"),
        (LINES, "bytes", 200, BadInput, "must be at least 260, got 200"),
        ([], "bytes", 400, BadInput, "no text"),
        (["", "  "], "unigram", 400, BadInput, "no text"),
        (["", "\n"], "char", 400, BadInput, "no text"),
        ("one string", "bpe", 400, BadInput, "not one string"),
        ([b"bytes"], "word", 400, BadInput, "got a bytes"),
        (["ok", "\ud800"], "bpe", 400, BadInput, "not valid Unicode"),
        (["ok", "\ud800"], "bytes", 400, BadInput, "not valid Unicode"),
    ],
)
def test_invalid_training_inputs_raise_one_line(lines, kind, size, error, says):
    with pytest.raises(error, match=says) as output:
        Tokenizer.train(lines, kind, size)
    assert "\n" not in str(output.value)


# -- there and back ----------------------------------------------------------------------------------------------------


@given(st.text())
@example(" ")
@example("  two  spaces  ")
@example("\n\t \r\n\x00\x85\u2028\ufeff")
@example("<s> </s><pad>\n<unk>")
@example("e\u0301 é ﬁ Å \u200d 👩‍👩‍👧 🇩🇪 \U0010ffff")
@example("Ġdog Ċ ▁x ￭ ##s")
@settings(max_examples=300, deadline=None)
def test_bytes_decode_any_text_exactly(line):
    text = TRAINED["bytes"]
    ids = text.encode_one(line)
    assert text.decode([ids]) == [line]
    assert not set(ids) & {text.pad, text.bos, text.eos, text.unk}


@pytest.mark.parametrize("kind", OURS)
def test_natural_spacing_is_restored(kind):
    text = TRAINED[kind]
    assert text.decode(text.encode(LINES)) == LINES


@pytest.mark.parametrize("kind", ["bpe", "unigram", "wordpiece", "word"])
def test_spacing_around_every_sign_is_restored(kind):
    lines = [f"the{a}{sign}{b}dog" for sign in "-.,;:!?()/'\"“”" for a in ("", " ") for b in ("", " ")]
    lines += ["(the) [dog].", "...", "- the", "the -", "the--dog", "?!", "( the )"]
    text = Tokenizer.train([*LINES, *lines, *lines], kind, size=1000)
    assert text.decode(text.encode(lines)) == lines


@given(st.text(alphabet="thedog ,.-()'\n\t", max_size=30))
@settings(max_examples=200, deadline=None)
def test_known_characters_are_restored_with_normalised_spaces(line):
    for kind in ("bpe", "unigram", "wordpiece"):
        text = TRAINED[kind]
        assert text.decode([text.encode_one(line)]) == [tidy(line)]
    assert TRAINED["char"].decode([TRAINED["char"].encode_one(line.replace("\n", "").replace("\t", ""))]) == [
        line.replace("\n", "").replace("\t", "")
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_special_tokens_are_never_parsed_from_text(kind):
    lines = ["the <s> dog</s> <pad>", "</s>", "<s>the</s>", "<pad><pad>", "<unk>"]
    for text in (TRAINED[kind], Tokenizer.train([*LINES, *lines * 50], kind, size=600)):
        for row in text.encode(lines):
            assert not set(row) & {text.pad, text.bos, text.eos}


@pytest.mark.parametrize("kind", KINDS)
def test_decoding_skips_special_tokens(kind):
    text = TRAINED[kind]
    ids = text.encode_one("the dog")
    assert text.decode([[text.bos, *ids, text.eos, text.pad, text.pad], [], [text.eos]]) == ["the dog", "", ""]


@pytest.mark.parametrize("kind", KINDS)
def test_empty_input_gives_empty_output(kind):
    text = TRAINED[kind]
    assert text.encode([]) == text.decode([]) == text.pieces([]) == []
    assert text.encode([""]) == [[]]
    assert text.decode([[]]) == [""]


@pytest.mark.parametrize("kind", KINDS)
def test_batch_equals_singles(kind):
    assert TRAINED[kind].encode(LINES) == [TRAINED[kind].encode_one(line) for line in LINES]


def test_a_word_has_the_same_piece_everywhere():
    for kind in ("bytes", "bpe", "unigram", "word", "wordpiece"):
        start, inside = (TRAINED[kind].encode_one(line) for line in ("dog", "the dog"))
        assert inside[-len(start) :] == start


@pytest.mark.parametrize(
    ("lines", "says"),
    [("one line", "encode_one"), ([3], "line 0 is a int"), (["a", "\udcff"], "line 1 is not valid Unicode")],
)
def test_encoding_other_than_text_raises(lines, says):
    with pytest.raises(BadInput, match=says):
        TRAINED["bytes"].encode(lines)


@pytest.mark.parametrize("ids", [[[-1]], [["a"]], [1, 2], [[0.5]]])
def test_decoding_other_than_ids_raises(ids):
    with pytest.raises(BadInput, match="token ids"):
        TRAINED["bytes"].decode(ids)


def test_batches_are_fast():
    lines = LINES * 1000  # 18,000 lines; a plain loop in Python would take minutes
    TRAINED["bytes"].encode(lines[:100])
    start = time.perf_counter()
    TRAINED["bytes"].encode(lines)
    assert time.perf_counter() - start < 10


# -- pieces for pictures -----------------------------------------------------------------------------------------------


def test_pieces_are_readable():
    line = "The dog (25%) läuft"
    for kind in ("bytes", "bpe", "unigram"):
        pieces = TRAINED[kind].pieces(TRAINED[kind].encode_one(line))
        assert "".join(pieces) == "▁" + line.replace(" ", "▁")
    for kind in ("word", "wordpiece"):
        pieces = TRAINED[kind].pieces(TRAINED[kind].encode_one("The dog, (und lachen)."))
        assert pieces == ["The", "dog", ",", "(", "und", "lachen", ")", "."]
    assert TRAINED["wordpiece"].pieces(TRAINED["wordpiece"].encode_one("dogs"))[-1] == "##s"
    assert TRAINED["char"].pieces(TRAINED["char"].encode_one("a b")) == ["a", "▁", "b"]


def test_single_bytes_are_shown_as_numbers():
    text = TRAINED["bytes"]
    assert text.pieces(text.encode_one("€")) == ["▁", "⟨e2⟩", "⟨82⟩", "⟨ac⟩"]
    assert text.pieces(text.encode_one("\n\t\x00"))[-1] == "⟨U+0000⟩"
    assert "↵" in text.pieces(text.encode_one("a\n\nb"))


@given(st.lists(st.integers(0, 450), max_size=20))
def test_pieces_are_one_printable_string_for_each_number(ids):
    for kind in KINDS:
        pieces = TRAINED[kind].pieces(ids)
        assert len(pieces) == len(ids)
        assert all(p and p.isprintable() and not {"Ġ", "Ċ", " "} & set(p) for p in pieces)


# -- files -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["folder", "one.json"])
def test_save_load_round_trip(kind, name, tmp_path):
    text = TRAINED[kind]
    text.save(tmp_path / "new" / name)
    again = Tokenizer.load(tmp_path / "new" / name)
    assert (again.kind, again.size, again._special) == (kind, text.size, text._special)
    assert (again.pad, again.bos, again.eos, again.unk) == ((0, 1, 2, 3) if kind in OURS else (0, 2, 3, 1))
    odd = [*LINES, "</s> 🐕 the", ""]
    assert again.encode(odd) == text.encode(odd)
    assert again.decode(again.encode(odd)) == text.decode(text.encode(odd))
    assert again.pieces(range(text.size)) == text.pieces(range(text.size))


def test_saving_twice_gives_the_same_file_and_leaves_nothing_else(tmp_path):
    text = TRAINED["bytes"]
    text.save(tmp_path)
    first = (tmp_path / "tokenizer.json").read_bytes()
    Tokenizer.load(tmp_path).save(tmp_path)
    assert (tmp_path / "tokenizer.json").read_bytes() == first
    assert sorted(p.name for p in tmp_path.iterdir()) == ["tokenizer.json", "tokenizer_config.json"]


def test_a_failed_save_leaves_the_old_file(tmp_path, monkeypatch):
    TRAINED["bytes"].save(tmp_path)
    before = (tmp_path / "tokenizer.json").read_bytes()

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(BadInput, match=r"(?i)no space left"):
        TRAINED["bpe"].save(tmp_path)
    assert (tmp_path / "tokenizer.json").read_bytes() == before
    assert len(list(tmp_path.iterdir())) == 2


def test_saved_files_have_the_usual_permissions(tmp_path):
    TRAINED["word"].save(tmp_path)
    other = tmp_path / "other"
    other.touch()
    assert stat.S_IMODE((tmp_path / "tokenizer.json").stat().st_mode) == stat.S_IMODE(other.stat().st_mode)


def test_pickle_round_trip():
    for text in TRAINED.values():
        again = pickle.loads(pickle.dumps(text))
        assert again.encode(["the </s> dog"]) == text.encode(["the </s> dog"])
        assert again.eos == text.eos


@pytest.mark.parametrize(
    "written",
    [
        b"",
        b"{",
        b"[]",
        b"{}",
        b"\xff\xfe\x00garbage",
        b'{"model": {}}',
        b'{"version": "1.0", "model": {"type": "BPE", "vocab": {"a": 0}, "merges": [["b", "c"]]}}',
        b'{"version": "1.0", "added_tokens": [], "model": {"type": "Unigram", "unk_id": 9, "vocab": [["a", 0.0]]}}',
        b'{"version": "1.0", "added_tokens": [], "model": {"type": "Unigram", "vocab": []}}',
    ],
)
def test_a_damaged_file_is_one_line(written, tmp_path):
    file = tmp_path / "tokenizer.json"
    file.write_bytes(written)
    with pytest.raises(BadInput) as output:
        Tokenizer.load(tmp_path)
    assert "\n" not in str(output.value)


def test_a_file_cut_short_is_one_line(tmp_path):
    TRAINED["bytes"].save(tmp_path)
    full = (tmp_path / "tokenizer.json").read_bytes()
    for part in (10, len(full) // 2, len(full) - 3):
        (tmp_path / "tokenizer.json").write_bytes(full[:part])
        with pytest.raises(BadInput, match="damaged"):
            Tokenizer.load(tmp_path)


def test_an_absent_file_is_one_line(tmp_path):
    for path in (tmp_path, tmp_path / "no.json", tmp_path / "no" / "folder"):
        with pytest.raises(BadInput, match="there is no tokenizer at"):
            Tokenizer.load(path)


# -- other people's ----------------------------------------------------------------------------------------------------

WORDS = ["the", "dog", "##s", "bark", "##ed", ".", ",", "!", "'", "don", "t"]


def their_bert():
    transformers = pytest.importorskip("transformers")
    vocab = {w: i for i, w in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS])}
    return transformers.BertTokenizer(vocab=vocab)


def their_gpt2():
    transformers = pytest.importorskip("transformers")
    trained = json.loads(TRAINED["bytes"]._tokenizer.to_str())["model"]
    vocab = {w: i for i, w in enumerate([*list(trained["vocab"])[4:], "<|endoftext|>"])}
    return transformers.GPT2Tokenizer(vocab=vocab, merges=[tuple(pair) for pair in trained["merges"]])


def their_t5():
    transformers = pytest.importorskip("transformers")
    trained = json.loads(TRAINED["unigram"]._tokenizer.to_str())["model"]["vocab"][4:]
    vocab = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), *((w, s) for w, s in trained)]
    return transformers.T5Tokenizer(vocab=vocab, extra_ids=4)


@pytest.mark.parametrize(
    ("make", "kind", "names"),
    [
        (their_bert, "bert", ["[PAD]", "[CLS]", "[SEP]", "[UNK]"]),
        (their_gpt2, "bytes", ["<|endoftext|>"] * 4),
        (their_t5, "unigram", ["<pad>", "<pad>", "</s>", "<unk>"]),
    ],
)
@pytest.mark.parametrize("beside", [True, False], ids=["with its config", "alone"])
def test_files_of_other_libraries_load(make, kind, names, beside, tmp_path):
    peer = make()
    peer.save_pretrained(tmp_path)
    if not beside:
        for file in tmp_path.iterdir():
            if file.name != "tokenizer.json":
                file.unlink()
    text = Tokenizer.load(tmp_path)
    assert text.kind == kind
    assert [peer.convert_ids_to_tokens(i) for i in (text.pad, text.bos, text.eos, text.unk)] == names
    lines = ["the dogs barked.", "the dog, dogs!"]
    assert text.encode(lines) == peer(lines, add_special_tokens=False)["input_ids"]
    assert text.decode(text.encode(lines)) == lines
    assert all("Ġ" not in piece for piece in text.pieces(text.encode_one(lines[0])))
    text.save(tmp_path / "again")  # what was found is kept
    again = Tokenizer.load(tmp_path / "again")
    assert (again.pad, again.bos, again.eos, again.unk) == (text.pad, text.bos, text.eos, text.unk)


def test_marian_style_starts_with_pad(tmp_path):
    pieces = [("</s>", 0.0), ("<unk>", 0.0), ("▁the", -1.0), ("▁dog", -2.0), ("▁", -3.0), ("<pad>", 0.0)]
    tokenizer = HFTokenizer(models.Unigram(pieces, 1, False))
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    tokenizer.add_special_tokens(["</s>", "<unk>", "<pad>"])
    tokenizer.enable_padding(length=9)
    tokenizer.enable_truncation(1)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    text = Tokenizer.load(tmp_path)
    assert (text.pad, text.bos, text.eos, text.unk, text.size) == (5, 5, 0, 1, 6)
    assert text.encode(["the dog"]) == [[2, 3]]  # their padding and truncation are not ours
    assert text.decode([[5, 2, 3, 0]]) == ["the dog"]


def test_transformers_loads_a_saved_folder(tmp_path):
    transformers = pytest.importorskip("transformers")
    for kind in OURS:
        text = TRAINED[kind]
        text.save(tmp_path / kind)
        peer = transformers.PreTrainedTokenizerFast.from_pretrained(tmp_path / kind)
        assert (peer.pad_token_id, peer.bos_token_id, peer.eos_token_id, peer.unk_token_id) == (0, 1, 2, 3)
        assert peer(LINES, add_special_tokens=False)["input_ids"] == text.encode(LINES)
        assert peer.batch_decode(text.encode(LINES), skip_special_tokens=True) == LINES


def unusual(folder: Path, **named: str) -> Path:
    tokenizer = HFTokenizer(models.WordLevel({"<blank>": 0, "<go>": 1, "<stop>": 2, "<what>": 3, "dog": 7}, "<what>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens(["<blank>", "<go>", "<stop>"])
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps(named))
    return folder


def test_unusual_special_tokens_must_be_named_and_are_saved(tmp_path):
    with pytest.raises(BadInput, match=r"pass special=\{.*'eos': '...'.*<blank>, <go>, <stop>"):
        Tokenizer.load(unusual(tmp_path))
    text = Tokenizer.load(tmp_path, special={"pad": "<blank>", "bos": "<go>", "eos": "<stop>"})
    assert (text.pad, text.bos, text.eos, text.unk) == (0, 1, 2, 3)
    assert text.decode([[1, 7, 3, 2]]) == ["dog"]  # also <what>, which the file did not declare
    assert text.size == 8  # numbers have gaps here; a table of vectors needs the highest
    with pytest.raises(BadInput, match="save to a folder"):
        text.save(tmp_path / "alone.json")
    text.save(tmp_path / "kept")
    assert Tokenizer.load(tmp_path / "kept").eos == 2


def test_special_tokens_are_read_from_tokenizer_config(tmp_path):
    text = Tokenizer.load(unusual(tmp_path, pad_token="<blank>", bos_token="<go>", eos_token="<stop>"))
    assert (text.pad, text.bos, text.eos, text.unk) == (0, 1, 2, 3)


@pytest.mark.parametrize(
    ("special", "says"),
    [({"end": "<stop>"}, "no special token is called 'end'"), ({"eos": "<nil>"}, "no token '<nil>'")],
)
def test_wrong_special_is_one_line(special, says, tmp_path):
    with pytest.raises(RegardError, match=says):
        Tokenizer.load(unusual(tmp_path), special=special)


def test_llama_style_bytes_are_shown_as_numbers(tmp_path):
    vocab = {"<unk>": 0, "<s>": 1, "</s>": 2, "<0xE2>": 3, "<0x0A>": 4, "▁dog": 5}
    tokenizer = HFTokenizer(models.BPE(vocab, [], unk_token="<unk>", byte_fallback=True))
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    text = Tokenizer.load(tmp_path)
    assert text.kind == "bpe"
    assert text.pad == text.eos
    assert text.pieces([3, 4, 5, 99]) == ["⟨e2⟩", "↵", "▁dog", "⟨99⟩"]


def test_characters_are_added_behind_those_that_are_known():
    tokenizer = Tokenizer.train(["abc abc"], kind="char", size=20)
    more = tokenizer.with_characters("cab é\n12")
    assert more.size == tokenizer.size + 4
    assert more.encode_one("abc") == tokenizer.encode_one("abc")
    assert more.encode_one("é1") == [tokenizer.size + n for n in (3, 1)]  # in order: line end, 1, 2, é
    assert more.decode([more.encode_one("a 2\né")]) == ["a 2\né"]
    assert more.with_characters("abc é").size == more.size
    with pytest.raises(BadInput, match="got 'word'"):
        Tokenizer.train(["one two"], kind="word", size=20).with_characters("a")

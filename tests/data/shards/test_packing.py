import errno
import gzip
import json
import os
import subprocess
import sys
import time

import numpy as np
import pytest

from regard.core.errors import BadInput, UnknownName
from regard.data.shards import packing, shard_writer
from regard.data.shards.index import ShardIndex
from regard.data.shards.packing import pack_text
from regard.data.shards.token_shards import TokenShards
from regard.tokens.tokenizer import KINDS, Tokenizer

WORDS = "the whale is large and swims while a small dog runs over the hill to see it pass by".split()  # noqa: SIM905


def prose(n, seed=0):
    """n words with punctuation, double spaces, tabs and line ends between them."""
    random = np.random.RandomState(seed)
    gaps = [" "] * 12 + [", ", ".  ", "\n", "\n\n", "\t", " - "]
    return "".join(WORDS[random.randint(len(WORDS))] + gaps[random.randint(len(gaps))] for _ in range(n)).strip()


def lines(n=300):
    return [f"{WORDS[i % 18]} {WORDS[(i * 5 + 3) % 18]} number {i}" for i in range(n)]


def contents(folder):
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def texts(folder, part="train"):
    shards = TokenShards(str(folder))
    count = ShardIndex.read(folder).count(part)[1]
    return shards.build_tokenizer().decode([shards.document(part, i).tolist() for i in range(count)])


@pytest.fixture
def small(monkeypatch):
    """Pieces and batches so small that a few words make many of them."""
    monkeypatch.setattr(packing, "PIECE_CHARACTERS", 200)
    monkeypatch.setattr(packing, "BATCH_CHARACTERS", 1000)


# -- documents ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("by", "expected"),
    [
        ("file", ["one two\n\nthree\nfour", "five"]),
        ("paragraph", ["one two", "three\nfour", "five"]),
        ("line", ["one two", "three", "four", "five"]),
    ],
)
def test_documents_are_files_paragraphs_or_lines(tmp_path, by, expected):
    source = tmp_path / "source"
    source.mkdir()
    (source / "a.txt").write_text("one two\n\n\nthree\nfour".replace("\n\n\n", "\n\n"))
    (source / "b.txt").write_text("five")
    pack_text([source], tmp_path / "out", "bytes(300)", by, val=0)
    assert texts(tmp_path / "out") == expected


def test_compressed_text_packs_to_the_same_bytes(tmp_path):
    text = "\n".join(lines())
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbf" + text.encode())  # with the mark that some editors write
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(text.encode(), mtime=0))
    (tmp_path / "a.jsonl").write_text("\n".join(json.dumps({"id": 1, "text": line}) for line in lines()) + "\n\n")
    for name in ("a.txt", "a.txt.gz", "a.jsonl"):
        pack_text([tmp_path / name], tmp_path / f"out-{name}", "bpe(120)", "line")
    assert contents(tmp_path / "out-a.txt") == contents(tmp_path / "out-a.txt.gz") == contents(tmp_path / "out-a.jsonl")


@pytest.mark.parametrize("kind", KINDS)
def test_long_document_is_encoded_as_in_one_piece(tmp_path, kind, small):
    text = prose(3000)
    (tmp_path / "a.txt").write_text(text)
    pack_text([tmp_path / "a.txt"], tmp_path / "out", f"{kind}(300)", val=0)
    vocabulary = Tokenizer.load(tmp_path / "out")
    assert len(text) > 50 * packing.PIECE_CHARACTERS
    expected = [*vocabulary.encode_one(text), vocabulary.eos]
    assert TokenShards(str(tmp_path / "out")).document("train", 0).tolist() == expected


def test_documents_across_shards_are_restored(tmp_path, small):
    expected = [prose(n, seed=n) for n in (10, 900, 20, 700, 5)]
    (tmp_path / "a.jsonl").write_text("\n".join(json.dumps({"text": text}) for text in expected))
    pack_text([tmp_path / "a.jsonl"], tmp_path / "out", "bytes(300)", val=0, shard=1000)
    assert len(ShardIndex.read(tmp_path / "out").part("train")) > 5
    assert texts(tmp_path / "out") == expected


def test_existing_tokenizer_is_used(tmp_path, small):
    """One that puts no space before a text, as GPT-2's; then the space at a cut is kept."""
    from tokenizers import Tokenizer as HFTokenizer
    from tokenizers import decoders, models, pre_tokenizers, trainers

    tokenizer = HFTokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400, special_tokens=["<|endoftext|>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
    )
    tokenizer.train_from_iterator([prose(2000)], trainer)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    text = prose(3000, seed=1)
    (tmp_path / "a.txt").write_text(text)
    pack_text([tmp_path / "a.txt"], tmp_path / "out", str(tmp_path / "tokenizer.json"), val=0)
    found = TokenShards(str(tmp_path / "out")).document("train", 0).tolist()
    assert found == [*tokenizer.encode(text).ids, tokenizer.token_to_id("<|endoftext|>")]
    created = json.loads((tmp_path / "out" / "index.json").read_text())["created"]
    assert (created["tokens"], created["bytes"]) == ("tokenizer.json", {"train": len(text.encode())})


def test_a_single_source_need_not_be_a_list(tmp_path):
    (tmp_path / "a.txt").write_text("one two")
    pack_text(str(tmp_path / "a.txt"), tmp_path / "out", "bytes(300)", val=0)
    assert texts(tmp_path / "out") == ["one two"]


def test_text_without_a_space_is_packed_too(tmp_path, small):
    (tmp_path / "a.txt").write_text("x" * 5000 + "\n" + "y" * 3000)
    pack_text([tmp_path / "a.txt"], tmp_path / "out", "char(100)", val=0)
    assert texts(tmp_path / "out") == ["x" * 5000 + "\n" + "y" * 3000]


def test_large_vocabulary_uses_four_bytes(tmp_path):
    (tmp_path / "a.txt").write_text(" ".join(f"w{i}" for i in range(70_000)))
    pack_text([tmp_path / "a.txt"], tmp_path / "out", "word(80000)", val=0)
    index = ShardIndex.read(tmp_path / "out")
    assert index.dtype == "uint32"
    assert index.check(tmp_path / "out") == []
    assert int(TokenShards(str(tmp_path / "out")).document("train", 0).max()) > 65_535


# -- parts -------------------------------------------------------------------------------------------------------------


def test_document_split_depends_on_content_alone(tmp_path):
    parts = {}
    for name, documents in {"a": lines(), "b": lines()[::-1], "c": lines() + lines()}.items():
        (tmp_path / f"{name}.txt").write_text("\n".join(documents))
        pack_text([tmp_path / f"{name}.txt"], tmp_path / name, "bytes(300)", "line", val=0.2)
        parts[name] = set(texts(tmp_path / name)), set(texts(tmp_path / name, "val"))
    train, val = parts["a"]
    assert 30 <= len(val) <= 90
    assert not train & val
    assert parts["c"] == parts["a"]  # equal documents are on the same side
    assert len(parts["b"][1] ^ val) <= 2  # the very first document is always trained on


def test_train_split_is_never_empty(tmp_path):
    (tmp_path / "a.txt").write_text("\n".join(lines(20) + lines(1)))
    pack_text([tmp_path / "a.txt"], tmp_path / "out", "bytes(300)", "line", val=0.999999)
    assert texts(tmp_path / "out") == [lines()[0]] * 2
    assert len(texts(tmp_path / "out", "val")) == 19


def test_split_can_be_set(tmp_path):
    (tmp_path / "one.txt").write_text("\n".join(lines(50)))
    (tmp_path / "two.txt").write_text("\n".join(lines(60)[50:]))
    sources = [f"train={tmp_path / 'one.txt'}", f"val={tmp_path / 'two.txt'}", f"test={tmp_path / 'two.txt'}"]
    pack_text(sources, tmp_path / "out", "bytes(300)", "line")
    assert {name: ShardIndex.read(tmp_path / "out").count(name)[1] for name in ("train", "val", "test")} == {
        "train": 50,
        "val": 10,
        "test": 10,
    }


def test_the_vocabulary_is_learned_from_the_training_split_alone(tmp_path):
    (tmp_path / "one.txt").write_text("a b c")
    (tmp_path / "two.txt").write_text("unseen words")
    pack_text([f"train={tmp_path / 'one.txt'}", f"val={tmp_path / 'two.txt'}"], tmp_path / "out", "word(50)")
    text = Tokenizer.load(tmp_path / "out")
    assert text.encode_one("unseen") == [text.unk]
    assert text.unk not in text.encode_one("a b c")


def test_a_sample_is_even_and_within_its_limit():
    pieces = [packing.TextPiece("train", f"{i:04d}" * 25, False, True) for i in range(2000)]
    stored = packing._sample_pieces(iter(pieces), 20_000, 200_000, lambda *_: None)
    numbers = [int(text[:4]) for text in stored]
    assert 9_000 < 100 * len(stored) <= 20_000
    assert numbers == sorted(numbers)
    assert 0.4 < np.mean(np.array(numbers) < 1000) < 0.6
    assert stored == packing._sample_pieces(iter(pieces), 20_000, 200_000, lambda *_: None)


# -- processes, and packings that were broken off ----------------------------------------------------------------------


@pytest.fixture
def source(tmp_path):
    (tmp_path / "text.txt").write_text("\n".join(f"{line}, {prose(30, i)!r}" for i, line in enumerate(lines(200))))
    return tmp_path / "text.txt"


SETTINGS = {"tokens": "bytes(320)", "documents": "line", "val": 0.1, "shard": 4000}


@pytest.fixture
def whole(source, tmp_path, small):
    pack_text([source], tmp_path / "whole", **SETTINGS)
    assert len(ShardIndex.read(tmp_path / "whole").part("train")) > 2
    return contents(tmp_path / "whole")


def test_several_processes_give_the_same_bytes(source, tmp_path, whole, monkeypatch):
    monkeypatch.setattr(packing, "MIN_PARALLEL_CHARACTERS", 0)
    pack_text([source], tmp_path / "again", workers=2, **SETTINGS)
    assert contents(tmp_path / "again") == whole


def test_early_error_leaves_no_files(source, tmp_path, small):
    def fail(what, done, total):
        if what == "packing":
            raise RuntimeError("pulled the plug")

    with pytest.raises(RuntimeError):
        pack_text([source], tmp_path / "out", progress=fail, **SETTINGS)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("at", [1, 7, 20])
def test_failed_packing_resumes_to_the_same_bytes(source, tmp_path, whole, at):
    calls = []

    def fail(what, done, total):
        calls.extend([what] * (what == "packing"))
        if len(calls) == at:
            raise RuntimeError("pulled the plug")

    out = tmp_path / "out"
    with pytest.raises(RuntimeError):
        pack_text([source], out, progress=fail, every=0, **SETTINGS)
    with pytest.raises(BadInput, match="is incomplete"):
        TokenShards(str(out)).load("train")
    done = []
    pack_text([source], out, progress=lambda *now: done.append(now), every=0, **SETTINGS)
    assert {what for what, _, _ in done} == {"packing"}  # neither read nor learned anew
    assert done[0][1] > at * packing.BATCH_CHARACTERS
    assert done[-1][1] == done[-1][2]
    assert contents(out) == whole


KILLED = """
import os, signal, sys
from regard.data.shards import packing
packing.PIECE_CHARACTERS, packing.BATCH_CHARACTERS, packing.MIN_PARALLEL_CHARACTERS = 200, 1000, 0
at, calls = int(sys.argv[3]), []
def told(what, done, total):
    calls.extend([what] * (what == "packing"))
    if len(calls) == at:
        os.kill(os.getpid(), signal.SIGKILL)
packing.pack_text(
    [sys.argv[1]], sys.argv[2], "bytes(320)", "line", 0.1, 4000,
    workers=int(sys.argv[5]), progress=told, every=float(sys.argv[4]),
)
"""


@pytest.mark.parametrize(("at", "every", "workers"), [(3, 0.0, 1), (9, 0.0, 2), (12, 1000.0, 1)])
def test_killed_packing_resumes_to_the_same_bytes(source, tmp_path, whole, at, every, workers):
    out = tmp_path / "out"
    words = [sys.executable, "-c", KILLED, source, out, str(at), str(every), str(workers)]
    killed = subprocess.Popen(words, start_new_session=True)
    assert killed.wait(120) == -9
    for _ in range(1000):  # its processes end with it
        try:
            os.killpg(killed.pid, 0)
        except ProcessLookupError:
            break
        time.sleep(0.02)
    else:
        pytest.fail("a process was left behind")
    with pytest.raises(BadInput, match="is incomplete"):
        ShardIndex.read(out)
    sound = json.loads((out / "packing.json").read_text())["parts"]
    assert bool(sound) == (every == 0)
    pack_text([source], out, **SETTINGS)
    assert contents(out) == whole


def test_shard_finished_after_the_last_journal_entry_is_removed(source, tmp_path, whole, monkeypatch):
    """The record is at the first batch; shards were finished and renamed since."""
    out, calls = tmp_path / "out", []

    def late(self, piece):
        calls.append(piece)
        if len(calls) == 1:
            self.save(piece)
        if len(calls) == 15:
            raise RuntimeError("pulled the plug")

    monkeypatch.setattr(shard_writer.ShardWriter, "mark_done", late)
    with pytest.raises(RuntimeError):
        pack_text([source], out, **SETTINGS)
    assert (out / "train-00000.bin").exists()
    assert json.loads((out / "packing.json").read_text())["parts"]["train"]["shards"] == []
    monkeypatch.undo()
    monkeypatch.setattr(packing, "PIECE_CHARACTERS", 200)
    monkeypatch.setattr(packing, "BATCH_CHARACTERS", 1000)
    pack_text([source], out, **SETTINGS)
    assert contents(out) == whole


def broken_off(source, out):
    def fail(what, done, total):
        if what == "packing":
            raise RuntimeError("pulled the plug")

    with pytest.raises(RuntimeError):
        pack_text([source], out, progress=fail, every=0, **SETTINGS)


def test_packing_with_other_settings_does_not_resume(source, tmp_path, small):
    broken_off(source, tmp_path / "out")
    before = contents(tmp_path / "out")
    with pytest.raises(BadInput, match=r"interrupted packing with other settings \(different: tokens\)"):
        pack_text([source], tmp_path / "out", **SETTINGS | {"tokens": "bytes(330)"})
    source.write_text("something else\n" * 100)
    with pytest.raises(BadInput, match="different: sources"):
        pack_text([source], tmp_path / "out", **SETTINGS)
    assert contents(tmp_path / "out") == before


def test_damaged_journal_says_what_to_do(source, tmp_path, small):
    broken_off(source, tmp_path / "out")
    (tmp_path / "out" / "train-00000.bin.part").write_bytes(b"")
    with pytest.raises(BadInput, match=r"train-00000\.bin\.part is shorter.*pack again"):
        pack_text([source], tmp_path / "out", **SETTINGS)
    (tmp_path / "out" / "packing.json").write_text("{")
    with pytest.raises(BadInput, match=r"packing\.json is damaged.*pack again"):
        pack_text([source], tmp_path / "out", **SETTINGS)


def test_two_processes_cannot_pack_into_one_folder(source, tmp_path, small):
    def meanwhile(what, done, total):
        with pytest.raises(BadInput, match="another process is packing"):
            pack_text([source], tmp_path / "out", **SETTINGS)

    pack_text([source], tmp_path / "out", progress=meanwhile, **SETTINGS)
    assert ShardIndex.read(tmp_path / "out").check(tmp_path / "out") == []


# -- bad input ---------------------------------------------------------------------------------------------------------


def test_nonempty_folder_is_never_written(source, tmp_path, whole):
    with pytest.raises(BadInput, match="already has shards"):
        pack_text([source], tmp_path / "whole", **SETTINGS)
    (tmp_path / "actual").mkdir()
    (tmp_path / "actual" / "precious.txt").write_text("mine")
    with pytest.raises(BadInput, match="is not empty"):
        pack_text([source], tmp_path / "actual", **SETTINGS)
    with pytest.raises(BadInput, match="is a file"):
        pack_text([source], source, **SETTINGS)
    assert contents(tmp_path / "actual") == {"precious.txt": b"mine"}
    assert contents(tmp_path / "whole") == whole


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.txt", b"caf\xe9 au lait", r"a\.txt: it is not UTF-8.*convert it"),
        ("a.txt", b"zero \0 byte", r"a\.txt: it has zero bytes"),
        ("a.txt.gz", gzip.compress(b"word " * 1000, mtime=0)[:-20], r"a\.txt\.gz: it cannot be read"),
        ("a.txt.gz", b"no gzip at all", r"a\.txt\.gz: it cannot be read"),
        ("a.jsonl", b'{"text": "fine"}\n{"other": 1}\n', r"a\.jsonl: line 2 is not JSON with a"),
        ("a.jsonl", b'{"text": "fine"}\n{"text": 1}\n', r"a\.jsonl: line 2: its .text. is not text"),
        ("a.jsonl", b'{"text": "\\ud800"}\n', r"a\.jsonl: line 1: its .text. is not text"),
        ("a.txt", b"", r"there is no text in .*a\.txt: it is empty"),
        ("a.txt", b" \n\n \n", r"there is no text in .*a\.txt: it is empty"),
    ],
    ids=["latin-1", "zeros", "cut-gzip", "no-gzip", "no-text", "number", "surrogate", "empty", "blank"],
)
def test_non_text_file_is_named(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(BadInput, match=message):
        pack_text([tmp_path / name], tmp_path / "out", "bytes(300)", "line")
    assert not (tmp_path / "out").exists()


def test_unusable_files_of_a_folder_are_skipped_and_named(tmp_path):
    folder = tmp_path / "in"
    (folder / "deeper").mkdir(parents=True)
    (folder / "a.txt").write_text("one")
    (folder / "b.bin").write_bytes(b"\xff\xfe\0\1")
    (folder / "empty.txt").write_text("")
    (folder / ".hidden").write_text("not me")
    (folder / "deeper" / "c.txt").write_text("two")
    packed = pack_text([folder], folder / "out", "bytes(300)", val=0)  # into the same folder, too
    assert {path.rsplit("/", 1)[1]: why[:12] for path, why in packed.skipped.items()} == {
        "b.bin": "it is not UT",
        "empty.txt": "it is empty",
    }
    assert texts(folder / "out") == ["one", "two"]
    assert packed.index.created["skipped"] == 2


def test_invalid_settings_are_reported_before_reading(tmp_path):
    (tmp_path / "a.txt").write_text("one")
    cases = [
        ({"tokens": "bpee(100)"}, UnknownName, "did you mean 'bpe'"),
        ({"tokens": "bytes(10)"}, BadInput, "must be at least 260, got 10"),
        ({"tokens": str(tmp_path / "none.json")}, UnknownName, "neither a kind"),
        ({"documents": "lines"}, UnknownName, "did you mean 'line'"),
        ({"val": 1.0}, BadInput, "at least 0 and below 1"),
    ]
    for settings, error, message in cases:
        with pytest.raises(error, match=message):
            pack_text([tmp_path / "a.txt"], tmp_path / "out", **settings)
    with pytest.raises(BadInput, match=r"no file or folder .*none"):
        pack_text([tmp_path / "none"], tmp_path / "out")
    (tmp_path / "void").mkdir()
    with pytest.raises(BadInput, match="nothing to pack in"):
        pack_text([tmp_path / "void"], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_packing_resumes_after_a_full_disk(source, tmp_path, whole, monkeypatch):
    written, plain = [], shard_writer._SplitWriter._write

    def full(self, which, content):
        written.append(len(content))
        if sum(written) > 9000:
            with shard_writer._disk_errors(self._paths(True)[which]):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        plain(self, which, content)

    monkeypatch.setattr(shard_writer._SplitWriter, "_write", full)
    with pytest.raises(BadInput, match=r"cannot write .*no space left on device; free some space"):
        pack_text([source], tmp_path / "out", every=0, **SETTINGS)
    monkeypatch.setattr(shard_writer._SplitWriter, "_write", plain)
    pack_text([source], tmp_path / "out", every=0, **SETTINGS)
    assert contents(tmp_path / "out") == whole

import gzip

import pytest

from regard.core.errors import BadInput, UnknownName
from regard.data.text.text_file import TextFile
from regard.tokens.tokenizer import Tokenizer

WORDS = "To be, or not to be, that is the question:\nWhether 'tis nobler in the mind to suffer\n" * 6


@pytest.fixture
def file(tmp_path):
    (tmp_path / "play.txt").write_text(WORDS, encoding="utf-8")
    return tmp_path / "play.txt"


def test_single_file_is_split_into_train_and_val(file):
    data = TextFile(str(file), context_length=8)
    assert data.splits() == ["all", "train", "val"]
    cut = int(0.9 * len(WORDS))
    assert (data.read("train"), data.read("val")) == (WORDS[:cut], WORDS[cut:])
    assert TextFile(str(file.parent), val_fraction=0.5).read("val") == WORDS[len(WORDS) // 2 :]


def test_folder_has_a_file_per_split(tmp_path):
    for part in ("train", "valid", "test"):
        with gzip.open(tmp_path / f"ptb.{part}.txt.gz", "wt", encoding="utf-8") as out:
            out.write(f"{part} äöü " * 20)
    (tmp_path / "README.md").write_text("not a part")
    data = TextFile(str(tmp_path), context_length=8)
    assert data.splits() == ["test", "train", "val"]
    assert data.read("va") == "valid äöü " * 20
    assert data.bytes("val") == 20 * 13
    with pytest.raises(UnknownName, match="did you mean 'test'"):
        data.split("tset")


@pytest.mark.parametrize("kind", ["char", "bytes"])
def test_targets_are_the_next_tokens(file, kind):
    data = TextFile(str(file), context_length=16, batch_size=2, tokenizer=kind, vocab_size=300)
    text = data.build_tokenizer()
    part = data.load("train", text)
    rows = [row for batch in part.eval_batches(32) for row in zip(*batch, strict=True)]
    inputs = [i for row, _ in rows for i in row.tolist()][: part.tokens]
    assert text.decode([inputs])[0].startswith(data.read("train")[:-1])
    for row, expected in rows[:-1]:
        assert row[1:].tolist() == expected[:-1].tolist()
    assert len(set(text.encode_one(data.read("train")))) <= text.size


def test_validation_uses_the_training_vocabulary(tmp_path):
    (tmp_path / "train.txt").write_text("abcabc" * 20)
    (tmp_path / "val.txt").write_text("abz" * 20)
    data = TextFile(str(tmp_path), context_length=4)
    text = data.build_tokenizer()
    assert isinstance(text, Tokenizer)
    batch = next(iter(data.load("val").eval_batches(8)))
    assert batch.inputs[0].tolist() == [*text.encode_one("ab"), text.unk, text.encode_one("a")[0]]


def test_fingerprint_changes_with_the_text(file):
    data = TextFile(str(file), context_length=8)
    assert data.load("train").fingerprint() == data.load("train").fingerprint() != data.load("val").fingerprint()


def test_unreadable_text_is_reported(tmp_path, file):
    with pytest.raises(BadInput, match=r"has no \.txt or \.md file"):
        TextFile(str(tmp_path / "empty")).files() if (tmp_path / "empty").mkdir() is None else None
    with pytest.raises(BadInput, match="no dataset"):
        TextFile("no_such_text").read("train")
    with pytest.raises(BadInput, match="a row takes"):
        TextFile(str(file), context_length=1000).load("train")
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(BadInput, match="cannot read"):
        TextFile(str(file)).read("train")


def test_several_texts_are_read_as_one(tmp_path):
    for name in ("a", "b"):
        (tmp_path / f"{name}.txt").write_text(name * 50)
    data = TextFile(str(tmp_path), val_fraction=0.2)
    assert data.read("all") == "a" * 50 + "\n" + "b" * 50
    assert data.read("train") + data.read("val") == data.read("all")
    (tmp_path / "2024" / ".git").mkdir(parents=True)
    (tmp_path / "2024" / "c.txt").write_text("c" * 50)
    (tmp_path / "2024" / ".git" / "d.txt").write_text("hidden")
    assert TextFile(str(tmp_path)).read("all") == "\n".join(["c" * 50, "a" * 50, "b" * 50])
    for name in ("a.txt", "b.txt", "2024/c.txt"):
        (tmp_path / name).rename((tmp_path / name).with_suffix(".md"))
    assert TextFile(str(tmp_path)).read("all") == "\n".join(["c" * 50, "a" * 50, "b" * 50])


def test_several_files_of_a_split_are_all_read(tmp_path):
    for name, content in {"train.a": "one", "train.b": "two", "val": "three"}.items():
        (tmp_path / f"{name}.txt").write_text(content)
    (tmp_path / "train.b.txt.gz").write_bytes(gzip.compress(b"two"))  # the same once more
    data = TextFile(str(tmp_path))
    assert (data.read("train"), data.read("val")) == ("one\ntwo", "three")

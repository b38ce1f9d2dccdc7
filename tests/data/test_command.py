"""The command ``regard data``."""

import pytest

from regard.cli import main


@pytest.fixture
def message(capsys):
    """Run a command; return its status, stdout and stderr."""

    def run(*words):
        status = main([str(word) for word in words])
        out, err = capsys.readouterr()
        return status, out, err

    return run


@pytest.fixture
def text(tmp_path):
    (tmp_path / "book.txt").write_text("\n\n".join(f"Chapter {i}.\nThe whale swims {i} miles." for i in range(200)))
    return tmp_path / "book.txt"


def test_pack_check_and_show(message, text, tmp_path):
    status, out, err = message(
        "data",
        "pack",
        text,
        "--out",
        tmp_path / "out",
        "--documents",
        "paragraph",
        "--tokens",
        "bpe(150)",
        "--val",
        "0.1",
    )
    assert (status, err) == (0, "")
    assert out.splitlines()[-1] == str(tmp_path / "out")
    assert "documents, 1 shard" in out
    assert message("data", "check", tmp_path / "out") == (
        0,
        f"{tmp_path / 'out'}: 2 shards, all as they were packed\n",
        "",
    )
    status, out, err = message("data", "show", tmp_path / "out", "-n", "1")
    assert (status, err) == (0, "")
    assert "vocabulary 150 bpe" in out or "vocabulary" in out
    assert out.splitlines()[-1].endswith("tokens: Chapter 0. The whale swims 0 miles.")


def test_a_damaged_shard_gives_status_1_and_a_line_that_names_it(message, text, tmp_path):
    message("data", "pack", text, "--out", tmp_path / "out", "--documents", "paragraph", "--tokens", "bytes(300)")
    file = tmp_path / "out" / "train-00000.bin"
    content = bytearray(file.read_bytes())
    content[50] ^= 1
    file.write_bytes(content)
    status, out, err = message("data", "check", tmp_path / "out")
    assert (status, out) == (1, "")
    assert err.startswith(f"regard: {file} is damaged")
    assert len(err.splitlines()) == 1


def test_empty_val_split_says_what_to_do(message, text, tmp_path):
    status, _, err = message("data", "pack", text, "--out", tmp_path / "out", "--tokens", "bytes(300)")
    assert status == 0
    assert "no document fell into val" in err
    assert "--documents paragraph" in err


def test_skipped_files_are_named_and_counted(message, tmp_path, text):
    for i in range(13):
        (tmp_path / f"bad{i:02d}.txt").write_bytes(b"\xff\xff")
    status, _, err = message(
        "data", "pack", tmp_path, "--out", tmp_path / "out", "--tokens", "bytes(300)", "--val", "0"
    )
    assert status == 0
    assert sum("it is not UTF-8" in line for line in err.splitlines()) == 10
    assert "left out 13 files in all" in err


def test_errors_are_one_line(message, text, tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").write_text("x")
    cases = [
        (["pack", text], 2, "--out"),
        (["pack", tmp_path / "none", "--out", tmp_path / "out"], 1, "there is no file or folder"),
        (["pack", text, "--out", tmp_path / "full"], 1, "is not empty"),
        (["pack", text, "--out", tmp_path / "out", "--tokens", "bpe(2)"], 1, "must be at least 5, got 2"),
        (["pack", text, "--out", tmp_path / "out", "--images"], 1, "no image"),
        (["check", tmp_path / "none"], 1, "has no shards"),
        (["show", tmp_path / "full"], 1, "has no shards"),
        (["pck"], 2, "pck"),
        ([], 2, "missing command"),
    ]
    for words, status, line in cases:
        found = message("data", *words)
        assert found[0] == status, words
        assert len(found[2].splitlines()) == 1, found
        assert line in found[2]
    assert not (tmp_path / "out").exists()

"""Folders of recordings, with labels or transcripts, in the layouts in which people have them."""

import gzip

import numpy as np
import pytest

from regard.core.errors import BadInput
from regard.data.audio.audio_folder import LabeledAudio, TranscribedAudio, has_transcripts
from regard.tokens.tokenizer import Tokenizer
from regard.training.own_data.audio import draft

soundfile = pytest.importorskip("soundfile")


def record(file, seconds=0.2):
    file.parent.mkdir(parents=True, exist_ok=True)
    wave = np.random.default_rng(0).standard_normal(int(8000 * seconds)).astype(np.float32) / 10
    soundfile.write(str(file), wave, 8000, format=file.suffix[1:].upper())


def test_hidden_files_are_no_recordings_and_unreadable_ones_are_left_out(tmp_path, caplog):
    for label in ("no", "yes"):
        for n in range(4):
            record(tmp_path / label / "deeper" / f"{n}.wav")
    record(tmp_path / "yes" / "LOUD.WAV")
    (tmp_path / "yes" / "._LOUD.WAV").write_bytes(b"\0\5\x16\7")
    (tmp_path / "no" / "broken.wav").write_bytes(b"RIFF")
    (tmp_path / "no" / "note.txt").write_text("no recording")
    data = LabeledAudio(str(tmp_path))
    assert data.labels() == ["no", "yes"]
    assert len(data.found()["all"]) == 10
    assert len(data.load("all")) == 9
    assert "broken.wav" in caplog.text


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("t.tsv", "0.wav\tsay 0\n1.wav\tsay 1\n2.wav\tsay 2\n"),
        ("t.tsv", "\ufeff0.wav\tsay 0\r\n1.wav\tsay 1\r\n\r\n2.wav\tsay 2\r\n"),
        ("t.tsv", "0\tsay 0\n1\tsay 1\n2\tsay 2\n"),  # names without endings
        ("t.tsv", "client_id\tpath\tsentence\n" + "".join(f"c\t{n}.wav\tsay {n}\n" for n in range(3))),
        ("t.tsv.gz", "client_id\tpath\tsentence\n" + "".join(f"c\t{n}.wav\tsay {n}\n" for n in range(3))),
        ("t.csv", "file,transcript\n" + "".join(f"{n}.wav,say {n}\n" for n in range(3))),
        ("t.jsonl", "\n".join(f'{{"audio": "{n}.wav", "text": "say {n}", "speaker": null}}' for n in range(3))),
        ("metadata.csv", "0|SAY, 0|say 0\n1|say 1|say 1\n2|say 2|say 2\n"),  # LJ Speech
        ("metadata.csv", "0|say 0\n1|say 1\n2|say 2\n"),
        ("7/7-1.trans.txt", None),
    ],
)
def test_transcripts_are_read(tmp_path, name, content):
    for n in range(3):
        record(tmp_path / (f"7/7-1-{n}.wav" if content is None else f"clips/{n}.wav"))
    content = content or "7-1-0 say 0\n7-1-1 say 1\n7-1-2 say 2\n\n"
    written = content.encode()
    (tmp_path / name).write_bytes(gzip.compress(written) if name.endswith(".gz") else written)
    assert has_transcripts(tmp_path)
    found = TranscribedAudio(str(tmp_path)).found()["all"]
    assert [(recording.file.exists(), recording.text) for recording in found] == [(True, f"say {n}") for n in range(3)]


def test_transcripts_are_read_in_the_case_that_a_model_writes_and_others_are_named(tmp_path, caplog):
    for n in range(3):
        record(tmp_path / f"{n}.wav")
    (tmp_path / "t.tsv").write_text("0.wav\tONE TWO\n1.wav\tTWO\n2.wav\tONE\n")
    data, words = TranscribedAudio(str(tmp_path)), Tokenizer.train(["one two"] * 2, kind="word", size=10)
    assert [each.text for each in data.load("all", words).waves.recordings] == ["one two", "two", "one"]
    assert caplog.text == ""
    (tmp_path / "others.tsv").write_text("0.wav\tone\n1.wav\ttwo three\n2.wav\tthree\n")
    data = TranscribedAudio(str(tmp_path / "others.tsv"))
    assert [each.text for each in data.load("all", words).waves.recordings] == ["one", "two three", "three"]
    assert "2 of 3 transcripts have what the model cannot write ('two three')" in caplog.text


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", r"t\.tsv has no rows$"),
        ("path\tsentence\n", r"t\.tsv has no rows but the names of its columns"),
        ("0.wav\ta\ngone.wav\tb\n", r"names 1 files that are not there \(gone\.wav\)"),
        ("0.wav\ta\n../outside.wav\tb\n", r"not there \(\.\./outside\.wav\)"),
        ("just words\n", "no columns 'file' or 'text'"),
    ],
)
def test_a_table_that_cannot_be_used_is_named(tmp_path, content, message):
    record(tmp_path / "own" / "0.wav")
    record(tmp_path / "outside.wav")
    (tmp_path / "own" / "t.tsv").write_text(content)
    with pytest.raises(BadInput, match=message):
        draft(tmp_path / "own")


def test_a_file_of_another_kind_is_not_taken_for_a_dataset(tmp_path):
    (tmp_path / "film.mp4").write_bytes(b"1234")
    with pytest.raises(BadInput, match=r"film\.mp4 is a file; give a folder"):
        draft(tmp_path / "film.mp4")

"""What a newcomer does in the first hour: look around, translate, look at a picture, train something, measure it."""

import json
import os
import signal
import subprocess
import time
from functools import partial

import pytest

import regard
from tests.deadline import read_all
from tests.stories.command import arguments, environment, run


def test_help_is_instant_and_says_what_to_type():
    first = run("--help")
    assert first.status == 0
    for word in ("translate", "see", "train", "eval", "list", "show", "--to de", "--version", "Exit status"):
        assert word in first.out
    loaded = (
        "import sys; from regard.cli import main, _app; main(['--help']); "
        "names = [each.name for each in _app().registered_commands]; assert 'translate' in names and 'run' in names; "
        "[main([name, '--help']) for name in names]; sys.stderr.write(str('torch' in sys.modules))"
    )
    done = subprocess.run(
        [arguments()[0], "-c", loaded],
        env=environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        check=True,
        timeout=600,
    )
    assert done.stderr == b"False"
    assert run().out == first.out  # nothing said, nothing assumed
    assert run("--version").out == f"regard {regard.__version__}\n"


def test_what_there_is(warm):
    done = warm("list")
    assert done.status == 0
    for word in ("softmax", "rotary", "transformer", "transformer_multi30k"):
        assert word in done.out
    done = warm("show", "transformer")
    assert done.status == 0
    for word in ("Attention Is All You Need", "base", "48,234,496", "encoder_layers"):
        assert word in done.out


def test_what_ships_translates_everyday_sentences():
    done = run("translate", "--to", "de", stdin=b"Two dogs are playing in the snow.\n")
    assert (done.status, done.err) == (0, "")
    assert "Hunde" in done.out
    assert "Schnee" in done.out


def test_translate_and_see(translator_folder, tmp_path, warm):
    how = "--model", translator_folder, "--beam-size", 2
    stdin = b"Two dogs are playing in the snow.\nA woman reads a book.\n"
    done = warm("translate", "--to", "de", *how, "--attention", tmp_path / "page.html", stdin=stdin)
    assert done.status == 0
    assert len(done.lines) == 2
    assert all(done.lines)
    assert done.complaints == [f"regard: attention of the first line drawn: {tmp_path / 'page.html'}"]
    assert "<script" in (tmp_path / "page.html").read_text("utf-8")
    done = warm("see", "Two dogs.", *how, "--view", "heads", cwd=tmp_path)
    assert done.status == 0
    assert done.lines[0] == "Two dogs."
    assert done.lines[-1] == "drawn: attention.png"
    assert "│" in done.out
    assert (tmp_path / "attention.png").read_bytes().startswith(b"\x89PNG")


def test_train_then_measure_then_use(corpus, tmp_path, warm):
    settings = f"data.corpus={corpus}", "data.style=raw", "data.tokenizer=bytes"
    done = warm("train", "transformer_multi30k", *settings, "--quick", "--out", "runs/mine", cwd=tmp_path)
    assert (done.status, done.out) == (0, "runs/mine/model\n"), done.err
    folder = tmp_path / "runs" / "mine"
    assert {"model", "recipe.json", "result.json", "metrics.jsonl", "curve.png"} <= {f.name for f in folder.iterdir()}

    done = warm("eval", "runs/mine", "--output", "scores.json", cwd=tmp_path)
    assert done.status == 0, done.err
    assert "BLEU" in done.out
    assert "tok:13a" in done.out  # never a score without how it was counted
    assert "test" in json.loads((tmp_path / "scores.json").read_text("utf-8"))["results"]

    done = warm("translate", "A man is riding a horse.", "--model", "runs/mine", "--verbose", cwd=tmp_path)
    assert (done.status, len(done.lines)) == (0, 1)
    assert "tokens/s" in done.err
    assert "float32, 1 thread" in done.err


@pytest.mark.long
def test_stopping_early(translator_folder, tmp_path):
    """Ctrl-C while translating keeps what is done; a reader that leaves is no error worth words."""
    how = arguments("translate", "--model", translator_folder, "--beam-size", 1, "--output", tmp_path / "out.txt")
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    heard = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)  # a test run in the background is deaf to it
    with subprocess.Popen(how, env=environment(), preexec_fn=heard, **pipes) as process:
        process.stdin.write(b"Two dogs.\n")
        process.stdin.flush()
        waited = time.monotonic()
        while not [f for f in tmp_path.glob(".*.part") if f.stat().st_size] and time.monotonic() - waited < 60:
            time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        said = read_all(process, process.stderr, 60).decode()
        assert process.wait(60) == 130
    assert said.splitlines() == [f"regard: what was finished is in {tmp_path / 'out.txt'}.part", "regard: interrupted"]
    assert [file.name for file in tmp_path.iterdir()] == ["out.txt.part"]

    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "wb") as gone:
        done = run("list", stdout=gone)
    assert (done.status, done.err) == (141, "")

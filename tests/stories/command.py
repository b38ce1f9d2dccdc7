"""The command line as a user meets it: another process, its two streams and its exit status."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import torch

import regard
from regard.tasks.text.translation import Translator
from regard.tokens.tokenizer import Tokenizer
from tests.deadline import read_line

SRC = Path(regard.__file__).resolve().parents[1]
ROOT = Path(__file__).resolve().parents[2]

PAIRS = [
    ("Two dogs are playing in the snow.", "Zwei Hunde spielen im Schnee."),
    ("A man is riding a horse.", "Ein Mann reitet ein Pferd."),
    ("The girl sees a small house.", "Das Mädchen sieht ein kleines Haus."),
    ("A woman reads a book.", "Eine Frau liest ein Buch."),
]


@dataclass(frozen=True)
class Done:
    """How a command ended."""

    status: int
    out: str
    err: str

    @property
    def lines(self):
        return self.out.split("\n")[:-1]

    @property
    def complaints(self):
        return self.err.splitlines()


def environment(**changes):
    """What a command sees of the environment: this package, one thread, no help from a terminal."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("REGARD_")}
    return kept | {"PYTHONPATH": str(SRC), "OMP_NUM_THREADS": "1", "COLUMNS": "100"} | changes


def arguments(*words):
    return [sys.executable, "-c", "import sys; from regard.cli import main; sys.exit(main())", *map(str, words)]


def run(*words, stdin=b"", cwd=None, stdout=subprocess.PIPE, **env):
    """Run ``regard WORDS`` and wait for it."""
    done = subprocess.run(
        arguments(*words),
        input=stdin,
        stdout=stdout,
        stderr=subprocess.PIPE,
        cwd=cwd,
        env=environment(**env),
        timeout=120,
        check=False,
    )
    assert b"Traceback" not in done.stderr, done.stderr.decode()
    return Done(done.returncode, (done.stdout or b"").decode("utf-8"), done.stderr.decode("utf-8"))


class Warm:
    """``regard WORDS`` again and again, each in a process of its own whose imports are done (warm.py)."""

    def __init__(self, folder):
        self.folder = folder
        paths = os.pathsep.join([str(ROOT), str(SRC)])
        command = [sys.executable, "-m", "tests.stories.warm"]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self.process = subprocess.Popen(command, cwd=ROOT, env=environment(PYTHONPATH=paths), **pipes)

    def __call__(self, *words, stdin=b"", cwd=None, file_size=None, **env):
        (self.folder / "in").write_bytes(stdin)
        job = {"words": [*map(str, words)], "cwd": cwd and str(cwd), "env": environment(**env), "file_size": file_size}
        self.process.stdin.write(json.dumps(job | {"folder": str(self.folder)}) + "\n")
        self.process.stdin.flush()
        status = int(read_line(self.process, self.process.stdout, 600))
        out, err = ((self.folder / name).read_bytes().decode("utf-8") for name in ("out", "err"))
        assert "Traceback" not in err, err
        return Done(status, out, err)

    def close(self):
        self.process.stdin.close()
        self.process.wait(30)
        self.process.stdout.close()


def tiny_translator(folder):
    """An untrained translator that writes nonsense quickly, and ends by itself now and then."""
    torch.manual_seed(0)
    text = Tokenizer.train([line for pair in PAIRS for line in pair], kind="bytes", size=320)
    sizes = {"width": 16, "heads": 2, "ffn": 32, "encoder_layers": 2, "decoder_layers": 2, "length": 64}
    model = regard.build("transformer", vocab=text.size, **sizes).eval()
    regard.save(Translator(model, text, "en", "de", max_length=40), folder, card="# tiny\n\nUntrained, for tests.\n")
    return folder


def tiny_corpus(folder):
    """A few sentence pairs in the layout of Multi30k."""
    folder.mkdir(parents=True, exist_ok=True)
    for split, times in (("train", 15), ("val", 2), ("test", 2)):
        for side, language in enumerate(("en", "de")):
            lines = [pair[side] for _ in range(times) for pair in PAIRS]
            (folder / f"{split}.{language}").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder

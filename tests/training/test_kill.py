"""A run that is killed repeatedly, at any moment, ends with the same bits as an undisturbed one.

After every `kill -9`: all checkpoints are complete, at most the updates since the last one are lost, and half-written
files do not accumulate: the next start removes them.
"""

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from regard.training.checkpoint.checkpoints import Checkpoints
from regard.training.checkpoint.manifest import find_damage
from regard.training.loggers.progress import read_rows
from tests.deadline import read_line
from tests.training.test_resume import assert_equal_runs, rows

HERE = Path(__file__).resolve()
STEPS, SAVE = 16, 4
SLOW = 0.01  # seconds that flushing a file takes longer: a save is then about as long as the updates between two

RECIPE = """
'''A toy, for killing.'''
from regard.data.text.parallel_corpus import ParallelCorpus
from regard.models.transformer import Config
from regard.tasks.text import translation
from regard.training.recipe import Recipe, Train

def recipe():
    return Recipe(
        Config(vocab=300, width=16, heads=2, ffn=32, encoder_layers=1, decoder_layers=1, dropout=0.2),
        translation.Config(beam_size=1),
        ParallelCorpus({folder!r}, vocab_size=300, batch_tokens=96, pad_to_multiple_of=1),
        Train(steps={steps}, learning_rate=3e-3, warmup_steps=5, clip_grad_norm=1.0, ema_decay=0.9,
              average_checkpoints=3, eval_interval=6, score_interval=0, save_interval={save}, log_interval=1,
              device="cpu"),
    )
"""


class ProcessPool:
    """Starts trainings from a process that has imported torch already."""

    def __init__(self):
        paths = [str(HERE.parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])]
        env = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(paths)}
        command = [sys.executable, "-m", "tests.training.process_pool"]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=env, cwd=HERE.parents[2])
        assert read_line(self.process, self.process.stdout) == "ready\n"

    def ask(self, **job):
        self.process.stdin.write(json.dumps(job) + "\n")
        self.process.stdin.flush()
        return int(read_line(self.process, self.process.stdout))

    def start(self, recipe, out, log, slow=SLOW):
        return self.ask(words=[recipe, "--resume", "--out", str(out)], log=str(log), slow=slow)

    def wait(self, pid):
        return self.ask(wait=pid)

    def close(self):
        self.process.stdin.close()
        self.process.wait(10)
        self.process.stdout.close()


@pytest.fixture(scope="module")
def nursery():
    nursery = ProcessPool()
    yield nursery
    nursery.close()


@pytest.fixture(scope="module")
def recipe_file(toy, tmp_path_factory):
    file = tmp_path_factory.mktemp("recipes") / "toy.py"
    file.write_text(RECIPE.format(folder=str(toy), steps=STEPS, save=SAVE))
    return str(file)


@pytest.fixture(scope="module")
def undisturbed(nursery, recipe_file, tmp_path_factory):
    """The undisturbed run, and how long it takes."""
    folder = tmp_path_factory.mktemp("undisturbed")
    began = time.monotonic()
    assert nursery.wait(nursery.start(recipe_file, folder / "run", folder / "log")) == 0, (folder / "log").read_text()
    return folder / "run", time.monotonic() - began


def strays(out):
    """Return half-written or temporarily moved files and folders."""
    found = []
    for folder, folders, files in os.walk(out):  # which does not mind that things vanish meanwhile
        here = [name for name in (*folders, *files) if re.fullmatch(r"\..+\.(part|new|old)", name)]
        found += [Path(folder) / name for name in here]
        folders[:] = [name for name in folders if name not in here]
    return found


def saves(out):
    return sorted(path for path in (out / "checkpoints").glob("st?p-*"))


def wait_for(sign, pid, seconds=30.0):
    """Wait until something is seen, or the process is gone."""
    began = time.monotonic()
    while not sign():
        assert time.monotonic() - began < seconds, "it hangs"
        if not alive(pid):
            return False
        time.sleep(0.001)
    return True


def alive(pid):
    """Return whether a process still runs; one that has ended but was not waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def assert_nothing_is_lost(out):
    """Check the folder at the moment of a kill."""
    assert [f"{path.name}: {find_damage(path)}" for path in saves(out) if find_damage(path) is not None] == []
    assert len(strays(out)) <= 2  # a new thing, and the old one that it is about to replace
    logged = max((row["step"] for row in read_rows(out / "metrics.jsonl")), default=0)
    newest = Checkpoints(out / "checkpoints").newest()
    saved = int(newest.name.split("-")[1]) if newest else 0
    assert saved >= (logged - 1) // SAVE * SAVE  # an update is logged only after the checkpoint before it was saved


def run_with_kills(nursery, recipe, out, moments):
    """Start, wait for the moment, kill, check; again for each moment, then run to the end.

    Returns how many were killed, and how many of them while a checkpoint was being written.
    """
    killed, within, log = 0, 0, out.with_suffix(".log")
    for moment in moments:
        pid = nursery.start(recipe, out, log)
        moment(out, pid)
        if alive(pid):
            os.kill(pid, signal.SIGKILL)
        status = nursery.wait(pid)
        assert status in (0, -signal.SIGKILL), log.read_text()
        assert_nothing_is_lost(out)
        if status == 0:
            break
        killed += 1
        within += any(path.is_dir() for path in strays(out))
    assert nursery.wait(nursery.start(recipe, out, log)) == 0, log.read_text()
    assert strays(out) == []
    return killed, within


def at_random(dice, span):
    """Return after a random time."""
    delay = dice.uniform(0, span)
    return lambda out, pid: time.sleep(delay)


def in_a_checkpoint(dice):
    """Return while a checkpoint is being written."""
    delay = dice.uniform(0, 8 * SLOW)

    def moment(out, pid):
        before = set(strays(out))
        if wait_for(lambda: [path for path in strays(out) if path.is_dir() and path not in before], pid):
            time.sleep(delay)

    return moment


@pytest.mark.long
def test_a_run_that_is_killed_three_times_ends_at_the_same_bits(nursery, recipe_file, undisturbed, tmp_path):
    straight, seconds = undisturbed
    dice, out = random.Random(1), tmp_path / "run"
    moments = [in_a_checkpoint(dice), at_random(dice, seconds / 2), in_a_checkpoint(dice)]
    killed, within = run_with_kills(nursery, recipe_file, out, moments)
    assert killed == 3
    assert within > 0
    assert_equal_runs(straight, out, f"step-{STEPS:08d}")


@pytest.mark.long
def test_runs_that_are_killed_fifty_times_end_at_the_same_bits(nursery, recipe_file, undisturbed, tmp_path):
    straight, seconds = undisturbed
    dice, killed, within, life = random.Random(2), 0, 0, 0
    while killed < 50:
        out = tmp_path / f"run{life}"
        moments = [dice.choice((at_random(dice, seconds), in_a_checkpoint(dice))) for _ in range(min(12, 50 - killed))]
        for_it, meanwhile = run_with_kills(nursery, recipe_file, out, moments)
        killed, within = killed + for_it, within + meanwhile
        assert_equal_runs(straight, out, f"step-{STEPS:08d}")
        life += 1
    assert within > 10


def test_a_killed_command_resumes_when_it_is_run_again(nursery, recipe_file, undisturbed, tmp_path):
    """As a user would: the command in its own process, killed while it writes its second checkpoint."""
    out, env = tmp_path / "run", os.environ | {"OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "regard.training", recipe_file, "train.save_interval=1", "--out", str(out)]
    quiet = subprocess.DEVNULL
    process = subprocess.Popen(command, env=env, stdout=quiet, stderr=quiet)
    assert wait_for(lambda: saves(out) and strays(out), process.pid, 60)
    process.kill()
    assert process.wait(60) == -signal.SIGKILL
    assert [find_damage(path) for path in saves(out)] == [None] * len(saves(out))
    log = tmp_path / "log"
    words = ["--resume", "--out", str(out), f"train.save_interval={SAVE}"]
    assert nursery.wait(nursery.ask(words=words, log=str(log), slow=0)) == 0, log.read_text()
    assert re.search(r"resumed from update [1-9]", log.read_text())
    assert strays(out) == []
    assert rows(out) == rows(undisturbed[0])


@pytest.mark.long
def test_a_second_start_does_not_disturb_a_running_one(nursery, recipe_file, undisturbed, tmp_path):
    out, log, second = tmp_path / "run", tmp_path / "log", tmp_path / "second"
    pid = nursery.start(recipe_file, out, log)
    assert wait_for(lambda: [path for path in strays(out) if path.is_dir()], pid)
    os.kill(pid, signal.SIGSTOP)  # in the middle of a checkpoint
    half = strays(out)
    try:
        assert nursery.wait(nursery.start(recipe_file, out, second)) == 1
        assert f"error: another process is training into {out} right now" in second.read_text()
        assert strays(out) == half
    finally:
        os.kill(pid, signal.SIGCONT)
    assert nursery.wait(pid) == 0, log.read_text()
    assert_equal_runs(undisturbed[0], out, f"step-{STEPS:08d}")

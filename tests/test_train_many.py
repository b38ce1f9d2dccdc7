"""Many recipes train side by side until the time is up, and what was trained is evaluated."""

import importlib.util
import json
import sys
from pathlib import Path

import pytest

from regard.training.recipe import load_recipe, override_recipe

spec = importlib.util.spec_from_file_location("train_many", Path(__file__).parents[1] / "scripts/train_many.py")
train_many = importlib.util.module_from_spec(spec)
sys.modules["train_many"] = train_many
spec.loader.exec_module(train_many)

# In place of `regard`: a recipe called slow trains until it is interrupted, one called wrong fails.
FAKE = """
import sys, time
from pathlib import Path
words = sys.argv[1:]
if words[0] == "eval":
    Path(words[3]).write_text("{}")
elif words[1] == "wrong":
    sys.exit(1)
else:
    folder = Path(words[-1])
    folder.mkdir(exist_ok=True)
    (folder / "words").write_text(" ".join(words))
    if words[1] == "slow":
        try:
            time.sleep(60)
        except KeyboardInterrupt:
            (folder / "interrupted").touch()
"""


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Run jobs; return the folder of the runs and the summary."""
    monkeypatch.setattr(train_many, "RESERVE", 0.0)
    monkeypatch.setattr(train_many, "LEAST", 0.5)

    def run(jobs, seconds=30.0, slots=2, fault=lambda job: ""):
        file, out = tmp_path / "jobs.json", tmp_path / "runs"
        file.write_text(json.dumps(jobs))
        train_many.Queue(file, out, seconds / 60, slots, [sys.executable, "-c", FAKE], fault).run(pause=0.02)
        return out, (out / "summary.txt").read_text()

    return run


def job(name, recipe="quick", **settings):
    return {"name": name, "recipe": recipe, "minutes": 1, **settings}


def test_what_was_trained_is_evaluated_and_a_failure_stops_nothing(run):
    out, summary = run([job("first", set=["train.seed=3"]), job("second", "wrong"), job("third")], slots=1)
    assert (out / "first/evaluation.json").exists()
    assert (out / "third/evaluation.json").exists()
    assert "second: train ended with status 1" in summary
    assert not (out / "second").exists()
    words = (out / "first/words").read_text()
    assert words.startswith("train quick train.seed=3 train.budget_minutes=")
    assert summary.index("first: eval") < summary.index("second: train") < summary.index("third: train")


def test_schedules_end_before_the_time_is_up(run):
    out, _ = run([job("one")], seconds=12)
    budget = float((out / "one/words").read_text().split("budget_minutes=")[1].split()[0])
    assert 0.1 < budget <= 0.2


def test_when_the_time_is_up_runs_are_interrupted_and_none_begins(run):
    out, summary = run([job("one", "slow"), job("two")], seconds=5, slots=1)
    assert (out / "one/interrupted").exists()
    assert "one: train interrupted" in summary
    assert not (out / "two").exists()


def test_a_job_waits_for_its_data(run, tmp_path, monkeypatch):
    monkeypatch.setenv("REGARD_DATA", str(tmp_path / "data"))
    (tmp_path / "data/camvid").mkdir(parents=True)
    one, two = (job(name, "copy", set=[], needs=[needs]) for name, needs in (("one", "camvid"), ("two", "bccd")))
    out, summary = run([one, two], seconds=3, fault=train_many.find_fault)
    assert (out / "one").exists()
    assert not (out / "two").exists()
    assert summary.count("two: waits: no dataset 'bccd'") == 1


def test_what_is_wrong_with_jobs_is_said_before_anything_runs(tmp_path, monkeypatch, capsys):
    """Nothing but the images as JPEG in a folder cifar10, for a recipe that reads the lossless ones: found by name."""
    monkeypatch.setenv("REGARD_DATA", str(tmp_path / "data"))
    (tmp_path / "data/cifar10").mkdir(parents=True)
    (tmp_path / "data/cifar10/cifar10_jpeg.npz").touch()
    jobs = [job("good", "copy"), job("bad", "lra_pixels", needs=["cifar10"]), job("bad", "copy", set=["model.x=1"])]
    (tmp_path / "jobs.json").write_text(json.dumps([*jobs, {"name": "short", "recipe": "no_such", "set": []}]))
    with pytest.raises(SystemExit) as ended:
        train_many.main([str(tmp_path / "jobs.json"), "--check"])
    assert ended.value.code == 1
    said = capsys.readouterr().out
    assert "2. bad: no lossless CIFAR-10" in said
    assert "3. bad: " in said
    assert "4. short: unknown or missing fields: minutes" in said
    assert "bad: the name is there twice" in said
    assert "4 jobs, 4 faults" in said
    assert "good" not in said


def test_the_same_command_goes_on_where_it_was(run, tmp_path):
    """What was evaluated is left alone; what was begun is resumed."""
    run([job("one")])
    (tmp_path / "runs/two").mkdir()
    (tmp_path / "runs/two/recipe.json").touch()
    out, summary = run([job("one"), job("two")])
    assert "one: was evaluated before" in summary
    assert (out / "two/words").read_text() == f"train --resume --out {out / 'two'}"


def test_a_job_that_hangs_leaves_its_place_to_the_next(run, monkeypatch):
    monkeypatch.setattr(train_many, "OVERTIME", -59.0)
    out, summary = run([job("one", "slow"), job("two")], slots=1)
    assert "one: train interrupted after" in summary
    assert (out / "one/interrupted").exists()
    assert (out / "two/evaluation.json").exists()


def test_every_owed_job_has_a_recipe_that_takes_its_settings():
    jobs = json.loads((Path(__file__).parents[1] / "scripts/owed.json").read_text())
    assert len({each["name"] for each in jobs}) == len(jobs)
    for each in jobs:
        assert each.keys() <= {"name", "recipe", "minutes", "set", "needs", "device"}
        recipe = override_recipe(load_recipe(each["recipe"]), each["set"])
        assert recipe.train.device == each.get("device", "auto"), each["name"]


def test_a_file_that_is_being_written_is_read_again_later(run, monkeypatch):
    texts = [json.dumps([job("first")]), '[{"name": "fir', json.dumps([job("first"), job("second")])]
    monkeypatch.setattr(train_many.json, "loads", lambda _: loads(texts.pop(0) if len(texts) > 1 else texts[0]))
    loads = json.JSONDecoder().decode
    out, _ = run([job("first")])
    assert (out / "second/evaluation.json").exists()


def test_jobs_do_not_outlive_the_script(run, tmp_path, monkeypatch):
    def fails(self):
        if (self.out / "one/words").exists():
            raise ValueError("a bug")

    monkeypatch.setattr(train_many.Queue, "_collect", fails)
    with pytest.raises(ValueError, match="a bug"):
        run([job("one", "slow")])
    assert "one: train interrupted" in (tmp_path / "runs/summary.txt").read_text()

import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parents[2] / "docs"


@pytest.fixture
def owed(monkeypatch):
    monkeypatch.syspath_prepend(str(HERE))
    import run_owed

    return run_owed


def test_seeds_and_folders_are_filled_in_and_what_is_recorded_is_left_out(owed, tmp_path, monkeypatch):
    monkeypatch.setattr(owed, "RECORDS", tmp_path)
    (tmp_path / "bert-sst2-pretrained-2.json").write_text("{}")
    found = owed.jobs(["bert-sst2-pretrained"], Path("out"))
    assert [job.name for job in found] == ["bert-sst2-pretrained-1", "bert-sst2-pretrained-3"]
    assert found[1].folder == Path("out/bert-sst2-pretrained-3")
    assert found[1].needs == {Path("out/bert")}
    assert "train.init_from=out/bert train.seed=3 --out out/bert-sst2-pretrained-3" in found[1].train


def test_a_run_waits_for_what_it_begins_with_and_is_left_where_that_failed(owed, tmp_path, monkeypatch, capsys):
    order = tmp_path / "order"
    first = owed.Job("first", None, tmp_path / "first", "", frozenset())
    after = owed.Job("after", None, tmp_path / "after", "", frozenset({first.folder}))
    commands = {"first": f"sleep 0.7; echo first >> {order}", "after": f"echo after >> {order}"}
    monkeypatch.setattr(owed, "line", lambda job, machine: commands[job.name])
    assert owed.work([after, first], 2, 60, None, tmp_path) == 0
    assert order.read_text().split() == ["first", "after"]
    commands["first"] = "exit 3"
    assert owed.work([after, first], 2, 60, None, tmp_path) == 2
    assert order.read_text().split() == ["first", "after"]
    assert "left" in capsys.readouterr().out


def test_runs_are_stopped_when_time_is_up(owed, tmp_path, monkeypatch):
    job = owed.Job("long", None, tmp_path / "long", "", frozenset())
    monkeypatch.setattr(owed, "line", lambda job, machine: "sleep 60")
    assert owed.work([job], 1, 0.8, None, tmp_path) == 1


def test_every_owed_run_is_a_command_with_a_folder(owed, tmp_path, monkeypatch):
    monkeypatch.setattr(owed, "RECORDS", tmp_path)
    found = owed.jobs([], Path("runs"))
    assert len(found) > 60
    assert len({job.name for job in found}) == len({job.folder for job in found}) == len(found)
    (deit,) = [job for job in found if job.name == "deit-cifar10-2"]
    assert deit.needs == {Path("runs/resnet")}
    line = owed.line(deit, None).replace(sys.executable, "")
    assert "make_results.py add runs/deit-cifar10-2 --name deit-cifar10-2" in line


def test_the_runs_of_the_figure_of_shares_differ_in_their_images_alone(owed, tmp_path, monkeypatch):
    monkeypatch.setattr(owed, "RECORDS", tmp_path)
    found = owed.jobs(["fraction-*"], Path("runs"))
    assert {job.name: job.train for job in found} == {
        name: f"regard train {model}_cifar10 data.train_fraction={share} --out runs/{name}"
        for model in ("vit", "resnet")
        for name, share in ((f"fraction-{model}-5", 0.05), (f"fraction-{model}-20", 0.2), (f"fraction-{model}-50", 0.5))
    }

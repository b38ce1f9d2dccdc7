"""Loggers: TensorBoard reads the event files, a stub stands in for W&B, and no row is logged twice."""

import json
import math
import sys
import types

import pytest

from regard.core.errors import BadInput, UnknownName, Unsupported
from regard.training.loggers.base import Loggers
from regard.training.loggers.progress import MetricsFile

ROWS = [
    {"step": 50, "epoch": 0, "tokens": 1000, "loss": 4.5, "lr": 1e-3, "seconds": 1.5},
    {"step": 100, "epoch": 1, "tokens": 2000, "loss": 3.25, "lr": 2e-3, "seconds": 3.0},
    {"step": 100, "epoch": 1, "val_loss": 3.5, "bleu": 12.0, "bleu_signature": "nrefs:1"},
    {"step": 150, "epoch": 1, "tokens": 3000, "loss": math.nan, "lr": 2e-3, "seconds": 4.5},
]


def run(folder, names, upto, rows, recipe=None):
    """A run that is resumed from update `upto` and logs these rows."""
    metrics, loggers = MetricsFile(folder / "metrics.jsonl", upto), Loggers(folder, names, recipe or {"name": "tiny"})
    for row in rows:
        metrics.add(row)
        loggers.add(row)
    loggers.close()


def event_file(folder):
    (file,) = (folder / "tensorboard").iterdir()
    return file


@pytest.fixture
def loader():
    """Returns the events that TensorBoard reads from a run's folder."""
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    def load(folder):
        found = EventAccumulator(str(folder / "tensorboard"), size_guidance={"scalars": 0})
        found.Reload()
        return found

    return load


def steps_and_times(file):
    """Step and time of every row in an event file: of its first number."""
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

    events = [
        (e.step, e.wall_time, e.summary.value[0].tag) for e in EventFileLoader(str(file)).Load() if e.summary.value
    ]
    return [(step, time) for step, time, tag in events if tag in ("loss", "val_loss", "recipe/text_summary")]


def test_tensorboard_reads_the_curves_and_the_recipe(tmp_path, loader):
    run(tmp_path, ("tensorboard",), 0, ROWS, {"name": "winzig — tiny", "train": {"rate": 0.001}})
    found = loader(tmp_path)
    assert set(found.Tags()["scalars"]) == {"loss", "lr", "val_loss", "bleu"}  # no clocks, no text
    assert [(e.step, e.value) for e in found.Scalars("loss")][:2] == [(50, 4.5), (100, 3.25)]
    assert math.isnan(found.Scalars("loss")[2].value)
    assert [(e.step, e.value) for e in found.Scalars("bleu")] == [(100, 12.0)]
    (text,) = found.Tensors("recipe/text_summary")
    assert json.loads(text.tensor_proto.string_val[0])["name"] == "winzig — tiny"


def test_a_resumed_run_has_every_row_once_in_tensorboard_with_its_own_time(tmp_path, loader, monkeypatch):
    monkeypatch.setattr("time.time", lambda: 1000.0)
    run(tmp_path, ("tensorboard",), 0, ROWS)
    with open(event_file(tmp_path), "ab") as file:
        file.write(b"\x99" * 7)  # killed while writing
    monkeypatch.setattr("time.time", lambda: 2000.0)
    run(tmp_path, ("tensorboard",), 100, [ROWS[3]])  # its checkpoint is of update 100
    assert steps_and_times(event_file(tmp_path)) == [
        (0, 1000.0), (50, 1000.0), (100, 1000.0), (100, 1000.0), (150, 2000.0)
    ]  # fmt: skip


def test_a_logger_added_later_gets_the_rows_before_it(tmp_path, loader):
    run(tmp_path, (), 0, ROWS[:2])
    run(tmp_path, ("tensorboard",), 100, ROWS[2:])
    assert [step for step, _ in steps_and_times(event_file(tmp_path))] == [0, 50, 100, 100, 150]


def test_numbers_too_large_for_the_file_are_infinite(tmp_path, loader):
    run(tmp_path, ("tensorboard",), 0, [{"step": 2**40, "loss": 1e300, "bleu": -1e300}])
    found = loader(tmp_path)
    assert [(e.step, e.value) for e in found.Scalars("loss")] == [(2**40, math.inf)]
    assert [e.value for e in found.Scalars("bleu")] == [-math.inf]


def test_rows_are_readable_while_the_run_resumes(tmp_path, loader):
    loggers = Loggers(tmp_path, ("tensorboard",), {})
    loggers.add(ROWS[0])
    assert [e.step for e in loader(tmp_path).Scalars("loss")] == [50]
    loggers.close()


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path, loader):
    (tmp_path / "tensorboard").write_text("a file")
    with pytest.raises(BadInput, match="cannot write"):
        Loggers(tmp_path, ("tensorboard",), {})


def test_tensorboard_that_is_not_installed_is_one_line(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(Unsupported, match=r"pip install 'regard\[tensorboard\]'"):
        Loggers(tmp_path, ("tensorboard",), {})


def test_an_unknown_logger_offers_the_nearest():
    with pytest.raises(UnknownName, match="tensorboard"):
        Loggers("anywhere", ("tensorbord",), {})


def test_no_loggers_write_nothing(tmp_path):
    run(tmp_path, (), 0, ROWS)
    assert [p.name for p in tmp_path.iterdir()] == ["metrics.jsonl"]


# -- Weights & Biases --------------------------------------------------------------------------------------------------


class FakeWandb(types.ModuleType):
    """The part of the package that we use."""

    def __init__(self, address="http://127.0.0.1:9"):
        super().__init__("wandb")
        self.__spec__ = types.SimpleNamespace(name="wandb")
        self.started, self.logged, self.finished = [], [], 0
        self.Settings = lambda: types.SimpleNamespace(base_url=address)

    def init(self, **settings):
        self.started.append(settings)
        return self

    def log(self, values, step):
        self.logged.append((step, values))

    def finish(self):
        self.finished += 1


@pytest.fixture
def wandb(monkeypatch):
    stub = FakeWandb()
    monkeypatch.setitem(sys.modules, "wandb", stub)
    monkeypatch.delenv("WANDB_MODE", raising=False)
    return stub


def test_wandb_gets_every_row_once_also_when_a_run_is_resumed(tmp_path, wandb):
    run(tmp_path, ("wandb",), 0, ROWS[:3])
    run(tmp_path, ("wandb",), 50, ROWS[1:])
    assert [step for step, _ in wandb.logged] == [50, 100, 100, 150]
    assert wandb.logged[0][1] == {"loss": 4.5, "lr": 1e-3}
    assert wandb.started[0]["id"] == wandb.started[1]["id"]
    assert wandb.started[0]["config"] == {"name": "tiny"}
    assert wandb.finished == 2


def test_wandb_is_offline_without_its_server_unless_the_environment_says_otherwise(tmp_path, wandb, monkeypatch):
    Loggers(tmp_path, ("wandb",), {})
    monkeypatch.setenv("WANDB_MODE", "disabled")
    Loggers(tmp_path, ("wandb",), {})
    assert [settings["mode"] for settings in wandb.started] == ["offline", "disabled"]


def test_wandb_is_online_where_its_server_answers(tmp_path, wandb):
    import socket

    with socket.create_server(("127.0.0.1", 0)) as server:
        wandb.Settings = lambda: types.SimpleNamespace(base_url=f"http://127.0.0.1:{server.getsockname()[1]}")
        Loggers(tmp_path, ("wandb",), {})
    assert wandb.started[0]["mode"] == "online"


def test_wandb_that_is_not_installed_or_refuses_is_one_line(tmp_path, wandb, monkeypatch):
    def refuse(**settings):
        raise RuntimeError("api_key not configured\nmore")

    wandb.init = refuse
    with pytest.raises(BadInput, match="api_key not configured; set WANDB_MODE=offline"):
        Loggers(tmp_path, ("wandb",), {})
    monkeypatch.delitem(sys.modules, "wandb")
    monkeypatch.setattr("regard.training.loggers.wandb.find_spec", lambda name: None)
    with pytest.raises(Unsupported, match="pip install wandb"):
        Loggers(tmp_path, ("wandb",), {})

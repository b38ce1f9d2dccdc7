"""Writers: event files that TensorBoard reads, W&B by a stand-in, and no row told twice."""

import json
import math
import sys
import types

import pytest

from regard.core.errors import BadInput, UnknownName, Unsupported
from regard.training.loggers import tensorboard_events
from regard.training.loggers.loggers import Loggers
from regard.training.loggers.progress import MetricsFile

ROWS = [
    {"step": 50, "epoch": 0, "tokens": 1000, "loss": 4.5, "lr": 1e-3, "seconds": 1.5},
    {"step": 100, "epoch": 1, "tokens": 2000, "loss": 3.25, "lr": 2e-3, "seconds": 3.0},
    {"step": 100, "epoch": 1, "val_loss": 3.5, "bleu": 12.0, "bleu_signature": "nrefs:1"},
    {"step": 150, "epoch": 1, "tokens": 3000, "loss": math.nan, "lr": 2e-3, "seconds": 4.5},
]


def run(folder, names, upto, rows, recipe=None):
    """A run that goes on from update `upto` and has these rows to say."""
    metrics, writers = MetricsFile(folder / "metrics.jsonl", upto), Loggers(folder, names, recipe or {"name": "tiny"})
    for row in rows:
        metrics.add(row)
        writers.add(row)
    writers.close()


def the_file(folder):
    (file,) = (folder / "tensorboard").iterdir()
    return file


def seen_by_tensorboard(folder):
    loading = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    found = loading.EventAccumulator(str(folder / "tensorboard"), size_guidance={"scalars": 0})
    found.Reload()
    return found


def test_a_record_is_what_tensorboard_itself_writes():
    theirs = (
        "2600000000000000734fe30009000000000000f83f10ac022a180a0b0a046c6f7373150000803e0a090a026c72156f12833a984ad68f"
    )
    assert tensorboard_events.scalars_record(1.5, 300, {"loss": 0.25, "lr": 1e-3}).hex() == theirs


def test_checksum_is_crc_32c():
    crc = 0xE3069283  # of "123456789", as published
    assert tensorboard_events.checksum(b"123456789") == ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def test_tensorboard_reads_the_curves_and_the_recipe(tmp_path):
    run(tmp_path, ("tensorboard",), 0, ROWS, {"name": "winzig — tiny", "train": {"rate": 0.001}})
    found = seen_by_tensorboard(tmp_path)
    assert set(found.Tags()["scalars"]) == {"loss", "lr", "val_loss", "bleu"}  # no clocks, no words
    assert [(e.step, e.value) for e in found.Scalars("loss")][:2] == [(50, 4.5), (100, 3.25)]
    assert math.isnan(found.Scalars("loss")[2].value)
    assert [(e.step, e.value) for e in found.Scalars("bleu")] == [(100, 12.0)]
    (text,) = found.Tensors("recipe/text_summary")
    assert json.loads(text.tensor_proto.string_val[0])["name"] == "winzig — tiny"


def test_a_run_that_goes_on_has_every_row_once_in_tensorboard_with_its_own_time(tmp_path, monkeypatch):
    monkeypatch.setattr("time.time", lambda: 1000.0)
    run(tmp_path, ("tensorboard",), 0, ROWS)
    with open(the_file(tmp_path), "ab") as file:
        file.write(b"\x99" * 7)  # killed while writing
    monkeypatch.setattr("time.time", lambda: 2000.0)
    run(tmp_path, ("tensorboard",), 100, [ROWS[3]])  # its checkpoint is of update 100
    assert list(tensorboard_events.read_steps_and_times(the_file(tmp_path).read_bytes())) == [
        (0, 1000.0), (0, 1000.0), (50, 1000.0), (100, 1000.0), (100, 1000.0), (150, 2000.0)
    ]  # fmt: skip


def test_a_writer_that_comes_later_is_told_of_the_rows_before_it(tmp_path):
    run(tmp_path, (), 0, ROWS[:2])
    run(tmp_path, ("tensorboard",), 100, ROWS[2:])
    assert [step for step, _ in tensorboard_events.read_steps_and_times(the_file(tmp_path).read_bytes())] == [
        0,
        0,
        50,
        100,
        100,
        150,
    ]


def test_numbers_too_large_for_the_file_are_infinite(tmp_path):
    run(tmp_path, ("tensorboard",), 0, [{"step": 2**40, "loss": 1e300, "bleu": -1e300}])
    found = seen_by_tensorboard(tmp_path)
    assert [(e.step, e.value) for e in found.Scalars("loss")] == [(2**40, math.inf)]
    assert [e.value for e in found.Scalars("bleu")] == [-math.inf]


def test_records_end_at_the_first_that_is_damaged():
    content = (
        tensorboard_events.file_header(1.0)
        + tensorboard_events.scalars_record(1.0, 5, {"a": 1})
        + tensorboard_events.scalars_record(1.0, 6, {"a": 1})
    )
    assert [step for step, _ in tensorboard_events.read_steps_and_times(content)] == [0, 5, 6]
    assert [step for step, _ in tensorboard_events.read_steps_and_times(content[:-1])] == [0, 5]
    broken = bytearray(content)
    broken[len(tensorboard_events.file_header(1.0)) + 15] ^= 1
    assert [step for step, _ in tensorboard_events.read_steps_and_times(bytes(broken))] == [0]


def test_a_locked_file_is_one_line(tmp_path):
    writers = Loggers(tmp_path, ("tensorboard",), {})
    file = the_file(tmp_path)
    file.unlink()
    file.mkdir()
    with pytest.raises(BadInput, match="cannot write"):
        writers.add(ROWS[0])


def test_an_unknown_writer_offers_the_nearest():
    with pytest.raises(UnknownName, match="tensorboard"):
        Loggers("anywhere", ("tensorbord",), {})


def test_no_writers_write_nothing(tmp_path):
    run(tmp_path, (), 0, ROWS)
    assert [p.name for p in tmp_path.iterdir()] == ["metrics.jsonl"]


# -- Weights & Biases --------------------------------------------------------------------------------------------------


class Stand(types.ModuleType):
    """What we use of the package."""

    def __init__(self, address="http://127.0.0.1:9"):
        super().__init__("wandb")
        self.__spec__ = types.SimpleNamespace(name="wandb")
        self.begun, self.logged, self.finished = [], [], 0
        self.Settings = lambda: types.SimpleNamespace(base_url=address)

    def init(self, **given):
        self.begun.append(given)
        return self

    def log(self, values, step):
        self.logged.append((step, values))

    def finish(self):
        self.finished += 1


@pytest.fixture
def wandb(monkeypatch):
    stand = Stand()
    monkeypatch.setitem(sys.modules, "wandb", stand)
    monkeypatch.delenv("WANDB_MODE", raising=False)
    return stand


def test_wandb_is_told_every_row_once_also_when_a_run_goes_on(tmp_path, wandb):
    run(tmp_path, ("wandb",), 0, ROWS[:3])
    run(tmp_path, ("wandb",), 50, ROWS[1:])
    assert [step for step, _ in wandb.logged] == [50, 100, 100, 150]
    assert wandb.logged[0][1] == {"loss": 4.5, "lr": 1e-3}
    assert wandb.begun[0]["id"] == wandb.begun[1]["id"]
    assert wandb.begun[0]["config"] == {"name": "tiny"}
    assert wandb.finished == 2


def test_wandb_is_offline_without_its_server_unless_told_otherwise(tmp_path, wandb, monkeypatch):
    Loggers(tmp_path, ("wandb",), {})
    monkeypatch.setenv("WANDB_MODE", "disabled")
    Loggers(tmp_path, ("wandb",), {})
    assert [given["mode"] for given in wandb.begun] == ["offline", "disabled"]


def test_wandb_is_online_where_its_server_answers(tmp_path, wandb):
    import socket

    with socket.create_server(("127.0.0.1", 0)) as server:
        wandb.Settings = lambda: types.SimpleNamespace(base_url=f"http://127.0.0.1:{server.getsockname()[1]}")
        Loggers(tmp_path, ("wandb",), {})
    assert wandb.begun[0]["mode"] == "online"


def test_wandb_that_is_not_installed_or_refuses_is_one_line(tmp_path, wandb, monkeypatch):
    def refuse(**given):
        raise RuntimeError("api_key not configured\nmore")

    wandb.init = refuse
    with pytest.raises(BadInput, match="api_key not configured; set WANDB_MODE=offline"):
        Loggers(tmp_path, ("wandb",), {})
    monkeypatch.delitem(sys.modules, "wandb")
    monkeypatch.setattr("regard.training.loggers.loggers.find_spec", lambda name: None)
    with pytest.raises(Unsupported, match="pip install wandb"):
        Loggers(tmp_path, ("wandb",), {})

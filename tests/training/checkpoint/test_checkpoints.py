"""Checkpoints: one process or many, damage, full disks, kills at any moment."""

import json
import os
import resource
import shutil
import signal
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from regard.core.errors import BadInput
from regard.training.checkpoint.checkpoints import Checkpoints, read_weights, restore_checkpoint, save_weights
from regard.training.checkpoint.manifest import FORMAT, find_damage, read_manifest, seal_manifest
from regard.training.parallel.distributed import DistributedContext
from regard.training.weight_averaging import average_weights
from tests.training import checkpoint_ranks
from tests.training.run_ranks import together
from tests.training.test_resume import assert_equal_runs, everything

HERE = Path(__file__).resolve()
ALONE = DistributedContext(torch.device("cpu"))


def groups(step=0):
    """Every kind of tensor that a run may hold."""
    torch.manual_seed(int(step))
    return {
        "model": {
            "w": torch.randn(5, 7) + step,
            "half": torch.randn(3).bfloat16(),
            "count": torch.tensor(int(step)),
            "on": torch.tensor([True, False, True]),
            "none": torch.empty(0, 3),
            "turned": torch.randn(4, 3).t(),
        },
        "optimizer": {"moments/w/exp_avg": torch.randn(5, 7), "moments/w/step": torch.tensor(float(step))},
    }


def zeros(some):
    return {group: {name: torch.zeros_like(x) for name, x in tensors.items()} for group, tensors in some.items()}


def save(kept, step, regular=True, **more):
    return kept.save(step, groups(step), {"step": step}, {"dice": torch.arange(step)}, regular, **more)


def same(a, b):
    return a.keys() == b.keys() and all(a[n].dtype == b[n].dtype and torch.equal(a[n], b[n]) for n in a)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


# -- one process -------------------------------------------------------------------------------------------------------


def test_what_was_saved_comes_back_in_place_to_the_bit(tmp_path):
    path = save(Checkpoints(tmp_path), 3)
    assert names(path) == ["manifest.json", "model.safetensors", "optimizer.safetensors", "own-00000.pt", "state.pt"]
    into = zeros(groups())
    kept = {group: dict(tensors) for group, tensors in into.items()}
    state, own = restore_checkpoint(path, into, ALONE)
    assert state == {"step": 3}
    assert torch.equal(own["dice"], torch.arange(3))
    for group in into:
        assert same(into[group], groups(3)[group])
        assert all(into[group][name] is x for name, x in kept[group].items())
        assert same(read_weights(path, group), groups(3)[group])
        assert same(load_file(path / f"{group}.safetensors"), groups(3)[group])  # anybody's safetensors reads it
    manifest = json.loads((path / "manifest.json").read_text())
    assert (manifest["format"], manifest["step"], manifest["ranks"]) == (FORMAT, 3, 1)


def test_newest_stay_complete_averaged_ones_keep_weights_others_are_deleted(tmp_path):
    kept = Checkpoints(tmp_path, keep=2, average=3)
    for step in range(1, 6):
        save(kept, step)
    assert names(tmp_path) == ["step-00000003", "step-00000004", "step-00000005"]
    assert names(tmp_path / "step-00000003") == ["manifest.json", "model.safetensors"]
    assert (tmp_path / "step-00000004" / "state.pt").is_file()
    assert all(find_damage(path) is None for path in tmp_path.iterdir())
    assert kept.newest().name == "step-00000005"
    assert [path.name for path in kept.last(2)] == ["step-00000004", "step-00000005"]
    assert kept.last(0) == []
    found = average_weights(kept.last(3))
    expected = sum(groups(step)["model"]["w"].double() for step in (3, 4, 5)) / 3
    torch.testing.assert_close(found["w"].double(), expected, rtol=0, atol=1e-6)
    assert int(found["count"]) == 5


def test_an_interruption_checkpoint_is_resumed_from_but_not_averaged(tmp_path):
    kept = Checkpoints(tmp_path, keep=1, average=2)
    save(kept, 2)
    save(kept, 4)
    save(kept, 5, regular=False)
    assert kept.newest().name == "stop-00000005"
    assert [path.name for path in kept.last(2)] == ["step-00000002", "step-00000004"]
    save(kept, 6)
    assert names(tmp_path) == ["step-00000004", "step-00000006"]


def test_weights_alone_are_nothing_to_resume_from(tmp_path):
    kept = Checkpoints(tmp_path, keep=1, average=2)
    save(kept, 1)
    save(kept, 2)
    shutil.rmtree(tmp_path / "step-00000002")
    assert kept.newest() is None
    assert same(read_weights(tmp_path / "step-00000001"), groups(1)["model"])
    with pytest.raises(BadInput, match="holds no 'optimizer'"):
        read_weights(tmp_path / "step-00000001", "optimizer")


def test_empty_and_missing_folders_have_no_checkpoint(tmp_path):
    assert Checkpoints(tmp_path).newest() is None
    assert Checkpoints(tmp_path / "none").newest() is None
    assert Checkpoints(tmp_path / "none").last(3) == []
    (tmp_path / "step-notes").mkdir()
    (tmp_path / "step-00000001").write_text("a file")
    assert Checkpoints(tmp_path).newest() is None


# -- damage ------------------------------------------------------------------------------------------------------------

FILES = ["model.safetensors", "optimizer.safetensors", "own-00000.pt", "state.pt", "manifest.json"]


def flip(file, at=0.5):
    content = bytearray(file.read_bytes())
    content[int(at * (len(content) - 1))] ^= 16
    file.write_bytes(content)


DAMAGE = {
    "a byte": flip,
    "the first byte": lambda file: flip(file, 0),
    "the last byte": lambda file: flip(file, 1),
    "cut off": lambda file: os.truncate(file, file.stat().st_size // 2),
    "one byte short": lambda file: os.truncate(file, file.stat().st_size - 1),
    "longer": lambda file: file.write_bytes(file.read_bytes() + b"\n "),
    "empty": lambda file: file.write_bytes(b""),
    "zeros": lambda file: file.write_bytes(bytes(file.stat().st_size)),
    "missing": lambda file: file.unlink(),
}


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_checkpoint_is_passed_over_and_that_is_reported(tmp_path, file, damage):
    kept, lines = Checkpoints(tmp_path), []
    save(kept, 1)
    path = save(kept, 2)
    before = (path / file).read_bytes()
    DAMAGE[damage](path / file)
    if file == "manifest.json" and damage in ("one byte short", "longer", "the last byte"):
        assert (path / file).read_bytes().strip() == before.strip() or kept.newest().name == "step-00000001"
        return  # white space at its end means nothing
    assert kept.newest(lines.append).name == "step-00000001"
    assert len(lines) == 1
    assert "step-00000002 is skipped" in lines[0]
    assert file in lines[0]
    assert "\n" not in lines[0]
    shutil.rmtree(tmp_path / "step-00000001")
    with pytest.raises(BadInput, match=r"no checkpoint in .* can be resumed from") as error:
        kept.newest()
    assert "\n" not in str(error.value)


def test_every_byte_of_a_checkpoint_counts(tmp_path):
    path = Checkpoints(tmp_path).save(1, {"model": {"w": torch.ones(3)}}, {"step": 1}, {})
    for file in path.iterdir():
        content = file.read_bytes()
        for at in range(0, len(content) - 1, 7):
            file.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
            problem = find_damage(path)
            if problem is None:  # only white space between the words of the manifest may change
                assert file.name == "manifest.json"
                assert chr(content[at]).isspace()
        file.write_bytes(content)
    assert find_damage(path) is None


def test_what_is_damaged_is_not_read_nor_averaged(tmp_path):
    kept = Checkpoints(tmp_path, keep=3, average=3)
    for step in (1, 2, 3):
        save(kept, step)
    flip(tmp_path / "step-00000002" / "model.safetensors", 0.9)
    with pytest.raises(BadInput, match=r"model\.safetensors is damaged"):
        read_weights(tmp_path / "step-00000002")
    assert same(read_weights(tmp_path / "step-00000002", "optimizer"), groups(2)["optimizer"])
    assert [path.name for path in kept.last(2)] == ["step-00000001", "step-00000003"]


def test_resuming_before_a_damaged_checkpoint_keeps_the_new_ones_and_deletes_it(tmp_path):
    kept = Checkpoints(tmp_path, keep=1, average=1)
    save(kept, 4)
    flip(tmp_path / "step-00000004" / "state.pt")
    save(kept, 3)
    assert names(tmp_path) == ["step-00000003"]
    save(kept, 4)
    flip(tmp_path / "step-00000004" / "state.pt")
    save(kept, 4)  # in place of a damaged one of that name
    assert names(tmp_path) == ["step-00000004"]
    assert kept.newest().name == "step-00000004"


def test_damaged_checkpoints_do_not_count_as_kept(tmp_path):
    kept = Checkpoints(tmp_path, keep=2, average=1)
    save(kept, 4)
    save(kept, 7, regular=False)
    flip(tmp_path / "stop-00000007" / "state.pt")
    assert kept.newest().name == "step-00000004"
    save(kept, 8)
    assert names(tmp_path) == ["step-00000004", "step-00000008"]
    assert all(find_damage(path) is None for path in tmp_path.iterdir())


def test_half_a_folder_is_passed_over(tmp_path):
    kept, lines = Checkpoints(tmp_path), []
    save(kept, 1)
    shutil.copytree(save(kept, 2), tmp_path / "step-00000003")
    for name in ("manifest.json", "state.pt"):
        (tmp_path / "step-00000003" / name).unlink()
    (tmp_path / "step-00000004").mkdir()
    assert kept.newest(lines.append).name == "step-00000002"
    assert len(lines) == 2
    with pytest.raises(BadInput, match=r"no manifest\.json"):
        read_weights(tmp_path / "step-00000003")


def test_a_checkpoint_of_an_older_version_is_one_clear_line(tmp_path):
    path = tmp_path / "step-00000007"
    path.mkdir()
    save_file({"w": torch.ones(2)}, path / "model.safetensors")
    torch.save({"step": 7}, path / "state.pt")
    with pytest.raises(BadInput, match=r"no manifest\.json: it is incomplete, or was written by an older version"):
        Checkpoints(tmp_path).newest()
    assert read_weights(path / "model.safetensors")["w"].tolist() == [1, 1]  # what it weighs can be had


def test_a_checkpoint_of_a_newer_format_is_refused_with_the_way_out(tmp_path):
    path = save(Checkpoints(tmp_path), 1)
    manifest = json.loads((path / "manifest.json").read_text())
    (path / "manifest.json").write_text(json.dumps(manifest | {"format": FORMAT + 1}))
    with pytest.raises(BadInput, match="update regard"):
        Checkpoints(tmp_path).newest()


def test_a_checkpoint_of_another_model_is_refused_by_name_and_changes_nothing(tmp_path):
    path, here = save(Checkpoints(tmp_path), 1), zeros(groups())
    here["model"]["new"] = torch.zeros(1)
    del here["model"]["w"]
    with pytest.raises(BadInput, match=r"another model: its model lacks \['new'\], and has unknown \['w'\]"):
        restore_checkpoint(path, here, ALONE)
    del here["model"]["new"]
    here["model"]["w"] = torch.zeros(5, 8)
    with pytest.raises(BadInput, match=r"w is \(5, 7\) in its model, and \(5, 8\) here"):
        restore_checkpoint(path, here, ALONE)
    here["model"]["w"] = torch.zeros(5, 7, dtype=torch.float64)
    with pytest.raises(BadInput, match=r"w is torch.float32 in its model, and torch.float64 here"):
        restore_checkpoint(path, here, ALONE)
    with pytest.raises(BadInput, match="holds no 'ema'"):
        restore_checkpoint(path, {"ema": {}}, ALONE)
    many = {"model": {f"w{i}": torch.zeros(1) for i in range(99)}}
    with pytest.raises(BadInput, match="and 95 more") as error:
        restore_checkpoint(path, many, ALONE)
    assert len(str(error.value)) < 500
    assert not any(x.any() for x in here["model"].values())


def test_a_checkpoint_runs_no_code(tmp_path):
    path = save(Checkpoints(tmp_path), 1)
    torch.save({"x": Evil(str(tmp_path / "owned"))}, path / "state.pt")
    with pytest.raises(BadInput, match=r"state\.pt"):
        restore_checkpoint(path, {}, ALONE)
    assert not (tmp_path / "owned").exists()


class Evil:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (self.path,)


def test_state_that_could_not_be_read_back_is_refused_when_it_is_saved(tmp_path):
    with pytest.raises(BadInput, match="more than plain values and tensors"):
        Checkpoints(tmp_path / "c").save(1, {}, {"path": Path("somewhere")}, {})
    assert list((tmp_path / "c").iterdir()) == []


# -- weights alone -----------------------------------------------------------------------------------------------------


def test_weights_come_back_with_their_words_and_damage_is_seen(tmp_path):
    file, weights = tmp_path / "deep" / "best.safetensors", groups(2)["model"]
    save_weights(file, weights, {"step": "2"})
    assert same(read_weights(file), weights)
    assert same(load_file(file), weights)
    for at in (0.0, 0.3, 0.6, 1.0):
        content = file.read_bytes()
        flip(file, at)
        with pytest.raises(BadInput, match=r"best\.safetensors"):
            read_weights(file)
        file.write_bytes(content)
    save_weights(file, {"w": torch.zeros(1)})  # over the old one
    assert read_weights(file)["w"].tolist() == [0]
    assert names(file.parent) == ["best.safetensors"]


def test_weights_of_somebody_else_are_read_as_they_are(tmp_path):
    save_file({"w": torch.ones(2)}, tmp_path / "theirs.safetensors", metadata={"format": "pt"})
    assert read_weights(tmp_path / "theirs.safetensors")["w"].tolist() == [1, 1]
    (tmp_path / "text.safetensors").write_text("no such thing")
    for name in ("none.safetensors", "text.safetensors"):
        with pytest.raises(BadInput, match=f"cannot read .*{name}"):
            read_weights(tmp_path / name)


# -- disks -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def full_disk():
    """No file of this process may grow beyond a few kilobytes during the test."""
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    signal.signal(signal.SIGXFSZ, handler)


@pytest.mark.parametrize("what", ["model", "state", "own"])
def test_a_full_disk_is_one_line_and_leaves_the_last_checkpoint_whole(tmp_path, what, full_disk):
    kept = Checkpoints(tmp_path)
    save(kept, 1)
    much = torch.zeros(5000)
    params = {"model": groups(2) | {"ema": {"w": much}}} if what == "model" else {"model": groups(2)}
    state, own = ({what: much} if what == name else {} for name in ("state", "own"))
    with pytest.raises(BadInput, match=r"file too large; the run is saved up to .*step-00000001") as error:
        kept.save(2, params["model"], state, own)
    assert "\n" not in str(error.value)
    assert names(tmp_path) == ["step-00000001"]
    assert kept.newest().name == "step-00000001"


def test_a_full_disk_leaves_the_best_weights_as_they_were(tmp_path, full_disk):
    save_weights(tmp_path / "best.safetensors", {"w": torch.ones(2)})
    with pytest.raises(BadInput, match="file too large"):
        save_weights(tmp_path / "best.safetensors", {"w": torch.ones(5000)})
    assert read_weights(tmp_path / "best.safetensors")["w"].tolist() == [1, 1]
    assert names(tmp_path) == ["best.safetensors"]


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path):
    (tmp_path / "file").write_text("not a folder")
    for folder in (tmp_path / "file", tmp_path / "file" / "checkpoints"):
        with pytest.raises(BadInput, match=r"cannot save a checkpoint in .*; nothing of the run is saved yet"):
            save(Checkpoints(folder), 1)
        with pytest.raises(BadInput, match="cannot write"):
            save_weights(folder / "best.safetensors", {"w": torch.ones(2)})
    assert names(tmp_path) == ["file"]


def test_everything_is_on_the_disk_before_it_has_its_name(tmp_path, monkeypatch):
    events, fsync, replace = [], os.fsync, os.replace

    def noted(handle):
        events.append(Path(os.readlink(f"/proc/self/fd/{handle}")).name)
        fsync(handle)

    def renamed(a, b):
        events.append(f"-> {Path(b).name}")
        replace(a, b)

    monkeypatch.setattr(os, "fsync", noted)
    monkeypatch.setattr(os, "replace", renamed)
    save(Checkpoints(tmp_path / "c"), 1)
    put = events.index("-> step-00000001")
    assert set(FILES) <= set(events[:put])
    assert events[put - 2] == "manifest.json"  # last of the files, then the folder
    assert events[put - 1].endswith(".part")
    assert events[put + 1] == "c"  # the name too


# -- death -------------------------------------------------------------------------------------------------------------


class Killed(BaseException):
    """Raised in place of a kill; nothing after it runs, not even cleanup."""


def dies_at(monkeypatch, n):
    """Simulate a kill at the n-th disk operation."""
    left = [n]

    def deed(real):
        def done(*args, **how):
            left[0] -= 1
            if left[0] < 0:
                raise Killed
            return real(*args, **how)

        return done

    for owner, name in ((os, "fsync"), (os, "replace"), (os, "mkdir"), (os, "unlink"), (os, "rename"), (os, "rmdir")):
        monkeypatch.setattr(owner, name, deed(getattr(owner, name)))
    monkeypatch.setattr(shutil, "rmtree", deed(shutil.rmtree))
    return left


@pytest.mark.parametrize("again", [False, True], ids=["next", "the same step again"])
def test_whenever_a_process_dies_the_last_checkpoint_is_there_and_whole(tmp_path, monkeypatch, again):
    died, n = 0, 0
    while True:
        folder = tmp_path / str(n)
        kept = Checkpoints(folder / "c", keep=1, average=2)
        for step in (1, 2, 3):
            save(kept, step)
        with monkeypatch.context() as patch:
            left = dies_at(patch, n)
            try:
                save(kept, 3 if again else 4)
            except Killed:
                died += 1
        fresh, lines = Checkpoints(folder / "c", keep=1, average=2), []
        fresh.clear(folder)
        newest = fresh.newest(lines.append)
        assert newest.name in (("step-00000003",) if again else ("step-00000003", "step-00000004"))
        assert lines == []
        assert all(find_damage(path) is None for path in (folder / "c").iterdir()), n
        assert not list(folder.rglob(".*"))
        state, _ = restore_checkpoint(newest, into := zeros(groups()), ALONE)
        assert same(into["model"], groups(state["step"])["model"])
        save(fresh, 5)
        assert fresh.newest().name == "step-00000005"
        shutil.rmtree(folder)
        if left[0] >= 0:
            break
        n += 1
    assert died > 10


def test_clearing_removes_what_a_dead_writer_left_and_nothing_else(tmp_path):
    kept = Checkpoints(tmp_path / "c")
    path = save(kept, 1)
    strays = [
        tmp_path / "c" / ".0123456789abcdef.part",
        path / ".0123456789abcdef.part",
        tmp_path / ".0123456789abcdef.part",
        tmp_path / ".model.01234567.new",
    ]
    for stray in strays:
        stray.mkdir()
        (stray / "half").write_text("of it")
    others = [tmp_path / ".lock", tmp_path / "c" / "mine.part", tmp_path / "c" / ".hidden", tmp_path / "c" / ".x.part"]
    for other in others:
        other.write_text("actual")
    moved = tmp_path / "c" / ".step-00000002.01234567.old"
    shutil.copytree(path, moved)
    kept.clear(tmp_path)
    assert not any(stray.exists() for stray in strays)
    assert all(other.exists() for other in others)
    assert names(tmp_path / "c") == [".hidden", ".x.part", "mine.part", "step-00000001", "step-00000002"]


# -- many processes ----------------------------------------------------------------------------------------------------


def notes(folder, job, tensor=1):
    """What each process reported, in a row (tensor=1) or in a grid of pairs."""
    files = sorted(folder.glob(f"{job}-*.json"))
    return [json.loads(file.read_text())[tensor - 1] for file in files]


@pytest.fixture(scope="module")
def ranks(tmp_path_factory, toy):
    """A folder in which one process wrote, then two."""
    folder = tmp_path_factory.mktemp("ranks")
    (folder / "file").write_text("not a folder")
    Checkpoints(folder / "whole").save(4, checkpoint_ranks.values(), {"step": 4}, {})
    Checkpoints(folder / "other").save(1, {"model": {"a.weight": torch.ones(2)}, "optimizer": {}}, {}, {})
    together(2, "tests.training.checkpoint_ranks", "two", folder, toy)
    return folder


@pytest.fixture(scope="module")
def four(ranks):
    """The same after four processes read and wrote there."""
    together(4, "tests.training.checkpoint_ranks", "four", ranks)
    return ranks


def test_two_processes_each_write_their_shards_and_read_them_back(ranks):
    for rank, seen in enumerate(notes(ranks, "two")):
        assert seen["sliced"] == 6
        assert (seen["fills"], seen["back"], seen["step"]) == (True, True, 4)
        assert seen["own"] == {"rank": rank}
    assert notes(ranks, "two")[1]["empty"]  # of a tensor of one element the second process has nothing
    path = ranks / "two" / "step-00000004"
    assert names(path) == ["manifest.json", "model", "optimizer", "own-00000.pt", "own-00001.pt", "state.pt"]
    assert len(names(path / "model")) == 2
    assert json.loads((path / "manifest.json").read_text())["ranks"] == 2
    assert find_damage(path) is None


@pytest.mark.long
@pytest.mark.parametrize("tensor", [1, 2])
def test_what_two_wrote_is_read_by_four(four, tensor):
    for seen in notes(four, "four", tensor):
        assert (seen["back"], seen["step"], seen["own"]) == (True, 4, None)
        assert ("StridedShard" in "".join(seen["placements"])) == (tensor == 2)


def assert_read_by_one(path):
    into, expected = zeros(checkpoint_ranks.values()), checkpoint_ranks.values()
    state, own = restore_checkpoint(path, into, ALONE)
    assert state["step"] == 4
    assert own is None
    for group in into:
        assert same(into[group], expected[group])
        assert same(read_weights(path, group), expected[group])


def test_what_two_wrote_is_read_by_one_into_plain_tensors(ranks):
    assert_read_by_one(ranks / "two" / "step-00000004")


@pytest.mark.long
@pytest.mark.parametrize("tensor", [1, 2])
def test_what_four_wrote_is_read_by_one_into_plain_tensors(four, tensor):
    assert_read_by_one(four / f"four{tensor}" / "step-00000004")


def test_what_one_wrote_is_read_by_two_into_shards(ranks):
    for seen in notes(ranks, "two"):
        assert seen["from whole"]
        assert seen["own of one"] is None


def test_shards_are_a_torch_distributed_checkpoint(ranks):
    from torch.distributed.checkpoint import HuggingFaceStorageReader, load

    into = zeros(checkpoint_ranks.values())["model"]
    reader = HuggingFaceStorageReader(str(ranks / "two" / "step-00000004" / "model"))
    load(into, storage_reader=reader, no_dist=True)
    assert same(into, checkpoint_ranks.values()["model"])


def test_many_processes_that_hold_all_write_it_once(ranks):
    path = ranks / "two" / "step-00000008"
    assert names(path) == ["manifest.json", "model.safetensors", "own-00000.pt", "own-00001.pt", "state.pt"]
    assert same(read_weights(path), checkpoint_ranks.values()["model"])
    assert find_damage(path) is None


def test_a_full_disk_on_one_rank_raises_on_all_ranks(ranks):
    for seen in notes(ranks, "two"):
        for what in ("full", "full, for what is its own"):
            assert "process 1: file too large; the run is saved up to" in seen[what]
            assert "step-00000004" in seen[what]
        assert "nothing of the run is saved yet" in seen["nowhere"]
    assert names(ranks / "two") == ["step-00000004", "step-00000008"]


def test_two_processes_with_shards_resume_to_the_bit_dropout_and_all(ranks):
    assert_equal_runs(ranks / "straight", ranks / "stopped", "stop-00000010")
    found = everything(ranks / "straight", "stop-00000010")
    dice = [found[f"own-0000{rank}/own/random/host"] for rank in (0, 1)]
    assert not torch.equal(*dice)  # each draws its own
    assert len(names(ranks / "straight" / "checkpoints" / "stop-00000010" / "ema")) == 2


def test_a_checkpoint_of_another_model_is_refused_by_all(ranks):
    for seen in notes(ranks, "two"):
        target = "is of another model: its model lacks ['a.bias', 'b.bias', 'b.weight', 'count'] and 2 more"
        assert target in seen["another model"]


def test_averages_of_shards_stay_sharded_and_are_those_of_the_whole(ranks):
    for seen in notes(ranks, "two"):
        target = ("put", "average", "average is sliced", "slices", "gathered", "saved whole")
        assert all(seen[what] for what in target), seen


@pytest.mark.parametrize("damage", ["a byte", "cut off", "missing"])
def test_a_damaged_shard_is_detected(ranks, tmp_path, damage):
    shutil.copytree(ranks / "two" / "step-00000004", path := tmp_path / "step-00000004")
    file = next((path / "model").glob("shard-00002-*"))
    DAMAGE[damage](file)
    lines = []
    with pytest.raises(BadInput, match="can be resumed from"):
        Checkpoints(tmp_path).newest(lines.append)
    assert f"model/{file.name}" in lines[0]
    with pytest.raises(BadInput, match=file.name):
        read_weights(path)


def without_second_shard(source, path):
    """Copy a checkpoint without one of its files, and without that file in its manifest."""
    shutil.copytree(source / "step-00000004", path)
    manifest = read_manifest(path)
    (second,) = (name for name in manifest["files"] if name.startswith("model/shard-00002-"))
    del manifest["files"][second]
    (path / "manifest.json").write_bytes(seal_manifest(manifest))
    return path


def test_a_missing_shard_is_detected_even_if_the_manifest_does_not_list_it(ranks, tmp_path):
    path = without_second_shard(ranks / "two", tmp_path / "step-00000004")
    with pytest.raises(BadInput, match=r"its model lacks \['count'\]"):  # of which the second process had all
        restore_checkpoint(path, zeros(checkpoint_ranks.values()), ALONE)


@pytest.mark.long
def test_missing_numbers_are_detected_where_every_tensor_is_there(four, tmp_path):
    path = without_second_shard(four / "four1", tmp_path / "step-00000004")
    with pytest.raises(BadInput, match=r"has 3 of the 5 numbers of a\.bias"):
        restore_checkpoint(path, zeros(checkpoint_ranks.values()), ALONE)
    with pytest.raises(BadInput, match=r"has 3 of the 5 numbers of a\.bias"):
        read_weights(path)


def test_a_sharded_checkpoint_can_be_reduced_to_its_weights(ranks, tmp_path):
    for step in (4, 5):
        shutil.copytree(ranks / "two" / "step-00000004", tmp_path / f"step-{step:08d}")
    kept = Checkpoints(tmp_path, keep=1, average=3)
    save(kept, 6)
    for step in (4, 5):
        assert names(tmp_path / f"step-{step:08d}") == ["manifest.json", "model"]
        assert same(read_weights(tmp_path / f"step-{step:08d}"), checkpoint_ranks.values()["model"])

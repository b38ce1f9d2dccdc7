"""The training loop: exact resume, correct gradients, nothing lost on errors."""

import itertools
import json
import os
import shutil
import signal
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file

from regard.api import load
from regard.core.errors import BadInput, RegardError, UnknownName, Unsupported
from regard.runtime.hardware import supports_dtype
from regard.training import evaluate, finish, loop, train
from regard.training.checkpoint.checkpoints import read_weights
from regard.training.device import eager_reason, select_device, select_precision
from regard.training.loop import TrainingRun
from regard.training.parallel.distributed import DistributedContext
from regard.training.recipe import load_saved_recipe, override_recipe

CLOCKS = ("seconds", "eval_seconds", "elapsed", "tokens_per_second")


def rows(out):
    """metrics.jsonl without times."""
    lines = (out / "metrics.jsonl").read_text().splitlines()
    return [{k: v for k, v in json.loads(line).items() if k not in CLOCKS} for line in lines]


def same(a, b):
    """Compare to the bit, recursively."""
    if isinstance(a, torch.Tensor):
        return a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    return a == b


def checkpoint(out, name):
    """All tensors of a checkpoint by file, and its other values except times."""
    folder = out / "checkpoints" / name
    state = torch.load(folder / "state.pt", weights_only=True)
    for clock in (state, state["since_log"]):
        for name in CLOCKS:
            clock.pop(name, None)
    state["own"] = torch.load(folder / "own-00000.pt", weights_only=True)
    return {file.name: load_file(file) for file in sorted(folder.glob("*.safetensors"))}, state


def assert_equal_runs(a, b, name):
    for x, y in zip(checkpoint(a, name), checkpoint(b, name), strict=True):
        assert x.keys() == y.keys()
        for key in x:
            assert same(x[key], y[key]), key
    for file in ("best.safetensors", "final.safetensors"):
        assert same(load_file(a / "checkpoints" / file), load_file(b / "checkpoints" / file)), file
    assert rows(a) == rows(b)


@pytest.fixture(scope="module")
def straight(recipe, tmp_path_factory):
    """20 updates without interruption."""
    out = tmp_path_factory.mktemp("runs") / "straight"
    train(recipe, out)
    return out


def test_train_10_and_resume_to_16_equals_train_16_to_the_bit(recipe, tmp_path):
    """With scores, whose searches change no random stream."""
    scored = override_recipe(recipe, ["train.steps=16", "train.score_interval=1"])
    train(scored, tmp_path / "straight")
    out = tmp_path / "stopped"
    train(override_recipe(scored, ["train.steps=10", "train.final_weights=last"]), out)
    place = checkpoint(out, "stop-00000010")[1]["position"]
    assert place["position"] > 0  # in the middle of an epoch, between two rows of metrics and two evaluations
    train(scored, out, resume=True)
    assert_equal_runs(tmp_path / "straight", out, "step-00000016")


@pytest.mark.long
def test_sigterm_while_compiling_ends_the_process_and_the_run_can_restart(recipe, tmp_path, straight, monkeypatch):
    out = tmp_path / "interrupted"

    class Ended(Exception):
        pass

    def ends(*_):
        raise Ended

    def compiling(self, batches):
        os.kill(os.getpid(), signal.SIGTERM)
        pytest.fail("it went on")

    before = signal.signal(signal.SIGTERM, ends)
    try:
        monkeypatch.setattr(TrainingRun, "_update", compiling)
        with pytest.raises(Ended):
            train(override_recipe(recipe, ["train.compile=true"]), out)
    finally:
        signal.signal(signal.SIGTERM, before)
    monkeypatch.undo()
    train(recipe, out)
    assert_equal_runs(straight, out, "step-00000020")


def test_interrupted_run_finishes_its_update_saves_says_how_to_resume_and_resumes(
    recipe, tmp_path, straight, monkeypatch, capfd
):
    out, update = tmp_path / "interrupted", TrainingRun._update

    def interrupted(self, batches):
        if self.step == 6:
            os.kill(os.getpid(), signal.SIGINT)
        update(self, batches)

    monkeypatch.setattr(TrainingRun, "_update", interrupted)
    handler = signal.getsignal(signal.SIGINT)
    result = train(recipe, out, command="regard train --resume there")
    assert signal.getsignal(signal.SIGINT) is handler
    monkeypatch.undo()
    assert result["stop_reason"] == "interrupted"
    assert result["steps"] == 7
    printed = capfd.readouterr().err
    assert printed.index("stopping after this update") < printed.index("regard train --resume there")
    assert (out / "checkpoints" / "stop-00000007" / "state.pt").is_file()
    assert load(out)(["a dog"])  # usable as it is, with the weights of the evaluation at step 6
    best = read_weights(out / "checkpoints" / "best.safetensors")
    assert torch.equal(load(out).model.state_dict()["embed.weight"], best["embed.weight"])
    assert not (out / "result.json").exists()
    train(None, out, resume=True)
    assert_equal_runs(straight, out, "step-00000020")


def test_an_evaluation_is_broken_off_by_an_interruption(recipe, tmp_path, monkeypatch, capfd):
    from regard.tasks.text.translation import Translation

    evaluate, seen = Translation.evaluate, []

    def interrupted(self, model, split="val", effort=2):
        os.kill(os.getpid(), signal.SIGINT)
        seen.append(1)
        found = evaluate(self, model, split, effort)
        seen.append(2)  # never reached: the next batch is refused
        return found

    monkeypatch.setattr(Translation, "evaluate", interrupted)
    result = train(recipe, tmp_path / "run")
    assert (result["stop_reason"], result["steps"], seen) == ("interrupted", 6, [1])
    assert load(tmp_path / "run")(["a dog"])  # never evaluated: its last or averaged weights


def kill_run(recipe, out, monkeypatch):
    """Train until update 12, before which the run is killed."""
    update = TrainingRun._update

    def killed(self, batches):
        if self.step == 11:
            raise KeyboardInterrupt
        update(self, batches)

    monkeypatch.setattr(TrainingRun, "_update", killed)
    with pytest.raises(KeyboardInterrupt):
        train(recipe, out)
    monkeypatch.undo()
    return out


def test_finish_ends_a_killed_run_with_a_measured_model(recipe, tmp_path, straight, monkeypatch):
    out = kill_run(recipe, tmp_path / "killed", monkeypatch)
    assert not (out / "model").exists()
    result = finish(out)
    assert (result["stop_reason"], result["steps"]) == ("finished", 8)  # the last checkpoint
    assert {"last", "best"} <= result["validation"].keys()
    assert load(out)(["a dog"])
    with pytest.raises(BadInput, match="holds no run"):
        finish(tmp_path)


def test_a_killed_run_resumes_from_its_last_checkpoint_to_the_same_end(recipe, tmp_path, straight, monkeypatch):
    out = kill_run(recipe, tmp_path / "killed", monkeypatch)
    train(recipe, out, resume=True)
    assert_equal_runs(straight, out, "step-00000020")


def test_a_run_leaves_the_callers_random_numbers_alone_and_does_not_depend_on_them(recipe, tmp_path):
    short = override_recipe(recipe, ["train.steps=2"])
    torch.manual_seed(1)
    before = torch.get_rng_state()
    train(short, tmp_path / "a")
    assert torch.equal(before, torch.get_rng_state())
    torch.manual_seed(2)
    train(short, tmp_path / "b")
    assert same(checkpoint(tmp_path / "a", "stop-00000002"), checkpoint(tmp_path / "b", "stop-00000002"))


def test_another_seed_is_another_run(recipe, tmp_path):
    for seed in (1, 2):
        train(
            override_recipe(recipe, ["train.steps=1", f"train.seed={seed}"]),
            tmp_path / str(seed),
        )
    one, two = (checkpoint(tmp_path / s, "stop-00000001")[0] for s in "12")
    assert not torch.equal(*(weights["model.safetensors"]["embed.weight"] for weights in (one, two)))


def test_accumulated_batches_weigh_every_token_alike(recipe, tmp_path, monkeypatch):
    """The gradient of two batches of different size is that of one batch with the rows of both."""
    seen = []
    step = __import__("regard.training.optimizers.optimizer", fromlist=["Optimizer"]).Optimizer.step

    def spy(self, rate):
        seen.append([part.parameter.grad.clone() for part in self.states])
        return step(self, rate)

    monkeypatch.setattr("regard.training.optimizers.optimizer.Optimizer.step", spy)
    still = override_recipe(recipe, ["model.dropout=0", "train.steps=1", "train.gradient_accumulation_steps=3"])
    train(still, tmp_path / "a")
    run = TrainingRun(
        still, tmp_path / "b", DistributedContext(torch.device("cpu")), _checkpoints(tmp_path / "b"), None
    )
    drawn = [d for d, _ in zip(run.task.batches().start(run.position), range(3), strict=False)]
    assert len({d.count for d in drawn}) > 1
    total = sum(run.task.loss(run.model, d.batch)[0] for d in drawn) / sum(d.count for d in drawn)
    total.backward()
    for got, part in zip(seen[0], run.optimizer.states, strict=True):
        torch.testing.assert_close(got, part.parameter.grad, rtol=1e-4, atol=1e-6)


def _checkpoints(out):
    from regard.training.checkpoint.checkpoints import Checkpoints

    out.mkdir()
    return Checkpoints(out / "checkpoints")


@pytest.mark.usefixtures("curve")
def test_it_learns_and_everything_is_left_in_the_folder(recipe, tmp_path):
    out = tmp_path / "run"
    learning = ["train.steps=100", "train.eval_interval=50", "train.log_interval=25", "train.learning_rate=1e-2"]
    learning += ["train.gradient_accumulation_steps=1", "train.save_interval=25", "train.score_interval=1"]
    result = train(override_recipe(recipe, [*learning, "model.dropout=0", "model.width=32"]), out)
    losses = [row["loss"] for row in rows(out) if "loss" in row]
    assert losses[-1] < losses[0] / 1.8
    assert result["final_weights"] in result["validation"]
    assert set(result["validation"]) == {"last", "best", "ema", "average"}
    best = max(found["bleu"] for found in result["validation"].values())
    assert result["validation"][result["final_weights"]]["bleu"] == best
    for name in ("recipe.json", "result.json", "metrics.jsonl", "curve.png", "tokenizer.json", "model/config.json"):
        assert (out / name).is_file(), name
    assert json.loads((out / "result.json").read_text()) == result
    assert load_saved_recipe(out).model.vocab <= 300
    found = evaluate(out, device="cpu", beam_size=1)
    assert found["results"]["test"]["sentences"] == 12
    validated = evaluate(out, ["val"], device="cpu", beam_size=2)["results"]["val"]
    assert validated["loss"] == pytest.approx(result["validation"][result["final_weights"]]["loss"], rel=1e-5)
    assert validated["bleu"] == pytest.approx(result["validation"][result["final_weights"]]["bleu"])
    for weights in ("best", "last", "ema", "average"):
        measured = evaluate(out, ["val"], device="cpu", weights=weights, beam_size=1)["results"]["val"]
        assert measured["loss"] == pytest.approx(result["validation"][weights]["loss"], rel=1e-5), weights
    saved = evaluate(out / "model", ["val"], device="cpu", data=load_saved_recipe(out).data, beam_size=2)["results"][
        "val"
    ]
    assert saved["loss"] == pytest.approx(validated["loss"], rel=1e-5)


def test_a_model_stored_in_half_precision_is_measured_as_it_is_stored(recipe, tmp_path):
    out = tmp_path / "run"
    result = train(override_recipe(recipe, ["train.steps=4", "train.save_dtype=float16"]), out)
    assert all(x.dtype == torch.float16 for x in load_file(out / "checkpoints" / "final.safetensors").values())
    found = evaluate(out / "model", ["val"], device="cpu", data=load_saved_recipe(out).data)["results"]["val"]
    assert found["loss"] == pytest.approx(result["validation"][result["final_weights"]]["loss"], rel=1e-6)


def test_patience_stops_a_run_that_no_longer_gets_better(recipe, tmp_path):
    stuck = override_recipe(
        recipe,
        [
            "train.learning_rate=0",
            "train.ema_decay=0",
            "train.eval_interval=2",
            "train.patience=3",
        ],
    )
    result = train(stuck, tmp_path / "run")
    assert result["stop_reason"] == "patience"
    assert result["steps"] == 8  # the first look is the best, three more are not better


def test_minutes_end_a_run_in_time_with_a_model(recipe, tmp_path):
    result = train(
        override_recipe(recipe, ["train.steps=1000000", "train.max_minutes=0.0001"]),
        tmp_path / "run",
    )
    assert result["stop_reason"] == "minutes"
    assert (tmp_path / "run" / "model" / "model.safetensors").is_file()


def test_the_schedule_ends_with_a_budget_of_minutes_over_all_processes(recipe, tmp_path, monkeypatch):
    clock = itertools.count()
    monkeypatch.setattr(loop, "time", SimpleNamespace(monotonic=lambda: float(next(clock))))  # a second a look
    settings = ["train.steps=1000000", "train.schedule=cosine", "train.warmup_steps=2", "train.log_interval=1",
                "train.eval_interval=1000000", "train.save_interval=1000000", "train.budget_minutes=2"]  # fmt: skip
    first = train(override_recipe(recipe, [*settings, "train.max_minutes=1"]), tmp_path / "run")
    second = train(override_recipe(recipe, settings), tmp_path / "run", resume=True)
    assert first["stop_reason"] == second["stop_reason"] == "minutes"
    rates = [row["lr"] for row in rows(tmp_path / "run") if "lr" in row]
    assert len(rates) == second["steps"] > first["steps"] > 4
    assert rates[1:] == sorted(rates[1:], reverse=True)  # falls after the warmup, and goes on where it was
    assert 0.3 < rates[first["steps"] - 1] / rates[1] < 0.7
    assert rates[-1] < 0.01 * rates[1]


def test_a_loss_that_is_not_finite_stops_the_run_and_spoils_no_weight(recipe, tmp_path, monkeypatch):
    from regard.tasks.text.translation import Translation

    loss = Translation.loss

    def broken(self, model, batch, step=0, rng=None):
        total, parts = loss(self, model, batch, step, rng)
        return total * (float("nan") if step >= 8 else 1.0), parts

    monkeypatch.setattr(Translation, "loss", broken)
    with pytest.raises(RegardError, match="not finite"):
        train(recipe, tmp_path / "run")
    weights, _ = checkpoint(tmp_path / "run", "step-00000008")
    assert all(torch.isfinite(x).all() for group in weights.values() for x in group.values())


def test_a_folder_with_a_run_in_it_is_not_trained_over(recipe, tmp_path):
    short = override_recipe(recipe, ["train.steps=1"])
    train(short, tmp_path / "run")
    with pytest.raises(BadInput, match="already holds a run"):
        train(short, tmp_path / "run")


def test_resuming_with_another_model_or_other_data_is_refused_by_name(recipe, tmp_path):
    short = override_recipe(recipe, ["train.steps=1"])
    train(short, tmp_path / "run")
    with pytest.raises(BadInput, match=r"data\.batch_tokens was 96, is 64"):
        train(override_recipe(short, ["data.batch_tokens=64"]), tmp_path / "run", resume=True)
    with pytest.raises(BadInput, match=r"model\.width was 16, is 32"):
        train(override_recipe(short, ["model.width=32"]), tmp_path / "run", resume=True)


def test_resuming_on_data_that_have_changed_underneath_is_refused(recipe, tmp_path, toy):
    copy = tmp_path / "data"
    shutil.copytree(toy, copy)
    short = override_recipe(recipe, ["train.steps=1", f"data.corpus={copy}"])
    train(short, tmp_path / "run")
    lines = (copy / "train.en").read_text().splitlines()
    (copy / "train.en").write_text("\n".join(lines[1:] + lines[:1]) + "\n")
    with pytest.raises(BadInput, match="other data"):
        train(short, tmp_path / "run", resume=True)


def test_data_without_a_training_split_are_refused_before_training_begins(recipe, tmp_path, toy, monkeypatch):
    for language in ("en", "de"):
        shutil.copy(toy / f"train.{language}", tmp_path / f"test.{language}")
    monkeypatch.setattr(TrainingRun, "_update", lambda *_: pytest.fail("it began"))
    with pytest.raises(UnknownName, match="no split 'train'"):
        train(override_recipe(recipe, [f"data.corpus={tmp_path}"]), tmp_path / "run")


def test_two_processes_do_not_train_into_one_folder(recipe, tmp_path):
    fcntl = pytest.importorskip("fcntl")
    (tmp_path / "run").mkdir()
    with open(tmp_path / "run" / ".lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(BadInput, match="another process"):
            train(recipe, tmp_path / "run")


def test_a_run_too_short_for_an_average_keeps_what_it_has(recipe, tmp_path, capfd):
    result = train(
        override_recipe(recipe, ["train.steps=2", "train.final_weights=average"]),
        tmp_path / "run",
    )
    assert result["final_weights"] in ("last", "ema")
    assert "too short for train.final_weights=average" in capfd.readouterr().err


def test_a_full_disk_while_saving_is_one_line_and_leaves_the_last_checkpoint_whole(recipe, tmp_path, monkeypatch):
    real = torch.save

    def full(what, file):
        if what["step"] > 4:
            file.write(b"half of it")
            raise OSError(28, "No space left on device")
        real(what, file)

    monkeypatch.setattr(torch, "save", full)
    with pytest.raises(BadInput, match=r"no space left on device; the run is saved up to .*step-00000004"):
        train(recipe, tmp_path / "run")
    assert sorted(p.name for p in (tmp_path / "run" / "checkpoints").iterdir()) == ["best.safetensors", "step-00000004"]


def test_a_metric_that_the_task_does_not_measure_is_an_error(recipe, tmp_path):
    with pytest.raises(RegardError, match=r"train\.metric is 'blue'"):
        train(override_recipe(recipe, ["train.metric=blue"]), tmp_path / "run")


def test_device_precision_and_compilation_are_chosen_honestly(monkeypatch):
    cpu = torch.device("cpu")
    assert select_precision("auto", cpu) == "float32"
    monkeypatch.setattr("regard.training.device.supports_dtype", lambda dtype: False)  # tried in a child process
    with pytest.raises(Unsupported, match="bfloat16"):
        select_precision("bfloat16", cpu)
    monkeypatch.setattr("regard.training.device.supports_dtype", lambda dtype: True)
    assert select_precision("bfloat16", cpu) == "bfloat16"
    assert select_precision("auto", cpu) == "float32"
    with pytest.raises(Unsupported, match="no device"):
        select_device("cuda:77")
    with pytest.raises(Unsupported, match="computes nothing"):
        select_device("meta")
    assert eager_reason(False, cpu) == "train.compile=false"
    assert "train.compile=true" in eager_reason(None, cpu)
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.delenv("CXX", raising=False)
    assert eager_reason(True, cpu) == "no C++ compiler found"


def test_a_task_that_keeps_state_and_modules_has_them_in_the_checkpoint(recipe, tmp_path, monkeypatch):
    from regard.tasks.text.translation import Translation

    def started(self, *args):
        init(self, *args)
        self.teacher, self.seen = torch.nn.Linear(2, 2), 0

    def after(self, model, step):
        self.seen += step
        with torch.no_grad():
            self.teacher.weight.add_(1)

    def loss(self, model, batch, step=0, rng=None):
        total, parts = plain(self, model, batch, step, rng)
        return total + torch.rand((), generator=rng) * self.teacher.bias.sum(), parts  # draws from the sampling stream

    init, plain = Translation.__init__, Translation.loss
    monkeypatch.setattr(Translation, "__init__", started)
    monkeypatch.setattr(Translation, "after_update", after)
    monkeypatch.setattr(Translation, "loss", loss)
    monkeypatch.setattr(Translation, "modules", lambda self: {"teacher": self.teacher})
    monkeypatch.setattr(Translation, "state_dict", lambda self: {"seen": self.seen})
    monkeypatch.setattr(Translation, "load_state_dict", lambda self, state: setattr(self, "seen", state["seen"]))
    recipe = override_recipe(recipe, ["train.steps=8"])
    train(recipe, tmp_path / "a")
    train(override_recipe(recipe, ["train.steps=5"]), tmp_path / "b")
    train(recipe, tmp_path / "b", resume=True)
    assert_equal_runs(tmp_path / "a", tmp_path / "b", "step-00000008")
    state = checkpoint(tmp_path / "a", "step-00000008")[1]
    assert state["task"] == {"seen": 36}
    teacher = load_file(tmp_path / "a" / "checkpoints" / "step-00000008" / "task.teacher.safetensors")
    assert (teacher["bias"] != 0).any()


@pytest.mark.long
def test_compiled_and_eager_training_agree(recipe, tmp_path, monkeypatch, unchecked):
    """With a tracing backend; compiled kernels are tested on a GPU."""
    compile = torch.compile
    monkeypatch.setattr(torch, "compile", lambda m, **options: compile(m, backend="eager", **options))
    few = [
        "train.steps=2",
        "train.gradient_accumulation_steps=1",
        "train.eval_interval=9",
        "train.log_interval=1",
        "train.ema_decay=0",
    ]
    small = override_recipe(recipe, [*few, "model.dropout=0"])
    train(small, tmp_path / "eager")
    train(override_recipe(small, ["train.compile=true"]), tmp_path / "compiled")
    assert json.loads((tmp_path / "compiled" / "result.json").read_text())["compiled"]
    for a, b in zip(rows(tmp_path / "eager"), rows(tmp_path / "compiled"), strict=True):
        assert a.get("loss", 0) == pytest.approx(b.get("loss", 0), rel=1e-4)


def test_a_compiler_that_fails_leaves_the_run_eager_and_one_line_says_so(recipe, tmp_path, monkeypatch, capfd):
    from torch._dynamo.exc import InternalTorchDynamoError

    def failing(what, **options):
        def call(*inputs, **named):
            raise InternalTorchDynamoError("no luck")

        return call

    monkeypatch.setattr(torch, "compile", failing)
    small = override_recipe(recipe, ["train.steps=2", "train.compile=true", "train.eval_interval=9"])
    result = train(small, tmp_path / "run")
    assert not result["compiled"]
    assert result["steps"] == 2
    assert "eager: the compiler failed (InternalTorchDynamoError)" in capfd.readouterr().err


def test_recipe_can_be_given_by_name_of_file(recipe, tmp_path, toy):
    file = tmp_path / "mine.py"
    file.write_text(
        '"""Mine."""\n'
        "from regard.data.text.parallel_corpus import ParallelCorpus\nfrom regard.models.transformer import Config\n"
        "from regard.tasks.text import translation\nfrom regard.training.recipe import Recipe, Train\n"
        f"def recipe():\n    data = ParallelCorpus({str(toy)!r}, vocab_size=300)\n"
        "    return Recipe(Config(300), translation.Config(), data)\n"
    )
    result = train(file, tmp_path / "run", settings=["train.steps=2"], quick=True)
    assert result["recipe"] == "mine"
    assert result["steps"] == 2
    assert replace(load_saved_recipe(tmp_path / "run"), name="x").model.width == 32


def test_gradient_checkpointing_changes_nothing_to_the_bit(recipe, tmp_path, straight):
    """Dropout is on: the second pass samples what the first sampled."""
    train(override_recipe(recipe, ["train.gradient_checkpointing=true"]), tmp_path / "again")
    assert_equal_runs(straight, tmp_path / "again", "step-00000020")


def test_several_workers_change_nothing_to_the_bit(recipe, tmp_path, straight):
    out = tmp_path / "many"
    train(override_recipe(recipe, ["train.num_workers=3", "train.steps=10"]), out)
    train(override_recipe(recipe, ["train.num_workers=2"]), out, resume=True)
    assert_equal_runs(straight, out, "step-00000020")


@pytest.mark.parametrize("optimizer", ["muon", "adafactor", "sgd(momentum=0.9)"])
def test_every_optimizer_resumes_to_the_bit(recipe, tmp_path, optimizer):
    recipe = override_recipe(recipe, [f"train.optimizer={optimizer}", "train.layer_decay=0.8"])
    train(override_recipe(recipe, ["train.steps=12"]), tmp_path / "a")
    train(override_recipe(recipe, ["train.steps=5"]), tmp_path / "b")
    train(override_recipe(recipe, ["train.steps=12"]), tmp_path / "b", resume=True)
    assert_equal_runs(tmp_path / "a", tmp_path / "b", "step-00000012")


def test_out_of_memory_suggests_a_smaller_batch(recipe, tmp_path, monkeypatch):
    from regard.tasks.text.translation import Translation

    plain = Translation.loss

    def loss(self, model, batch, step=0, rng=None):
        if len(batch.source) > 3:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        return plain(self, model, batch, step, rng)

    monkeypatch.setattr(Translation, "loss", loss)
    with pytest.raises(
        BadInput, match=r"does not fit on cpu, but [23] rows do: .*train\.gradient_accumulation_steps="
    ) as caught:
        train(recipe, tmp_path / "run")
    assert "\n" not in str(caught.value)


def test_updates_that_are_not_finite_are_skipped_and_counted(recipe, tmp_path, monkeypatch, capfd):
    from regard.tasks.text.translation import Translation

    plain = Translation.loss

    def loss(self, model, batch, step=0, rng=None):
        total, parts = plain(self, model, batch, step, rng)
        return (total * float("nan") if step in (5, 6) else total), parts

    monkeypatch.setattr(Translation, "loss", loss)
    train(recipe, tmp_path / "run")
    assert "skipped 2 of 4 updates" in capfd.readouterr().err
    assert [row["skipped_updates"] for row in rows(tmp_path / "run") if "skipped_updates" in row] == [2]
    assert all(x.isfinite().all() for x in load_file(tmp_path / "run" / "checkpoints" / "final.safetensors").values())


def test_a_damaged_checkpoint_is_skipped_and_reported(recipe, tmp_path, straight, capfd):
    out = tmp_path / "damaged"
    train(override_recipe(recipe, ["train.steps=16"]), out)
    file = out / "checkpoints" / "step-00000016" / "optimizer.safetensors"
    content = bytearray(file.read_bytes())
    content[-5] ^= 1
    file.write_bytes(content)
    train(recipe, out, resume=True)
    message = capfd.readouterr().err
    assert "step-00000016 is skipped: optimizer.safetensors is damaged" in message
    assert "resumed from update 12" in message
    assert_equal_runs(straight, out, "step-00000020")


def test_a_clock_that_jumps_changes_nothing(recipe, tmp_path, straight, monkeypatch):
    """The wall clock jumps back a year and forth two; nothing uses it."""
    import itertools
    import time

    jumps = itertools.cycle([-3e7, 6e7])
    monkeypatch.setattr(time, "time", lambda: 1e9 + next(jumps))
    train(recipe, tmp_path / "jumps")
    assert_equal_runs(straight, tmp_path / "jumps", "step-00000020")


def test_an_impossible_model_shape_raises_before_anything_is_written(recipe, tmp_path):
    with pytest.raises(RegardError, match="not divisible by 5 heads"):
        train(override_recipe(recipe, ["model.heads=5"]), tmp_path / "run")
    assert not (tmp_path / "run" / "recipe.json").exists()


@pytest.mark.long
def test_a_run_in_bfloat16_resumes_to_the_bit(recipe, tmp_path):
    """Where this CPU computes in it at all."""
    if not supports_dtype("bfloat16"):
        pytest.skip("this CPU does not compute in bfloat16")
    recipe = override_recipe(recipe, ["train.precision=bfloat16"])
    train(override_recipe(recipe, ["train.steps=12"]), tmp_path / "a")
    train(override_recipe(recipe, ["train.steps=5"]), tmp_path / "b")
    train(override_recipe(recipe, ["train.steps=12"]), tmp_path / "b", resume=True)
    assert_equal_runs(tmp_path / "a", tmp_path / "b", "step-00000012")


def test_damaged_best_weights_do_not_keep_a_run_from_ending(recipe, tmp_path, monkeypatch, capfd):
    from regard.training import finalize

    plain = finalize.finalize

    def damaged(run, stopped, progress):
        file = run.checkpoints.folder / "best.safetensors"
        content = bytearray(file.read_bytes())
        content[-5] ^= 1
        file.write_bytes(content)
        return plain(run, stopped, progress)

    monkeypatch.setattr(finalize, "finalize", damaged)
    result = train(recipe, tmp_path / "run")
    assert "best weights are skipped" in capfd.readouterr().err
    assert set(result["validation"]) == {"last", "ema", "average"}


def test_evaluations_may_replay_graphs(recipe, tmp_path, monkeypatch):
    from regard.runtime.cuda_graph import has_hooks
    from regard.tasks.text.translation import Translation

    found, evaluate = [], Translation.evaluate

    def recorded(self, model, *rest):
        found.append(has_hooks(model))
        return evaluate(self, model, *rest)

    monkeypatch.setattr(Translation, "evaluate", recorded)
    train(override_recipe(recipe, ["train.steps=2", "train.eval_interval=1"]), tmp_path / "run")
    assert found
    assert not any(found)

"""The one training loop. It knows tasks only by the protocol below, and every recipe goes through it.

    batches -> loss -> gradient -> clip -> AdamW -> moving average    every update; nothing waits for the device
    metrics.jsonl                                                     every `log` updates
    validation, best so far, patience                                 every `evaluate` updates or each epoch
    checkpoint                                                        every `save` updates or each epoch
    last, best, moving average, mean of the last k: choose, save      at the end

The gradient is that of (sum of the losses) / (sum of the counts) over all accumulated batches, so that a token weighs
the same whatever batch it is in. Train n, stop, resume to m equals train m, to the bit on a CPU: weights, moments,
averages, the place in the data and every random stream are in the checkpoint.
"""

from __future__ import annotations

import json
import math
import os
import shlex
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import nn

from regard.core.errors import BadInput, RegardError, Unsupported
from regard.core.files import write
from regard.core.shapes import Tensor
from regard.data.batching import Drawn, Place, Stream, prefetch
from regard.training import streams
from regard.training.average import MovingAverage, mean, put, tensors
from regard.training.checkpoint import Checkpoints, read, read_weights, save_weights
from regard.training.interrupt import Interrupt
from regard.training.optimiser import Optimiser
from regard.training.progress import Metrics, Progress, clock
from regard.training.recipe import Recipe, Train, build, changed, store, stored
from regard.training.schedule import factor


class Task(Protocol):
    """What the loop asks of a task. Its Config has ``build(data, seed, folder)``, the folder being that of a run to go
    on with. A batch has ``to(device)`` and ``pin()``."""

    headline: str  # the metric that says how good a model is; higher is better
    name: str

    def fit(self, config: Any) -> Any:
        """The model's Config with what only the data know."""
        ...

    def batches(self) -> Stream[Any]:
        """Training batches without end."""
        ...

    def loss(self, model: nn.Module, batch: Any, step: int, rng: torch.Generator) -> tuple[Tensor, dict[str, Tensor]]:
        """The loss summed over a batch, and its parts (detached sums) for the record; "loss" is one of them."""
        ...

    def count(self, batch: Any) -> int:
        """What the loss of a batch is divided by: its tokens, its rows."""
        ...

    def after_update(self, model: nn.Module, step: int) -> None:
        """Move what moves only between updates: teachers, centroids."""
        ...

    def modules(self) -> dict[str, nn.Module]:
        """Modules beside the model; what in them wants a gradient is trained too."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """Other state, plain values and tensors."""
        ...

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore it."""
        ...

    def fingerprint(self) -> str:
        """A few letters that change when the training data do."""
        ...

    def ready(self, score: bool) -> None:
        """Raise now what would otherwise come up at the first look: no validation part, a package that is missing."""
        ...

    def evaluate(self, model: nn.Module, split: str, effort: int) -> dict[str, Any]:
        """Measure a model: effort 0 the loss, 1 a quick score too, 2 the score as it is reported."""
        ...

    def save(self, folder: Path) -> None:
        """Write what a run needs of the task beside its checkpoints (a vocabulary)."""
        ...

    def describe(self) -> dict[str, Any]:
        """The task as plain values, to stand beside a saved model."""
        ...

    def card(self) -> str:
        """One line on the data."""
        ...


def run(recipe: Recipe, out: Path, resume: bool = False, command: str | None = None) -> dict[str, Any]:
    """Train a recipe into a folder and say how it went; `resume` goes on with the run that is there, if one is."""
    settings = recipe.train
    device = chosen_device(settings.device)
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(f"cannot make the folder {out}: {error.strerror}") from None
    checkpoints = Checkpoints(out / "checkpoints", settings.keep, settings.average)
    latest = checkpoints.latest()
    if latest is not None and not resume:
        raise BadInput(f"{out} already holds a run ({latest.name}); resume it, or choose another folder")
    if latest is not None:  # the vocabulary is the data's to say, later
        known = stored(out)
        _refuse_changes(known, replace(recipe, model=known.model))
    with _alone(out), streams.apart(device):
        going = _Run(recipe, out, device, checkpoints, latest)
        going.command = command or f"regard train {recipe.name} --out {shlex.quote(str(out))} --resume"
        return going.go()


class _Run:
    """One run: what it is made of, in the order it is needed."""

    command = ""
    objective: Callable[..., Tensor] | None = None  # the task's own, where a compiled one stands in for it
    say: Callable[[str], None] = staticmethod(print)

    def __init__(
        self, recipe: Recipe, out: Path, device: torch.device, checkpoints: Checkpoints, latest: Path | None
    ) -> None:
        self.settings: Train = recipe.train
        self.out, self.device, self.checkpoints = out, device, checkpoints
        seed = self.settings.seed
        self.task: Task = recipe.task.build(
            recipe.data, seed=streams.derived(seed, "data"), folder=None if latest is None else out
        )
        self.task.ready(bool(self.settings.score))
        self.fingerprint = self.task.fingerprint()
        fitted = replace(recipe, model=self.task.fit(recipe.model))
        if latest is not None:
            _refuse_changes(stored(out), fitted)
        self.recipe = fitted
        torch.manual_seed(streams.derived(seed, "init"))
        self.model = build(fitted.model).to(device)
        modules = self.task.modules()
        for module in modules.values():
            module.to(device)
        trained = [p for module in (self.model, *modules.values()) for p in module.parameters()]
        s = self.settings
        self.optimiser = Optimiser(trained, s.betas, s.eps, s.decay, s.clip)
        self.ema = MovingAverage(self.model, s.ema) if s.ema else None
        torch.manual_seed(streams.derived(seed, "dropout"))
        self.sampling = torch.Generator().manual_seed(streams.derived(seed, "sampling"))
        self.precision = chosen_precision(s.precision, device)
        self.eager = why_eager(s.compile, device)
        self.compiled: Any = self.model
        if self.eager is None:
            self.compiled = torch.compile(self.model, dynamic=True)
            if (objective := getattr(self.task, "objective", None)) is not None:  # the heavy end of the loss
                self.objective = objective
                setattr(self.task, "objective", torch.compile(objective, dynamic=True))  # noqa: B010
        # what the checkpoint carries beside weights and moments
        self.step, self.place, self.tokens, self.seconds = 0, Place(), 0, 0.0
        self.looks, self.bad = 0, 0
        self.best: float | None = None
        self.sums: dict[str, Tensor] = {}
        self.since = {"updates": 0, "count": 0, "seconds": 0.0}  # since the last row of metrics.jsonl
        if latest is not None:
            self._go_back(latest)
        else:
            self.task.save(out)
        store(fitted, out)
        self.metrics = Metrics(out / "metrics.jsonl", self.step)
        self.drawn_at, self.clock = -math.inf, 0.0

    def go(self) -> dict[str, Any]:
        """Train to the end, or until something says stop."""
        s, began, stopped = self.settings, time.monotonic(), ""
        pin = (lambda d: replace(d, batch=d.batch.pin())) if self.device.type == "cuda" else None
        self.model.train()
        with Interrupt() as asked, Progress(s.steps, self.step) as progress:
            self.say = progress.say
            progress.say(self._first_line())
            with prefetch(self.task.batches().start(self.place), prepare=pin) as batches:
                self._start_clock()
                while self.step < s.steps and not self._tired() and not stopped:
                    epoch = self.place.epoch
                    self._update(batches)
                    ended = self.place.epoch > epoch  # an epoch did
                    look = self.step % s.evaluate == 0 if s.evaluate else ended
                    regular = self.step % s.save == 0 if s.save else ended
                    if asked:
                        stopped = "interrupted"
                    elif s.minutes and time.monotonic() - began > 60 * s.minutes:
                        stopped = "minutes"
                    if self.step % s.log == 0 or look or regular or stopped or self.step == s.steps:
                        self._stop_clock()
                        if self.step % s.log == 0:
                            self._write_row(progress)
                        if look:
                            self._look(progress)
                        if regular or stopped or self._tired() or self.step == s.steps:
                            self._save(regular)
                        self._start_clock()
                    elif self.step % 10 == 0:
                        self._show(progress)
            self._draw(force=True)
            if stopped == "interrupted":
                progress.say(f"stopped after update {self.step}, all is saved. To go on:\n  {self.command}")
                return self._result(stopped, {}, None)
            return self._finish(stopped or ("patience" if self._tired() else "steps"), progress)

    def _tired(self) -> bool:
        """Whether there have been too many looks without a new best."""
        return bool(self.settings.patience) and self.bad >= self.settings.patience

    def _start_clock(self) -> None:
        self.clock = time.monotonic()

    def _stop_clock(self) -> None:
        """Let the device catch up, so that clocks and numbers are true, and add the time since the clock's start."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        spent = time.monotonic() - self.clock
        self.seconds += spent
        self.since["seconds"] += spent

    # -- one update ----------------------------------------------------------------------------------------------------

    def _update(self, batches: Iterator[Drawn[Any]]) -> None:
        drawn = [next(batches) for _ in range(self.settings.accumulate)]
        count = max(1, sum(d.count for d in drawn))
        for d in drawn:
            total, parts = self._loss(d.batch.to(self.device))
            (total / count).backward()
            for name, part in parts.items():
                self.sums[name] = self.sums[name] + part if name in self.sums else part.detach().clone()
        self.step += 1
        s = self.settings
        norm, lost = self.optimiser.step(s.rate * factor(s.schedule, self.step, s.warmup, s.steps, s.floor))
        for name, value in (("_norm", norm), ("_lost", lost)):
            self.sums[name] = self.sums[name] + value if name in self.sums else value
        self.task.after_update(self.model, self.step)
        if self.ema is not None:
            self.ema.update(self.step)
        self.place = drawn[-1].after
        self.tokens += count
        self.since["updates"] += 1
        self.since["count"] += count

    def _loss(self, batch: Any) -> tuple[Tensor, dict[str, Tensor]]:
        try:
            with self._autocast():
                return self.task.loss(self.compiled, batch, self.step, self.sampling)
        except Exception as error:
            if self.compiled is self.model or not _from_compiler(error):
                raise
            failed = type(error).__name__
        self.compiled, self.eager = self.model, f"the compiler failed ({failed})"
        if self.objective is not None:
            setattr(self.task, "objective", self.objective)  # noqa: B010
        self.say(f"eager: {self.eager}")
        with self._autocast():
            return self.task.loss(self.compiled, batch, self.step, self.sampling)

    def _autocast(self) -> AbstractContextManager[Any]:
        if self.precision == "bfloat16":
            return torch.autocast(self.device.type, dtype=torch.bfloat16)
        return nullcontext()

    # -- looking -------------------------------------------------------------------------------------------------------

    def _write_row(self, progress: Progress) -> None:
        updates, count = max(1, self.since["updates"]), max(1, self.since["count"])
        values = {name: float(x) for name, x in self.sums.items()}
        norm, lost = values.pop("_norm", 0.0) / updates, int(values.pop("_lost", 0.0))
        numbers = {name: value / count for name, value in values.items()}
        s = self.settings
        rate = s.rate * factor(s.schedule, self.step, s.warmup, s.steps, s.floor)
        row = {"step": self.step, "epoch": self.place.epoch, "tokens": self.tokens, **numbers, "lr": rate}
        row |= {"grad_norm": norm, "seconds": round(self.seconds, 3)}
        row["tokens_per_second"] = round(count / max(self.since["seconds"], 1e-9), 1)
        if lost:
            row["lost_updates"] = lost
        self.metrics.add(row)
        progress.at(self.step, {**numbers, "lr": rate, "tokens/s": row["tokens_per_second"]})
        self.sums, self.since = {}, {"updates": 0, "count": 0, "seconds": 0.0}
        if lost == updates:
            newest = self.checkpoints.latest()
            raise RegardError(
                f"the gradient was not finite in all of the last {updates} updates (up to {self.step}); nothing was "
                f"learned from them. Last checkpoint: {newest or 'none'}. Lower train.rate, lengthen train.warmup, or "
                f"set train.clip=1"
            )

    def _show(self, progress: Progress) -> None:
        """Move the bar; with numbers only on a CPU, where reading them costs nothing."""
        if self.device.type != "cpu":
            progress.move(self.step)
            return
        count = max(1, self.since["count"])
        speed = count / max(self.since["seconds"] + time.monotonic() - self.clock, 1e-9)
        progress.at(self.step, {"loss": float(self.sums["loss"]) / count, "tokens/s": speed})

    def _look(self, progress: Progress) -> None:
        """Measure on the validation part; remember the best, count the looks without one."""
        s = self.settings
        self.looks += 1
        effort = 1 if s.score and self.looks % s.score == 0 else 0
        with self._averaged():
            found = self._measure(effort)
            words = {key: value for key, value in found.items() if isinstance(value, float)}
            if s.metric not in found and effort == (1 if s.score else 0):
                raise RegardError(f"train.metric is '{s.metric}', but the task measures {', '.join(words)}")
            if s.metric in found:
                value = float(found[s.metric])
                if math.isfinite(value) and (self.best is None or _better(s.metric, value, self.best)):
                    self.best, self.bad = value, 0
                    about = {"step": str(self.step), s.metric: repr(value)}
                    save_weights(self.checkpoints.folder / "best.safetensors", tensors(self.model), about)
                else:
                    self.bad += 1
        row = {("valid_loss" if key == "loss" else key): value for key, value in found.items() if key != "tokens"}
        self.metrics.add({"step": self.step, "epoch": self.place.epoch, **row})
        said = "  ".join(f"{name} {value:.4g}" for name, value in words.items())
        signature = "".join(f"  [{value}]" for key, value in found.items() if key.endswith("signature"))
        progress.say(f"step {self.step}  validation: {said}{signature if self.looks == s.score else ''}")
        self._draw()

    def _measure(self, effort: int) -> dict[str, Any]:
        """Measure the model as it is, leaving every random stream and its mode as they were."""
        with streams.apart(self.device):
            found = self.task.evaluate(self.model, "val", effort)
        self.model.train()
        return found

    @contextmanager
    def _averaged(self) -> Iterator[None]:
        """The model with the moving average as its weights, where there is one."""
        if self.ema is None:
            yield
            return
        own = {name: x.detach().clone() for name, x in self.ema.live.items()}
        try:
            _copy(self.ema.live, self.ema.kept)
            yield
        finally:
            _copy(self.ema.live, own)

    def _draw(self, force: bool = False) -> None:
        """The curve so far; while training at most every five minutes."""
        if not self.metrics.rows or (not force and time.monotonic() - self.drawn_at < 300):
            return
        if find_spec("matplotlib") is None:
            return
        from regard.see.curve import curve

        curve(self.metrics.rows, self.out / "curve.png", self.recipe.name)
        self.drawn_at = time.monotonic()

    # -- stopping and going on -----------------------------------------------------------------------------------------

    def _save(self, regular: bool) -> None:
        state = {
            "step": self.step,
            "place": asdict(self.place),
            "tokens": self.tokens,
            "seconds": self.seconds,
            "looks": self.looks,
            "bad": self.bad,
            "best": self.best,
            "since": dict(self.since),
            "sums": {name: x.detach().cpu() for name, x in self.sums.items()},
            "optimiser": self.optimiser.state_dict(),
            "ema": None if self.ema is None else {name: x.cpu() for name, x in self.ema.kept.items()},
            "data": self.fingerprint,
            "random": streams.state(self.device, self.sampling),
            "task": self.task.state_dict(),
            "modules": {name: module.state_dict() for name, module in self.task.modules().items()},
        }
        self.checkpoints.save(self.step, tensors(self.model), state, regular)

    def _go_back(self, checkpoint: Path) -> None:
        weights, state = read(checkpoint)
        put(self.model, weights, checkpoint)
        if state.get("data") != self.fingerprint:
            raise BadInput(
                f"{checkpoint} was trained on other data than are there now, though their settings are equal"
            )
        try:
            self.optimiser.load_state_dict(state["optimiser"])
            if self.ema is not None:
                if state["ema"] is None:
                    raise BadInput(f"{checkpoint} holds no moving average: resume with train.ema=0, as it was begun")
                self.ema.load(state["ema"])
            for name, module in self.task.modules().items():
                module.load_state_dict(state["modules"][name])
            self.task.load_state_dict(state["task"])
            streams.restore(state["random"], self.device, self.sampling)
            self.step, self.place = int(state["step"]), Place(**state["place"])
            self.tokens, self.seconds = int(state["tokens"]), float(state["seconds"])
            self.looks, self.bad, self.best = int(state["looks"]), int(state["bad"]), state["best"]
            self.since = dict(state["since"])
            self.sums = {name: x.to(self.device) for name, x in state["sums"].items()}
        except (KeyError, TypeError, ValueError) as error:
            raise BadInput(f"{checkpoint} does not fit this run: {type(error).__name__}: {error}") from error

    # -- the end -------------------------------------------------------------------------------------------------------

    def _finish(self, stopped: str, progress: Progress) -> dict[str, Any]:
        """Measure last, best and averaged weights on validation, keep one of them, save it as a model."""
        s = self.settings
        effort = 2 if s.score else 0
        measured: dict[str, dict[str, Any]] = {}
        candidates = self._candidates()
        for name, weights in candidates.items():
            if s.finish in candidates and name not in (s.finish, "last"):
                continue
            put(self.model, _stored_as(weights(), s.store))
            measured[name] = self._measure(effort)
            said = "  ".join(f"{key} {value:.4g}" for key, value in measured[name].items() if isinstance(value, float))
            progress.say(f"{name}: {said}")
        chosen = s.finish if s.finish in measured else _best_of(measured, self.task.headline if s.score else "loss")
        if s.finish not in ("auto", chosen):
            progress.say(f"the run was too short for train.finish={s.finish}")
        final = _stored_as(candidates[chosen](), s.store)
        put(self.model, final)
        half = s.store == "float16"
        about = {"step": str(self.step), "chosen": chosen}
        file = self.checkpoints.folder / "final.safetensors"
        save_weights(file, {k: x.half() if half and x.is_floating_point() else x for k, x in final.items()}, about)
        result = self._result(stopped, measured, chosen)
        write((json.dumps(result, indent=2, ensure_ascii=False) + "\n").encode(), self.out / "result.json")
        self._export(result)
        progress.say(
            f"done: {self.step} updates in {clock(self.seconds)} ({stopped}), "
            f"{self.tokens / max(self.seconds, 1e-9):,.0f} tokens/s; kept '{chosen}' in {self.out / 'model'}"
        )
        return result

    def _candidates(self) -> dict[str, Callable[[], Mapping[str, Tensor]]]:
        """The weights a run may end with, each fetched when asked for."""
        last = {name: x.detach().clone() for name, x in tensors(self.model).items()}
        found: dict[str, Callable[[], Mapping[str, Tensor]]] = {"last": lambda: last}
        best = self.checkpoints.folder / "best.safetensors"
        if self.best is not None and best.is_file():
            found["best"] = lambda: read_weights(best)
        if (ema := self.ema) is not None:
            found["ema"] = lambda: last | ema.kept
        files = self.checkpoints.last(self.settings.average)
        if len(files) > 1:
            found["average"] = lambda: mean(files)
        return found

    def _export(self, result: dict[str, Any]) -> None:
        from regard.weights.folder import save_model

        text, about = getattr(self.task, "text", None), self.task.describe()
        dtype = None if self.settings.store == "float32" else self.settings.store
        save_model(self.out / "model", self.model.eval(), text, about, self._card(result), dtype)

    def _card(self, result: dict[str, Any]) -> str:
        kept = result["valid"].get(result["kept"], {})
        scores = "\n".join(f"- {key}: {value}" for key, value in kept.items())
        return (
            f"# {self.recipe.name}\n\n{self.task.card()}\n\nTrained {result['steps']} updates "
            f"({result['epochs']} epochs, {result['tokens']:,} tokens, {clock(result['seconds'])}) on "
            f"{result['machine']}; kept weights: {result['kept']}.\n\nOn the validation part:\n\n{scores}\n"
        )

    def _result(self, stopped: str, measured: dict[str, dict[str, Any]], kept: str | None) -> dict[str, Any]:
        return {
            "recipe": self.recipe.name,
            "stopped": stopped,
            "steps": self.step,
            "epochs": self.place.epoch,
            "tokens": self.tokens,
            "seconds": round(self.seconds, 3),
            "tokens_per_second": round(self.tokens / max(self.seconds, 1e-9), 1),
            "parameters": _parameters(self.model),
            "machine": machine(self.device),
            "precision": self.precision,
            "compiled": self.eager is None,
            "torch": torch.__version__,
            "seed": self.settings.seed,
            "kept": kept,
            "valid": measured,
            "out": str(self.out),
        }

    def _first_line(self) -> str:
        fused = "fused AdamW" if self.optimiser.fused else "AdamW"
        how = "compiled" if self.eager is None else f"eager: {self.eager}"
        going = f"; going on from update {self.step}" if self.step else ""
        return (
            f"{self.recipe.name} on {machine(self.device)}, {self.precision}, {fused}, {how}, "
            f"{_parameters(self.model):,} parameters; {self.task.card()}{going}"
        )


# -- the machine -------------------------------------------------------------------------------------------------------


def chosen_device(name: str) -> torch.device:
    """The device a setting means; auto is the GPU where there is one."""
    if name == "auto":
        return torch.device("cuda", torch.cuda.current_device()) if torch.cuda.is_available() else torch.device("cpu")
    try:
        device = torch.device(name)
        if device.type == "cuda" and device.index is None and torch.cuda.is_available():
            device = torch.device("cuda", torch.cuda.current_device())
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise Unsupported(f"there is no device '{name}' here: {str(error).splitlines()[0]}") from None
    return device


def chosen_precision(name: str, device: torch.device) -> str:
    """The precision of matrix products; bfloat16 is for GPUs that have it, and never for a CPU."""
    able = device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
    if name == "auto":
        return "bfloat16" if able else "float32"
    if name == "bfloat16" and not able:
        raise Unsupported(f"train.precision=bfloat16 needs a GPU that has it; {device} trains in float32")
    return name


def why_eager(asked: bool | None, device: torch.device) -> str | None:
    """Why the model is not compiled, in a few words; None where it is."""
    if asked is False:
        return "train.compile=false"
    if asked is None and device.type != "cuda":
        return f"on {device.type} compiling is left to train.compile=true"
    if not any(shutil.which(name) for name in (os.environ.get("CXX", ""), "c++", "g++", "clang++") if name):
        return "no C++ compiler found"
    if device.type == "cuda" and find_spec("triton") is None:
        return "no Triton found"
    return None


def machine(device: torch.device) -> str:
    """The device in words."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{device.type}, {torch.get_num_threads()} threads"


# -- small parts -------------------------------------------------------------------------------------------------------


def _refuse_changes(old: Recipe, new: Recipe) -> None:
    """A run goes on with the model, the task and the data it began with; how it is trained may change."""
    found = changed(old, new)
    fixed = {key: pair for key, pair in found.items() if not key.startswith("train.")}
    if fixed:
        said = "; ".join(f"{key} was {a!r}, is {b!r}" for key, (a, b) in fixed.items())
        raise BadInput(f"the run was begun with another recipe: {said}")


@contextmanager
def _alone(out: Path) -> Iterator[None]:
    """Nobody else trains into this folder meanwhile; the lock goes with the process, however it ends."""
    try:
        import fcntl
    except ImportError:  # not a POSIX system
        yield
        return
    with open(out / ".lock", "w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BadInput(f"another process is training into {out} right now") from None
        except OSError:  # a file system without locks
            pass
        yield


def _better(metric: str, value: float, best: float) -> bool:
    return value < best if metric.endswith(("loss", "perplexity")) else value > best


def _best_of(measured: dict[str, dict[str, Any]], by: str) -> str:
    best = next(iter(measured))
    for name, found in measured.items():
        key, top = (tuple(float(m[k]) for k in (by, "loss")) for m in (found, measured[best]))
        if _better(by, key[0], top[0]) or (key[0] == top[0] and key[1] < top[1]):
            best = name
    return best


def _stored_as(weights: Mapping[str, Tensor], dtype: str) -> dict[str, Tensor]:
    """Weights as they will be once stored."""
    if dtype == "float32":
        return dict(weights)
    return {name: x.half().float() if x.is_floating_point() else x for name, x in weights.items()}


@torch.no_grad()
def _copy(to: Mapping[str, Tensor], source: Mapping[str, Tensor]) -> None:
    for name, x in to.items():
        x.copy_(source[name])


def _parameters(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


def _from_compiler(error: Exception) -> bool:
    """Whether torch's compiler raised this, and not the model."""
    return type(error).__module__.startswith(("torch._dynamo", "torch._inductor"))

"""The training loop. It knows tasks only by their protocol (task.py), and every recipe goes through it.

    batches -> loss -> gradient -> clip -> update -> moving average    every update; nothing waits for the device
    metrics.jsonl                                                      every `log_interval` updates
    validation, best so far, patience                                  every `eval_interval` updates or each epoch
    checkpoint                                                         every `save_interval` updates or each epoch
    last, best, moving average, mean of the last k: choose, save       at the end (finalize.py)

The gradient is that of (sum of the losses) / (sum of the counts) over all accumulated batches of all processes, so that
a token has the same weight in whatever batch it is. Training n updates, stopping and resuming to m equals training m,
to the bit on a CPU: weights, moments, averages, the position in the data and every random stream are in the checkpoint.
"""

from __future__ import annotations

import copy
import math
import os
import shlex
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import asdict, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from regard.attention.aligners.hard import ForcedChoices
from regard.core.cancellation import Cancelled, cancel_when, check_cancelled
from regard.core.errors import BadInput, RegardError, Unsupported, is_out_of_memory
from regard.core.shapes import Tensor
from regard.data.batching import StreamItem, StreamPosition, prefetch
from regard.metrics.base import describe_metrics, find_metric
from regard.runtime.inference import is_compiler_error
from regard.tasks.base import SplitTask
from regard.training import finalize, init_from, rng
from regard.training.checkpoint.checkpoints import Checkpoints, restore_checkpoint, save_weights
from regard.training.compilation import CompiledTask
from regard.training.device import device_name, eager_reason, select_device, select_precision
from regard.training.interrupt import Interrupt
from regard.training.loggers.base import Loggers
from regard.training.loggers.progress import MetricsFile, NullProgress, Progress, say_if_slow
from regard.training.oom_advice import suggest_batch_size
from regard.training.optimizers.muon import fused_projections
from regard.training.optimizers.optimizer import Optimizer, parameters_without_decay
from regard.training.parallel.deferred_init import DeferredInit, build_deferred
from regard.training.parallel.distributed import DistributedContext, distributed_context
from regard.training.parallel.parallelize import ParallelModel, select_data_parallel
from regard.training.recipe import Recipe, build, load_saved_recipe, save_recipe, to_json
from regard.training.run_folder import check_unchanged, locked_folder, read_recipe
from regard.training.schedule import learning_rate_factor
from regard.training.task import Task
from regard.training.update_graph import UpdateGraphs, UpdateNumbers, training_stream
from regard.training.weight_averaging import ExponentialMovingAverage, named_tensors

SYNC_INTERVAL = 10  # updates between checks whether to stop, where several processes must agree


def run_training(
    recipe: Recipe,
    out: Path,
    resume: bool = False,
    command: str | None = None,
    watch: bool = False,
    finish: bool = False,
) -> dict[str, Any]:
    """Train a recipe into a folder and return its result; `resume` continues the run that is there, if any.

    `finish` ends the run that is there: its weights are measured, and one of them is saved, without further updates.
    `watch` plots the curve in the terminal. Started by torchrun, this is one of the processes of the run.
    """
    settings = recipe.train
    with (
        distributed_context(select_device(settings.device), settings.tensor_parallel) as world,
        _deterministic(settings.deterministic),
        locked_folder(out, world),
        rng.isolated_rng(world.device),
        _report_lost_process(world, out),
    ):
        checkpoints = Checkpoints(out / "checkpoints", settings.keep_checkpoints, settings.average_checkpoints, world)
        if world.is_main_process:
            checkpoints.clear(out)  # files that a killed process left half-written
        latest = world.broadcast(checkpoints.newest(_print_stderr) if world.is_main_process else None)
        if latest is not None and not resume:
            raise BadInput(f"{out} already holds a run ({latest.name}); resume it, or use another folder")
        if latest is not None:  # the vocabulary size is set from the data, later
            saved = read_recipe(out, latest, _print_stderr if world.is_main_process else None)
            check_unchanged(saved, replace(recipe, model=saved.model))
        if finish and latest is None:
            raise BadInput(f"{out} holds no checkpoint, so there is nothing to finish")
        with say_if_slow("reading the data and building the model ..."):
            run = TrainingRun(recipe, out, world, checkpoints, latest)
        run.stop = "finished" if finish else ""
        run.command = command or f"regard train {recipe.name} --out {shlex.quote(str(out))} --resume"
        return run.train(watch)


class TrainingRun:
    """One run: its parts, in the order they are needed, and the loop."""

    command = ""
    say: Callable[[str], None] = staticmethod(print)

    def __init__(
        self, recipe: Recipe, out: Path, world: DistributedContext, checkpoints: Checkpoints, latest: Path | None
    ) -> None:
        self.began = time.monotonic()  # reading the data counts as well
        s = self.settings = recipe.train
        self.out, self.world, self.device, self.checkpoints = out, world, world.device, checkpoints
        source = None if s.init_from is None or latest is not None else init_from.resolve_source(s.init_from)
        self.task: Task = recipe.task.build(
            recipe.data, seed=rng.derive_seed(s.seed, "data"), folder=source if latest is None else out
        )
        added_tokens = 0 if source is None else self.task.extend_vocabulary()
        self.task.ready(bool(s.score_interval))
        self.fingerprint = self.task.fingerprint()
        fitted = replace(recipe, model=self.task.fit(recipe.model))
        if latest is not None:
            check_unchanged(load_saved_recipe(out), fitted)
        self.recipe = fitted
        brings_weights = source is not None or type(self.task).initialize is not SplitTask.initialize
        self.model, deferred, why_whole = self._build_model(brings_weights)
        how = select_data_parallel(s.data_parallel, world, self.model)
        if deferred is not None and how != "fsdp" and world.tensor_parallel == 1:
            deferred.materialize(self.model, self.device)
            deferred = None
        _check_samplers_are_trained(self.model, self.task)
        # adaptive spans, routing centroids
        self.updated_parts: list[Any] = [x for x in self.model.modules() if hasattr(x, "after_update")]
        labels = getattr(self.task, "labels", None)
        self.init_message = why_whole
        if source is not None:
            self.init_message = init_from.load_initial_weights(self.model, source, labels, added_tokens)
        if deferred is None:
            self.task.initialize(self.model)
        for module in self.task.modules().values():
            module.to(self.device)
        self.precision = select_precision(s.precision, self.device)
        self.parallel = ParallelModel(self.task, self.model, world, how, self.precision, s.gradient_checkpointing)
        if deferred is not None:
            deferred.materialize(self.model, self.device)
        self.eager = eager_reason(s.compile, self.device)
        self.compiled = None if self.eager is not None else CompiledTask(self.task, self.parallel, s.compile_blocks)
        self.optimizer = Optimizer(
            self._trained_parameters(),
            s.optimizer,
            betas=s.betas,
            eps=s.eps,
            weight_decay=s.weight_decay,
            clip_grad_norm=s.clip_grad_norm,
            layer_decay=s.layer_decay,
            rows=fused_projections(self.model),
            no_decay=parameters_without_decay(self.model),
        )
        self.ema = ExponentialMovingAverage(self.model, s.ema_decay) if s.ema_decay else None
        self.sampling = torch.Generator(self.device)
        self._seed(latest=0)
        # the rest of the checkpoint
        self.step, self.position, self.tokens = 0, StreamPosition(), 0
        self.seconds, self.eval_seconds = 0.0, 0.0  # of updates, of evaluations
        self.elapsed = 0.0  # seconds of earlier processes
        self.budget_used = 0.0  # share of train.budget_minutes
        self.evaluations, self.evals_without_improvement = 0, 0
        self.evaluation_due = False  # an interrupted evaluation is made up for on resume
        self.best: float | None = None
        self.sums: dict[str, Tensor] = {}
        self.since_log = {"updates": 0, "count": 0, "seconds": 0.0}  # since the last row of metrics.jsonl
        if latest is not None:
            self._restore(latest)
        if world.is_main_process:
            if latest is None:
                self.task.save(out)
            save_recipe(fitted, out)
        self.metrics = MetricsFile(out / "metrics.jsonl", self.step, world.is_main_process)
        self.loggers = Loggers(out, s.loggers if world.is_main_process else (), to_json(fitted))
        self.graphs, self.graph_message = self._make_graphs()
        self.drawn_at, self.clock = -math.inf, 0.0
        self.stop = ""  # why the run ends early
        world.barrier()

    def _build_model(self, brings_weights: bool) -> tuple[nn.Module, DeferredInit | None, str]:
        """Build the model; one that may be sharded has no memory yet, unless a whole one is needed, which is said."""
        s, why = self.settings, ""
        is_whole = self.world.size == 1 or (s.data_parallel == "ddp" and self.world.tensor_parallel == 1)
        torch.manual_seed(rng.derive_seed(s.seed, "init"))
        if not is_whole and not brings_weights:
            try:
                return *build_deferred(lambda: build(self.recipe.model)), ""
            except (Unsupported, RuntimeError, NotImplementedError) as error:
                if is_out_of_memory(error):
                    raise
                why = f"every process builds the whole model first: {str(error).splitlines()[0]}"
                torch.manual_seed(rng.derive_seed(s.seed, "init"))
        return build(self.recipe.model).to(self.device), None, why

    def _make_graphs(self) -> tuple[UpdateGraphs | None, str]:
        """Return what runs updates on a GPU, and why it captures none."""
        if self.device.type != "cuda":
            if self.settings.graph == "on":
                raise BadInput("train.graph=on needs a GPU: CUDA graphs do not exist elsewhere")
            return None, ""
        reason = ""
        if self.settings.graph == "off":
            reason = "train.graph=off"
        elif self.world.size > 1 or self.parallel.mode != "one":
            reason = "several processes"
        elif self.settings.graph == "auto" and not getattr(self.task, "capturable", False):
            reason = f"the task {self.task.name} says that it cannot be captured; train.graph=on tries it"
        elif self.settings.graph == "auto" and self.settings.deterministic:
            reason = "not tested with deterministic algorithms; train.graph=on tries it"
        elif self.settings.gradient_checkpointing:
            reason = "gradient checkpointing"
        if reason and self.settings.graph == "on":
            raise BadInput(f"train.graph=on is impossible here: {reason}")
        graphs = UpdateGraphs(
            self._compute, self.device, [self.sampling], lambda line: self.say(line), not reason, self._task_values
        )
        return graphs, reason

    def _task_values(self) -> dict[str, Any]:
        """Return a copy of the plain values that the task keeps between updates."""
        return copy.deepcopy({key: x for key, x in self.task.state_dict().items() if not isinstance(x, Tensor)})

    def _trained_parameters(self) -> dict[str, torch.nn.Parameter]:
        """Return every trained parameter by name, the model's and the task's."""
        task = {f"{key}:{name}": p for key, m in self.task.modules().items() for name, p in m.named_parameters()}
        return dict(self.model.named_parameters()) | task

    def _seed(self, latest: int) -> None:
        """Seed the streams of dropout and sampling for this replica, from this update on."""
        replica, seed = self.world.replica, self.settings.seed
        suffix = f"/{replica}/{latest}" if replica or latest else ""
        torch.manual_seed(rng.derive_seed(seed, f"dropout{suffix}"))
        self.sampling.manual_seed(rng.derive_seed(seed, f"sampling{suffix}"))

    def train(self, watch: bool = False) -> dict[str, Any]:
        """Train until the last update, or until the run is stopped."""
        s = self.settings
        pin = (lambda d: replace(d, batch=d.batch.pin())) if self.device.type == "cuda" else None
        stream = self.task.batches().start(self.position, self.world.replica, self.world.num_replicas)
        self.model.train()
        world_size = self.world.size  # several processes evaluate together or not at all
        with (
            training_stream(self.device),
            Interrupt(compiling=self.compiled is not None) as interrupt,
            cancel_when(lambda: bool(interrupt) and world_size == 1),
            closing(self.loggers),
            self._progress(watch) as progress,
        ):
            self.say = progress.print_line
            for line in (self._first_line(), self.init_message):
                if line:
                    progress.print_line(line)
            with prefetch(stream, prepare=pin, workers=s.num_workers) as batches:
                if self.evaluation_due and not self.stop:
                    self._evaluate(progress)
                self._start_clock()
                while self.step < s.steps and not self._out_of_patience() and not self.stop:
                    epoch = self.position.epoch
                    self._update(batches)
                    interrupt.compiling = False
                    epoch_ended = self.position.epoch > epoch
                    evaluate = self.step % s.eval_interval == 0 if s.eval_interval else epoch_ended
                    regular = self.step % s.save_interval == 0 if s.save_interval else epoch_ended
                    late = bool(s.max_minutes) and time.monotonic() - self.began > 60 * s.max_minutes
                    late = late or self.budget_used >= 1
                    self.stop = self._agree_on_stop("interrupted" if interrupt else "minutes" if late else "")
                    if self.step % s.log_interval == 0 or evaluate or regular or self.stop or self.step == s.steps:
                        self._stop_clock()
                        if self.step % s.log_interval == 0:
                            self._write_row(progress)
                        if evaluate:
                            self._evaluate(progress)
                        if regular or self.stop or self._out_of_patience() or self.step == s.steps:
                            self._save(regular)
                        self._start_clock()
                    elif self.step % 10 == 0 or progress.is_due():
                        self._show(progress)
            self._draw(force=True)
            if self.stop == "interrupted":
                result = finalize.save_interrupted(self, progress)
            else:
                result = finalize.finalize(
                    self, self.stop or ("patience" if self._out_of_patience() else "steps"), progress
                )
        return result

    def _progress(self, watch: bool) -> Any:
        if not self.world.is_main_process:
            return NullProgress()
        if watch:
            from regard.training.loggers.terminal_plot import TerminalPlot

            return TerminalPlot(
                self.settings.steps,
                self.step,
                self.metrics.rows,
                self.recipe.name,
                metrics=self.task.metrics,
                limit=self._seconds_left,
            )
        return Progress(self.settings.steps, self.step, limit=self._seconds_left)

    def _seconds_left(self) -> float | None:
        """Return the seconds that the time limits leave; None without a limit."""
        s, now = self.settings, time.monotonic()
        session, whole = now - self.began, self.elapsed + now - self.began
        limits = [(s.max_minutes, session), (s.budget_minutes, whole)]
        return min((60 * minutes - spent for minutes, spent in limits if minutes), default=None)

    def _agree_on_stop(self, stop: str) -> str:
        """Return why to stop, the same on all processes, which synchronise every few updates."""
        reasons = ("", "minutes", "interrupted")
        if self.world.size == 1:
            return stop
        return reasons[self.world.max_over_ranks(reasons.index(stop))] if self.step % SYNC_INTERVAL == 0 else ""

    def _out_of_patience(self) -> bool:
        """Return whether there were too many evaluations without improvement."""
        return bool(self.settings.patience) and self.evals_without_improvement >= self.settings.patience

    def _start_clock(self) -> None:
        self.clock = time.monotonic()

    def _stop_clock(self) -> None:
        """Wait for the device, so that times are true, and add the time since the clock was started."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        spent = time.monotonic() - self.clock
        self.seconds += spent
        self.since_log["seconds"] += spent

    # -- one update ----------------------------------------------------------------------------------------------------

    def _update(self, batches: Iterator[StreamItem[Any]]) -> None:
        items = [next(batches) for _ in range(self.settings.gradient_accumulation_steps)]
        count = max(1, self.world.sum_over_replicas(sum(d.count for d in items)))
        # a replica without rows in this batch got a dummy row; gradients are averaged over replicas
        weights = [(self.world.num_replicas if d.count else 0) / count for d in items]
        decay = self.ema.decay_at(self.step + 1) if self.ema is not None else 0.0
        self._read_clock()
        numbers = UpdateNumbers(self.scheduled_step(self.step), self.learning_rate(self.step + 1), decay, weights)
        inputs = [d.batch for d in items]
        if self.graphs is not None:
            self.graphs.run(inputs, numbers)
        else:
            self._compute(inputs, numbers)
        self.step += 1
        self.position = items[-1].next_position
        self.tokens += count
        self.since_log["updates"] += 1
        self.since_log["count"] += count

    def _compute(self, batches: Sequence[Any], numbers: UpdateNumbers) -> None:
        """Compute one update: no host synchronisation, no state outside tensors."""
        for batch, weight in zip(batches, numbers.weights, strict=True):
            with self.parallel.accumulating(last=batch is batches[-1]):
                total, parts = self._loss(batch, numbers.step)
                (total * weight).backward()
            used = isinstance(weight, Tensor) or weight > 0
            self._add_to_log({name: x.detach() if used else torch.zeros_like(x) for name, x in parts.items()})
        norm, skipped = self.optimizer.step(numbers.learning_rate)
        self._add_to_log({"_norm": norm.masked_fill(skipped > 0, 0.0), "_skipped": skipped})
        for part in self.updated_parts:
            part.after_update()
        self.task.after_update(self.model, numbers.step + 1)
        if self.ema is not None:
            self.ema.update(numbers.ema_decay)

    def _add_to_log(self, values: Mapping[str, Tensor]) -> None:
        for name, x in values.items():
            if name in self.sums:
                self.sums[name] += x
            else:
                self.sums[name] = x.clone()

    def _read_clock(self) -> None:
        """Update the share of the budget that is used; several processes use the main process's clock."""
        if not self.settings.budget_minutes or (self.world.size > 1 and self.step % SYNC_INTERVAL):
            return
        used = (self.elapsed + time.monotonic() - self.began) / (60 * self.settings.budget_minutes)
        self.budget_used = self.world.broadcast(used) if self.world.size > 1 else used

    def scheduled_step(self, step: int) -> int:
        """Return where schedules are at an update: past the warmup, a budget of time may be ahead of the count."""
        s = self.settings
        return max(step, int(self.budget_used * s.steps)) if step > s.warmup_steps else step

    def learning_rate(self, step: int) -> float:
        """Return the learning rate of an update, counted from 1."""
        s = self.settings
        return s.learning_rate * learning_rate_factor(
            s.schedule, self.scheduled_step(step), s.warmup_steps, s.steps, s.min_learning_rate_ratio
        )

    def _loss(self, batch: Any, step: Any) -> tuple[Tensor, dict[str, Tensor]]:
        try:
            return self._objective(batch, step)
        except Exception as error:
            if self.device.type == "cuda" and torch.cuda.is_current_stream_capturing():
                raise
            if is_out_of_memory(error):
                raise BadInput(suggest_batch_size(self, batch, error)) from None
            if self.compiled is None or not is_compiler_error(error):
                raise
            failed = type(error).__name__
        self.compiled.undo()
        self.compiled, self.eager = None, f"the compiler failed ({failed})"
        self.say(f"eager: {self.eager}")
        return self._objective(batch, step)

    def _objective(self, batch: Any, step: Any) -> tuple[Tensor, dict[str, Tensor]]:
        with self.autocast():
            return self.parallel.loss(batch.to(self.device), step, self.sampling)

    def autocast(self) -> AbstractContextManager[Any]:
        """Return a context in which products run in the run's precision."""
        if self.precision == "bfloat16":
            return torch.autocast(self.device.type, dtype=torch.bfloat16)
        return nullcontext()

    # -- logging and evaluation ----------------------------------------------------------------------------------------

    def _totals(self) -> dict[str, Tensor]:
        """Return the sums over all processes; norms and skipped updates are the same on all."""
        return {
            name: x if name.startswith("_") else self.world.all_reduce_sum(x.clone()) for name, x in self.sums.items()
        }

    def _write_row(self, progress: Progress) -> None:
        updates, count = max(1, self.since_log["updates"]), max(1, self.since_log["count"])
        values = {name: float(x) for name, x in self._totals().items()}
        skipped = int(values.pop("_skipped", 0.0))
        norm = values.pop("_norm", 0.0) / max(1, updates - skipped)
        numbers = {name: value / count for name, value in values.items()}
        rate = self.learning_rate(self.step)
        row = {"step": self.step, "epoch": self.position.epoch, "tokens": self.tokens, **numbers, "lr": rate}
        row |= {"grad_norm": norm, "seconds": round(self.seconds, 3)}
        row["tokens_per_second"] = round(count / max(self.since_log["seconds"], 1e-9), 1)
        if skipped:
            row["skipped_updates"] = skipped
        self.metrics.add(row)
        self.loggers.add(row)
        progress.update(self.step, {**numbers, "lr": rate, f"{self.task.unit}/s": row["tokens_per_second"]})
        self.since_log = {"updates": 0, "count": 0, "seconds": 0.0}
        for x in self.sums.values():  # in place: graphs add to these tensors
            x.zero_()
        if skipped == updates:
            newest = self.checkpoints.newest()
            raise RegardError(
                f"the gradient was not finite in all of the last {updates} updates (up to {self.step}), which were "
                f"skipped. Last checkpoint: {newest or 'none'}. Lower train.learning_rate, raise train.warmup_steps or "
                f"set train.clip_grad_norm=1"
            )
        if skipped:
            progress.print_line(
                f"step {self.step}  skipped {skipped} of {updates} updates, whose gradient was not finite"
            )

    def _show(self, progress: Progress) -> None:
        """Advance the progress bar; with numbers only on a CPU, where reading them costs nothing."""
        if self.device.type != "cpu":
            progress.advance(self.step)
            return
        count = max(1, self.since_log["count"])
        speed = count / max(self.since_log["seconds"] + time.monotonic() - self.clock, 1e-9)
        own = count / self.world.num_replicas  # approximately: this replica stands for all
        progress.update(self.step, {"loss": float(self.sums["loss"]) / max(own, 1), f"{self.task.unit}/s": speed})

    def _evaluate(self, progress: Progress) -> None:
        """Evaluate on the validation split; save the best weights, count evaluations without improvement."""
        s, began = self.settings, time.monotonic()
        effort = 1 if s.score_interval and (self.evaluations + 1) % s.score_interval == 0 else 0
        with self._averaged():
            try:
                found = self.measure(effort)
            except Cancelled:
                self.stop, self.evaluation_due = "interrupted", True
                return
            self.evaluation_due = False
            self.evaluations += 1
            numbers = {key: value for key, value in found.items() if isinstance(value, float)}
            metric = find_metric(self.task.metrics, s.metric)
            if metric is None or (s.metric not in found and effort == (1 if s.score_interval else 0)):
                raise RegardError(f"train.metric is '{s.metric}', but the task reports {', '.join(numbers)}")
            if s.metric in found:
                value = float(found[s.metric])
                if math.isfinite(value) and (self.best is None or metric.is_better(value, self.best)):
                    self.best, self.evals_without_improvement = value, 0
                    about = {"step": str(self.step), s.metric: repr(value)}
                    save_weights(
                        self.checkpoints.folder / "best.safetensors", named_tensors(self.model), about, self.world
                    )
                else:
                    self.evals_without_improvement += 1
        counts = ("tokens", self.task.unit)  # sizes of the split, not metrics
        row = {("val_loss" if key == "loss" else key): value for key, value in found.items() if key not in counts}
        self.eval_seconds += time.monotonic() - began
        row = {"step": self.step, "epoch": self.position.epoch, **row, "eval_seconds": round(self.eval_seconds, 3)}
        self.metrics.add(row)
        self.loggers.add(row)
        scores = describe_metrics(self.task.metrics, found)
        signature = "".join(f"  [{value}]" for key, value in found.items() if key.endswith("signature"))
        progress.print_line(
            f"step {self.step}  validation: {scores}{signature if self.evaluations == s.score_interval else ''}"
        )
        self._draw()

    def measure(self, effort: int) -> dict[str, Any]:
        """Evaluate the model as it is, without changing its mode or any random stream."""
        with (
            rng.isolated_rng(self.device),
            self.parallel.unsharded(effort > 0),
            self.model.register_forward_pre_hook(lambda *_: check_cancelled()),
        ):
            try:
                found = self.task.evaluate(self.model, "val", effort)
            finally:
                self.model.train()
        result: dict[str, Any] = self.world.broadcast(found)  # all processes use the main process's numbers
        return result

    @contextmanager
    def _averaged(self) -> Iterator[None]:
        """Use the moving average as the model's weights inside the block, if there is one."""
        if self.ema is None:
            yield
            return
        own = {name: x.detach().clone() for name, x in self.ema.parameters.items()}
        try:
            _copy(self.ema.parameters, self.ema.averages)
            yield
        finally:
            _copy(self.ema.parameters, own)

    def _draw(self, force: bool = False) -> None:
        """Plot the curve so far; while training at most every five minutes."""
        if (
            not self.world.is_main_process
            or not self.metrics.rows
            or (not force and time.monotonic() - self.drawn_at < 300)
        ):
            return
        if find_spec("matplotlib") is None:
            return
        from regard.see.training_curve import training_curve

        training_curve(self.metrics.rows, self.out / "curve.png", self.recipe.name, self.task.unit, self.task.metrics)
        self.drawn_at = time.monotonic()

    # -- saving and resuming -------------------------------------------------------------------------------------------

    def _groups(self) -> dict[str, Mapping[str, Tensor]]:
        """Return all tensors of the run by group."""
        groups: dict[str, Mapping[str, Tensor]] = {
            "model": named_tensors(self.model),
            "optimizer": self.optimizer.tensors(),
        }
        if self.ema is not None:
            groups["ema"] = self.ema.averages
        for name, module in self.task.modules().items():
            groups[f"task.{name}"] = named_tensors(module)
        return groups

    def _save(self, regular: bool) -> None:
        state = {
            "step": self.step,
            "position": asdict(self.position),
            "tokens": self.tokens,
            "seconds": self.seconds,
            "eval_seconds": self.eval_seconds,
            "elapsed": self.elapsed + time.monotonic() - self.began,
            "evaluations": self.evaluations,
            "evals_without_improvement": self.evals_without_improvement,
            "evaluation_due": self.evaluation_due,
            "best": self.best,
            "since_log": dict(self.since_log),
            "sums": {name: x.detach().cpu() for name, x in self._totals().items()},
            "data": self.fingerprint,
            "task": self.task.state_dict(),
        }
        sums = {name: x.detach().cpu() for name, x in self.sums.items()}
        own = {"random": rng.get_rng_state(self.device, self.sampling), "sums": sums}
        self.checkpoints.save(self.step, self._groups(), state, own, regular, to_json(self.recipe))

    def _restore(self, checkpoint: Path) -> None:
        state, own = restore_checkpoint(checkpoint, self._groups(), self.world)
        if state.get("data") != self.fingerprint:
            raise BadInput(
                f"{checkpoint} was trained on other data than there are now, though the settings are the same"
            )
        try:
            self.task.load_state_dict(state["task"])
            self.step, self.position = int(state["step"]), StreamPosition(**state["position"])
            self.tokens, self.seconds = int(state["tokens"]), float(state["seconds"])
            self.eval_seconds = float(state.get("eval_seconds", 0.0))  # an older version saved none
            self.elapsed = float(state.get("elapsed", self.seconds + self.eval_seconds))  # likewise
            self.evaluations, self.evals_without_improvement, self.best = (
                int(state["evaluations"]),
                int(state["evals_without_improvement"]),
                state["best"],
            )
            self.evaluation_due = bool(state.get("evaluation_due", False))
            self.since_log = dict(state["since_log"])
            self.sums = {name: x.to(self.device) for name, x in state["sums"].items()}
            if self.world.replica:  # the sums are totals over processes: only the first replica continues them
                self.sums = {name: x if name[0] == "_" else torch.zeros_like(x) for name, x in self.sums.items()}
            if own is not None:  # the same number of processes: each continues with its own
                self.sums = {name: x.to(self.device) for name, x in own["sums"].items()}
                rng.set_rng_state(own["random"], self.device, self.sampling)
            else:
                self._seed(self.step)
        except (KeyError, TypeError, ValueError) as error:
            raise BadInput(f"{checkpoint} does not fit this run: {type(error).__name__}: {error}") from error

    def _first_line(self) -> str:
        how = "compiled" if self.eager is None else f"eager: {self.eager}"
        if self.graphs is not None:
            how += f", no CUDA graphs: {self.graph_message}" if self.graph_message else ", CUDA graphs"
        parallel = self.parallel.describe()
        checkpointing = ", gradient checkpointing" if self.settings.gradient_checkpointing else ""
        resumed = f"; resumed from update {self.step}" if self.step else ""
        return (
            f"{self.recipe.name} on {device_name(self.device)}, {f'{parallel}, ' if parallel else ''}{self.precision}, "
            f"{self.optimizer.describe()}, {how}{checkpointing}, {finalize.count_parameters(self.model):,} parameters; "
            f"{self.task.card()}{resumed}"
        )


# -- helpers -----------------------------------------------------------------------------------------------------------


@contextmanager
def _report_lost_process(world: DistributedContext, out: Path) -> Iterator[None]:
    """Raise one line where another process of the run has died."""
    try:
        yield
    except (dist.DistError, RuntimeError) as error:
        gone = ("connection closed", "connection reset", "connection refused", "broken pipe", "timed out")
        if world.size == 1 or not any(sign in str(error).lower() for sign in gone):
            raise
        raise RegardError(
            f"process {world.rank} of {world.size} lost the connection to another one, which has died or hangs; only "
            f"the updates since the last checkpoint in {out} are lost: start again with --resume (torchrun "
            f"--max-restarts 3 does so by itself)"
        ) from error


@contextmanager
def _deterministic(enabled: bool) -> Iterator[None]:
    """Use only deterministic algorithms inside the block; slower on a GPU."""
    if not enabled:
        yield
        return
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)


def _print_stderr(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


@torch.no_grad()
def _copy(to: Mapping[str, Tensor], source: Mapping[str, Tensor]) -> None:
    for name, x in to.items():
        x.copy_(source[name])


def _check_samplers_are_trained(model: nn.Module, task: Task) -> None:
    """Raise if the model samples but the task gives no reward, so that its samplers would never learn."""
    samplers = [type(part).__name__ for part in model.modules() if isinstance(part, ForcedChoices)]
    if samplers and not hasattr(task, "choices"):
        raise RegardError(
            f"{samplers[0]} samples, but the task does not train it: use a REINFORCE task, or model.aligner=gumbel"
        )

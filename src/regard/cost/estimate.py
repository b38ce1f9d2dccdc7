"""Estimate memory, communication and time of a model on one device or many.

    memory     weights + gradients + moments (4 bytes each per parameter, sharded by FSDP and tensor parallelism)
               + activations at the peak of a pass (passes.py) + weights gathered by FSDP
    sent       DDP     2 (n-1)/n · gradients                               per device and update
               FSDP    (n-1)/n · (weights twice per pass + gradients once)
               tensor  2 (t-1)/t · (outputs of rows + inputs of columns)   per pass
    time       sum over kernels of max(operations / speed, bytes / bandwidth, launch time), plus communication:
               all-reduces of tensor parallelism block, the rest overlaps with computing

Each data-parallel device gets batch / (devices / tensor) rows. Expected shares of peaks: devices.Efficiency.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cache
from math import ceil, log2
from typing import Any

from regard.core.errors import BadInput, Unsupported
from regard.cost import meta_model
from regard.cost.devices import DEVICES, EXPECTED, Device, Efficiency
from regard.cost.meta_model import InputShape
from regard.cost.passes import (
    FLOAT,
    ExecutionPlan,
    PassCosts,
    decoding_step,
    forward_pass,
    saved_activation_bytes,
    training_step,
)

BUCKET = 25 * 2**20  # bytes of a DDP bucket
MODES = ("train", "infer", "decode")


@dataclass(frozen=True)
class Scenario:
    """What to estimate. The batch size of `shape` is that of one pass of all devices together."""

    config: Any
    shape: InputShape = field(default_factory=InputShape)
    mode: str = "train"
    device: Device = DEVICES["h200"]
    devices: int = 1
    parallel: str = "auto"  # auto, ddp or fsdp
    tensor_parallel: int = 1
    recompute: bool = False
    precision: str = "bfloat16"
    optimizer: str = "adamw"
    accumulate: int = 1
    beam_size: int = 1
    tokens: float | None = None  # of a whole training run
    tokens_per_parameter: float | None = None  # or tokens per parameter
    efficiency: Efficiency = EXPECTED

    @property
    def shares(self) -> int:
        """Number of data-parallel devices."""
        return self.devices // self.tensor_parallel

    @property
    def compute_bytes(self) -> int:
        """Bytes per element in the dtype of matrix products."""
        return 2 if self.precision == "bfloat16" else FLOAT


@dataclass(frozen=True)
class Communication:
    """What one device sends for one update by one kind of collective."""

    what: str
    bytes_sent: float
    seconds: float
    blocking: bool  # whether computing waits for it


@dataclass(frozen=True)
class Cost:
    """An estimate. Bytes, operations and seconds are of one device and one update (forward pass, or decoding step)."""

    scenario: Scenario
    parallel: str  # one, ddp or fsdp
    passes: PassCosts
    memory: dict[str, int]
    flows: list[Communication]
    computing: float
    seconds: float
    saved_with_recompute_toggled: int | None = None  # saved_for_backward if `recompute` were the other way

    @property
    def parameters(self) -> int:
        """Parameters of the whole model."""
        return self.passes.unsliced_parameters

    @property
    def active(self) -> int:
        """Parameters that one token uses: all but the experts it is not routed to."""
        return self.passes.unsliced_parameters - self.passes.inactive

    @property
    def peak_bytes(self) -> int:
        """Bytes of all tensors at the peak."""
        return sum(self.memory.values())

    @property
    def required_bytes(self) -> float:
        """Peak bytes plus fragmentation and reserved memory."""
        return self.peak_bytes * (1 + self.scenario.efficiency.fragmentation) + self.scenario.efficiency.reserved

    @property
    def fits(self) -> bool:
        """Whether the device has enough memory."""
        return self.required_bytes <= self.scenario.device.memory

    @property
    def items(self) -> int:
        """Tokens (or images) of one update of all devices."""
        return (
            self.passes.items
            * self.scenario.shares
            * (self.scenario.accumulate if self.scenario.mode == "train" else 1)
        )

    @property
    def rate(self) -> float:
        """Tokens (or images) per second."""
        return self.items * (self.scenario.beam_size if self.scenario.mode == "decode" else 1) / self.seconds

    @property
    def operations(self) -> int:
        """Operations of one device and one update, recomputation included."""
        if self.scenario.mode != "train":
            return self.passes.operations("step" if self.scenario.mode == "decode" else "forward")
        update = self.passes.operations("update")
        return self.scenario.accumulate * self.passes.operations("forward", "loss", "backward") + update

    @property
    def utilisation(self) -> float:
        """Operations per second as a share of the peak."""
        return self.operations / self.seconds / self.scenario.device.speed(self.scenario.precision)

    @property
    def run(self) -> tuple[float, float, float] | None:
        """Tokens, updates and seconds of a whole training run; None without `tokens`."""
        tokens = (
            self.scenario.tokens_per_parameter * self.parameters
            if self.scenario.tokens_per_parameter is not None
            else self.scenario.tokens
        )
        if tokens is None:
            return None
        return tokens, ceil(tokens / self.items), ceil(tokens / self.items) * self.seconds


def estimate(scenario: Scenario) -> Cost:
    """Estimate a scenario."""
    _check(scenario)
    parallel = _choose_parallel(scenario)
    return _combine(scenario, parallel, _passes(scenario, parallel))


def with_recomputation(cost: Cost) -> Cost:
    """Return the estimate with `saved_with_recompute_toggled` filled in, for models with repeated blocks."""
    if cost.scenario.mode != "train" or not cost.passes.blocks:
        return cost
    shape, plan = _device_share(cost.scenario, cost.parallel)
    return replace(
        cost,
        saved_with_recompute_toggled=saved_activation_bytes(
            cost.scenario.config, shape, replace(plan, recompute=not plan.recompute)
        ),
    )


def _check(scenario: Scenario) -> None:
    if scenario.mode not in MODES:
        raise BadInput(f"mode must be one of {', '.join(MODES)}; got {scenario.mode!r}")
    numbers = {
        "--batch-size": scenario.shape.batch,
        "--devices": scenario.devices,
        "--tensor-parallel": scenario.tensor_parallel,
        "--beam-size": scenario.beam_size,
        "--accumulate": scenario.accumulate,
        "--length": scenario.shape.length,
        "--source": scenario.shape.source,
        "--target": scenario.shape.target,
    }
    for name, number in numbers.items():
        if number is not None and number < 1:
            raise BadInput(f"{name} must be at least 1, got {number}")
    if scenario.devices % scenario.tensor_parallel:
        raise BadInput(f"--tensor-parallel {scenario.tensor_parallel} does not divide the {scenario.devices} devices")
    if scenario.shape.batch % scenario.shares:
        nearest = max(1, round(scenario.shape.batch / scenario.shares)) * scenario.shares
        raise BadInput(
            f"batch size {scenario.shape.batch} is not divisible by {scenario.shares} data-parallel devices; "
            f"use --batch-size {nearest}"
        )


def _choose_parallel(scenario: Scenario) -> str:
    """Choose as training does: FSDP with tensor parallelism, or if weights, gradients and moments would not fit."""
    if scenario.shares == 1 or scenario.mode != "train":
        return "one"
    if scenario.tensor_parallel > 1:
        if scenario.parallel == "ddp":
            raise Unsupported("--tensor-parallel with data parallelism needs --parallel fsdp, not ddp")
        return "fsdp"
    if scenario.parallel != "auto":
        return scenario.parallel
    with meta_model.fake_tensors():
        parameters = sum(p.numel() for p in meta_model.build(scenario.config).parameters())
    return "fsdp" if 4 * FLOAT * parameters > 0.75 * scenario.device.memory else "ddp"


def _device_share(scenario: Scenario, parallel: str) -> tuple[InputShape, ExecutionPlan]:
    """Return the input shape and the execution plan of one device."""
    plan = ExecutionPlan(
        scenario.precision,
        scenario.recompute,
        scenario.tensor_parallel,
        parallel == "fsdp",
        scenario.optimizer,
        scenario.accumulate,
        scenario.device.is_cpu,
    )
    return replace(scenario.shape, batch=scenario.shape.batch // scenario.shares), plan


def _passes(scenario: Scenario, parallel: str) -> PassCosts:
    shape, plan = _device_share(scenario, parallel)
    if scenario.mode == "train":
        return training_step(scenario.config, shape, plan)
    return (
        forward_pass(scenario.config, shape, plan)
        if scenario.mode == "infer"
        else decoding_step(scenario.config, shape, plan, scenario.beam_size)
    )


def _combine(scenario: Scenario, parallel: str, passes: PassCosts) -> Cost:
    flows = _flows(scenario, parallel, passes)
    computing = _computing(scenario, parallel, passes)
    blocking = sum(flow.seconds for flow in flows if flow.blocking)
    overlapping = sum(flow.seconds for flow in flows if not flow.blocking)
    seconds = computing + blocking + max(0.0, overlapping - scenario.efficiency.overlap * computing)
    memory = (
        _training_memory(scenario, parallel, passes)
        if scenario.mode == "train"
        else _inference_memory(scenario, passes)
    )
    return Cost(scenario, parallel, passes, memory, flows, computing, seconds)


# -- memory ------------------------------------------------------------------------------------------------------------


def _training_memory(scenario: Scenario, parallel: str, passes: PassCosts) -> dict[str, int]:
    """Return the memory of one device at its peak, by kind."""
    n = scenario.shares if parallel == "fsdp" else 1
    num_parameters = passes.total
    peak = dict(passes.peak)
    found = {
        "weights": FLOAT * num_parameters // n + passes.buffers,
        "optimizer": passes.state // n,
        "gradients": peak.pop("gradients", 0),
        "copies of weights": peak.pop("copies of weights", 0),
        "activations": sum(peak.values()),
    }
    if parallel == "ddp":
        found["gradient buckets"] = FLOAT * num_parameters
    if parallel == "fsdp":
        block = max(passes.blocks, default=num_parameters)
        rest = num_parameters - sum(passes.blocks) if passes.blocks else 0
        # accumulated unsharded until the last pass
        found["gradients"] = FLOAT * num_parameters // (n if scenario.accumulate == 1 else 1)
        # this block, the next and the one being copied in; the rest stays gathered; then a block's gradients and their
        # float32 copy
        found["gathered"] = (
            scenario.compute_bytes * (3 * block + rest)
            + (scenario.compute_bytes + FLOAT) * block
            + scenario.compute_bytes * rest
        )
        later = {what: found[what] for what in ("weights", "optimizer", "gradients")}
        later["update"] = passes.update_bytes // (1 if _gathers_for_update(passes) else n)
        found = max(found, later, key=lambda moment: sum(moment.values()))
    return {what: size for what, size in found.items() if size}


def _gathers_for_update(passes: PassCosts) -> bool:
    """Whether the update multiplies whole matrices, as Muon does, so that every device gathers all of them."""
    return passes.operations("update") > 0


def _inference_memory(scenario: Scenario, passes: PassCosts) -> dict[str, int]:
    rest = sum(passes.peak.values()) - passes.cache
    found = {
        "weights": scenario.compute_bytes * passes.total + passes.buffers,
        "cache": passes.cache,
        "activations": max(0, rest),
    }
    return {what: size for what, size in found.items() if size}


# -- communication -----------------------------------------------------------------------------------------------------


def _flows(scenario: Scenario, parallel: str, passes: PassCosts) -> list[Communication]:
    """Return what one device sends for one update."""
    n, t, efficiency = scenario.shares, scenario.tensor_parallel, scenario.efficiency
    flows = []
    data_speed, tensor_speed = _speed(scenario, n, stride=t), _speed(scenario, t, stride=1)
    num_parameters, units = passes.total, len(passes.blocks) + 1
    if parallel == "ddp":
        sent, buckets = 2 * (n - 1) / n * FLOAT * num_parameters, ceil(FLOAT * num_parameters / BUCKET)
        seconds = sent / data_speed + buckets * 2 * log2(n) * efficiency.latency
        flows.append(Communication("gradients, summed (all-reduce)", sent, seconds, False))
    if parallel == "fsdp":
        sent = 2 * scenario.accumulate * (n - 1) / n * scenario.compute_bytes * num_parameters
        delay = 2 * scenario.accumulate * units * (n - 1) * efficiency.latency
        flows.append(Communication("weights, gathered (all-gather)", sent, sent / data_speed + delay, False))
        sent, delay = (n - 1) / n * FLOAT * num_parameters, units * (n - 1) * efficiency.latency
        flows.append(
            Communication("gradients, summed and cut (reduce-scatter)", sent, sent / data_speed + delay, False)
        )
        if _gathers_for_update(passes):
            sent = (n - 1) / n * FLOAT * sum(passes.blocks)
            flows.append(Communication("steps, gathered whole (all-gather)", sent, sent / data_speed + delay, True))
    if t > 1:
        training, notes = scenario.mode == "train", passes.notes
        forward = notes["sums forward"] * (2 if scenario.recompute and training else 1)
        size = (forward + (notes["sums backward"] if training else 0)) * (scenario.accumulate if training else 1)
        times = notes["sums"] * (scenario.accumulate if training else 1)
        sent = 2 * (t - 1) / t * size
        seconds = sent / tensor_speed + times * 2 * log2(t) * efficiency.latency
        flows.append(Communication("activations, summed (all-reduce)", sent, seconds, True))
    return flows


def _speed(scenario: Scenario, members: int, stride: int) -> float:
    """Return the bytes per second of each member: over the links of a machine, or over the shared network."""
    d = scenario.device
    if members * stride <= d.per_node:
        return d.link * scenario.efficiency.link
    per_machine = max(1, d.per_node // stride)
    return min(d.link, d.network * per_machine) * scenario.efficiency.link


# -- time --------------------------------------------------------------------------------------------------------------


def _computing(scenario: Scenario, parallel: str, passes: PassCosts) -> float:
    """Return the seconds that one device computes for one update."""
    if scenario.mode == "decode":
        return _kernels(scenario, passes, ["step"])
    if scenario.mode == "infer":
        return _kernels(scenario, passes, ["forward"])
    update = _kernels(scenario, passes, ["update"]) / (
        scenario.shares if parallel == "fsdp" and not _gathers_for_update(passes) else 1
    )
    return scenario.accumulate * _kernels(scenario, passes, ["forward", "loss", "backward"]) + update


def _kernels(scenario: Scenario, passes: PassCosts, phases: Iterable[str]) -> float:
    """Return the time of all kernels: the larger of computing and memory traffic each; pointwise ones are fused."""
    efficiency, peak = scenario.efficiency, scenario.device.speed(scenario.precision)
    total = 0.0
    for phase in phases:
        for kernel, times in passes.kernels.get(phase, {}).items():
            if kernel.kind == "pointwise" and phase != "update":
                continue
            share = efficiency.attention if kernel.kind == "attention" else efficiency.matmul
            computed = kernel.operations / (share * peak)
            moved = kernel.moved / (efficiency.bandwidth * scenario.device.bandwidth)
            total += times * max(computed, moved, efficiency.launch)
    return total


# -- advice ------------------------------------------------------------------------------------------------------------


def largest_batch(cost: Cost) -> int | None:
    """Return the largest batch size of all devices that fits; None if even one row per device does not."""
    scenario = cost.scenario

    @cache
    def required(rows: int) -> float:
        return estimate(replace(scenario, shape=replace(scenario.shape, batch=rows * scenario.shares))).required_bytes

    available = scenario.device.memory
    low, high = 1, scenario.shape.batch // scenario.shares
    at_low, at_high = required(low), cost.required_bytes
    if at_low > available:
        return None
    # memory is convex in the rows, so extrapolating its first slope gives an upper bound of the batch
    if high > 3 and (slope := required(2) - at_low) > 0 and (bound := 2 + int((available - at_low) / slope)) < high:
        high, at_high = bound, required(bound)
        if at_high <= available:
            return high * scenario.shares
    while high - low > 1:
        guess = low + int(
            (available - at_low) / (at_high - at_low) * (high - low)
        )  # by linear interpolation, which never overestimates
        guess = min(max(guess, low + 1), high - 1)
        at_guess = required(guess)
        if at_guess > available:
            high, at_high = guess, at_guess
        elif guess + 1 < high and required(guess + 1) <= available:
            low, at_low = guess + 1, required(guess + 1)
        else:
            return guess * scenario.shares
    return low * scenario.shares


def suggestions(cost: Cost) -> list[tuple[str, Cost]]:
    """Return options of the command that may make a batch fit, each with its estimate."""
    scenario = cost.scenario
    found: list[tuple[str, Cost]] = []

    def consider(option: str, **changes: Any) -> None:
        try:
            found.append((option, estimate(replace(scenario, **changes))))
        except (BadInput, Unsupported):
            return  # not possible for this model or number of devices

    train, per_node = scenario.mode == "train", scenario.device.per_node
    if train and not scenario.recompute:
        consider("--recompute", recompute=True)
    if train and cost.parallel == "ddp":
        consider("--parallel fsdp", parallel="fsdp")
    if scenario.devices == 1 and per_node > 1:
        batch = replace(scenario.shape, batch=max(scenario.shape.batch, per_node))
        if train:
            consider(f"--devices {per_node} --parallel fsdp", devices=per_node, parallel="fsdp", shape=batch)
        consider(f"--devices {per_node} --tensor-parallel {per_node}", devices=per_node, tensor_parallel=per_node)
    elif (
        scenario.tensor_parallel < per_node
        and scenario.devices % per_node == 0
        and (train or scenario.tensor_parallel == 1)
    ):
        consider(f"--tensor-parallel {per_node}", tensor_parallel=per_node, parallel="auto")
    if train and not scenario.recompute and scenario.devices > 1 and cost.parallel == "ddp":
        consider("--parallel fsdp --recompute", parallel="fsdp", recompute=True)
    return found

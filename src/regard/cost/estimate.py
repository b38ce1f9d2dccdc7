"""What a model costs on one device or many: memory of each, what they say to one another, and the time of it all.

    memory     weights + gradients + moments (4 bytes a number each, cut by FSDP and tensor parallelism)
               + what the fullest moment of a pass holds (passes.py) + what FSDP has gathered
    sent       DDP     2 (n-1)/n · gradients                               each device, each update
               FSDP    (n-1)/n · (weights twice a pass + gradients once)
               tensor  2 (t-1)/t · what leaves rows and what enters columns, each pass
    time       every kernel: max(operations / speed, bytes / bandwidth, start);  then what communication adds to it:
               sums of tensor parallelism wait and are waited for, the rest may run beside the computing

A device of the data axis sees batch / (devices / tensor) rows. All shares of peaks are in devices.Efficiency.
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

BUCKET = 25 * 2**20  # bytes that DDP sends at a time
MODES = ("train", "infer", "decode")


@dataclass(frozen=True)
class Scenario:
    """What is to be estimated. `batch` in the shape is that of one pass of all devices together."""

    config: Any
    shape: InputShape = field(default_factory=InputShape)
    mode: str = "train"
    device: Device = DEVICES["h200"]
    devices: int = 1
    parallel: str = "auto"  # auto, ddp or fsdp
    tensor_parallel: int = 1
    recompute: bool = False
    precision: str = "bfloat16"
    optimiser: str = "adamw"
    accumulate: int = 1
    beam_size: int = 1
    tokens: float | None = None  # of a whole training run
    tokens_per_parameter: float | None = None  # or so many for each parameter
    efficiency: Efficiency = EXPECTED

    @property
    def shares(self) -> int:
        """Into how many parts a batch is cut."""
        return self.devices // self.tensor_parallel

    @property
    def compute_bytes(self) -> int:
        """Bytes of a number in the type of the products."""
        return 2 if self.precision == "bfloat16" else FLOAT


@dataclass(frozen=True)
class Communication:
    """What one device sends for one update, in one way."""

    what: str
    bytes_sent: float  # bytes
    seconds: float
    blocking: bool  # computing waits for it


@dataclass(frozen=True)
class Cost:
    """An estimate. Bytes, operations and seconds are those of one device and one update (pass, or step of writing)."""

    scenario: Scenario
    parallel: str  # one, ddp or fsdp
    passes: PassCosts
    memory: dict[str, int]
    flows: list[Communication]
    computing: float
    seconds: float
    saved_with_recompute_toggled: int | None = (
        None  # what a pass keeps with recomputation, where this is without, and the other way
    )

    @property
    def parameters(self) -> int:
        """Of the whole model."""
        return self.passes.whole

    @property
    def active(self) -> int:
        """Those that a token uses: all but the experts it is not sent to."""
        return self.passes.whole - self.passes.inactive

    @property
    def peak_bytes(self) -> int:
        """Bytes of all tensors at the fullest moment."""
        return sum(self.memory.values())

    @property
    def required_bytes(self) -> float:
        """Bytes a device must have."""
        return self.peak_bytes * (1 + self.scenario.efficiency.fragmentation) + self.scenario.efficiency.reserved

    @property
    def fits(self) -> bool:
        """Whether the device has them."""
        return self.required_bytes <= self.scenario.device.memory

    @property
    def items(self) -> int:
        """Tokens (images) of one update of all devices."""
        return (
            self.passes.items
            * self.scenario.shares
            * (self.scenario.accumulate if self.scenario.mode == "train" else 1)
        )

    @property
    def rate(self) -> float:
        """Tokens (images) a second."""
        return self.items * (self.scenario.beam_size if self.scenario.mode == "decode" else 1) / self.seconds

    @property
    def operations(self) -> int:
        """Of one device and one update, recomputation included."""
        if self.scenario.mode != "train":
            return self.passes.operations("step" if self.scenario.mode == "decode" else "forward")
        update = self.passes.operations("update")
        return self.scenario.accumulate * self.passes.operations("forward", "loss", "backward") + update

    @property
    def utilisation(self) -> float:
        """Operations a second over what the device does at most."""
        return self.operations / self.seconds / self.scenario.device.speed(self.scenario.precision)

    @property
    def run(self) -> tuple[float, float, float] | None:
        """Tokens, updates and seconds of a whole training run, where one is asked for."""
        tokens = (
            self.scenario.tokens_per_parameter * self.parameters
            if self.scenario.tokens_per_parameter is not None
            else self.scenario.tokens
        )
        if tokens is None:
            return None
        return tokens, ceil(tokens / self.items), ceil(tokens / self.items) * self.seconds


def estimate(scenario: Scenario) -> Cost:
    """What is asked."""
    _check(scenario)
    parallel = _choose_parallel(scenario)
    return _combine(scenario, parallel, _passes(scenario, parallel))


def with_recomputation(cost: Cost) -> Cost:
    """The same with what a pass would keep if recomputation were turned round; where the model can."""
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
        raise BadInput(f"the mode is one of {', '.join(MODES)}, not {scenario.mode!r}")
    numbers = {"--batch-size": scenario.shape.batch, "--devices": scenario.devices, "--tensor-parallel": scenario.tensor_parallel, "--beam-size": scenario.beam_size,
               "--accumulate": scenario.accumulate, "--length": scenario.shape.length, "--source": scenario.shape.source,
               "--target": scenario.shape.target}  # fmt: skip
    for name, number in numbers.items():
        if number is not None and number < 1:
            raise BadInput(f"{name} is {number}; at least 1 is needed")
    if scenario.devices % scenario.tensor_parallel:
        raise BadInput(f"--tensor-parallel {scenario.tensor_parallel} does not divide the {scenario.devices} devices")
    if scenario.shape.batch % scenario.shares:
        nearer = max(1, round(scenario.shape.batch / scenario.shares)) * scenario.shares
        raise BadInput(
            f"a batch of {scenario.shape.batch} rows cannot be cut into {scenario.shares} equal parts; take --batch-size {nearer}"
        )


def _choose_parallel(scenario: Scenario) -> str:
    """As training chooses: FSDP beside tensor parallelism, or where weights, gradients and moments would not fit."""
    if scenario.shares == 1 or scenario.mode != "train":
        return "one"
    if scenario.tensor_parallel > 1:
        if scenario.parallel == "ddp":
            raise Unsupported("--tensor-parallel goes with --parallel fsdp, not ddp, where there are more devices")
        return "fsdp"
    if scenario.parallel != "auto":
        return scenario.parallel
    with meta_model.fake_tensors():
        parameters = sum(p.numel() for p in meta_model.build(scenario.config).parameters())
    return "fsdp" if 4 * FLOAT * parameters > 0.75 * scenario.device.memory else "ddp"


def _device_share(scenario: Scenario, parallel: str) -> tuple[InputShape, ExecutionPlan]:
    """What one device does."""
    plan = ExecutionPlan(
        scenario.precision,
        scenario.recompute,
        scenario.tensor_parallel,
        parallel == "fsdp",
        scenario.optimiser,
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
    waited = sum(flow.seconds for flow in flows if flow.blocking)
    beside = sum(flow.seconds for flow in flows if not flow.blocking)
    seconds = computing + waited + max(0.0, beside - scenario.efficiency.overlap * computing)
    memory = (
        _training_memory(scenario, parallel, passes)
        if scenario.mode == "train"
        else _inference_memory(scenario, passes)
    )
    return Cost(scenario, parallel, passes, memory, flows, computing, seconds)


# -- memory ------------------------------------------------------------------------------------------------------------


def _training_memory(scenario: Scenario, parallel: str, passes: PassCosts) -> dict[str, int]:
    """Of one device at its fullest moment."""
    n = scenario.shares if parallel == "fsdp" else 1
    own = passes.total
    peak = dict(passes.peak)
    found = {
        "weights": FLOAT * own // n + passes.buffers,
        "optimiser": passes.state // n,
        "gradients": peak.pop("gradients", 0),
        "copies of weights": peak.pop("copies of weights", 0),
        "activations": sum(peak.values()),
    }
    if parallel == "ddp":
        found["gradient buckets"] = FLOAT * own
    if parallel == "fsdp":
        block = max(passes.blocks, default=own)
        rest = own - sum(passes.blocks) if passes.blocks else 0
        found["gradients"] = FLOAT * own // (n if scenario.accumulate == 1 else 1)  # summed whole until the last pass
        # this block, the next, and one on its way into place; what is outside blocks stays; then a block's gradients
        # and their copy in float32 on the way out
        found["gathered"] = (
            scenario.compute_bytes * (3 * block + rest)
            + (scenario.compute_bytes + FLOAT) * block
            + scenario.compute_bytes * rest
        )
        later = {what: found[what] for what in ("weights", "optimiser", "gradients")}
        later["update"] = passes.update_bytes // (1 if _gathers_for_update(passes) else n)
        found = max(found, later, key=lambda moment: sum(moment.values()))
    return {what: size for what, size in found.items() if size}


def _gathers_for_update(passes: PassCosts) -> bool:
    """Whether an update takes products of whole matrices, as Muon's does: every device gathers and takes them all."""
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
    """What one device sends for one update."""
    n, t, efficiency = scenario.shares, scenario.tensor_parallel, scenario.efficiency
    flows = []
    data, across = _speed(scenario, n, stride=t), _speed(scenario, t, stride=1)
    own, units = passes.total, len(passes.blocks) + 1
    if parallel == "ddp":
        sent, buckets = 2 * (n - 1) / n * FLOAT * own, ceil(FLOAT * own / BUCKET)
        seconds = sent / data + buckets * 2 * log2(n) * efficiency.latency
        flows.append(Communication("gradients, summed (all-reduce)", sent, seconds, False))
    if parallel == "fsdp":
        sent = 2 * scenario.accumulate * (n - 1) / n * scenario.compute_bytes * own
        delay = 2 * scenario.accumulate * units * (n - 1) * efficiency.latency
        flows.append(Communication("weights, gathered (all-gather)", sent, sent / data + delay, False))
        sent, delay = (n - 1) / n * FLOAT * own, units * (n - 1) * efficiency.latency
        flows.append(Communication("gradients, summed and cut (reduce-scatter)", sent, sent / data + delay, False))
        if _gathers_for_update(passes):
            sent = (n - 1) / n * FLOAT * sum(passes.blocks)
            flows.append(Communication("steps, gathered whole (all-gather)", sent, sent / data + delay, True))
    if t > 1:
        training, notes = scenario.mode == "train", passes.notes
        forward = notes["sums forward"] * (2 if scenario.recompute and training else 1)
        size = (forward + (notes["sums backward"] if training else 0)) * (scenario.accumulate if training else 1)
        times = notes["sums"] * (scenario.accumulate if training else 1)
        sent = 2 * (t - 1) / t * size
        seconds = sent / across + times * 2 * log2(t) * efficiency.latency
        flows.append(Communication("activations, summed (all-reduce)", sent, seconds, True))
    return flows


def _speed(scenario: Scenario, members: int, stride: int) -> float:
    """Bytes a second that each of these devices sends: over the links of its machine, or together over its network."""
    d = scenario.device
    if members * stride <= d.per_node:
        return d.link * scenario.efficiency.link
    beside = max(1, d.per_node // stride)  # of the same machine
    return min(d.link, d.network * beside) * scenario.efficiency.link


# -- time --------------------------------------------------------------------------------------------------------------


def _computing(scenario: Scenario, parallel: str, passes: PassCosts) -> float:
    """Seconds that one device computes for one update."""
    if scenario.mode == "decode":
        return _kernels(scenario, passes, ["step"])
    if scenario.mode == "infer":
        return _kernels(scenario, passes, ["forward"])
    update = _kernels(scenario, passes, ["update"]) / (
        scenario.shares if parallel == "fsdp" and not _gathers_for_update(passes) else 1
    )
    return scenario.accumulate * _kernels(scenario, passes, ["forward", "loss", "backward"]) + update


def _kernels(scenario: Scenario, passes: PassCosts, phases: Iterable[str]) -> float:
    """Kernel by kernel, what takes longer: computing, or reading and writing. Pointwise ones are fused into others."""
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


# -- what would fit ----------------------------------------------------------------------------------------------------


def largest_batch(cost: Cost) -> int | None:
    """The most rows of a pass that fit, over all devices; None where not even one row a device does."""
    scenario = cost.scenario

    @cache
    def needed(rows: int) -> float:
        return estimate(replace(scenario, shape=replace(scenario.shape, batch=rows * scenario.shares))).required_bytes

    room = scenario.device.memory
    low, high = 1, scenario.shape.batch // scenario.shares
    at_low, at_high = needed(low), cost.required_bytes
    if at_low > room:
        return None
    # memory over rows is a convex line: beyond its first stretch it is never less than that stretch drawn on
    if high > 3 and (slope := needed(2) - at_low) > 0 and (bound := 2 + int((room - at_low) / slope)) < high:
        high, at_high = bound, needed(bound)
        if at_high <= room:
            return high * scenario.shares
    while high - low > 1:
        guess = low + int((room - at_low) / (at_high - at_low) * (high - low))  # on the chord: it never fits too well
        guess = min(max(guess, low + 1), high - 1)
        at_guess = needed(guess)
        if at_guess > room:
            high, at_high = guess, at_guess
        elif guess + 1 < high and needed(guess + 1) <= room:
            low, at_low = guess + 1, needed(guess + 1)
        else:
            return guess * scenario.shares
    return low * scenario.shares


def suggestions(cost: Cost) -> list[tuple[str, Cost]]:
    """What could be done about a batch that does not fit: options of the command, and what each comes to."""
    scenario = cost.scenario
    found: list[tuple[str, Cost]] = []

    def consider(words: str, **changes: Any) -> None:
        try:
            found.append((words, estimate(replace(scenario, **changes))))
        except (BadInput, Unsupported):
            return  # not for this model, or not with so many devices

    train, together = scenario.mode == "train", scenario.device.per_node
    if train and not scenario.recompute:
        consider("--recompute", recompute=True)
    if train and cost.parallel == "ddp":
        consider("--parallel fsdp", parallel="fsdp")
    if scenario.devices == 1 and together > 1:
        batch = replace(scenario.shape, batch=max(scenario.shape.batch, together))
        if train:
            consider(f"--devices {together} --parallel fsdp", devices=together, parallel="fsdp", shape=batch)
        consider(f"--devices {together} --tensor-parallel {together}", devices=together, tensor_parallel=together)
    elif (
        scenario.tensor_parallel < together
        and scenario.devices % together == 0
        and (train or scenario.tensor_parallel == 1)
    ):
        consider(f"--tensor-parallel {together}", tensor_parallel=together, parallel="auto")
    if train and not scenario.recompute and scenario.devices > 1 and cost.parallel == "ddp":
        consider("--parallel fsdp --recompute", parallel="fsdp", recompute=True)
    return found

"""What a model costs on one device or many: memory of each, what they say to one another, and the time of it all.

    memory     weights + gradients + moments (4 bytes a number each, cut by FSDP and tensor parallelism)
               + what the fullest moment of a pass holds (passes.py) + what FSDP has gathered
    sent       DDP     2 (n-1)/n · gradients                               each device, each update
               FSDP    (n-1)/n · (weights twice a pass + gradients once)
               tensor  2 (t-1)/t · what leaves rows and what enters columns, each pass
    time       every kernel: max(operations / speed, bytes / bandwidth, start);  then what communication adds to it:
               sums of tensor parallelism wait and are waited for, the rest may run beside the computing

A device of the data axis sees batch / (devices / tensor) rows. All shares of peaks are in devices.Hopes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cache
from math import ceil, log2
from typing import Any

from regard.core.errors import BadInput, Unsupported
from regard.cost import imagine
from regard.cost.devices import DEVICES, HOPES, Device, Hopes
from regard.cost.imagine import Shape
from regard.cost.passes import FLOAT, Passes, Way, kept, reading, training, writing

BUCKET = 25 * 2**20  # bytes that DDP sends at a time
MODES = ("train", "infer", "decode")


@dataclass(frozen=True)
class Ask:
    """What is to be estimated. `batch` in the shape is that of one pass of all devices together."""

    config: Any
    shape: Shape = field(default_factory=Shape)
    mode: str = "train"
    device: Device = DEVICES["h200"]
    devices: int = 1
    spread: str = "auto"  # auto, ddp or fsdp
    tensor: int = 1
    recompute: bool = False
    precision: str = "bfloat16"
    optimiser: str = "adamw"
    accumulate: int = 1
    beams: int = 1
    tokens: float | None = None  # of a whole training run
    each: float | None = None  # or so many for each parameter
    hopes: Hopes = HOPES

    @property
    def shares(self) -> int:
        """Into how many parts a batch is cut."""
        return self.devices // self.tensor

    @property
    def narrow(self) -> int:
        """Bytes of a number in the type of the products."""
        return 2 if self.precision == "bfloat16" else FLOAT


@dataclass(frozen=True)
class Flow:
    """What one device sends for one update, in one way."""

    what: str
    sent: float  # bytes
    seconds: float
    waits: bool  # computing waits for it


@dataclass(frozen=True)
class Cost:
    """An estimate. Bytes, operations and seconds are those of one device and one update (pass, or step of writing)."""

    ask: Ask
    spread: str  # one, ddp or fsdp
    passes: Passes
    memory: dict[str, int]
    flows: list[Flow]
    computing: float
    seconds: float
    kept_otherwise: int | None = None  # what a pass keeps with recomputation, where this is without, and the other way

    @property
    def parameters(self) -> int:
        """Of the whole model."""
        return self.passes.whole

    @property
    def active(self) -> int:
        """Those that a token uses: all but the experts it is not sent to."""
        return self.passes.whole - self.passes.idle

    @property
    def held(self) -> int:
        """Bytes of all tensors at the fullest moment."""
        return sum(self.memory.values())

    @property
    def needed(self) -> float:
        """Bytes a device must have."""
        return self.held * (1 + self.ask.hopes.fragments) + self.ask.hopes.apart

    @property
    def fits(self) -> bool:
        """Whether the device has them."""
        return self.needed <= self.ask.device.memory

    @property
    def items(self) -> int:
        """Tokens (images) of one update of all devices."""
        return self.passes.items * self.ask.shares * (self.ask.accumulate if self.ask.mode == "train" else 1)

    @property
    def rate(self) -> float:
        """Tokens (images) a second."""
        return self.items * (self.ask.beams if self.ask.mode == "decode" else 1) / self.seconds

    @property
    def operations(self) -> int:
        """Of one device and one update, recomputation included."""
        if self.ask.mode != "train":
            return self.passes.operations("step" if self.ask.mode == "decode" else "forward")
        update = self.passes.operations("update")
        return self.ask.accumulate * self.passes.operations("forward", "loss", "backward") + update

    @property
    def share_of_peak(self) -> float:
        """Operations a second over what the device does at most."""
        return self.operations / self.seconds / self.ask.device.speed(self.ask.precision)

    @property
    def run(self) -> tuple[float, float, float] | None:
        """Tokens, updates and seconds of a whole training run, where one is asked for."""
        tokens = self.ask.each * self.parameters if self.ask.each is not None else self.ask.tokens
        if tokens is None:
            return None
        return tokens, ceil(tokens / self.items), ceil(tokens / self.items) * self.seconds


def estimate(ask: Ask) -> Cost:
    """What is asked."""
    _check(ask)
    spread = _spread(ask)
    return _put_together(ask, spread, _passes(ask, spread))


def with_recomputation(cost: Cost) -> Cost:
    """The same with what a pass would keep if recomputation were turned round; where the model can."""
    if cost.ask.mode != "train" or not cost.passes.blocks:
        return cost
    shape, way = _part(cost.ask, cost.spread)
    return replace(cost, kept_otherwise=kept(cost.ask.config, shape, replace(way, recompute=not way.recompute)))


def _check(ask: Ask) -> None:
    if ask.mode not in MODES:
        raise BadInput(f"the mode is one of {', '.join(MODES)}, not {ask.mode!r}")
    numbers = {"--batch": ask.shape.batch, "--devices": ask.devices, "--tensor": ask.tensor, "--beams": ask.beams,
               "--accumulate": ask.accumulate, "--length": ask.shape.length, "--source": ask.shape.source,
               "--target": ask.shape.target}  # fmt: skip
    for name, number in numbers.items():
        if number is not None and number < 1:
            raise BadInput(f"{name} is {number}; at least 1 is needed")
    if ask.devices % ask.tensor:
        raise BadInput(f"--tensor {ask.tensor} does not divide the {ask.devices} devices")
    if ask.shape.batch % ask.shares:
        nearer = max(1, round(ask.shape.batch / ask.shares)) * ask.shares
        raise BadInput(
            f"a batch of {ask.shape.batch} rows cannot be cut into {ask.shares} equal parts; take --batch {nearer}"
        )


def _spread(ask: Ask) -> str:
    """As training chooses: FSDP beside tensor parallelism, or where weights, gradients and moments would not fit."""
    if ask.shares == 1 or ask.mode != "train":
        return "one"
    if ask.tensor > 1:
        if ask.spread == "ddp":
            raise Unsupported("--tensor goes with --spread fsdp, not ddp, where there are more devices")
        return "fsdp"
    if ask.spread != "auto":
        return ask.spread
    with imagine.imagined():
        parameters = sum(p.numel() for p in imagine.build(ask.config).parameters())
    return "fsdp" if 4 * FLOAT * parameters > 0.75 * ask.device.memory else "ddp"


def _part(ask: Ask, spread: str) -> tuple[Shape, Way]:
    """What one device does."""
    way = Way(
        ask.precision, ask.recompute, ask.tensor, spread == "fsdp", ask.optimiser, ask.accumulate, ask.device.host
    )
    return replace(ask.shape, batch=ask.shape.batch // ask.shares), way


def _passes(ask: Ask, spread: str) -> Passes:
    shape, way = _part(ask, spread)
    if ask.mode == "train":
        return training(ask.config, shape, way)
    return reading(ask.config, shape, way) if ask.mode == "infer" else writing(ask.config, shape, way, ask.beams)


def _put_together(ask: Ask, spread: str, passes: Passes) -> Cost:
    flows = _flows(ask, spread, passes)
    computing = _computing(ask, spread, passes)
    waited = sum(flow.seconds for flow in flows if flow.waits)
    beside = sum(flow.seconds for flow in flows if not flow.waits)
    seconds = computing + waited + max(0.0, beside - ask.hopes.hidden * computing)
    memory = _training_memory(ask, spread, passes) if ask.mode == "train" else _resting_memory(ask, passes)
    return Cost(ask, spread, passes, memory, flows, computing, seconds)


# -- memory ------------------------------------------------------------------------------------------------------------


def _training_memory(ask: Ask, spread: str, passes: Passes) -> dict[str, int]:
    """Of one device at its fullest moment."""
    n = ask.shares if spread == "fsdp" else 1
    own = passes.total
    peak = dict(passes.peak)
    found = {
        "weights": FLOAT * own // n + passes.buffers,
        "optimiser": passes.state // n,
        "gradients": peak.pop("gradients", 0),
        "copies of weights": peak.pop("copies of weights", 0),
        "activations": sum(peak.values()),
    }
    if spread == "ddp":
        found["gradient buckets"] = FLOAT * own
    if spread == "fsdp":
        block = max(passes.blocks, default=own)
        rest = own - sum(passes.blocks) if passes.blocks else 0
        found["gradients"] = FLOAT * own // (n if ask.accumulate == 1 else 1)  # summed whole until the last pass
        # this block, the next, and one on its way into place; what is outside blocks stays; then a block's gradients
        # and their copy in float32 on the way out
        found["gathered"] = ask.narrow * (3 * block + rest) + (ask.narrow + FLOAT) * block + ask.narrow * rest
        later = {what: found[what] for what in ("weights", "optimiser", "gradients")}
        later["update"] = passes.updating // (1 if _gathers(passes) else n)
        found = max(found, later, key=lambda moment: sum(moment.values()))
    return {what: size for what, size in found.items() if size}


def _gathers(passes: Passes) -> bool:
    """Whether an update takes products of whole matrices, as Muon's does: every device gathers and takes them all."""
    return passes.operations("update") > 0


def _resting_memory(ask: Ask, passes: Passes) -> dict[str, int]:
    rest = sum(passes.peak.values()) - passes.cache
    found = {"weights": ask.narrow * passes.total + passes.buffers, "cache": passes.cache, "activations": max(0, rest)}
    return {what: size for what, size in found.items() if size}


# -- communication -----------------------------------------------------------------------------------------------------


def _flows(ask: Ask, spread: str, passes: Passes) -> list[Flow]:
    """What one device sends for one update."""
    n, t, hopes = ask.shares, ask.tensor, ask.hopes
    flows = []
    data, across = _speed(ask, n, stride=t), _speed(ask, t, stride=1)
    own, units = passes.total, len(passes.blocks) + 1
    if spread == "ddp":
        sent, buckets = 2 * (n - 1) / n * FLOAT * own, ceil(FLOAT * own / BUCKET)
        seconds = sent / data + buckets * 2 * log2(n) * hopes.delay
        flows.append(Flow("gradients, summed (all-reduce)", sent, seconds, False))
    if spread == "fsdp":
        sent = 2 * ask.accumulate * (n - 1) / n * ask.narrow * own
        delay = 2 * ask.accumulate * units * (n - 1) * hopes.delay
        flows.append(Flow("weights, gathered (all-gather)", sent, sent / data + delay, False))
        sent, delay = (n - 1) / n * FLOAT * own, units * (n - 1) * hopes.delay
        flows.append(Flow("gradients, summed and cut (reduce-scatter)", sent, sent / data + delay, False))
        if _gathers(passes):
            sent = (n - 1) / n * FLOAT * sum(passes.blocks)
            flows.append(Flow("steps, gathered whole (all-gather)", sent, sent / data + delay, True))
    if t > 1:
        training, notes = ask.mode == "train", passes.notes
        forward = notes["sums forward"] * (2 if ask.recompute and training else 1)
        size = (forward + (notes["sums backward"] if training else 0)) * (ask.accumulate if training else 1)
        times = notes["sums"] * (ask.accumulate if training else 1)
        sent = 2 * (t - 1) / t * size
        seconds = sent / across + times * 2 * log2(t) * hopes.delay
        flows.append(Flow("activations, summed (all-reduce)", sent, seconds, True))
    return flows


def _speed(ask: Ask, members: int, stride: int) -> float:
    """Bytes a second that each of these devices sends: over the links of its machine, or together over its network."""
    d = ask.device
    if members * stride <= d.together:
        return d.link * ask.hopes.link
    beside = max(1, d.together // stride)  # of the same machine
    return min(d.link, d.network * beside) * ask.hopes.link


# -- time --------------------------------------------------------------------------------------------------------------


def _computing(ask: Ask, spread: str, passes: Passes) -> float:
    """Seconds that one device computes for one update."""
    if ask.mode == "decode":
        return _kernels(ask, passes, ["step"])
    if ask.mode == "infer":
        return _kernels(ask, passes, ["forward"])
    update = _kernels(ask, passes, ["update"]) / (ask.shares if spread == "fsdp" and not _gathers(passes) else 1)
    return ask.accumulate * _kernels(ask, passes, ["forward", "loss", "backward"]) + update


def _kernels(ask: Ask, passes: Passes, phases: Iterable[str]) -> float:
    """Kernel by kernel, what takes longer: computing, or reading and writing. Pointwise ones are fused into others."""
    hopes, peak = ask.hopes, ask.device.speed(ask.precision)
    total = 0.0
    for phase in phases:
        for kernel, times in passes.kernels.get(phase, {}).items():
            if kernel.kind == "pointwise" and phase != "update":
                continue
            share = hopes.attention if kernel.kind == "attention" else hopes.products
            computed = kernel.operations / (share * peak)
            moved = kernel.moved / (hopes.bandwidth * ask.device.bandwidth)
            total += times * max(computed, moved, hopes.start)
    return total


# -- what would fit ----------------------------------------------------------------------------------------------------


def largest_batch(cost: Cost) -> int | None:
    """The most rows of a pass that fit, over all devices; None where not even one row a device does."""
    ask = cost.ask

    @cache
    def needed(rows: int) -> float:
        return estimate(replace(ask, shape=replace(ask.shape, batch=rows * ask.shares))).needed

    room = ask.device.memory
    low, high = 1, ask.shape.batch // ask.shares
    at_low, at_high = needed(low), cost.needed
    if at_low > room:
        return None
    # memory over rows is a convex line: beyond its first stretch it is never less than that stretch drawn on
    if high > 3 and (slope := needed(2) - at_low) > 0 and (bound := 2 + int((room - at_low) / slope)) < high:
        high, at_high = bound, needed(bound)
        if at_high <= room:
            return high * ask.shares
    while high - low > 1:
        guess = low + int((room - at_low) / (at_high - at_low) * (high - low))  # on the chord: it never fits too well
        guess = min(max(guess, low + 1), high - 1)
        at_guess = needed(guess)
        if at_guess > room:
            high, at_high = guess, at_guess
        elif guess + 1 < high and needed(guess + 1) <= room:
            low, at_low = guess + 1, needed(guess + 1)
        else:
            return guess * ask.shares
    return low * ask.shares


def helps(cost: Cost) -> list[tuple[str, Cost]]:
    """What could be done about a batch that does not fit: options of the command, and what each comes to."""
    ask = cost.ask
    found: list[tuple[str, Cost]] = []

    def consider(words: str, **changes: Any) -> None:
        try:
            found.append((words, estimate(replace(ask, **changes))))
        except (BadInput, Unsupported):
            return  # not for this model, or not with so many devices

    train, together = ask.mode == "train", ask.device.together
    if train and not ask.recompute:
        consider("--recompute", recompute=True)
    if train and cost.spread == "ddp":
        consider("--spread fsdp", spread="fsdp")
    if ask.devices == 1 and together > 1:
        batch = replace(ask.shape, batch=max(ask.shape.batch, together))
        if train:
            consider(f"--devices {together} --spread fsdp", devices=together, spread="fsdp", shape=batch)
        consider(f"--devices {together} --tensor {together}", devices=together, tensor=together)
    elif ask.tensor < together and ask.devices % together == 0 and (train or ask.tensor == 1):
        consider(f"--tensor {together}", tensor=together, spread="auto")
    if train and not ask.recompute and ask.devices > 1 and cost.spread == "ddp":
        consider("--spread fsdp --recompute", spread="fsdp", recompute=True)
    return found

"""Print an estimate as tables or as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import ceil, log10, prod
from typing import Any

from regard.cost import lectures
from regard.cost.estimate import Cost, largest_batch, suggestions
from regard.cost.meta_model import changed_settings, image_shape
from regard.cost.passes import FLOAT

GIB = 2**30
WHAT = {  # the lines of the memory table
    "weights": "weights, float32",
    "optimizer": "optimizer ({optimizer})",
    "gradients": "gradients, float32",
    "gradient buckets": "DDP gradient buckets",
    "gathered": "blocks gathered by FSDP, and their gradients",
    "copies of weights": "copies of weights in bfloat16",
    "activations": "activations",
    "update": "temporary tensors of the update",
    "cache": "cache of keys and values, and other state",
}
PHASES = ("forward", "loss", "backward", "update", "step")


# -- numbers -----------------------------------------------------------------------------------------------------------


def count(n: float, billion: str = "G") -> str:
    """Format with three digits and an SI prefix, e.g. 124 M; parameters and tokens use B for 10^9."""
    for power, unit in ((18, "E"), (15, "P"), (12, "T"), (9, billion), (6, "M"), (3, "k")):
        if n >= 0.9995 * 10**power:
            return f"{_three(n / 10**power)} {unit}"
    return f"{n:,.0f}"


def _three(x: float) -> str:
    """Format with three significant digits, or as an integer above 999."""
    return f"{x:.{max(0, 2 - int(log10(max(x, 1e-9))))}f}" if x < 999.5 else f"{x:,.0f}"


def size(n: float) -> str:
    """Format bytes in binary units."""
    for power, unit in ((40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")):
        if n >= 0.9995 * 2**power:
            return f"{_three(n / 2**power)} {unit}"
    return f"{n:,.0f} B"


def span(seconds: float) -> str:
    """Format a duration in a suitable unit."""
    for unit, long in (("days", 86400), ("h", 3600), ("min", 60), ("s", 1), ("ms", 1e-3)):
        if seconds >= 2 * long or (unit == "ms" and seconds >= 1e-3) or (unit == "s" and seconds >= 1):
            return f"{_three(seconds / long)} {unit}"
    return f"{_three(seconds * 1e6)} µs"


def share(part: float, total: float) -> str:
    """Format a share in per cent."""
    return f"{100 * part / total:.1f} %" if total else ""


# -- tables ------------------------------------------------------------------------------------------------------------

Rows = list[tuple[str, ...]]
Section = tuple[str, tuple[str, ...], Rows]  # title, heads of the columns after the first, rows


def sections(cost: Cost, advice: bool = True) -> Iterator[Section]:
    """Yield the tables of an estimate."""
    yield _parts(cost)
    yield _work(cost)
    yield _memory(cost)
    if not cost.fits and advice:
        yield _advice(cost)
    if cost.flows:
        yield _sent(cost)
    yield _time(cost)
    if (pictures := _as_in_lectures(cost)) is not None:
        yield pictures


def _as_in_lectures(cost: Cost) -> Section | None:
    """Return the sizes of attention maps over images or clips, as the lectures count them."""
    config, maps = cost.scenario.config, cost.passes.maps
    if cost.passes.unit not in ("images", "clips") or not maps or cost.scenario.mode == "decode":
        return None
    channels, y, x = image_shape(config, cost.scenario.shape)
    layers, heads = getattr(config, "layers", None), getattr(config, "heads", None)
    if isinstance(layers, int) and isinstance(heads, int) and cost.passes.stride is not None:
        n = ceil(y / cost.passes.stride[0]) * ceil(x / cost.passes.stride[1])
        is_patches = getattr(config, "patch_size", None) in (cost.passes.stride, cost.passes.stride[0])
        first = (
            ("the image as patches", str((n, channels * prod(cost.passes.stride))))
            if is_patches
            else ("tokens", f"{n:,}")
        )
        rows: Rows = [
            first,
            ("entries of a map", f"{lectures.map_entries(n):,}"),
            ("bytes of a map", size(lectures.map_bytes(n))),
            (f"all maps, {layers} layers, {heads} heads", size(lectures.map_bytes(n, layers=layers, heads=heads))),
        ]
        return "As the lectures count it: one image, float32, no class token", ("",), rows
    entries = {name: n // cost.passes.items for name, n in maps.items()}
    rows = [(name, f"{n:,}", size(FLOAT * n)) for name, n in entries.items()]
    rows.append(("all maps", f"{sum(entries.values()):,}", size(FLOAT * sum(entries.values()))))
    if (global_entries := _unwindowed(config, y, x)) is not None:
        rows.append(("with global attention", f"{global_entries:,}", size(FLOAT * global_entries)))
    unit = cost.passes.unit.removesuffix("s")
    return f"Maps of one {unit}, all layers and heads of a stage, float32", ("entries", "bytes"), rows


def _unwindowed(config: Any, y: int, x: int) -> int | None:
    """Return the map entries of a windowed model if attention were global."""
    if not isinstance(getattr(config, "window_size", None), int):
        return None
    found = 0
    for stage, (layers, heads) in enumerate(zip(config.layers, config.heads, strict=True)):
        stride = config.patch_size * 2**stage
        found += layers * heads * lectures.map_entries(ceil(y / stride) * ceil(x / stride))
    return found


def heading(name: str, cost: Cost) -> list[str]:
    """Return two lines that say what is estimated."""
    scenario = cost.scenario
    changed = ", ".join(f"{k}={v}" for k, v in changed_settings(scenario.config).items())
    changed = f" ({changed})" if changed else ""
    what = {"train": "one update", "infer": "one forward pass", "decode": "one decoding step"}[scenario.mode]
    rows = scenario.shape.batch * (scenario.accumulate if scenario.mode == "train" else 1)
    of = f"{cost.items:,} {cost.passes.unit}" if scenario.mode != "decode" else f"{scenario.beam_size} beams each"
    if scenario.mode == "decode" and scenario.beam_size == 1:
        of = "one token each"
    times = f" in {scenario.accumulate} passes" if scenario.accumulate > 1 and scenario.mode == "train" else ""
    options = [cost.parallel] if cost.parallel != "one" else []
    options += [f"tensor {scenario.tensor_parallel}"] if scenario.tensor_parallel > 1 else []
    options += [scenario.precision] + (["recomputing"] if scenario.recompute and scenario.mode == "train" else [])
    active = f", {count(cost.active, 'B')} of them active" if cost.active < cost.parameters else ""
    return [
        f"{name}: {count(cost.parameters, 'B')} parameters{active}{changed}",
        f"{what}: {rows:,} rows, {of}{times}; {scenario.devices:,} x {scenario.device.name}, {', '.join(options)}",
    ]


def _parts(cost: Cost) -> Section:
    passes = cost.passes
    suffix = " of one device" if cost.scenario.tensor_parallel > 1 else ""
    rows: Rows = []
    names = [*passes.parameters, *(name for name in passes.work if name not in passes.parameters)]
    total_work = sum(passes.work.values()) or 1
    for name in names:
        owned, work = passes.parameters.get(name, 0), passes.work.get(name, 0)
        if not owned and not work and name not in passes.tied:
            continue
        num_parameters = "tied" if name in passes.tied and not owned else count(owned, "B")
        rows.append(
            (
                name or "other",
                num_parameters,
                share(owned, passes.total),
                count(work // 2),
                share(work, total_work) if work else "",
            )
        )
    if cost.scenario.mode == "decode":
        rows = [row[:3] for row in rows]
        return f"Parts{suffix}", ("parameters", ""), [*rows, ("all", count(passes.total, "B"), "")]
    last = ("all", count(passes.total, "B"), "", count(total_work // 2), "")
    return f"Parts{suffix}", ("parameters", "", "multiply-adds, forward", ""), [*rows, last]


def _work(cost: Cost) -> Section:
    scenario, passes = cost.scenario, cost.passes
    rows: Rows = []
    forward, backward, update = (passes.operations(phase) // 2 for phase in ("forward", "backward", "update"))
    loss = passes.operations("loss") // 6  # three products of a size: one belongs to the forward pass
    if scenario.mode == "train":
        rows.append(("forward", count(scenario.accumulate * (forward + loss))))
        suffix = " and recomputation" if scenario.recompute else ""
        rows.append((f"backward{suffix}", count(scenario.accumulate * (backward + 2 * loss))))
        if update:
            rows.append(("update", count(update)))
    elif scenario.mode == "decode":
        rows.append(("prompt, once", count(forward)))
        rows.append(("one decoding step", count(passes.operations("step") // 2)))
    if scenario.mode != "decode":
        rows.append(("all", count(cost.operations // 2)))
        items = cost.items / scenario.shares
        per_item = cost.operations / 2 * scenario.tensor_parallel / items
        unit = cost.passes.unit.removesuffix("s")
        article = "an" if unit[0] in "aeiou" else "a"
        rows.append(
            (
                f"{article} {unit}, all devices together",
                f"{count(per_item)} = {per_item / cost.parameters:.2f} x parameters",
            )
        )
    if cost.passes.maps:
        rows.append(("attention maps, if stored in float32", size(_maps(cost))))
    return "Work of one device (two operations per multiply-add)", ("multiply-adds",), rows


def _maps(cost: Cost) -> int:
    return FLOAT * sum(cost.passes.maps.values())


def _memory(cost: Cost) -> Section:
    scenario = cost.scenario
    rows: Rows = []
    for what, n in cost.memory.items():
        label = WHAT[what].format(optimizer=scenario.optimizer)
        if what == "weights" and scenario.mode != "train":
            label = f"weights, {scenario.precision}"
        rows.append((label, size(n)))
    rows.append(("peak", size(cost.peak_bytes)))
    later = FLOAT * cost.passes.total
    if scenario.mode == "train" and cost.parallel != "fsdp" and cost.memory.get("gradients", 0) < 0.99 * later:
        rows.append(("  gradients, after the activations are freed", size(later)))
    overhead = scenario.efficiency
    required = f"required: {overhead.fragmentation:.0%} fragmentation, {size(overhead.reserved)} reserved"
    rows.append((required, size(cost.required_bytes)))
    rows.append(
        (
            f"available ({scenario.device.name})",
            f"{size(scenario.device.memory)}: {'fits' if cost.fits else 'does not fit'}",
        )
    )
    if scenario.mode == "train":
        rows.append(("  saved for backward", size(cost.passes.saved_for_backward)))
        if cost.saved_with_recompute_toggled is not None:
            rows.append(
                (f"  with{'out' if scenario.recompute else ''} recomputation", size(cost.saved_with_recompute_toggled))
            )
    return "Memory of one device", ("bytes",), rows


def _advice(cost: Cost) -> Section:
    rows: Rows = []
    largest = largest_batch(cost) if cost.scenario.shape.batch > cost.scenario.shares else None
    if largest is None:
        rows.append(("the largest batch that fits", "none: even one row per device does not fit"))
    else:
        times = -(-cost.scenario.shape.batch // largest)
        rows.append(
            (
                "the largest batch that fits",
                f"--batch-size {largest} (then --accumulate {times * cost.scenario.accumulate})",
            )
        )
    for option, other in suggestions(cost):
        fits = "fits" if other.fits else "does not fit either"
        time = other.seconds / other.items / (cost.seconds / cost.items)
        rows.append((option, f"{fits}: {size(other.required_bytes)}; {time:.2f} x the time"))
    return "It does not fit. What would help", ("",), rows


def _sent(cost: Cost) -> Section:
    rows: Rows = [
        (
            flow.what,
            size(flow.bytes_sent),
            span(flow.seconds),
            "blocking" if flow.blocking else "overlaps with computing",
        )
        for flow in cost.flows
    ]
    return "Sent by one device", ("bytes", "time", ""), rows


def _time(cost: Cost) -> Section:
    scenario, unit = cost.scenario, cost.passes.unit
    waiting = cost.seconds - cost.computing
    what = {"train": "an update", "infer": "a forward pass", "decode": "a step"}[scenario.mode]
    rows: Rows = [("computing", span(cost.computing))]
    if cost.flows:
        rows.append(("waiting for other devices", span(waiting) if waiting > 0 else "0"))
    rows.append((what, span(cost.seconds)))
    rows.append(("speed", f"{cost.rate:,.0f} {unit}/s"))
    if scenario.devices > 1:
        rows.append(("  of one device", f"{cost.rate / scenario.devices:,.0f} {unit}/s"))
    peak = count(scenario.device.speed(scenario.precision))
    rows.append((f"of the peak, {peak} operations/s", f"{cost.utilisation:.0%}"))
    if cost.run is not None and scenario.mode == "train":
        tokens, updates, seconds = cost.run
        rows.append((f"{count(tokens, 'B')} {unit}", f"{updates:,.0f} updates, {span(seconds)}"))
        rows.append(("  all devices together", f"{scenario.devices * seconds / 3600:,.0f} device hours"))
    return "Time", ("",), rows


def assumptions(cost: Cost) -> str:
    """Return the assumptions behind the numbers."""
    h = cost.scenario.efficiency
    many = cost.scenario.devices > 1
    links = f", links {h.link:.0%}" if many else ""
    hidden = f"; communication overlaps with {h.overlap:.0%} of the computing" if many else ""
    return (
        "Counted on fake tensors: parameters, multiply-adds, memory (of eager PyTorch). Assumed, for time: "
        f"products reach {h.matmul:.0%} of the peak, attention {h.attention:.0%}, memory {h.bandwidth:.0%}{links}; "
        f"pointwise operations are fused; a kernel takes at least {h.launch * 1e6:.0f} µs{hidden}; causal "
        f"attention counts as full. {cost.scenario.device.name}: {cost.scenario.device.source}."
    )


def lecture_sections(length: int = 512, width: int = 512) -> Iterator[Section]:
    """Yield tables of the arithmetic of the lectures."""
    rows: Rows = []
    for line in lectures.lines():
        value = f"{line.value:,}" if isinstance(line.value, int) else str(line.value)
        rows.append((line.what, line.formula, value, line.on_slide))
    yield "The arithmetic of the lectures (float32, binary units, no class token in maps)", ("", "", "as said"), rows
    kinds: Rows = [
        (
            layer.kind,
            count(layer.multiply_adds),
            *(f"{steps:,}" for steps in (layer.serial, layer.path, layer.centred)),
            f"{layer.formula} = {layer.order:,}" if layer.formula != "1" else "1",
        )
        for layer in lectures.layer_kinds(length, width)
    ]
    yield (
        f"Layers over {length} vectors of width {width}: work, serial steps, longest path between two tokens",
        ("multiply-adds", "serial steps", "path: one-sided", "centred", "paper's order"),
        kinds,
    )


LAYERS_ASSUME = (
    "Path: layers until the last token has heard of the first; in recurrence, steps of time. One-sided: a kernel or "
    "window ends at its token, so it reaches k - 1 (or r) back, as in a decoder. Centred: half of that on either side, "
    "as in most encoders. The paper's order (Vaswani et al. 2017, table 1) is how it grows, with kernels side by side. "
    "A dilated layer reaches k times as far as the one below; centred ones are counted away from the edges."
)


# -- JSON --------------------------------------------------------------------------------------------------------------


def to_json(name: str, cost: Cost) -> dict[str, Any]:
    """Return all numbers as JSON values: bytes, seconds, operations (two per multiply-add) of one device and update."""
    scenario, passes = cost.scenario, cost.passes
    run = cost.run if scenario.mode == "train" else None
    phases = [phase for phase in PHASES if phase in passes.kernels]
    return {
        "model": name,
        "settings": changed_settings(scenario.config),
        "mode": scenario.mode,
        "device": scenario.device.name,
        "devices": scenario.devices,
        "parallel": cost.parallel,
        "tensor_parallel": scenario.tensor_parallel,
        "precision": scenario.precision,
        "recompute": scenario.recompute,
        "optimizer": scenario.optimizer,
        "batch": scenario.shape.batch,
        "accumulate": scenario.accumulate,
        "items": cost.items,
        "unit": passes.unit,
        "parameters": cost.parameters,
        "parameters_active": cost.active,
        "parameters_by_part": passes.parameters,
        "operations": {phase: passes.operations(phase) for phase in phases} | {"all": cost.operations},
        "operations_forward_by_part": passes.work,
        "moved": {phase: passes.moved(phase, fused=False) for phase in phases},
        "moved_fused": {phase: passes.moved(phase) for phase in phases},
        "memory": cost.memory
        | {"peak": cost.peak_bytes, "required": cost.required_bytes, "available": scenario.device.memory},
        "fits": cost.fits,
        "saved_for_backward": passes.saved_for_backward,
        "saved_with_recompute_toggled": cost.saved_with_recompute_toggled,
        "cache": passes.cache,
        "attention_map_entries": passes.maps,
        "attention_map_bytes": _maps(cost),
        "sent": {
            flow.what: {"bytes": flow.bytes_sent, "seconds": flow.seconds, "blocking": flow.blocking}
            for flow in cost.flows
        },
        "seconds": {"computing": cost.computing, "all": cost.seconds},
        "items_per_second": cost.rate,
        "utilisation": cost.utilisation,
        "run": None if run is None else dict(zip(("items", "updates", "seconds"), run, strict=True)),
        "assumed": vars(scenario.efficiency) | {"source": scenario.device.source},
    }


def lectures_to_json() -> dict[str, Any]:
    """Return the arithmetic of the lectures as JSON values."""
    return {
        "lines": [vars(line) for line in lectures.lines()],
        "layers": [vars(layer) for layer in lectures.layer_kinds(512, 512)],
        "layers_assume": LAYERS_ASSUME,
    }


def show(tables: Sequence[Section], before: Sequence[str] = (), after: str = "") -> None:
    """Print tables to the terminal."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False, soft_wrap=False)
    if not console.is_terminal:
        console.width = 100
    for i, line in enumerate(before):
        console.print(Text(line, style="bold" if not i else ""))
    for title, columns, rows in tables:
        console.print(Text(f"\n{title}", style="bold"))
        table = Table(box=None, pad_edge=False, show_header=any(columns), header_style="dim")
        table.add_column("", no_wrap=True)
        for column in columns:
            table.add_column(column, justify="right")
        for row in rows:
            table.add_row(*(Text(cell) for cell in row))
        console.print(table)
    if after:
        console.print(Text(f"\n{after}", style="dim"))

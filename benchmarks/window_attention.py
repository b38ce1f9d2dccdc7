"""Window attention alone: the Triton kernel against eager PyTorch, SDPA and FlexAttention, on one GPU.

    python benchmarks/window_attention.py       correctness and speed      -> results/window-attention-cuda.json
    python benchmarks/window_attention.py --sweep     launch settings of the kernels; nothing written

From qkv after the projection to the input of the next one: shift, partition, bias, mask, softmax, values, reverse. The
shapes are those of the stages of Swin-T at 224 (windows of 7, shifted) and of SwinV2-T at 256 (windows of 8, cosine).

    written    windowed_qkv(backend="eager"), compiled
    sdpa       F.scaled_dot_product_attention with bias and mask as one matrix; compiled
    flex       FlexAttention with bias and regions as formulas; compiled; first stage only
    kernel     windowed_qkv(backend="triton")

Correct means: value and gradients are within a dtype's tolerance of those in float64, for random inputs, in every mode
of the kernel, with all unwritten memory filled with NaN. `share` is the time to read q, k, v once and write o once at
the speed of a copy on this device (backward: q, k, v, do once, dq, dk, dv once), over the measured time: at most 1.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import harness
import torch
import torch.nn.functional as F
from einops import rearrange

from regard.attention import window_attention, window_attention_triton

harness.PACKAGES = (*harness.PACKAGES, "triton")

STAGES = {  # side of the grid, heads, side of a window, shift, cosine
    "Swin-T 1": (56, 3, 7, 3, False),
    "Swin-T 3": (14, 12, 7, 3, False),
    "Swin-T 4": (7, 24, 7, 0, False),
    "SwinV2-T 1": (64, 3, 8, 4, True),
}
MODES: dict[str, dict[str, Any]] = {
    "plain windows": {},
    "shifted": {"shift": (3, 3)},
    "shifted, padding": {"shift": (3, 3), "real": (17, 20)},
    "a grid that is no multiple": {"grid": (18, 25), "shift": (3, 3)},
    "64 cells, cosine": {"window": (8, 8), "grid": (24, 16), "shift": (4, 4), "cosine": True, "scaled": True},
    "16 cells": {"window": (4, 4), "grid": (12, 16), "shift": (2, 2)},
    "width 24, no bias": {"width": 24, "shift": (3, 3), "biased": False},
    "width 64, windows 5 x 3": {"width": 64, "window": (5, 3), "grid": (20, 21), "shift": (2, 1)},
    "heads last but one": {"by_head": True, "shift": (3, 3)},
    "padding alone": {"real": (6, 21), "cosine": True},
}
IN_ALL_TYPES = {"shifted, padding", "64 cells, cosine"}
TOLERANCE = {torch.float32: 2e-5, torch.float16: 3e-3, torch.bfloat16: 2e-2}


# -- correctness -------------------------------------------------------------------------------------------------------


def mode(
    dtype: torch.dtype, grid: tuple[int, int] = (21, 21), window: tuple[int, int] = (7, 7), heads: int = 3,
    width: int = 32, shift: tuple[int, int] = (0, 0), image_size: tuple[int, int] | None = None, biased: bool = True,
    scaled: bool = False, cosine: bool = False, by_head: bool = False,
) -> dict[str, float]:  # fmt: skip
    """Return the relative error against float64 of the value and of the gradients by qkv, bias and scale."""
    cells, device = window[0] * window[1], "cuda"
    shape = (3, *grid, heads, 3, width) if by_head else (3, *grid, 3, heads, width)
    qkv = torch.randn(shape, device=device).to(dtype)
    qkv = qkv.transpose(3, 4) if by_head else qkv
    inputs = {"qkv": qkv, "bias": torch.randn(heads, cells, cells, device=device)}
    inputs["scale"] = 1 + torch.rand(heads, device=device) if scaled else torch.tensor(width**-0.5)
    grad_output = torch.randn(3, *grid, heads, width, device=device).to(dtype)
    options = {"window": window, "shift": shift, "real": image_size or grid, "cosine": cosine}

    def run(backend: str, exact: bool) -> list[torch.Tensor]:
        leaves = {k: (v.double() if exact else v).detach().requires_grad_() for k, v in inputs.items()}
        wanted_inputs = [leaves["qkv"], *([leaves["bias"]] if biased else []), *([leaves["scale"]] if scaled else [])]
        out = window_attention.window_attention_qkv(
            leaves["qkv"],
            leaves["bias"] if biased else None,
            scale=leaves["scale"] if scaled else width**-0.5,
            backend=backend,
            **options,
        )
        return [out.detach(), *torch.autograd.grad(out, wanted_inputs, grad_output.to(out.dtype))]

    names = ["out", "dqkv", *(["dbias"] if biased else []), *(["dscale"] if scaled else [])]
    found, expected = run("triton", False), run("eager", True)
    errors = [(a.double() - b).norm() / b.norm() for a, b in zip(found, expected, strict=True)]
    return {name: float(x) for name, x in zip(names, errors, strict=True)}


def check_correctness() -> tuple[bool, list[dict[str, Any]]]:
    """Check every mode in bfloat16, and some in every dtype."""
    torch.use_deterministic_algorithms(True, warn_only=True)  # fills new memory with NaN
    rows, all_correct = [], True
    for name, options in MODES.items():
        for dtype, tolerance in TOLERANCE.items():
            if dtype != torch.bfloat16 and name not in IN_ALL_TYPES:  # a mode takes seconds to compile
                continue
            errors = mode(dtype, **options)
            is_correct = all(x <= tolerance for x in errors.values())  # False for NaN too
            all_correct &= is_correct
            rows.append({"mode": name, "dtype": str(dtype).removeprefix("torch."), **errors, "right": is_correct})
    torch.use_deterministic_algorithms(False)
    return all_correct, rows


# -- speed -------------------------------------------------------------------------------------------------------------


class Stage:
    """The inputs of one stage, and every implementation."""

    def __init__(self, name: str, batch: int) -> None:
        side, self.heads, window, shift, self.cosine = STAGES[name]
        self.batch, self.grid, self.window, self.shift = batch, (side, side), (window, window), (shift, shift)
        cells, heads = window * window, self.heads
        self.qkv = torch.randn(batch, side, side, heads, 3, 32, device="cuda", dtype=torch.bfloat16)
        self.bias = torch.randn(heads, cells, cells, device="cuda")
        self.grad_output = torch.randn(batch, side, side, heads, 32, device="cuda", dtype=torch.bfloat16)
        self.scale = 5 + torch.rand(heads, device="cuda")
        numbers = [self.qkv, self.bias, *([self.scale] if self.cosine else [])]
        self.differentiated = [x.requires_grad_() for x in numbers]
        regions = window_attention.shift_regions(self.grid, self.window, self.shift, self.grid, torch.device("cuda"))
        self.allowed = None if regions is None else regions[:, :, None] == regions[:, None]
        self.factor = self.scale if self.cosine else 32**-0.5

    def bytes(self, backward: bool) -> int:
        """Return the fewest bytes that must be moved."""
        return self.qkv.numel() // 3 * 2 * (7 if backward else 4)

    def attend(self, backend: str, qkv: Any, bias: Any, scale: Any) -> Any:
        """Call Regard's function."""
        return window_attention.window_attention_qkv(
            qkv.transpose(3, 4), bias, window=self.window, shift=self.shift, real=self.grid, scale=scale,
            cosine=self.cosine, backend=backend,
        )  # fmt: skip

    def partition(self, qkv: Any, scale: Any) -> Any:
        """Return q, k, v as (B nW) H N D."""
        shifted = qkv.roll((-self.shift[0], -self.shift[1]), (1, 2))
        form = "B (y wy) (x wx) H three D -> three (B y x) H (wy wx) D"
        q, k, v = rearrange(shifted, form, wy=self.window[0], wx=self.window[1])
        if self.cosine:
            q = (F.normalize(q.float(), dim=-1) * scale[:, None, None]).to(v.dtype)
            k = F.normalize(k.float(), dim=-1).to(v.dtype)
        return q, k, v

    def join(self, out: Any) -> Any:
        """Return windows to B Y X H D."""
        back = "(B y x) H (wy wx) D -> B (y wy) (x wx) H D"
        rows = self.grid[0] // self.window[0]
        return rearrange(out, back, B=self.batch, y=rows, wy=self.window[0], wx=self.window[1]).roll(self.shift, (1, 2))

    def sdpa(self, qkv: Any, bias: Any, scale: Any) -> Any:
        """Attend by SDPA, with bias and mask as one matrix."""
        q, k, v = self.partition(qkv, scale)
        added = bias[None].to(q.dtype)
        if self.allowed is not None:
            added = torch.where(self.allowed[:, None], added, float("-inf")).repeat(self.batch, 1, 1, 1)
        factor = 1.0 if self.cosine else 32**-0.5
        return self.join(F.scaled_dot_product_attention(q, k, v, added, scale=factor))

    def flex(self, qkv: Any, bias: Any, scale: Any) -> Any:
        """Attend by FlexAttention, with regions looked up."""
        from torch.nn.attention.flex_attention import flex_attention

        q, k, v = self.partition(qkv, scale)
        allowed, num_windows = self.allowed, len(self.allowed) if self.allowed is not None else 1

        def score(s: Any, b: Any, h: Any, n: Any, m: Any) -> Any:
            s = s + bias[h, n, m]
            return s if allowed is None else torch.where(allowed[b % num_windows, n, m], s, float("-inf"))

        factor = 1.0 if self.cosine else 32**-0.5
        return self.join(flex_attention(q, k, v, score_mod=score, scale=factor))

    def implementations(self, flex: bool) -> dict[str, Callable[..., Any]]:
        """Return every implementation that is timed, as a function of qkv, bias and scale."""
        compiled = partial(torch.compile, dynamic=False)
        found = {
            "written": compiled(partial(self.attend, "eager")),
            "sdpa": compiled(self.sdpa),
            "kernel": partial(self.attend, "triton"),
        }
        return found | ({"flex": compiled(self.flex)} if flex else {})

    def times(self, attend: Callable[..., Any]) -> tuple[float, float, float]:
        """Return milliseconds of forward and backward, and the relative error against the eager form."""
        from triton.testing import do_bench

        with torch.no_grad():
            expected = self.attend("eager", self.qkv, self.bias, self.factor).float()
            error = float((attend(self.qkv, self.bias, self.factor).float() - expected).norm() / expected.norm())
            forward = do_bench(lambda: attend(self.qkv, self.bias, self.factor), return_mode="median")
        out = attend(self.qkv, self.bias, self.factor)
        backward = do_bench(
            lambda: torch.autograd.grad(out, self.differentiated, self.grad_output, retain_graph=True),
            return_mode="median",
        )
        return float(forward), float(backward), error


def copy_speed() -> float:
    """Return bytes per second, read and written, of a large copy."""
    from triton.testing import do_bench

    x = torch.empty(2**30, dtype=torch.uint8, device="cuda").random_()
    y = torch.empty_like(x)
    return 2 * x.numel() / (do_bench(lambda: y.copy_(x), return_mode="median") * 1e-3)


def measure_speed(batch: int, flex: list[str]) -> list[dict[str, Any]]:
    """Time every stage with every implementation."""
    bandwidth, rows = copy_speed(), []
    for name in STAGES:
        stage = Stage(name, batch)
        for implementation, attend in stage.implementations(name in flex).items():
            row: dict[str, Any] = {"stage": name, "way": implementation}
            try:
                forward, backward, error = stage.times(attend)
            except Exception as error:  # an unsupported implementation must not end the others
                print(
                    f"{name} {implementation}: {type(error).__name__}: {str(error).strip().splitlines()[0][:200]}",
                    file=sys.stderr,
                )
                continue
            row |= {"forward_ms": round(forward, 4), "backward_ms": round(backward, 4), "off": float(f"{error:.2g}")}
            row |= {
                "forward_share": round(stage.bytes(False) / bandwidth / forward * 1e3, 3),
                "backward_share": round(stage.bytes(True) / bandwidth / backward * 1e3, 3),
            }
            rows.append(row)
        torch._dynamo.reset()
    return rows


def sweep(batch: int) -> None:
    """Time launch settings of the kernels (window_attention_triton.FORWARD and BACKWARD)."""
    for name in ("Swin-T 1", "Swin-T 3", "SwinV2-T 1"):
        stage = Stage(name, batch)
        attend = partial(stage.attend, "triton")
        for kind, launch, column in (
            ("forward", window_attention_triton.FORWARD, 0),
            ("backward", window_attention_triton.BACKWARD, 1),
        ):
            before, found = (launch.programs, launch.stages), []
            for stages in (1, 2, 3):
                for per_sm in (1, 2, 3, 4, 6, 8, 16, 32, 64):
                    launch.programs, launch.stages = 132 * per_sm, stages
                    found.append((stage.times(attend)[column], launch.programs, stages))
            launch.programs, launch.stages = before
            best = ", ".join(f"{ms:.4f} ms: {programs}/{stages}" for ms, programs, stages in sorted(found)[:6])
            current = stage.times(attend)[column]
            print(
                f"{name} {kind} (programs/stages): {best}; current, {before[0]}/{before[1]}: {current:.4f}", flush=True
            )


def main() -> None:
    """Check, time, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=128, help="images")
    parser.add_argument("--flex", type=lambda text: text.split(","), default=["Swin-T 1"], help="stages, by name")
    parser.add_argument("--sweep", action="store_true")
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("this needs a GPU; what the kernel computes is tested on a CPU by tests/attention")
    torch.manual_seed(0)
    all_correct, checks = check_correctness()
    show = [["mode", "dtype", "out", "dqkv", "dbias", "dscale", "right"]]
    for row in checks:
        errors = [f"{row[key]:.1e}" if key in row else "" for key in show[0][2:6]]
        show.append([row["mode"], row["dtype"], *errors, row["right"]])
    print(harness.table(show), flush=True)
    if not all_correct:
        raise SystemExit("the kernel is wrong")
    if arguments.sweep:
        return sweep(arguments.batch)
    record = harness.machine("cuda") | {"dtype": "bfloat16", "batch": arguments.batch}
    rows = measure_speed(arguments.batch, arguments.flex)
    print(harness.table([list(rows[0]), *(list(row.values()) for row in rows)]))
    cases: list[dict[str, Any]] = []
    for name in STAGES:
        stage_rows = [row for row in rows if row["stage"] == name]
        contenders = {row["way"]: {k: v for k, v in row.items() if k not in ("stage", "way")} for row in stage_rows}
        cases.append({"stage": name, "contenders": contenders} | harness.lap())
    print("written:", os.path.relpath(harness.write("window-attention-cuda.json", record | {"cases": cases})))


if __name__ == "__main__":
    main()

"""Attention within windows by itself: the kernel beside the form written out, SDPA and FlexAttention, on one GPU.

    python benchmarks/window_attention.py       correctness and speed      -> results/window-attention-cuda.json
    python benchmarks/window_attention.py --sweep     how the kernels are best spread over the device; nothing written

From qkv as the projection leaves it to what the next product reads: shift, cut, bias, mask, softmax, values, join. The
shapes are those of the stages of Swin-T at 224 (windows of 7, shifted) and of SwinV2-T at 256 (windows of 8, cosine).

    written    windowed_qkv(backend="eager"), compiled
    sdpa       cut, F.scaled_dot_product_attention with bias and mask as one matrix, join; compiled
    flex       cut, FlexAttention with bias and regions as formulas, join; compiled; first stage only
    kernel     windowed_qkv(backend="triton")

Right means: value and gradients as far from those in float64 as the type allows, for fresh random numbers, in every
mode of the kernel, with all memory that is not written left at NaN. `share` is the time that reading q, k, v once and
writing o once takes at the speed of a copy on this device (backward: q, k, v, do once, dq, dk, dv once), over the time
taken: 1 is the most.
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


# -- right? ------------------------------------------------------------------------------------------------------------


def mode(
    dtype: torch.dtype, grid: tuple[int, int] = (21, 21), window: tuple[int, int] = (7, 7), heads: int = 3,
    width: int = 32, shift: tuple[int, int] = (0, 0), real: tuple[int, int] | None = None, biased: bool = True,
    scaled: bool = False, cosine: bool = False, by_head: bool = False,
) -> dict[str, float]:  # fmt: skip
    """How far the kernel is from float64: value, and gradients by qkv, bias and scale."""
    cells, device = window[0] * window[1], "cuda"
    shape = (3, *grid, heads, 3, width) if by_head else (3, *grid, 3, heads, width)
    qkv = torch.randn(shape, device=device).to(dtype)
    qkv = qkv.transpose(3, 4) if by_head else qkv
    given = {"qkv": qkv, "bias": torch.randn(heads, cells, cells, device=device)}
    given["scale"] = 1 + torch.rand(heads, device=device) if scaled else torch.tensor(width**-0.5)
    slope = torch.randn(3, *grid, heads, width, device=device).to(dtype)
    how = {"window": window, "shift": shift, "real": real or grid, "cosine": cosine}

    def run(backend: str, exact: bool) -> list[torch.Tensor]:
        mine = {k: (v.double() if exact else v).detach().requires_grad_() for k, v in given.items()}
        taken = [mine["qkv"], *([mine["bias"]] if biased else []), *([mine["scale"]] if scaled else [])]
        out = window_attention.window_attention_qkv(
            mine["qkv"],
            mine["bias"] if biased else None,
            scale=mine["scale"] if scaled else width**-0.5,
            backend=backend,
            **how,
        )
        return [out.detach(), *torch.autograd.grad(out, taken, slope.to(out.dtype))]

    names = ["out", "dqkv", *(["dbias"] if biased else []), *(["dscale"] if scaled else [])]
    found, wanted = run("triton", False), run("eager", True)
    far = [(a.double() - b).norm() / b.norm() for a, b in zip(found, wanted, strict=True)]
    return {name: float(x) for name, x in zip(names, far, strict=True)}


def check_correctness() -> tuple[bool, list[dict[str, Any]]]:
    """Every mode in bfloat16, some in every type."""
    torch.use_deterministic_algorithms(True, warn_only=True)  # fills what is new with NaN
    rows, fine = [], True
    for name, about in MODES.items():
        for dtype, most in TOLERANCE.items():
            if dtype != torch.bfloat16 and name not in IN_ALL_TYPES:  # a mode takes seconds to compile
                continue
            far = mode(dtype, **about)
            good = all(x <= most for x in far.values())  # False for NaN too
            fine &= good
            rows.append({"mode": name, "dtype": str(dtype).removeprefix("torch."), **far, "right": good})
    torch.use_deterministic_algorithms(False)
    return fine, rows


# -- fast? -------------------------------------------------------------------------------------------------------------


class Stage:
    """The inputs of one stage, and every way to attend."""

    def __init__(self, name: str, batch: int) -> None:
        side, self.heads, window, shift, self.cosine = STAGES[name]
        self.batch, self.grid, self.window, self.shift = batch, (side, side), (window, window), (shift, shift)
        cells, heads = window * window, self.heads
        self.qkv = torch.randn(batch, side, side, heads, 3, 32, device="cuda", dtype=torch.bfloat16)
        self.bias = torch.randn(heads, cells, cells, device="cuda")
        self.slope = torch.randn(batch, side, side, heads, 32, device="cuda", dtype=torch.bfloat16)
        self.scale = 5 + torch.rand(heads, device="cuda")
        numbers = [self.qkv, self.bias, *([self.scale] if self.cosine else [])]
        self.taken = [x.requires_grad_() for x in numbers]
        regions = window_attention.shift_regions(self.grid, self.window, self.shift, self.grid, torch.device("cuda"))
        self.allowed = None if regions is None else regions[:, :, None] == regions[:, None]
        self.factor = self.scale if self.cosine else 32**-0.5

    def bytes(self, backward: bool) -> int:
        """The least that has to be moved."""
        return self.qkv.numel() // 3 * 2 * (7 if backward else 4)

    def attend(self, backend: str, qkv: Any, bias: Any, scale: Any) -> Any:
        """By our own function."""
        return window_attention.window_attention_qkv(
            qkv.transpose(3, 4), bias, window=self.window, shift=self.shift, real=self.grid, scale=scale,
            cosine=self.cosine, backend=backend,
        )  # fmt: skip

    def cut(self, qkv: Any, scale: Any) -> Any:
        """q, k, v as (B nW) H N D."""
        turned = qkv.roll((-self.shift[0], -self.shift[1]), (1, 2))
        form = "B (y wy) (x wx) H three D -> three (B y x) H (wy wx) D"
        q, k, v = rearrange(turned, form, wy=self.window[0], wx=self.window[1])
        if self.cosine:
            q = (F.normalize(q.float(), dim=-1) * scale[:, None, None]).to(v.dtype)
            k = F.normalize(k.float(), dim=-1).to(v.dtype)
        return q, k, v

    def join(self, out: Any) -> Any:
        """Back to B Y X H D."""
        back = "(B y x) H (wy wx) D -> B (y wy) (x wx) H D"
        rows = self.grid[0] // self.window[0]
        return rearrange(out, back, B=self.batch, y=rows, wy=self.window[0], wx=self.window[1]).roll(self.shift, (1, 2))

    def sdpa(self, qkv: Any, bias: Any, scale: Any) -> Any:
        """PyTorch's fused attention, bias and mask as one matrix."""
        q, k, v = self.cut(qkv, scale)
        added = bias[None].to(q.dtype)
        if self.allowed is not None:
            added = torch.where(self.allowed[:, None], added, float("-inf")).repeat(self.batch, 1, 1, 1)
        one = 1.0 if self.cosine else 32**-0.5
        return self.join(F.scaled_dot_product_attention(q, k, v, added, scale=one))

    def flex(self, qkv: Any, bias: Any, scale: Any) -> Any:
        """FlexAttention, the regions looked up."""
        from torch.nn.attention.flex_attention import flex_attention

        q, k, v = self.cut(qkv, scale)
        allowed, per = self.allowed, len(self.allowed) if self.allowed is not None else 1

        def score(s: Any, b: Any, h: Any, n: Any, m: Any) -> Any:
            s = s + bias[h, n, m]
            return s if allowed is None else torch.where(allowed[b % per, n, m], s, float("-inf"))

        one = 1.0 if self.cosine else 32**-0.5
        return self.join(flex_attention(q, k, v, score_mod=score, scale=one))

    def ways(self, flex: bool) -> dict[str, Callable[..., Any]]:
        """Everything that is timed; each is a function of qkv, bias and scale."""
        compiled = partial(torch.compile, dynamic=False)
        found = {
            "written": compiled(partial(self.attend, "eager")),
            "sdpa": compiled(self.sdpa),
            "kernel": partial(self.attend, "triton"),
        }
        return found | ({"flex": compiled(self.flex)} if flex else {})

    def times(self, way: Callable[..., Any]) -> tuple[float, float, float]:
        """Milliseconds forward without gradients, and backward; how far the value is from the form written out."""
        from triton.testing import do_bench

        with torch.no_grad():
            wanted = self.attend("eager", self.qkv, self.bias, self.factor).float()
            far = float((way(self.qkv, self.bias, self.factor).float() - wanted).norm() / wanted.norm())
            forward = do_bench(lambda: way(self.qkv, self.bias, self.factor), return_mode="median")
        out = way(self.qkv, self.bias, self.factor)
        back = do_bench(
            lambda: torch.autograd.grad(out, self.taken, self.slope, retain_graph=True), return_mode="median"
        )
        return float(forward), float(back), far


def copy_speed() -> float:
    """Bytes a second, read and written, of a large copy."""
    from triton.testing import do_bench

    x = torch.empty(2**30, dtype=torch.uint8, device="cuda").random_()
    y = torch.empty_like(x)
    return 2 * x.numel() / (do_bench(lambda: y.copy_(x), return_mode="median") * 1e-3)


def measure_speed(batch: int, flex: list[str]) -> list[dict[str, Any]]:
    """Every stage by every way."""
    top, rows = copy_speed(), []
    for name in STAGES:
        stage = Stage(name, batch)
        for way, call in stage.ways(name in flex).items():
            row: dict[str, Any] = {"stage": name, "way": way}
            try:
                forward, back, far = stage.times(call)
            except Exception as error:  # what this PyTorch cannot do must not end the rest
                print(
                    f"{name} {way}: {type(error).__name__}: {str(error).strip().splitlines()[0][:200]}", file=sys.stderr
                )
                continue
            row |= {"forward_ms": round(forward, 4), "backward_ms": round(back, 4), "off": float(f"{far:.2g}")}
            row |= {
                "forward_share": round(stage.bytes(False) / top / forward * 1e3, 3),
                "backward_share": round(stage.bytes(True) / top / back * 1e3, 3),
            }
            rows.append(row)
        torch._dynamo.reset()
    return rows


def sweep(batch: int) -> None:
    """The time of every way to spread the kernels; what they are called with lies in window_kernel."""
    for name in ("Swin-T 1", "Swin-T 3", "SwinV2-T 1"):
        stage = Stage(name, batch)
        way = partial(stage.attend, "triton")
        for kind, launch, column in (
            ("forward", window_attention_triton.FORWARD, 0),
            ("backward", window_attention_triton.BACKWARD, 1),
        ):
            before, found = (launch.programs, launch.stages), []
            for stages in (1, 2, 3):
                for each in (1, 2, 3, 4, 6, 8, 16, 32, 64):
                    launch.programs, launch.stages = 132 * each, stages
                    found.append((stage.times(way)[column], launch.programs, stages))
            launch.programs, launch.stages = before
            best = ", ".join(f"{ms:.4f} ms: {programs}/{stages}" for ms, programs, stages in sorted(found)[:6])
            now = stage.times(way)[column]
            print(f"{name} {kind} (programs/stages): {best}; as it is, {before[0]}/{before[1]}: {now:.4f}", flush=True)


def main() -> None:
    """Read the arguments, check, time, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=128, help="images")
    parser.add_argument("--flex", type=lambda text: text.split(","), default=["Swin-T 1"], help="stages, by name")
    parser.add_argument("--sweep", action="store_true")
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("this needs a GPU; what the kernel computes is tested on a CPU by tests/attention")
    torch.manual_seed(0)
    fine, checks = check_correctness()
    show = [["mode", "dtype", "out", "dqkv", "dbias", "dscale", "right"]]
    for row in checks:
        far = [f"{row[key]:.1e}" if key in row else "" for key in show[0][2:6]]
        show.append([row["mode"], row["dtype"], *far, row["right"]])
    print(harness.table(show), flush=True)
    if not fine:
        raise SystemExit("the kernel is wrong")
    if arguments.sweep:
        return sweep(arguments.batch)
    record = harness.machine("cuda") | {"dtype": "bfloat16", "batch": arguments.batch}
    rows = measure_speed(arguments.batch, arguments.flex)
    print(harness.table([list(rows[0]), *(list(row.values()) for row in rows)]))
    cases: list[dict[str, Any]] = []
    for name in STAGES:
        mine = [row for row in rows if row["stage"] == name]
        about = {row["way"]: {k: v for k, v in row.items() if k not in ("stage", "way")} for row in mine}
        cases.append({"stage": name, "contenders": about})
    print("written:", os.path.relpath(harness.write("window-attention-cuda.json", record | {"cases": cases})))


if __name__ == "__main__":
    main()

"""Training speed of GPT-2 124M: Regard against plain PyTorch like nanoGPT and transformers' GPT-2, taking turns.

    python benchmarks/train.py                       one GPU, bfloat16, compiled  -> results/train-gpt2-cuda.json
    python benchmarks/train.py --variants            ours with every option by itself, beside nanogpt; nothing written
    python benchmarks/train.py --contenders regard,regard+cudnn+chunk=16384,nanogpt+cudnn
    python benchmarks/train.py --device cpu --size char --batch 4      -> results/train-char-cpu.json
    python benchmarks/train.py --model transformer   the base Transformer beside torch.nn.Transformer (seq2seq.py)
    python benchmarks/train.py --tiny                a tiny model on the CPU, to see that it runs; nothing is written

All have the same sizes, no dropout, no biases (--bias: all have them; transformers' always has), the same random
tokens, clipping at 1 and fused AdamW. Ours is what the training loop uses: the model, losses.fused_linear_cross_entropy
and training.Optimizer.

Operations a token are 6 N + 12 L C T, nanoGPT's formula: N parameters without the positions, and attention as if
nothing were masked. The share of the peak is that over what a large product reaches in the same run.

One process a contender, all alive at once; after a turn each lets its activations go, so that many fit on one GPU.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import harness

SIZES: dict[str, dict[str, Any]] = {
    "gpt2": {"vocab": 50257, "width": 768, "heads": 12, "layers": 12, "length": 1024},
    "medium": {"vocab": 50257, "width": 1024, "heads": 16, "layers": 24, "length": 1024},
    "char": {"vocab": 69, "width": 384, "heads": 6, "layers": 6, "length": 256},
    "tiny": {"vocab": 69, "width": 32, "heads": 2, "layers": 2, "length": 32},
}
BATCH = {"gpt2": 64, "medium": 32, "char": 64, "tiny": 4}
CONTENDERS = ["regard", "nanogpt", "transformers"]

# Options of a contender, each after a +. The first five work with any contender, the rest with regard only.
OPTIONS = {
    "cudnn": "attention by cuDNN's kernels instead of FlashAttention 2",
    "fa3": "attention by FlashAttention 3, where it is installed",
    "autotune": "torch.compile(mode='max-autotune-no-cudagraphs')",
    "tuned": "inductor tries out the block sizes of its own kernels",
    "eager": "not compiled",
    "plain": "all logits at once, then cross-entropy",
    "chunk": "chunk=N: so many rows of logits at a time (16384)",
    "written": "the loss in PyTorch instead of the Triton kernel",
    "unpadded": "the head's matrix not padded to a multiple of 64",
    "addmm": "the head's gradient accumulated by addmm in float32",
    "wide": "the residual path in float32",
    "master": "weights in bfloat16, the optimizer's in float32; no autocast",
    "graph": "the whole update as one CUDA graph",
}
ALL = [
    "regard", "nanogpt", "regard+plain", "regard+chunk=8192", "regard+chunk=32768", "regard+unpadded", "regard+addmm",
    "regard+cudnn", "nanogpt+cudnn", "regard+fa3", "regard+tuned", "regard+autotune", "regard+wide", "regard+written",
    "regard+master", "regard+graph",
]  # fmt: skip


# -- contenders: each is made of a size and options, and gives one update as a function of a batch ---------------------

Update = Callable[[Any, Any], Any]  # tokens, targets -> the mean loss, still on the device


class Setting:
    """The settings of a contender, from its name and the arguments."""

    def __init__(self, name: str, arguments: argparse.Namespace) -> None:
        self.base, *options = name.split("+")
        self.options = {key: value for key, _, value in (option.partition("=") for option in options)}
        if self.base not in CONTENDERS or not self.options.keys() <= OPTIONS.keys():
            raise SystemExit(f"there is no contender {name}; {', '.join(CONTENDERS)} with {', '.join(OPTIONS)}")
        self.device, self.bias, self.size = arguments.device, arguments.bias, SIZES[arguments.size]
        self.half = arguments.half and "master" not in self.options
        self.compiled = arguments.compile and "eager" not in self.options

    def configure_process(self) -> None:
        """Set torch's global switches."""
        import torch

        torch.manual_seed(0)
        torch.set_float32_matmul_precision("high")
        if "cudnn" in self.options:
            torch.backends.cuda.enable_cudnn_sdp(True)
            for backend in ("flash", "mem_efficient", "math"):
                getattr(torch.backends.cuda, f"enable_{backend}_sdp")(False)
        if "fa3" in self.options:
            torch.nn.attention.activate_flash_attention_impl("FA3")
        if "tuned" in self.options:
            import torch._inductor.config

            torch._inductor.config.coordinate_descent_tuning = True

    def compile(self, model: Any) -> Any:
        import torch

        if not self.compiled:
            return model
        mode = "max-autotune-no-cudagraphs" if "autotune" in self.options else None
        return torch.compile(model, dynamic=False, mode=mode)

    def autocast(self) -> Any:
        import torch

        return torch.autocast(self.device, dtype=torch.bfloat16) if self.half else nullcontext()


def regard_update(setting: Setting) -> tuple[Any, Update]:
    """Return the model and one update with Regard's loss and optimizer, as in the training loop."""
    import torch

    from regard.blocks.encoder import Stack
    from regard.losses import fused_linear_cross_entropy as module
    from regard.models import build
    from regard.training.optimizers.optimizer import Optimizer

    options = setting.options
    model = build("gpt", **setting.size, bias=setting.bias, dropout=0.0, attention_dropout=0.0).to(setting.device)
    trained, copies = dict(model.named_parameters()), []
    if "master" in options:
        trained = {name: torch.nn.Parameter(p.detach().clone()) for name, p in trained.items()}
        model.bfloat16()
        copies = [p for _, p in model.named_parameters()]
    if "wide" in options:
        model.decoder.add_positions = partial(Stack.add_positions, model.decoder)
    if "written" in options:
        module.can_use_triton = lambda z: False
    if "unpadded" in options:
        module.PAD_MULTIPLE = 1
    if "addmm" in options:
        module._accumulate_product = lambda total, a, b: (
            torch.mm(a, b, out_dtype=torch.float32) if total is None else
            torch.addmm(total, a, b, out_dtype=torch.float32)
        )  # fmt: skip
    if "chunk" in options:
        module.CUDA_CHUNK_ROWS, module.CPU_CHUNK_ELEMENTS = (
            int(options["chunk"]),
            int(options["chunk"]) * setting.size["vocab"],
        )
    loss = full_loss if "plain" in options else module.fused_linear_cross_entropy
    optimizer = Optimizer(trained, "adamw", betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1, clip_grad_norm=1.0)
    run, masters = setting.compile(model), list(trained.values())

    def update(tokens: Any, targets: Any) -> Any:
        with setting.autocast():
            total = run(tokens, targets=targets, loss=loss)
        (total / targets.numel()).backward()
        if copies:
            for master, copy in zip(masters, copies, strict=True):
                master.grad, copy.grad = copy.grad.float(), None
        optimizer.step(6e-4)
        if copies:
            with torch.no_grad():
                torch._foreach_copy_(copies, masters)
        return total.detach() / targets.numel()

    return model, update


def full_loss(x: Any, weight: Any, targets: Any) -> Any:
    """Return the loss from all logits at once."""
    import torch.nn.functional as F

    return F.cross_entropy(F.linear(x, weight).flatten(0, 1).float(), targets.flatten(), reduction="sum")


def peer_update(setting: Setting) -> tuple[Any, Update]:
    """Return a model like nanoGPT's, or transformers', and one update as in nanoGPT's loop."""
    import torch

    size = setting.size
    if setting.base == "nanogpt":
        from plain_gpt import PlainGPT

        model: Any = PlainGPT(**size, bias=setting.bias)
    else:
        import transformers

        config = transformers.GPT2Config(
            vocab_size=size["vocab"], n_embd=size["width"], n_head=size["heads"], n_layer=size["layers"],
            n_positions=size["length"], resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, use_cache=False,
            bos_token_id=0, eos_token_id=0, attn_implementation="sdpa", loss_type="ForCausalLM",
        )  # fmt: skip
        model = transformers.GPT2LMHeadModel(config)
    model = model.to(setting.device).train()
    parameters = list(model.parameters())
    groups = [{"params": [p for p in parameters if (p.ndim >= 2) == matrix], "weight_decay": decay}
              for matrix, decay in ((True, 0.1), (False, 0.0))]  # fmt: skip
    optimizer = torch.optim.AdamW(groups, lr=6e-4, betas=(0.9, 0.95), fused=True)
    run = setting.compile(model)

    def update(tokens: Any, targets: Any) -> Any:
        with setting.autocast():
            if setting.base == "nanogpt":
                loss = run(tokens, targets)
            else:
                loss = run(tokens, labels=targets, shift_labels=targets).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    return model, update


def cuda_graph(update: Update, tokens: Any, targets: Any) -> Update:
    """Capture the update as one CUDA graph over its own copy of the batch; it must have run before."""
    import torch

    inputs, graph = (tokens.clone(), targets.clone()), torch.cuda.CUDAGraph()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            update(*inputs)
    torch.cuda.current_stream().wait_stream(side)
    with torch.cuda.graph(graph):
        value = update(*inputs)

    def replay(tokens: Any, targets: Any) -> Any:
        for captured, current in zip(inputs, (tokens, targets), strict=True):
            captured.copy_(current)
        graph.replay()
        return value

    return replay


def child(name: str, arguments: argparse.Namespace) -> None:
    """Run one contender: build and compile on the first request, then train the requested steps."""
    setting, built = Setting(name, arguments), list[Any]()
    cuda = setting.device == "cuda"

    def build() -> tuple[int, Update, tuple[Any, Any]]:
        import torch

        setting.configure_process()
        model, update = (regard_update if setting.base == "regard" else peer_update)(setting)
        shape = (arguments.batch, arguments.length + 1)
        text = torch.randint(setting.size["vocab"], shape, generator=torch.Generator().manual_seed(1))
        batch = text[:, :-1].contiguous().to(setting.device), text[:, 1:].contiguous().to(setting.device)
        for _ in range(3):
            update(*batch)
        if "graph" in setting.options and cuda:
            update = cuda_graph(update, *batch)
        return sum(p.numel() for p in model.parameters()), update, batch

    def do(steps: int) -> dict[str, Any]:
        import torch

        if not built:
            built.extend(build())
        parameters, update, batch = built
        for _ in range(2):  # allocates memory again, raises clocks
            value = update(*batch)
        float(value)  # waits for the device
        if cuda:
            torch.cuda.reset_peak_memory_stats()
        began = time.perf_counter()
        for _ in range(steps):
            value = update(*batch)
        last = float(value)
        seconds = time.perf_counter() - began
        found = {"seconds": seconds, "tokens": batch[0].numel() * steps, "loss": last, "parameters": parameters}
        if cuda:
            found["peak_mib"] = round(torch.cuda.max_memory_allocated() / 2**20, 1)
            torch.cuda.empty_cache()
        return found

    def try_it(**request: Any) -> dict[str, Any]:
        try:
            return do(**request)
        except Exception as error:  # an unsupported option must not end the others
            return {"failed": f"{type(error).__name__}: {str(error).strip().splitlines()[0][:200]}"}

    harness.serve_requests(try_it)


# -- the run -----------------------------------------------------------------------------------------------------------


def peak(device: str, side: int) -> float:
    """Return the operations per second of a large product in the training dtype."""
    import torch

    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    a, b = (torch.randn(side, side, device=device, dtype=dtype) for _ in range(2))
    wait = torch.cuda.synchronize if device == "cuda" else lambda: None
    best = 0.0
    for _ in range(5):
        wait()
        began = time.perf_counter()
        for _ in range(10):
            a @ b
        wait()
        best = max(best, 10 * 2 * side**3 / (time.perf_counter() - began))
    return best


def operations(size: dict[str, Any], length: int, bias: bool) -> float:
    """Return the operations per token, forward and backward: 6 N + 12 L C T."""
    import torch

    from regard.models import build

    with torch.device("meta"):
        model = build("gpt", **size, bias=bias)
    n = sum(p.numel() for name, p in model.named_parameters() if "positions" not in name)
    return float(6 * n + 12 * size["layers"] * size["width"] * length)


def compare(arguments: argparse.Namespace) -> dict[str, Any]:
    """Time all contenders in turns and return the results."""
    names, size = arguments.contenders, SIZES[arguments.size]
    per_token = operations(size, arguments.length, arguments.bias)
    peak_speed = peak(
        arguments.device, 8192 if arguments.device == "cuda" else 1024 if arguments.size != "tiny" else 128
    )
    script, options = str(Path(__file__).resolve()), _child_options(arguments)
    children = [harness.Child(name, script, options, arguments.threads) for name in names]
    steal = harness.Steal()
    with ThreadPoolExecutor(arguments.jobs) as pool:  # compiles, some at a time
        warm = list(pool.map(_warm_up, children))
    failed = {process.name: found["failed"] for process, found in zip(children, warm, strict=True) if "failed" in found}
    racing = [process for process in children if process.name not in failed]
    turns = harness.rounds(racing, arguments.rounds, steps=arguments.steps)
    for process in racing:  # what ran alone may not fit next to the memory of the others
        for turn in turns:
            if "failed" in turn[process.name]:
                failed[process.name] = turn[process.name]["failed"]
    racing = [process for process in racing if process.name not in failed]
    for name, reason in failed.items():
        print(f"{name} failed: {reason}", file=sys.stderr)
    record: dict[str, Any] = harness.machine(arguments.device) | {
        "model": {"name": arguments.size, **size, "bias": arguments.bias, "compiled": arguments.compile},
        "dtype": "bfloat16" if arguments.half else "float32", "threads": arguments.threads,
        "rounds": arguments.rounds, "steps": arguments.steps, "batch": arguments.batch, "length": arguments.length,
        "operations_a_token": per_token, "matmul_peak_tflops": round(peak_speed / 1e12, 3), "steal": steal.share(),
        "contenders": {}, "failed": failed,
    }  # fmt: skip
    base = "nanogpt" if any(process.name == "nanogpt" for process in racing) else racing[0].name
    for process in racing:
        answers = [turn[process.name] for turn in turns]
        speed = [found["tokens"] / found["seconds"] for found in answers]
        row: dict[str, Any] = {"tokens_per_second": harness.median_and_range(speed)}
        row["tflops"] = harness.median_and_range([per_token * s / 1e12 for s in speed])
        row["fraction_of_peak"] = harness.median_and_range([per_token * s / peak_speed for s in speed])
        row[f"x {base}"] = harness.median_and_range(
            s * turn[base]["seconds"] / turn[base]["tokens"] for s, turn in zip(speed, turns, strict=True)
        )
        row |= {key: answers[-1][key] for key in ("loss", "parameters", "peak_mib") if key in answers[-1]}
        record["contenders"][process.name] = row
    for process in children:
        process.close()
    return record


def _warm_up(process: harness.Child) -> dict[str, Any]:
    """Run a contender's first step, which compiles for a minute, and print a line."""
    began = time.perf_counter()
    found = process.ask(steps=1)
    print(f"{process.name} is configure_process after {time.perf_counter() - began:.0f} s", file=sys.stderr, flush=True)
    return found


def show(record: dict[str, Any]) -> str:
    """Format the results as a table."""
    base = next(key[2:] for key in next(iter(record["contenders"].values())) if key.startswith("x "))
    rows = [["", "tokens/s", "TFLOP/s", "of peak", "peak MiB", f"x {base}", "(range)", "loss"]]
    for name, row in record["contenders"].items():
        ratio = row[f"x {base}"]
        rows.append([
            name, f"{row['tokens_per_second']['median']:,.0f}", f"{row['tflops']['median']:.3g}",
            f"{row['fraction_of_peak']['median']:.3f}", f"{row['peak_mib']:,.0f}" if "peak_mib" in row else "-",
            f"{ratio['median']:.3f}", f"{ratio['min']:.3f}-{ratio['max']:.3f}", f"{row['loss']:.4f}",
        ])  # fmt: skip
    summary = f"{record['batch']} rows of {record['length']}, a product reaches {record['matmul_peak_tflops']} TFLOP/s"
    return f"{summary}\n{harness.table(rows)}"


def _child_options(arguments: argparse.Namespace) -> list[str]:
    """Return the command-line options of a child process."""
    options = ["--device", arguments.device, "--size", arguments.size, "--batch", str(arguments.batch)]
    options += ["--length", str(arguments.length), "--compile" if arguments.compile else "--no-compile"]
    options += ["--half" if arguments.half else "--no-half"]
    return [*options, *(["--bias"] if arguments.bias else [])]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=["gpt", "transformer"], default="gpt")
    parser.add_argument("--size", choices=SIZES, default="gpt2")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--batch", type=int, help="rows; 64 of GPT-2")
    parser.add_argument("--length", type=int, help="tokens per row; by default as many as the model has positions")
    parser.add_argument("--bias", action="store_true")
    parser.add_argument("--compile", action=argparse.BooleanOptionalAction, help="default: on a GPU")
    parser.add_argument("--half", action=argparse.BooleanOptionalAction, help="bfloat16; default: on a GPU")
    parser.add_argument("--contenders", help="names with options, separated by commas; options: "
                        + "; ".join(f"{key} ({what})" for key, what in OPTIONS.items()))  # fmt: skip
    parser.add_argument("--variants", action="store_true", help="every option by itself")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=10, help="a turn")
    parser.add_argument("--jobs", type=int, default=3, help="contenders that compile at the same time")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--tiny", "--quick", action="store_true")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    found = parser.parse_args()
    if found.tiny:
        found.size, found.device, found.compile, found.rounds, found.steps = "tiny", "cpu", bool(found.compile), 2, 2
    found.compile = found.device == "cuda" if found.compile is None else found.compile
    found.half = found.device == "cuda" if found.half is None else found.half
    found.batch = found.batch or BATCH[found.size]
    found.length = found.length or SIZES[found.size]["length"]
    found.partial = bool(found.variants or found.contenders)
    found.contenders = ALL if found.variants else (found.contenders or ",".join(CONTENDERS)).split(",")
    return found


def main() -> None:
    """Run, print and write."""
    arguments = _arguments()
    if arguments.model == "transformer":
        import seq2seq

        return seq2seq.main(arguments)
    if arguments.child:
        return child(arguments.child, arguments)
    for name in arguments.contenders:
        Setting(name, arguments)  # refuse an unknown option now
    record = compare(arguments)
    print(show(record))
    if not arguments.tiny and not arguments.partial:
        print("written:", harness.write(f"train-{arguments.size}-{arguments.device}.json", record).name)


if __name__ == "__main__":
    main()

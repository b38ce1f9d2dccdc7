"""Generation speed: GPT-2 124M, Regard against transformers' `generate` with the same weights, taking turns.

    python benchmarks/generate.py                     CPU, float32, 2 threads                     -> generate-cpu.json
    python benchmarks/generate.py --device cuda       bfloat16; these and compiled steps          -> generate-cuda.json
    add --quick for seconds (a small model, no file written)

The weights are random (fixed seed), made by transformers and read by ours through its table. Every prompt has 32
tokens, every output is forced to 128 more (eos is ruled out), greedy; reading the prompts is in the time. All should
write the same tokens: the last column counts the outputs that equal transformers' (in bfloat16 some differ by rounding,
and after the first difference all the rest does).

    regard                runtime.inference.pack_weights on a CPU, for one text at a time or several;
                          on a GPU the step captured as a CUDA graph (runtime.cuda_graph)
    regard+compiled       the same with the step compiled (runtime.inference.compile_step), on a GPU
    regard-int8           int8 weights and products (runtime.inference.quantize_int8), on a CPU, if selected
    transformers          generate with its defaults: a cache that grows
    transformers-static   generate with cache_implementation="static", which compiles its step, on a GPU
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, ClassVar

import harness

PROMPT, NEW = 32, 128  # tokens
CASES = [1, 16]  # batches
BASE = {"vocab_size": 50257, "n_embd": 768, "n_layer": 12, "n_head": 12}
SMALL = {"vocab_size": 1000, "n_embd": 128, "n_layer": 2, "n_head": 4}
EOS = 0


# -- the contenders, each in a process of its own ----------------------------------------------------------------------


class RegardGenerator:
    """Regard with packed weights."""

    def __init__(self, folder: Path, device: str, dtype: str, prepare: str = "pack_weights") -> None:
        import torch

        from regard.runtime import inference
        from regard.weights.hf import gpt2

        torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
        self.device, self.models = device, {}
        modes = (True, False) if prepare == "pack_weights" and device == "cpu" else (None,)
        for is_single in modes:  # one text at a time, and several, as the command line does
            model = gpt2.load(folder)[0].to(device, getattr(torch, dtype)).eval()
            self.models[is_single] = (
                inference.pack_weights(model, rows=1) if is_single else getattr(inference, prepare)(model)
            )

    def write(self, prompts: list[list[int]], new: int) -> list[list[int]]:
        """Generate token ids."""
        import torch

        from regard.decoding.beam_search import greedy_search

        model = self.models.get(len(prompts) == 1) or self.models[None]
        found = greedy_search(model, torch.tensor(prompts, device=self.device), max_length=new, banned_tokens=[EOS])
        return [hypothesis.tokens for hypothesis in found]


class RegardCompiled(RegardGenerator):
    """Regard with the step compiled."""

    def __init__(self, folder: Path, device: str, dtype: str) -> None:
        super().__init__(folder, device, dtype, "compile_step")


class RegardInt8(RegardGenerator):
    """Regard with int8 weights."""

    def __init__(self, folder: Path, device: str, dtype: str) -> None:
        super().__init__(folder, device, dtype, "quantize_int8")


class TransformersGenerator:
    """transformers' own generate."""

    options: ClassVar[dict[str, Any]] = {}

    def __init__(self, folder: Path, device: str, dtype: str) -> None:
        import torch
        from transformers import GPT2LMHeadModel

        torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
        self.device = device
        self.model = GPT2LMHeadModel.from_pretrained(folder, dtype=getattr(torch, dtype)).to(device).eval()

    def write(self, prompts: list[list[int]], new: int) -> list[list[int]]:
        """Generate token ids."""
        import torch

        inputs = torch.tensor(prompts, device=self.device)
        with torch.inference_mode():
            out = self.model.generate(
                input_ids=inputs,
                attention_mask=torch.ones_like(inputs),
                min_new_tokens=new,
                max_new_tokens=new,
                do_sample=False,
                pad_token_id=EOS,
                **self.options,
            )
        return out[:, inputs.shape[1] :].tolist()


class TransformersStatic(TransformersGenerator):
    """The same with a static cache, for which it compiles its step."""

    options: ClassVar[dict[str, Any]] = {"cache_implementation": "static"}


CONTENDERS: dict[str, type] = {
    "regard": RegardGenerator,
    "regard+compiled": RegardCompiled,
    "regard-int8": RegardInt8,
    "transformers": TransformersGenerator,
    "transformers-static": TransformersStatic,
}


def child(name: str, folder: Path, device: str, dtype: str) -> None:
    """Run one contender: load, then generate on request."""
    contender = CONTENDERS[name](folder, device, dtype)
    vocab = json.loads((folder / "config.json").read_text())["vocab_size"]

    def do(batch: int, new: int, return_tokens: bool = False) -> dict[str, Any]:
        if device == "cuda":
            import torch

            torch.cuda.reset_peak_memory_stats()
        prompts = _prompts(batch, vocab)
        began = time.perf_counter()
        written = contender.write(prompts, new)  # lists on the host: the device has finished
        result: dict[str, Any] = {"seconds": time.perf_counter() - began, "tokens": sum(map(len, written))}
        if return_tokens:
            result["written"] = written
        if device == "cuda":
            result["peak_mib"] = round(torch.cuda.max_memory_allocated() / 2**20, 1)
        return result

    harness.serve_requests(do)


def _prompts(number: int, vocab: int) -> list[list[int]]:
    """Return random prompts, the same for all contenders."""
    import random

    rng = random.Random(7)
    return [[rng.randrange(1, vocab) for _ in range(PROMPT)] for _ in range(number)]


def save_random_gpt2(folder: Path, size: dict[str, Any]) -> None:
    """Save a random GPT-2, in a child process, so that the parent stays small."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(1)
    # 0.02 would give nearly the same word everywhere
    config = GPT2Config(**size, n_positions=1024, initializer_range=0.06, bos_token_id=EOS, eos_token_id=EOS)
    model = GPT2LMHeadModel(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("bias"):  # zero biases would hide a bias put in the wrong place
                parameter.normal_(std=0.02)
    model.save_pretrained(folder)


# -- the parent --------------------------------------------------------------------------------------------------------


def compare(arguments: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Time all contenders in turns and return the results."""
    steal, names = harness.Steal(), arguments.contenders
    record = harness.machine(arguments.device) | {
        "threads": arguments.threads,
        "dtype": arguments.dtype,
        "prompt_tokens": PROMPT,
        "new_tokens": arguments.new,
        "model": SMALL if arguments.quick else BASE,
    }
    options = ["--folder", str(folder), "--device", arguments.device, "--dtype", arguments.dtype]
    children = [harness.Child(name, __file__, options, arguments.threads) for name in names]
    cases = []
    for batch in arguments.cases:
        request = {"batch": batch, "new": arguments.new}
        # the first turn warms up and returns the outputs; the second settles allocators and CUDA graphs
        (first,) = harness.rounds(children, 1, **request, return_tokens=True)
        harness.rounds(children, 1, **request)
        turns = harness.rounds(children, arguments.rounds, **request)
        speed = {name: [turn[name]["tokens"] / turn[name]["seconds"] for turn in turns] for name in names}
        case: dict[str, Any] = {"batch": batch, "contenders": {}}
        peer = "transformers" if "transformers" in names else names[-1]
        for name in names:
            same = sum(a == b for a, b in zip(first[name]["written"], first[peer]["written"], strict=True))
            row: dict[str, Any] = {
                "tokens_per_second": harness.median_and_range(speed[name]),
                "same_outputs": f"{same}/{batch}",
            }
            if "peak_mib" in turns[0][name]:
                row["peak_mib"] = max(turn[name]["peak_mib"] for turn in turns)
            case["contenders"][name] = row
        for contender in [name for name in names if name.startswith("regard")]:
            for peer_name in [name for name in names if name.startswith("transformers")]:
                case[f"{contender} / {peer_name}"] = harness.median_and_range(
                    [a / b for a, b in zip(speed[contender], speed[peer_name], strict=True)]
                )
        cases.append(case | harness.lap())
        ratios = ", ".join(f"{name} {value['median']:.2f}" for name, value in case.items() if " / " in name)
        print(f"batch {batch}: {ratios}", file=sys.stderr, flush=True)
    for process in children:
        process.close()
    return record | {"rounds": arguments.rounds, "steal": steal.share(), "cases": cases}


def show(record: dict[str, Any]) -> str:
    """The record as a table."""
    memory = any("peak_mib" in found for case in record["cases"] for found in case["contenders"].values())
    head = ["batch", "contender", "tokens/s", "range", "it / transformers", "range", "same"]
    rows: list[list[Any]] = [head + ["peak MiB"] * memory]
    for case in record["cases"]:
        for name, found in case["contenders"].items():
            speed, ratio = found["tokens_per_second"], case.get(f"{name} / transformers")
            row = [case["batch"], name, f"{speed['median']:.0f}", f"{speed['min']:.0f}-{speed['max']:.0f}"]
            row += [f"{ratio['median']:.2f}", f"{ratio['min']:.2f}-{ratio['max']:.2f}"] if ratio else ["", ""]
            rows.append([*row, found["same_outputs"], *([found.get("peak_mib", "")] if memory else [])])
    return harness.table(rows)


def main() -> None:
    """Read the arguments, save_random_gpt2 the weights, run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    dtypes = ("float32", "bfloat16", "float16")
    parser.add_argument("--dtype", choices=dtypes, help="float32 on a CPU, bfloat16 on a GPU")
    parser.add_argument("--contenders", type=lambda text: text.split(","), help=", ".join(CONTENDERS))
    parser.add_argument("--cases", type=lambda text: [int(n) for n in text.split(",")], help="batches, as 1,16")
    parser.add_argument("--new", type=int, default=NEW, help="tokens to write")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--quick", action="store_true", help="a small model, two rounds, nothing written")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    arguments.dtype = arguments.dtype or ("float32" if arguments.device == "cpu" else "bfloat16")
    if arguments.child == "make":
        return save_random_gpt2(arguments.folder, SMALL if arguments.quick else BASE)
    if arguments.child:
        return child(arguments.child, arguments.folder, arguments.device, arguments.dtype)
    # a CPU's shapes grow: nothing to compile
    on_gpu = ["regard", "regard+compiled", "transformers", "transformers-static"]
    arguments.contenders = arguments.contenders or (
        on_gpu if arguments.device == "cuda" else ["regard", "transformers"]
    )
    arguments.cases = arguments.cases or CASES
    if arguments.quick:
        arguments.rounds, arguments.new = 2, min(arguments.new, 16)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the weights are removed then too
    folder = Path(tempfile.mkdtemp(prefix="regard-bench-"))
    try:
        making = [sys.executable, "-W", "ignore", __file__, "--child", "make", "--folder", str(folder)]
        subprocess.run([*making, *(["--quick"] if arguments.quick else [])], check=True)
        record = compare(arguments, folder)
        print(show(record))
    finally:
        shutil.rmtree(folder)
    if not arguments.quick:
        print("written:", os.path.relpath(harness.write(f"generate-{arguments.device}.json", record)))


if __name__ == "__main__":
    main()

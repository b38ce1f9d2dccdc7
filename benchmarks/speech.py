"""Encoding speech with Conformer-M: ours and transformers' Wav2Vec2-Conformer with the same weights, taking turns.

    python benchmarks/speech.py                    on a CPU, one thread, float32 -> results/speech-cpu.json
    python benchmarks/speech.py --device cuda      on a GPU, bfloat16 -> results/speech-cuda.json
    python benchmarks/speech.py --device cuda --minutes 4      begin no case after that; the same command goes on
    python benchmarks/speech.py --quick            two layers, short, eager, nothing written

Both are compiled (`--eager`: not) and get the same subsampled frames, batch x frames in `--cases`; 250 frames are ten
seconds of speech at a frame every 40 ms. The peer's weights are random, ours are read through the weight table; the
record holds how far outputs differ. A turn is the best of a few calls.

The file is written after every case; one that fails is named and loses only itself. What the file has is not measured
again: delete it to begin anew.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import harness

CONTENDERS = ("regard", "transformers")
SIZE_M = {"hidden_size": 256, "num_hidden_layers": 16, "num_attention_heads": 4, "intermediate_size": 1024}


def encoder(name: str, layers: int) -> Any:
    """Return an encoder in eval mode; both have the weights of the peer."""
    import torch
    from transformers import Wav2Vec2ConformerConfig
    from transformers.models.wav2vec2_conformer.modeling_wav2vec2_conformer import Wav2Vec2ConformerEncoder

    from regard.blocks.conformer import ConformerEncoder
    from regard.weights.hf import wav2vec2_conformer
    from regard.weights.table import import_state_dict

    torch.manual_seed(0)
    config = Wav2Vec2ConformerConfig(
        **SIZE_M | {"num_hidden_layers": layers},
        hidden_act="swish",
        position_embeddings_type="relative",
        conv_depthwise_kernel_size=31,
        attn_implementation="sdpa",
    )
    theirs = Wav2Vec2ConformerEncoder(config).eval()
    for parameter in theirs.parameters():
        if parameter.requires_grad and parameter.ndim > 1:
            torch.nn.init.normal_(parameter, std=0.05)
    if name == "transformers":
        return theirs
    ours = ConformerEncoder(**wav2vec2_conformer.import_arguments(config.to_dict())).eval()
    import_state_dict(wav2vec2_conformer.table(config.num_attention_heads), theirs.state_dict(), ours)
    return ours


def child(name: str, args: argparse.Namespace) -> None:
    import torch

    dtype = torch.bfloat16 if args.device == "cuda" else torch.float32
    model = encoder(name, args.layers).to(args.device, dtype)
    run = model if args.eager else torch.compile(model, dynamic=False)

    def frames(batch: int, length: int) -> Any:
        generator = torch.Generator().manual_seed(1)
        return torch.randn(batch, length, SIZE_M["hidden_size"], generator=generator).to(args.device, dtype)

    @torch.inference_mode()
    def turn(what: str, batch: int, length: int, calls: int = 1) -> Any:
        x = frames(batch, length)
        best = float("inf")
        for _ in range(calls):
            wait(args.device)
            began = time.perf_counter()
            found = run(x)
            wait(args.device)
            best = min(best, time.perf_counter() - began)
        if what == "time":
            return best
        values = found if isinstance(found, torch.Tensor) else found.last_hidden_state
        return values.float().flatten()[:: max(1, values.numel() // 5000)].tolist()

    harness.serve_requests(turn)


def wait(device: str) -> None:
    if device == "cuda":
        import torch

        torch.cuda.synchronize()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", help="batch x frames, such as 1x250,16x500")
    parser.add_argument("--layers", type=int, default=SIZE_M["num_hidden_layers"])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--eager", action="store_true", help="do not compile")
    parser.add_argument("--minutes", type=float, default=1e9, help="begin no case after this time")
    parser.add_argument("--seconds", type=float, default=300.0, help="give up a case after so many")
    parser.add_argument("--quick", action="store_true", help="small, and nothing is written")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        child(args.child, args)
        return
    if args.quick:
        args.layers, args.rounds, args.eager, args.cases = 2, 2, True, "1x50"
    usual = "1x250,16x250,16x1000,64x500" if args.device == "cuda" else "1x250,4x250"
    cases = [tuple(map(int, case.split("x"))) for case in (args.cases or usual).split(",")]
    options = [f"--layers={args.layers}", f"--device={args.device}", *(["--eager"] if args.eager else [])]
    record = harness.machine(args.device) | {
        "layers": args.layers,
        "compiled": not args.eager,
        "threads": args.threads,
        "rounds": args.rounds,
        "dtype": "bfloat16" if args.device == "cuda" else "float32",
    }
    record = harness.run_cases(
        f"speech-{args.device}.json",
        record,
        [harness.Case("cases", {"case": f"{b}x{n}"}, partial(compare, b, n, args.rounds)) for b, n in cases],
        lambda: [harness.Child(name, str(Path(__file__)), options, args.threads) for name in CONTENDERS],
        minutes=args.minutes,
        seconds=args.seconds,
        keep=not (args.quick or args.cases),
    )
    rows = [["batch x frames", "regard, frames/s", "transformers", "regard / transformers", "largest difference"]]
    for case in record["cases"]:
        found, ratio = case["contenders"], case["regard / transformers"]
        medians = [f"{found[name]['per_second']['median']:,.0f}" for name in CONTENDERS]
        faster = f"{ratio['median']:.2f} ({ratio['min']:.2f} to {ratio['max']:.2f})"
        rows.append([case["case"], *medians, faster, f"{found['regard']['max_difference']:.1e}"])
    print(harness.table(rows))


def compare(batch: int, length: int, number: int, children: Sequence[harness.Child]) -> dict[str, Any]:
    """Return the speeds of both for one batch, and how far their outputs differ."""
    shape, frames = {"batch": batch, "length": length}, batch * length
    values = [child.ask(what="values", calls=3, **shape) for child in children]  # warms up, too
    difference = max(abs(a - b) for a, b in zip(*values, strict=True))
    turns = harness.rounds(children, number, what="time", calls=3, **shape)
    speeds = {name: harness.median_and_range(frames / turn[name] for turn in turns) for name in CONTENDERS}
    return {
        "unit": "frames",
        "contenders": {
            "regard": {"per_second": speeds["regard"], "max_difference": float(f"{difference:.2g}")},
            "transformers": {"per_second": speeds["transformers"]},
        },
        "regard / transformers": harness.median_and_range(turn["transformers"] / turn["regard"] for turn in turns),
    }


if __name__ == "__main__":
    main()

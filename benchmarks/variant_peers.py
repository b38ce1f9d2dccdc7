"""Sparse, low-rank and linear attention beside other libraries' own, taking turns.

    python benchmarks/variant_peers.py                   4,096 and 16,384 tokens on a GPU, bfloat16
                                                         -> results/variants/peers-cuda.json
    python benchmarks/variant_peers.py --minutes 9       begin nothing new after 9 minutes; the same command goes on
    python benchmarks/variant_peers.py --again --only longformer    measure again what the record has
    python benchmarks/variant_peers.py --quick           tiny models on a CPU, nothing written

Longformer, BigBird, Reformer and Nyströmformer beside transformers'. Each pair has the same sizes, four layers of
BERT-base's width, and the same settings of the mechanism: windows of 512 tokens and one global token; blocks of 64,
three random ones; four hash rounds over chunks of 64; 64 landmarks and 65 taps. `encoder` is the whole model, from
token numbers to hidden vectors, forward alone and forward with backward; `attention` four layers of self-attention,
with projections, one after another. Both run as their libraries run them: ours compiles FlexAttention's kernels,
nothing else is compiled. Weights are random: nothing here depends on them.

Linear attention, Performer, RFA and the delta rule beside the Triton kernels of flash-linear-attention (`fla`; without
the package these cases say so): `causal`, from queries, keys and values of 12 heads of 64 to mixed values. Both get the
same features, computed by the same functions, so what differs is how they are summed.

Transformers' Reformer is reversible, its backward computes every layer again (which saves memory), so the comparison
of attention alone is the fairer one. Every contender is a process of its own for each case; a turn is the best of some
calls. The cases for which an aim was set come first, short before long. Each is written when it is there; what fails,
hangs for more than `--patience` seconds or crashes loses only itself, and is tried again by the next run.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from typing import Any

import harness

ENCODERS = ("longformer", "bigbird", "reformer", "nystrom")
SUMS = ("linear", "delta", "performer", "rfa")
KINDS = (*ENCODERS, *SUMS)
AIMS = {"longformer": 3.0, "bigbird": 3.0, "reformer": 2.0, "nystrom": 2.0} | dict.fromkeys(SUMS, 0.667)
TOKENS = 65_536  # of a batch
VOCAB = 1000
CALL_SECONDS = 0.3  # of a turn, if a call is shorter


def sizes(quick: bool) -> dict[str, int]:
    """Return width, heads, layers and hidden units."""
    if quick:
        return {"width": 64, "heads": 4, "layers": 1, "ffn": 128}
    return {"width": 768, "heads": 12, "layers": 4, "ffn": 3072}


def buckets(length: int) -> Any:
    """Return Reformer's buckets, 2 N / 64 of them, in two factors where they are many."""
    bits = max((2 * (length // 64)).bit_length() - 1, 1)
    return 2**bits if bits <= 7 else [2 ** (bits // 2), 2 ** (bits - bits // 2)]


def spec(kind: str, length: int) -> str:
    """Return the attention of ours."""
    return {
        "longformer": "longformer(window=512, global_tokens=1)",
        "bigbird": "bigbird(block=64, random_blocks=3)",
        "reformer": f"reformer(chunk=64, rounds=4, buckets={buckets(length)})",
        "nystrom": "nystrom(landmarks=64, conv=65)",
    }[kind]


def our_encoder(kind: str, length: int, s: dict[str, int]) -> tuple[Any, Callable[..., Any]]:
    from regard.models import bert
    from regard.training.recipe import build

    config = bert.Config(
        vocab=VOCAB,
        length=length,
        dropout=0.0,
        attention_dropout=0.0,
        head=None,
        attention=spec(kind, length),
        **s,  # type: ignore[arg-type]
    )
    model = build(config)
    return model, lambda tokens: model(tokens)


def our_attention(kind: str, length: int, s: dict[str, int]) -> tuple[Any, Callable[..., Any]]:
    from torch import nn

    from regard.attention.mixers import build_mixer
    from regard.core.layer_state import PassState

    layers = nn.ModuleList([
        build_mixer(spec(kind, length), width=s["width"], heads=s["heads"], length=length, causal=False, layer=layer)
        for layer in range(s["layers"])
    ])  # fmt: skip

    def run(x: Any) -> Any:
        pass_state = PassState()
        for depth, layer in enumerate(layers):
            x = layer(x, layer_state=pass_state.layer(depth))
        return x

    return layers, run


def their_config(kind: str, length: int, s: dict[str, int]) -> Any:
    import transformers

    common: dict[str, Any] = {
        "vocab_size": VOCAB,
        "hidden_size": s["width"],
        "num_attention_heads": s["heads"],
        "num_hidden_layers": s["layers"],
        "intermediate_size": s["ffn"],
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
        "max_position_embeddings": length + 2,
    }
    if kind == "longformer":
        return transformers.LongformerConfig(attention_window=[512] * s["layers"], **common)
    if kind == "bigbird":
        common["max_position_embeddings"] = length
        return transformers.BigBirdConfig(
            attention_type="block_sparse", block_size=64, num_random_blocks=3, hidden_act="gelu", **common
        )
    if kind == "nystrom":
        common["max_position_embeddings"] = length
        return transformers.NystromformerConfig(
            num_landmarks=64, segment_means_seq_len=length, conv_kernel_size=65, **common
        )
    return transformers.ReformerConfig(
        vocab_size=VOCAB,
        hidden_size=s["width"],
        num_attention_heads=s["heads"],
        attention_head_size=s["width"] // s["heads"],
        feed_forward_size=s["ffn"],
        attn_layers=["lsh"] * s["layers"],
        num_hashes=4,
        num_buckets=buckets(length),
        lsh_attn_chunk_length=64,
        lsh_attention_probs_dropout_prob=0.0,
        hidden_dropout_prob=0.0,
        max_position_embeddings=length,
        axial_pos_embds=False,
        hidden_act="gelu",
        is_decoder=False,
    )


def their_encoder(kind: str, length: int, s: dict[str, int]) -> tuple[Any, Callable[..., Any]]:
    import torch
    import transformers

    name = {"longformer": "Longformer", "bigbird": "BigBird", "reformer": "Reformer", "nystrom": "Nystromformer"}[kind]
    extra = {"add_pooling_layer": False} if kind in ("longformer", "bigbird") else {}
    model = getattr(transformers, f"{name}Model")(their_config(kind, length, s), **extra)

    def run(tokens: Any) -> Any:
        more = {}
        if kind == "longformer":
            more["global_attention_mask"] = torch.zeros_like(tokens).index_fill(1, tokens.new_zeros(1), 1)
        return model(input_ids=tokens, **more).last_hidden_state

    return model, run


def their_attention(kind: str, length: int, s: dict[str, int]) -> tuple[Any, Callable[..., Any]]:
    """Return four self-attention layers; BigBird's need masks that only its encoder makes."""
    import torch
    from torch import nn

    config = their_config(kind, length, s)
    if kind == "longformer":
        from transformers.models.longformer.modeling_longformer import LongformerSelfAttention

        layers: list[Any] = [LongformerSelfAttention(config, layer) for layer in range(s["layers"])]
    elif kind == "reformer":
        from transformers.models.reformer.modeling_reformer import LSHSelfAttention

        layers = [LSHSelfAttention(config, layer_idx=layer) for layer in range(s["layers"])]
    elif kind == "nystrom":
        from transformers.models.nystromformer.modeling_nystromformer import NystromformerSelfAttention

        layers = [NystromformerSelfAttention(config) for _ in range(s["layers"])]
    else:
        raise NotImplementedError("not measured: its layers need the encoder's masks")

    def run(x: Any) -> Any:
        batch, n, _ = x.shape
        first = torch.arange(n, device=x.device).expand(batch, n) < 1
        for layer in layers:
            if kind == "longformer":
                x = layer(
                    x,
                    attention_mask=torch.where(first, 1e4, 0.0).to(x.dtype),
                    is_index_masked=torch.zeros_like(first),
                    is_index_global_attn=first,
                    is_global_attn=True,
                )[0]
            elif kind == "reformer":
                x = layer(x).hidden_states
            else:
                found = layer(x)
                x = found[0] if isinstance(found, tuple) else found
        return x

    return nn.ModuleList(layers), run


def our_sums(kind: str, length: int, s: dict[str, int]) -> tuple[Any, Callable[..., Any]]:
    from regard.attention.mask import CausalMask

    attend = mechanism(kind, s)
    return attend, lambda q, k, v: attend(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), CausalMask())


def their_sums(kind: str, length: int, s: dict[str, int]) -> tuple[Any, Callable[..., Any]]:
    """Return fla's kernels behind the same feature maps; its tensors are B N H D."""
    from fla.ops.delta_rule import chunk_delta_rule
    from fla.ops.linear_attn import chunk_linear_attn

    attend = mechanism(kind, s)

    def run(q: Any, k: Any, v: Any) -> Any:
        heads = k.transpose(1, 2)
        phi_q, phi_k = attend.query_features(q.transpose(1, 2)), attend.key_features(heads)
        phi_q, phi_k = (x.transpose(1, 2).to(v.dtype).contiguous() for x in (phi_q, phi_k))
        if kind == "delta":
            beta = attend.gate(heads).transpose(1, 2).to(v.dtype)
            return chunk_delta_rule(phi_q, phi_k, v, beta, scale=attend.scale)[0]
        return chunk_linear_attn(phi_q, phi_k, v, scale=1.0, normalize=True)[0]

    return attend, run


def mechanism(kind: str, s: dict[str, int]) -> Any:
    """Return one of our linear mechanisms."""
    from regard.attention.mixers import build_mixer

    mixer: Any = build_mixer(kind, width=s["width"], heads=s["heads"], length=None, causal=True)
    return mixer.attend


MAKERS = {
    ("ours", "encoder"): our_encoder,
    ("ours", "attention"): our_attention,
    ("transformers", "encoder"): their_encoder,
    ("transformers", "attention"): their_attention,
    ("ours", "causal"): our_sums,
    ("fla", "causal"): their_sums,
}


def child(name: str, args: argparse.Namespace) -> None:
    import torch

    kind, whose = name.split("/")
    s, dtype = sizes(args.quick), torch.float32 if args.device == "cpu" else torch.bfloat16
    made: dict[tuple[str, int], Any] = {}

    def wait() -> None:
        if args.device == "cuda":
            torch.cuda.synchronize()

    def best(call: Callable[[], Any]) -> float:
        times, spent = [], 0.0
        while not times or (spent < CALL_SECONDS and len(times) < 20):
            wait()
            began = time.perf_counter()
            call()
            wait()
            times.append(time.perf_counter() - began)
            spent += times[-1]
        return min(times)

    def turn(part: str, length: int) -> dict[str, Any]:
        try:
            if (part, length) not in made:
                made.clear()
                torch.manual_seed(0)
                model, run = MAKERS[whose, part](kind, length, s)
                batch = max(1, (length if args.quick else TOKENS) // length)
                shape = (batch, length, s["width"])
                if part == "encoder":
                    inputs = [torch.randint(5, VOCAB, (batch, length), device=args.device)]
                elif part == "attention":
                    inputs = [torch.randn(shape, device=args.device, dtype=dtype).requires_grad_()]
                else:
                    heads = batch, length, s["heads"], s["width"] // s["heads"]
                    inputs = [torch.randn(heads, device=args.device, dtype=dtype).requires_grad_() for _ in range(3)]
                made[part, length] = model.to(args.device, dtype).train(), run, inputs
            model, run, inputs = made[part, length]

            def forward() -> None:
                with torch.no_grad():
                    run(*inputs)

            def both() -> None:
                run(*inputs).float().square().mean().backward()
                model.zero_grad(set_to_none=True)
                for x in inputs:
                    x.grad = None

            model.eval()
            forward()
            found = {"forward": best(forward)}
            model.train()
            both()
            found["training"] = best(both)
            if args.device == "cuda":
                torch.cuda.reset_peak_memory_stats()
                both()
                found["memory"] = torch.cuda.max_memory_allocated()
            batch = len(inputs[0])
            return {key: value if key == "memory" else batch * length / value for key, value in found.items()}
        except NotImplementedError as error:
            return {"failed": str(error)}
        except Exception as error:
            return {"failed": f"error: {type(error).__name__}: {(str(error).splitlines() or [''])[0][:200]}"}

    harness.serve_requests(turn)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda", choices=("cpu", "cuda"))
    parser.add_argument("--lengths", default="4096,16384")
    parser.add_argument("--only", default=",".join(KINDS))
    parser.add_argument("--parts", default="encoder,causal,attention")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--minutes", type=float, default=60.0, help="after so many no case is begun")
    parser.add_argument("--patience", type=float, default=150.0, help="seconds of a turn, its compiling among them")
    parser.add_argument("--again", action="store_true", help="measure again what the record has")
    parser.add_argument("--quick", action="store_true", help="tiny models on a CPU, nothing written")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    args = parser.parse_args()
    args.device = "cpu" if args.quick else args.device
    if args.child:
        child(args.child, args)
        return
    harness.exit_on_sigterm()
    lengths = [1024] if args.quick else [int(n) for n in args.lengths.split(",")]
    compare([(kind, part, n) for part in args.parts.split(",") for n in lengths for kind in args.only.split(",")], args)


def compare(cases: list[tuple[str, str, int]], args: argparse.Namespace) -> None:
    """Measure one case after another; the record is written after each."""
    ends, file = time.monotonic() + 60 * args.minutes, f"variants/peers-{args.device}.json"
    known = harness.RESULTS / file
    record: dict[str, Any] = {"cases": []}
    if known.is_file() and not args.quick:
        record = json.loads(known.read_text("utf-8"))
    record |= harness.machine(args.device) | {"merged": True}
    for kind, part, length in cases:
        if (kind in SUMS) != (part == "causal"):
            continue
        same = [c for c in record["cases"] if (c["kind"], c["part"], c["length"]) == (kind, part, length)]
        if any(is_complete(case) for case in same) and not args.again:
            continue
        if time.monotonic() > ends:
            print("the time is up; the same command goes on", flush=True)
            return
        case = {"kind": kind, "part": part, "length": length, "aim": AIMS[kind]} | measure(kind, part, length, args)
        record["cases"] = [other for other in record["cases"] if other not in same] + [case | harness.lap()]
        print(line(case), flush=True)
        if not args.quick:
            harness.write(file, record)


def measure(kind: str, part: str, length: int, args: argparse.Namespace) -> dict[str, Any]:
    """Return tokens per second of both, in turns, after both have compiled side by side."""
    options = [f"--device={args.device}", *(["--quick"] if args.quick else [])]
    whose = ("ours", "fla" if part == "causal" else "transformers")
    children = [harness.Child(f"{kind}/{who}", sys.argv[0], options, threads=1) for who in whose]
    try:
        for process in children:
            process.send(args.patience, part=part, length=length)
        first = {process.name: process.answer(args.patience + harness.MARGIN) for process in children}
        going = [process for process in children if "failed" not in first[process.name]]
        turns = harness.rounds(going, 1 if args.quick else args.rounds, 0.1, args.patience, part=part, length=length)
    finally:
        for process in children:
            process.kill()
    failed = {name: found for name, found in first.items() if "failed" in found}
    return summary(kind, whose, [turn | failed for turn in turns])


def is_complete(case: dict[str, Any]) -> bool:
    """Return whether a case needs no second try: both were measured, or cannot be."""
    return not any("error" in found.get("failed", "") for found in case.values() if isinstance(found, dict))


def summary(kind: str, whose: tuple[str, ...], turns: list[dict[str, Any]]) -> dict[str, Any]:
    """Return tokens per second of both, and the ratio within each round."""
    found: dict[str, Any] = {}
    for who in whose:
        mine = [turn[f"{kind}/{who}"] for turn in turns]
        failed = next((each["failed"] for each in mine if "failed" in each), None)
        found[who] = (
            {"failed": failed}
            if failed
            else {key: harness.median_and_range(each[key] for each in mine)["median"] for key in mine[0]}
        )
    if not any("failed" in found[who] for who in whose):
        for key in ("forward", "training"):
            ratios = [turn[f"{kind}/ours"][key] / turn[f"{kind}/{whose[1]}"][key] for turn in turns]
            found[f"{key}_ratio"] = harness.median_and_range(ratios)
    return found


def line(case: dict[str, Any]) -> str:
    """Return a case in words."""
    said = []
    for whose, one in case.items():
        if not isinstance(one, dict) or whose in ("measured", "forward_ratio", "training_ratio"):
            continue
        said.append(
            f"{whose} {one['failed']}"
            if "failed" in one
            else f"{whose} {one['forward']:,.0f} and {one['training']:,.0f} tokens/s"
        )
    ratios = [f"{case[f'{key}_ratio']['median']:.2f}" for key in ("forward", "training") if f"{key}_ratio" in case]
    times = f"; {' and '.join(ratios)} times (aim {case['aim']:g})" if ratios else ""
    return f"{case['kind']} {case['part']} {case['length']:,}: {'; '.join(said)}{times}"


if __name__ == "__main__":
    main()

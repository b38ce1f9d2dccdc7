"""Decoding speed: Regard against transformers' Marian and CTranslate2 with the same weights, taking turns.

    python benchmarks/translate.py                     CPU, float32, 2 threads     -> results/translate-cpu.json
    python benchmarks/translate.py --int8              the same with int8 weights  -> results/translate-cpu-int8.json
    python benchmarks/translate.py --device cuda       ours and transformers, bf16 -> results/translate-cuda.json
    python benchmarks/translate.py --memory            peak memory, 1,000 sentences -> results/translate-memory.json
    add --quick for seconds (a small model, no file written)

The weights are random (fixed seed) and of the base size; every sentence has 20 source tokens, every output is forced to
32 tokens (eos is ruled out), the encoder is in the time. All contenders should write the same tokens: the last column
counts the sentences that equal transformers' (in half precision and in int8 some differ by rounding).
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import harness

SOURCE, TARGET = 20, 32  # tokens
CASES = {"cpu": [(1, 1), (1, 4), (16, 1), (16, 4), (64, 1), (64, 4)], "cuda": [(16, 1), (16, 4), (64, 1), (64, 4)]}
BASE = {"vocab_size": 8000, "d_model": 512, "layers": 6, "heads": 8, "ffn": 2048}
SMALL = {"vocab_size": 1000, "d_model": 128, "layers": 2, "heads": 4, "ffn": 256}
PAD, BOS, EOS, UNK = 0, 1, 2, 3


# -- the contenders, each in a process of its own ----------------------------------------------------------------------


class RegardTranslator:
    """Regard with packed weights."""

    def __init__(self, folder: Path, device: str, dtype: str, int8: bool = False) -> None:
        import torch

        from regard.runtime import inference
        from regard.weights.hf import marian

        torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
        self.device = device
        model, _ = marian.load(folder / "marian")
        model = model.to(device, getattr(torch, dtype)).eval()
        self.model = inference.quantize_int8(model) if int8 else inference.pack_weights(model)

    def translate(self, source: list[list[int]], beams: int) -> list[list[int]]:
        """Translate token ids."""
        import torch

        from regard.decoding.beam_search import beam_search, greedy_search

        inputs = torch.tensor(source, device=self.device)
        if beams == 1:
            return [
                hypothesis.tokens
                for hypothesis in greedy_search(self.model, inputs, max_length=TARGET, banned_tokens=[EOS])
            ]
        return [
            best[0].tokens
            for best in beam_search(self.model, inputs, max_length=TARGET, beam_size=beams, banned_tokens=[EOS])
        ]


class RegardInt8(RegardTranslator):
    """Regard with int8 weights."""

    def __init__(self, folder: Path, device: str, dtype: str) -> None:
        super().__init__(folder, device, dtype, int8=True)


class TransformersTranslator:
    """transformers' own generate."""

    def __init__(self, folder: Path, device: str, dtype: str) -> None:
        import torch
        from transformers import MarianMTModel

        torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
        self.device = device
        self.model = MarianMTModel.from_pretrained(folder / "marian", dtype=getattr(torch, dtype)).to(device).eval()

    def translate(self, source: list[list[int]], beams: int) -> list[list[int]]:
        """Translate token ids."""
        import torch

        inputs = torch.tensor(source, device=self.device)
        with torch.inference_mode():
            out = self.model.generate(
                input_ids=inputs,
                attention_mask=torch.ones_like(inputs),
                num_beams=beams,
                min_new_tokens=TARGET,
                max_new_tokens=TARGET,
                do_sample=False,
                length_penalty=1.0,
            )
        return out[:, 1:].tolist()


class CTranslate2:
    """CTranslate2's Translator; its model was built through its Python specs."""

    def __init__(self, folder: Path, device: str, dtype: str, compute: str | None = None) -> None:
        import ctranslate2

        self.translator = ctranslate2.Translator(
            str(folder / "ct2"),
            device=device,
            compute_type=compute or dtype,
            inter_threads=1,
            intra_threads=int(os.environ["OMP_NUM_THREADS"]),
        )

    def translate(self, source: list[list[int]], beams: int) -> list[list[int]]:
        """Translate token ids."""
        found = self.translator.translate_batch(
            [[_token_string(token) for token in row] for row in source],
            beam_size=beams,
            min_decoding_length=TARGET,
            max_decoding_length=TARGET,
            length_penalty=1.0,
            max_batch_size=0,
        )
        return [[int(piece[1:]) for piece in result.hypotheses[0]] for result in found]


class CTranslate2Int8(CTranslate2):
    """CTranslate2 with int8 weights."""

    def __init__(self, folder: Path, device: str, dtype: str) -> None:
        super().__init__(folder, device, dtype, "int8")


CONTENDERS: dict[str, type] = {
    "regard": RegardTranslator,
    "transformers": TransformersTranslator,
    "ctranslate2": CTranslate2,
    "regard-int8": RegardInt8,
    "ctranslate2-int8": CTranslate2Int8,
}


def child(name: str, folder: Path, device: str, dtype: str) -> None:
    """Run one contender: load, then translate on request."""
    contender = CONTENDERS[name](folder, device, dtype)
    cuda = device == "cuda"
    vocab = json.loads((folder / "marian" / "config.json").read_text())["vocab_size"]

    def do(batch: int, beams: int, return_tokens: bool = False, sentences: int | None = None) -> dict[str, Any]:
        if cuda:
            import torch

            torch.cuda.reset_peak_memory_stats()
        source = _sentences(sentences or batch, vocab)
        written: list[list[int]] = []
        began = time.perf_counter()
        for at in range(0, len(source), batch):
            written += contender.translate(source[at : at + batch], beams)
        seconds = time.perf_counter() - began
        result: dict[str, Any] = {"seconds": seconds, "tokens": sum(map(len, written))}
        if return_tokens:
            result["written"] = written
        if cuda and name != "ctranslate2":  # not available
            result["peak_mib"] = round(torch.cuda.max_memory_allocated() / 2**20, 1)
        result["rss_mib"] = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10, 1)
        return result

    harness.serve_requests(do)


def _sentences(number: int, vocab: int) -> list[list[int]]:
    """Return random sentences that end with eos, the same for all contenders."""
    import random

    rng = random.Random(7)
    return [[*(rng.randrange(4, vocab) for _ in range(SOURCE - 1)), EOS] for _ in range(number)]


def _token_string(token: int) -> str:
    """Return the string that stands for a token id in CTranslate2's vocabulary."""
    return f"t{token}"


# -- the same weights for all ------------------------------------------------------------------------------------------


def save_random_marian(folder: Path, size: dict[str, int]) -> None:
    """Save a random Marian for transformers and CTranslate2, in a child process, so that the parent stays small."""
    import torch
    from transformers import MarianConfig, MarianMTModel

    torch.manual_seed(1)
    config = MarianConfig(
        vocab_size=size["vocab_size"],
        d_model=size["d_model"],
        encoder_layers=size["layers"],
        decoder_layers=size["layers"],
        encoder_attention_heads=size["heads"],
        decoder_attention_heads=size["heads"],
        encoder_ffn_dim=size["ffn"],
        decoder_ffn_dim=size["ffn"],
        activation_function="relu",
        scale_embedding=True,
        max_position_embeddings=512,
        init_std=size["d_model"] ** -0.5,  # 0.02 would give nearly the same word everywhere
        pad_token_id=PAD,
        bos_token_id=BOS,
        eos_token_id=EOS,
        forced_eos_token_id=None,
        decoder_start_token_id=BOS,
    )
    model = MarianMTModel(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("bias"):  # zero biases would hide a bias put in the wrong place
                parameter.normal_(std=0.02)
        model.final_logits_bias.normal_(std=0.02)
    model.save_pretrained(folder / "marian")
    try:
        _save_for_ctranslate2(model, folder / "ct2")
    except ImportError:
        print("ctranslate2 is not installed: it will not take part", file=sys.stderr)


def _save_for_ctranslate2(model: Any, folder: Path) -> None:
    """Save Marian through CTranslate2's Python specs: post-norm, relu, fused qkv, sinusoids as a table."""
    import numpy as np
    from ctranslate2.specs import common_spec, transformer_spec

    def array(tensor: Any) -> Any:
        return tensor.detach().numpy()

    def linear(spec: Any, *parts: Any) -> None:
        spec.weight = np.concatenate([array(part.weight) for part in parts])
        spec.bias = np.concatenate([array(part.bias) for part in parts])

    def norm(spec: Any, part: Any) -> None:
        spec.gamma, spec.beta = array(part.weight), array(part.bias)

    def rest(spec: Any, layer: Any) -> None:
        linear(spec.self_attention.linear[0], layer.self_attn.q_proj, layer.self_attn.k_proj, layer.self_attn.v_proj)
        linear(spec.self_attention.linear[1], layer.self_attn.out_proj)
        norm(spec.self_attention.layer_norm, layer.self_attn_layer_norm)
        linear(spec.ffn.linear_0, layer.fc1)
        linear(spec.ffn.linear_1, layer.fc2)
        norm(spec.ffn.layer_norm, layer.final_layer_norm)

    config, body = model.config, model.model
    spec = transformer_spec.TransformerSpec.from_config(
        (config.encoder_layers, config.decoder_layers),
        config.encoder_attention_heads,
        pre_norm=False,
        activation=common_spec.Activation.RELU,
    )
    for part, module in ((spec.encoder, body.encoder), (spec.decoder, body.decoder)):
        part.scale_embeddings = True
        part.position_encodings.encodings = array(module.embed_positions.weight)
    spec.encoder.embeddings[0].weight = array(body.shared.weight)
    spec.decoder.embeddings.weight = array(body.shared.weight)
    spec.decoder.projection.weight = array(model.lm_head.weight)
    spec.decoder.projection.bias = array(model.final_logits_bias[0])
    for layer_spec, layer in zip(spec.encoder.layer, body.encoder.layers, strict=True):
        rest(layer_spec, layer)
    for layer_spec, layer in zip(spec.decoder.layer, body.decoder.layers, strict=True):
        rest(layer_spec, layer)
        cross = layer_spec.attention
        linear(cross.linear[0], layer.encoder_attn.q_proj)
        linear(cross.linear[1], layer.encoder_attn.k_proj, layer.encoder_attn.v_proj)
        linear(cross.linear[2], layer.encoder_attn.out_proj)
        norm(cross.layer_norm, layer.encoder_attn_layer_norm)
    vocabulary = [_token_string(token) for token in range(config.vocab_size)]
    spec.register_source_vocabulary(vocabulary)
    spec.register_target_vocabulary(vocabulary)
    spec.config.bos_token, spec.config.eos_token, spec.config.unk_token = (
        _token_string(BOS),
        _token_string(EOS),
        _token_string(UNK),
    )
    spec.config.decoder_start_token = _token_string(config.decoder_start_token_id)
    spec.config.add_source_bos = spec.config.add_source_eos = False
    spec.validate()
    spec.optimize()
    folder.mkdir(parents=True, exist_ok=True)
    spec.save(str(folder))


# -- the parent --------------------------------------------------------------------------------------------------------


def compare(arguments: argparse.Namespace, folder: Path, names: list[str]) -> dict[str, Any]:
    """Time all contenders in turns and return the results."""
    steal = harness.Steal()
    record = harness.machine(arguments.device) | {
        "threads": arguments.threads,
        "dtype": arguments.dtype,
        "source_tokens": SOURCE,
        "target_tokens": TARGET,
        "model": SMALL if arguments.quick else BASE,
    }
    children = [_child(name, arguments, folder) for name in names]
    cases = []
    for batch, beams in arguments.cases:
        # the first turn warms up and returns the outputs; the second settles allocators and CUDA graphs
        (first,) = harness.rounds(children, 1, batch=batch, beams=beams, return_tokens=True)
        harness.rounds(children, 1, batch=batch, beams=beams)
        turns = harness.rounds(children, arguments.rounds, batch=batch, beams=beams)
        speed = {name: [turn[name]["tokens"] / turn[name]["seconds"] for turn in turns] for name in names}
        case: dict[str, Any] = {"batch": batch, "beam_size": beams, "contenders": {}}
        peer = "transformers" if "transformers" in names else names[-1]
        for name in names:
            same = sum(a == b for a, b in zip(first[name]["written"], first[peer]["written"], strict=True))
            row: dict[str, Any] = {"tokens_per_second": harness.median_and_range(speed[name])}
            row["same_outputs"] = f"{same}/{batch}"
            if "peak_mib" in turns[0][name]:
                row["peak_mib"] = max(turn[name]["peak_mib"] for turn in turns)
            case["contenders"][name] = row
        for contender in [name for name in names if name.startswith("regard")]:
            for peer_name in [name for name in names if name not in ("regard-int8", contender)]:
                ratio = [a / b for a, b in zip(speed[contender], speed[peer_name], strict=True)]
                case[f"{contender} / {peer_name}"] = harness.median_and_range(ratio)
        cases.append(case | harness.lap())
        print(_line(case), file=sys.stderr, flush=True)
    for process in children:
        process.close()
    return record | {"rounds": arguments.rounds, "steal": steal.share(), "cases": cases}


def memory(arguments: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Peak resident memory of a process that loads and decodes 1,000 sentences (64 at a time, beam 4)."""
    number = 128 if arguments.quick else 1000
    record = harness.machine() | {"sentences": number, "batch": 64, "beam_size": 4, "contenders": {}}
    for name in arguments.contenders or ["regard", "transformers", "regard-int8"]:
        process = _child(name, arguments, folder)
        result = process.ask(batch=64, beams=4, sentences=number)
        process.close()
        record["contenders"][name] = {"peak_rss_mib": result["rss_mib"], "seconds": round(result["seconds"], 1)}
    return record


def _child(name: str, arguments: argparse.Namespace, folder: Path) -> harness.Child:
    options = ["--folder", str(folder), "--device", arguments.device, "--dtype", arguments.dtype]
    return harness.Child(name, __file__, options, arguments.threads)


def _line(case: dict[str, Any]) -> str:
    ratios = [f"{name} {value['median']:.2f}" for name, value in case.items() if " / " in name]
    return f"batch {case['batch']}, beam {case['beam_size']}: {', '.join(ratios)}"


def show(record: dict[str, Any]) -> str:
    """Format the results as a table."""
    memory_column = any("peak_mib" in c for case in record["cases"] for c in case["contenders"].values())
    head = ["batch", "beam", "contender", "tokens/s", "range", "regard / it", "range", "same"]
    rows: list[list[Any]] = [head + ["peak MiB"] * memory_column]
    for case in record["cases"]:
        for name, found in case["contenders"].items():
            speed = found["tokens_per_second"]
            contender = "regard-int8" if name.endswith("int8") else "regard"
            ratio = case.get(f"{contender} / {name}")
            row = [case["batch"], case["beam_size"], name]
            row += [f"{speed['median']:.0f}", f"{speed['min']:.0f}-{speed['max']:.0f}"]
            row += [f"{ratio['median']:.2f}", f"{ratio['min']:.2f}-{ratio['max']:.2f}"] if ratio else ["", ""]
            rows.append([*row, found["same_outputs"], *([found.get("peak_mib", "")] if memory_column else [])])
    return harness.table(rows)


def main() -> None:
    """Read the arguments, save_random_marian the weights, run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    dtypes = ("float32", "bfloat16", "float16")
    parser.add_argument("--dtype", choices=dtypes, help="float32 on a CPU, bfloat16 on a GPU")
    parser.add_argument("--contenders", type=lambda text: text.split(","), help=", ".join(CONTENDERS))
    parser.add_argument("--cases", type=_cases, help="batch x beam, for example 1x1,16x4")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--int8", action="store_true", help="add Regard and CTranslate2 with int8 weights")
    parser.add_argument("--memory", action="store_true", help="peak memory instead of speed")
    parser.add_argument("--quick", action="store_true", help="a small model, two rounds, nothing written")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    arguments.dtype = arguments.dtype or ("float32" if arguments.device == "cpu" else "bfloat16")
    if arguments.child == "make":
        return save_random_marian(arguments.folder, SMALL if arguments.quick else BASE)
    if arguments.child:
        return child(arguments.child, arguments.folder, arguments.device, arguments.dtype)
    arguments.cases = arguments.cases or ([(1, 1), (4, 4)] if arguments.quick else CASES[arguments.device])
    arguments.rounds = 2 if arguments.quick else arguments.rounds
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the weights are removed then too
    folder = Path(tempfile.mkdtemp(prefix="regard-bench-"))
    try:
        making = [sys.executable, "-W", "ignore", __file__, "--child", "make", "--folder", str(folder)]
        subprocess.run([*making, *(["--quick"] if arguments.quick else [])], check=True)
        if arguments.memory:
            record = memory(arguments, folder)
            rows = [[name, found["peak_rss_mib"], found["seconds"]] for name, found in record["contenders"].items()]
            print(harness.table([["contender", "peak RSS MiB", "seconds"], *rows]))
            name = "translate-memory.json"
        else:
            record = compare(arguments, folder, arguments.contenders or _contenders(arguments, folder))
            print(show(record))
            name = f"translate-{arguments.device}{'-int8' if arguments.int8 else ''}.json"
    finally:
        shutil.rmtree(folder)
    if not arguments.quick:
        print("written:", os.path.relpath(harness.write(name, record)))


def _contenders(arguments: argparse.Namespace, folder: Path) -> list[str]:
    names = ["regard", "transformers"]
    if arguments.device == "cpu" and (folder / "ct2").exists():
        names.append("ctranslate2")
    if arguments.int8:
        names += ["regard-int8", *(["ctranslate2-int8"] if (folder / "ct2").exists() else [])]
    return names


def _cases(text: str) -> list[tuple[int, int]]:
    return [(int(batch), int(beams)) for batch, beams in (case.split("x") for case in text.split(","))]


if __name__ == "__main__":
    main()

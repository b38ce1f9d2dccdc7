"""Encoding speed: ours beside transformers' BERT and ONNX Runtime, the same weights, taking turns.

    python benchmarks/encode.py                     CPU, float32: texts to vectors with the real MiniLM
                                                    -> results/encode-cpu.json
    python benchmarks/encode.py --device cuda       GPU, bfloat16: BERT-base, eager and compiled; ragged batches padded
                                                    and packed -> results/encode-cuda.json
    add --quick for seconds (a small model, no file written)

CPU: every contender gets the same texts and gives one vector each: cut into pieces, read, mean over the tokens, length
one. `ragged` texts have as many words as captions have (mean 13, deviation 5), the others are padded to the longest;
`equal` ones have 24 tokens each, so that nothing can be saved on padding. ONNX Runtime runs the graph that torch.onnx
exports of transformers' model, once as it is (its own optimisations on) and once fused by onnxruntime.transformers.

GPU: token numbers are on the device, the last hidden vectors stay there. `64x128` is full rows without a mask; `ragged`
is 64 texts of 32 to 256 tokens, padded with a mask or packed end to end. Ours and theirs are compiled alike.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import harness

harness.PACKAGES = (*harness.PACKAGES, "onnxruntime", "onnx")

WORDS = [
    "the", "a", "of", "and", "to", "in", "is", "was", "for", "on", "that", "with", "as", "it", "by", "at", "from",
    "his", "an", "were", "are", "which", "this", "be", "had", "or", "has", "first", "one", "their", "its", "new",
    "after", "but", "who", "not", "they", "have", "her", "she", "two", "been", "other", "when", "there", "all",
    "during", "into", "school", "time", "may", "years", "more", "most", "only", "over", "city", "some", "world",
    "would", "where", "later", "up", "such", "used", "many", "can", "state", "about", "national", "out", "known",
    "university", "united", "then", "made", "under", "three", "game", "season", "between", "street", "film", "war",
    "people", "river", "music", "house", "night", "water", "road", "green", "table", "window", "letter", "doctor",
    "animal", "garden", "morning", "winter", "tired", "wide", "dog", "cat", "snow", "kitchen"
]  # fmt: skip

CASES = {"cpu": ["1 ragged", "16 ragged", "64 ragged", "16 equal", "64 equal"], "cuda": ["64x128", "ragged"]}
BASE = {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072}
SMALL = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 128}


def texts(case: str) -> list[str]:
    """Return the texts of a case, the same for all contenders."""
    number, kind = case.split()
    rng = random.Random(7)
    lengths = [22 if kind == "equal" else max(3, min(40, round(rng.gauss(13, 5)))) for _ in range(int(number))]
    return [" ".join(rng.choice(WORDS) for _ in range(n)) for n in lengths]


def lengths(case: str, quick: bool) -> list[int]:
    """Return the number of tokens of each row."""
    rng = random.Random(7)
    if case != "ragged":
        batch, n = map(int, case.split("x"))
        return [n] * batch
    shortest, longest, batch = (4, 16, 6) if quick else (32, 256, 64)
    return [longest, *(rng.randint(shortest, longest) for _ in range(batch - 1))]


# -- texts to vectors on a CPU -----------------------------------------------------------------------------------------


class RegardEmbedder:
    """Regard with packed weights."""

    def __init__(self, folder: Path) -> None:
        import torch

        import regard
        from regard.runtime.inference import pack_weights

        torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
        self.embed = regard.load("minilm")
        pack_weights(self.embed.model)

    def __call__(self, lines: list[str]) -> Any:
        """Return one vector per text."""
        return self.embed(lines).numpy()


class TransformersEmbedder:
    """transformers' tokenizer and model, with the pooling of the model card."""

    def __init__(self, folder: Path) -> None:
        import torch
        from transformers import AutoTokenizer, BertModel

        torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
        self.torch, self.tokenizer = torch, AutoTokenizer.from_pretrained(_minilm())
        self.model = BertModel.from_pretrained(_minilm(), add_pooling_layer=False).eval()

    def __call__(self, lines: list[str]) -> Any:
        """Return one vector per text."""
        with self.torch.inference_mode():
            batch = self.tokenizer(lines, padding=True, truncation=False, return_tensors="pt")
            x = self.model(**batch).last_hidden_state
            mask = batch["attention_mask"][..., None].to(x.dtype)
            return self.torch.nn.functional.normalize((x * mask).sum(1) / mask.sum(1), dim=-1).numpy()


class ONNXEmbedder:
    """ONNX Runtime with the same tokenizer, in a process without torch."""

    file = "plain.onnx"

    def __init__(self, folder: Path) -> None:
        import onnxruntime
        from tokenizers import Tokenizer

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = int(os.environ["OMP_NUM_THREADS"])
        self.session = onnxruntime.InferenceSession(folder / self.file, options, providers=["CPUExecutionProvider"])
        self.tokenizer = Tokenizer.from_file(str(_minilm() / "tokenizer.json"))
        self.tokenizer.enable_padding()
        self.tokenizer.no_truncation()

    def __call__(self, lines: list[str]) -> Any:
        """Return one vector per text."""
        import numpy as np

        found = self.tokenizer.encode_batch(lines)
        tokens = np.array([encoding.ids for encoding in found], dtype=np.int64)
        mask = np.array([encoding.attention_mask for encoding in found], dtype=np.int64)
        (x,) = self.session.run(None, {"tokens": tokens, "mask": mask})
        weights = mask[..., None].astype(x.dtype)
        mean = (x * weights).sum(1) / weights.sum(1)
        return mean / np.linalg.norm(mean, axis=-1, keepdims=True)


class FusedONNXEmbedder(ONNXEmbedder):
    """The same graph, fused by onnxruntime.transformers."""

    file = "fused.onnx"


def export(folder: Path) -> None:
    """Export transformers' MiniLM as ONNX, through TorchScript, which needs no further package."""
    import torch
    from transformers import BertModel

    class Vectors(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = BertModel.from_pretrained(_minilm(), add_pooling_layer=False, attn_implementation="eager")

        def forward(self, tokens: Any, mask: Any) -> Any:
            return self.body(input_ids=tokens, attention_mask=mask).last_hidden_state

    model, tokens = Vectors().eval(), torch.randint(1000, 2000, (2, 7))
    free = {0: "batch", 1: "tokens"}
    torch.onnx.export(
        model,
        (tokens, torch.ones_like(tokens)),
        str(folder / ONNXEmbedder.file),
        dynamo=False,
        opset_version=17,
        input_names=["tokens", "mask"],
        output_names=["vectors"],
        dynamic_axes={"tokens": free, "mask": free, "vectors": free},
    )
    from onnxruntime.transformers import optimizer

    config = model.body.config
    found = optimizer.optimize_model(
        str(folder / ONNXEmbedder.file), "bert", config.num_attention_heads, config.hidden_size, opt_level=1
    )
    found.save_model_to_file(str(folder / FusedONNXEmbedder.file))


def _minilm() -> Path:
    from regard.api import _resolve_folder

    return _resolve_folder("minilm")


# -- tokens to hidden vectors on a GPU ---------------------------------------------------------------------------------


class RegardRows:
    """Regard, eager. Inputs are token ids on the device, padded to the longest, with a mask if needed."""

    def __init__(self, folder: Path, device: str, dtype: str) -> None:
        import torch

        self.torch, self.device, self.dtype = torch, device, getattr(torch, dtype)
        self.calls: dict[str, Callable[[], Any]] = {}
        self.load(folder)

    def load(self, folder: Path) -> None:
        """Load the model."""
        from regard.weights.hf import bert

        self.model, _ = bert.load(folder / "bert", head=None)
        self.model.to(self.device, self.dtype)

    def __call__(self, case: str, quick: bool) -> Any:
        """Return the hidden vectors."""
        if case not in self.calls:
            self.calls[case] = self.make(*self.inputs(lengths(case, quick)))
        with self.torch.inference_mode():
            return self.calls[case]()

    def inputs(self, sizes: list[int]) -> tuple[Any, Any, Any]:
        """Return tokens B N, lengths B, and the mask B N of tokens that are not padding."""
        torch = self.torch
        generator = torch.Generator().manual_seed(7)
        tokens = torch.randint(1000, 2000, (len(sizes), max(sizes)), generator=generator)
        count = torch.tensor(sizes)
        is_token = torch.arange(max(sizes)) < count[:, None]
        return tuple(x.to(self.device) for x in (tokens, count, is_token))

    def make(self, tokens: Any, count: Any, is_token: Any) -> Callable[[], Any]:
        """Return the call that is measured."""
        full = bool(is_token.all())
        run = self.compiled(self.model.hidden)
        return lambda: run(tokens, None, None if full else count)

    def compiled(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """Return the call unchanged."""
        return call


class RegardCompiled(RegardRows):
    """Regard, compiled."""

    def compiled(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """Compile with torch.compile's defaults."""
        return self.torch.compile(call, dynamic=False)


class RegardPacked(RegardCompiled):
    """Regard, compiled, with packed sequences."""

    def make(self, tokens: Any, count: Any, is_token: Any) -> Callable[[], Any]:
        """Return the call that is measured."""
        run, flat, longest = self.compiled(self.model.hidden_packed), tokens[is_token], tokens.shape[1]
        return lambda: run(flat, count, None, longest)


class TransformersRows(RegardRows):
    """transformers with PyTorch's fused attention."""

    def load(self, folder: Path) -> None:
        """Load the model."""
        from transformers import BertModel

        self.model = BertModel.from_pretrained(folder / "bert", add_pooling_layer=False, dtype=self.dtype)
        self.model.to(self.device).eval()

    def make(self, tokens: Any, count: Any, is_token: Any) -> Callable[[], Any]:
        """Return the call that is measured."""
        run, mask = self.compiled(self.model), None if bool(is_token.all()) else is_token.long()
        return lambda: run(input_ids=tokens, attention_mask=mask).last_hidden_state


class TransformersCompiled(TransformersRows):
    """The same, compiled."""

    def compiled(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """Compile with torch.compile's defaults."""
        return self.torch.compile(call, dynamic=False)


CONTENDERS: dict[str, dict[str, type]] = {
    "cpu": {
        "regard": RegardEmbedder,
        "transformers": TransformersEmbedder,
        "onnx": ONNXEmbedder,
        "onnx-fused": FusedONNXEmbedder,
    },
    "cuda": {
        "regard": RegardCompiled,
        "regard-eager": RegardRows,
        "regard-packed": RegardPacked,
        "transformers": TransformersCompiled,
        "transformers-eager": TransformersRows,
    },
}


def save_random_bert(folder: Path, size: dict[str, int]) -> None:
    """Save a random BERT."""
    import torch
    from transformers import BertConfig, BertModel

    torch.manual_seed(1)
    BertModel(BertConfig(**size)).save_pretrained(folder / "bert")


# -- children and parent -----------------------------------------------------------------------------------------------


def child(name: str, arguments: argparse.Namespace) -> None:
    """Run one contender: load, then encode on request."""
    kind = CONTENDERS[arguments.what][name]
    is_cpu = arguments.what == "cpu"
    contender = kind(arguments.folder) if is_cpu else kind(arguments.folder, arguments.device, arguments.dtype)
    cuda = arguments.device == "cuda"

    def encode(case: str) -> Any:
        return contender(texts(case)) if is_cpu else contender(case, arguments.quick)

    def do(case: str, times: int = 1, return_vectors: bool = False) -> dict[str, Any]:
        import numpy as np

        if cuda:
            import torch

            torch.cuda.synchronize()
        began = time.perf_counter()
        for _ in range(times):
            found = encode(case)
        if cuda:
            torch.cuda.synchronize()
        seconds = (time.perf_counter() - began) / times
        if not return_vectors:
            return {"seconds": seconds}
        if not is_cpu:  # of some tokens
            first = found if found.ndim == 2 else found[contender.inputs(lengths(case, arguments.quick))[2]]
            found = first[::61].float().cpu().numpy()
        return {"seconds": seconds, "vectors": np.asarray(found, dtype=np.float64).tolist()}

    harness.serve_requests(do)


def compare(arguments: argparse.Namespace, folder: Path, names: list[str]) -> dict[str, Any]:
    """Time all contenders in turns and return the results."""
    import numpy as np

    steal = harness.Steal()
    record = harness.machine(arguments.device) | {"threads": arguments.threads, "dtype": arguments.dtype}
    options = ["--folder", str(folder), "--device", arguments.device, "--dtype", arguments.dtype]
    options += ["--what", arguments.what, *(["--quick"] if arguments.quick else [])]
    children = [harness.Child(name, __file__, options, arguments.threads) for name in names]
    cases = []
    for case in arguments.cases:
        (first,) = harness.rounds(children, 1, case=case, return_vectors=True)
        (second,) = harness.rounds(children, 1, case=case, times=3)  # warm by now
        slowest = max(answer["seconds"] for answer in second.values())
        times = 2 if arguments.quick else max(2, min(100, round(arguments.spend / slowest)))
        turns = harness.rounds(children, arguments.rounds, case=case, times=times)
        seconds = {name: [turn[name]["seconds"] for turn in turns] for name in names}
        count = len(texts(case)) if arguments.what == "cpu" else sum(lengths(case, arguments.quick))
        row: dict[str, Any] = {"case": case, "unit": "texts" if arguments.what == "cpu" else "tokens", "contenders": {}}
        expected = np.array(first["transformers" if "transformers" in names else names[-1]]["vectors"])
        for name in names:
            vectors = np.array(first[name]["vectors"])
            cosine = (vectors * expected).sum(-1) / np.linalg.norm(vectors, axis=-1) / np.linalg.norm(expected, axis=-1)
            row["contenders"][name] = {
                "per_second": harness.median_and_range(count / s for s in seconds[name]),
                "cosine": round(float(cosine.min()), 6),
            }
        for contender in [name for name in names if name.startswith("regard")]:
            for peer in [name for name in names if name != contender]:
                ratio = [b / a for a, b in zip(seconds[contender], seconds[peer], strict=True)]
                row[f"{contender} / {peer}"] = harness.median_and_range(ratio)
        if arguments.what != "cpu":
            sizes = lengths(case, arguments.quick)
            row["non_padding_fraction"] = round(sum(sizes) / (len(sizes) * max(sizes)), 3)
        cases.append(row | harness.lap())
        print(f"{case}: " + ", ".join(f"{k} {v['median']:.2f}" for k, v in row.items() if " / " in k), file=sys.stderr)
    for contender_process in children:
        contender_process.close()
    return record | {"rounds": arguments.rounds, "steal": steal.share(), "cases": cases}


def show(record: dict[str, Any]) -> str:
    """Format the results as a table."""
    rows: list[list[Any]] = [
        ["case", "contender", "per second", "range", "regard / it", "range", "packed / it", "cosine"]
    ]
    for case in record["cases"]:
        for name, found in case["contenders"].items():
            speed, ratio = found["per_second"], case.get(f"regard / {name}")
            packed = case.get(f"regard-packed / {name}")
            row = [case["case"], name, f"{speed['median']:,.0f} {case['unit']}"]
            row += [f"{speed['min']:,.0f}-{speed['max']:,.0f}"]
            row += [f"{ratio['median']:.2f}", f"{ratio['min']:.2f}-{ratio['max']:.2f}"] if ratio else ["", ""]
            rows.append([*row, f"{packed['median']:.2f}" if packed else "", f"{found['cosine']:.6f}"])
    return harness.table(rows)


def main() -> None:
    """Make the weights, run, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument(
        "--dtype", choices=("float32", "bfloat16", "float16"), help="float32 on a CPU, bfloat16 on a GPU"
    )
    parser.add_argument("--what", choices=("cpu", "cuda"), help="the cases of which device; by default of this one")
    parser.add_argument("--contenders", type=lambda text: text.split(","), help="by default all")
    parser.add_argument("--cases", type=lambda text: text.split(","), help="for example '16 ragged,64 equal' or 32x512")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--spend", type=float, default=0.5, help="seconds of a turn")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--quick", action="store_true", help="a small model, two rounds, nothing written")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    arguments.what = arguments.what or arguments.device
    arguments.dtype = arguments.dtype or ("float32" if arguments.device == "cpu" else "bfloat16")
    if arguments.child == "make":
        size = SMALL if arguments.quick else BASE
        return export(arguments.folder) if arguments.what == "cpu" else save_random_bert(arguments.folder, size)
    if arguments.child:
        return child(arguments.child, arguments)
    quick = {"cpu": ["1 ragged", "4 ragged"], "cuda": ["4x8", "ragged"]}
    arguments.cases = arguments.cases or (quick if arguments.quick else CASES)[arguments.what]
    arguments.rounds = 2 if arguments.quick else arguments.rounds
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the weights are removed then too
    folder = Path(tempfile.mkdtemp(prefix="regard-bench-"))
    try:
        making = [sys.executable, "-W", "ignore", __file__, "--child", "make", "--folder", str(folder)]
        subprocess.run(
            [*making, "--what", arguments.what, *(["--quick"] if arguments.quick else [])],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        record = compare(arguments, folder, arguments.contenders or [*CONTENDERS[arguments.what]])
        print(show(record))
    finally:
        shutil.rmtree(folder)
    if not arguments.quick:
        name = f"encode-{arguments.what}.json"
        print("written:", os.path.relpath(harness.write(name, record)))


if __name__ == "__main__":
    main()

"""Sources over a thousand letters: which aligner still knows where it is, when it was trained on short ones only?

    python benchmarks/long_sources.py                          on a CPU, small       -> results/long-sources.json
    python benchmarks/long_sources.py --device cuda            larger, longer        -> results/long-sources-cuda.json
    python benchmarks/long_sources.py --aligners additive gmm --updates 400          some of it

CMUdict words are joined with a mark between them (data.text.cmudict, `words_per_row`): 1 to 4 in training, up to 128
when measured, on words that no model has seen. Everything but the aligner is the same. A content-based score finds many
places that look like the right one, as many as the string is long; one that knows where it looked last, or can only
move forward, is meant not to care. What is written is the greedy choice, and sounds wrong are edits / sounds: an output
that jumps or stops early has most of them wrong, one that goes on for ever more than all.

Chorowski et al.: Attention-Based Models for Speech Recognition. NIPS 2015. arXiv:1506.07503 (the same question, asked
of utterances strung together)
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import harness

ALIGNERS = ("additive", "location", "gmm", "monotonic")
WORDS = (1, 2, 4, 8, 16, 32, 64, 128)
TRAINED = 4  # words at most


def trained(aligner: str, args: argparse.Namespace, folder: Path) -> tuple[Any, Any]:
    """The task and a model of this aligner, trained on short strings by the one training loop."""
    from regard.data.text.cmudict import CMUDict
    from regard.models.rnnsearch import Config
    from regard.tasks.text import pronunciation
    from regard.training import train
    from regard.training.recipe import Recipe, Train, build, load_saved_recipe
    from regard.weights.folder import load_model

    recipe = Recipe(
        Config(vocab=71, width=args.width, hidden=args.hidden, align_width=args.width, readout=None, aligner=aligner),
        pronunciation.Config(label_smoothing=0.0, beam_size=1),
        CMUDict("cmudict", words_per_row=TRAINED, batch_tokens=args.tokens, max_length=64),
        Train(
            steps=args.updates, learning_rate=3e-3, schedule="cosine", warmup_steps=100, min_learning_rate_ratio=0.01,
            eps=1e-8, clip_grad_norm=1.0, score_interval=0, eval_interval=args.updates, save_interval=args.updates,
            device=args.device, compile=False, final_weights="last",
        ),
        name=f"long-sources-{aligner}",
    )  # fmt: skip
    train(recipe, folder)
    task = load_saved_recipe(folder).task.build(recipe.data, folder=folder)
    model = build(task.fit(recipe.model))
    model.load_state_dict(load_model(folder / "model").model.state_dict())
    return task, model.to(args.device).float().eval()


def measured(task: Any, model: Any, words: int, strings: int) -> dict[str, Any]:
    """Sounds wrong of so many strings of so many words of the test part, and how long they are."""
    from regard.metrics.generation import phoneme_error_rate
    from regard.tasks.text.pronunciation import Pronouncer

    data = replace(task.data, words_per_row=words)
    found = data.read("test")[:strings] if words > 1 else _single(task)[: 8 * strings]
    longest = max(len(e.word) for e in found)
    began = time.perf_counter()
    said = Pronouncer(model, task.text, max_length=max(64, 2 * longest))([e.word for e in found], beam_size=1)
    seconds = time.perf_counter() - began
    score = phoneme_error_rate(said, [e.pronunciations for e in found])["per"]
    letters = sum(len(e.word) for e in found) / len(found)
    return {"per": round(score.value, 2), "strings": len(found), "letters": round(letters), "max_letters": longest,
            "seconds": round(seconds, 1)}  # fmt: skip


def _single(task: Any) -> list[Any]:
    return [e for e in replace(task.data, words_per_row=1).read("test") if len(e.pronunciations) == 1]


def main() -> int:
    """Train each, measure each on every length, write the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--aligners", nargs="+", default=list(ALIGNERS), help="specs of aligners")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--updates", type=int, help="of training (default: 1200, on a GPU 6000)")
    parser.add_argument("--hidden", type=int, help="units of reader and decoder (default: 96, on a GPU 256)")
    parser.add_argument("--width", type=int, help="of embeddings and scores (default: 64, on a GPU 128)")
    parser.add_argument("--tokens", type=int, help="in a batch (default: 2048, on a GPU 8192)")
    parser.add_argument("--strings", type=int, default=20, help="measured of each length")
    parser.add_argument("--words", type=int, nargs="+", default=list(WORDS), help="in a string, when measured")
    parser.add_argument("--out", type=Path, help="folder of the runs (default: thrown away)")
    args = parser.parse_args()
    small = args.device == "cpu"
    for key, values in {
        "updates": (1200, 6000),
        "hidden": (96, 256),
        "width": (64, 128),
        "tokens": (2048, 8192),
    }.items():
        setattr(args, key, getattr(args, key) or values[not small])
    record = harness.machine(args.device)
    record["command"] = re.sub(r" --out \S+", "", record["command"])  # a folder of this machine is nobody's business
    rows: dict[int, dict[str, Any]] = {words: {} for words in args.words}
    facts: dict[str, Any] = {}
    with TemporaryDirectory() as thrown:
        for aligner in args.aligners:
            began = time.perf_counter()
            task, model = trained(aligner, args, (args.out or Path(thrown)) / aligner.split("(")[0])
            facts[aligner] = {"minutes": round((time.perf_counter() - began) / 60, 1)}
            for words in args.words:
                rows[words][aligner] = found = measured(task, model, words, args.strings)
                print(f"{aligner:12} {words:4} words {found['letters']:5} letters  {found['per']:7.2f} % wrong")
    record |= {
        "dtype": "float32",
        "model": {"hidden": args.hidden, "width": args.width, "updates": args.updates, "batch": args.tokens},
        "note": f"trained on 1 to {TRAINED} words, measured greedily on strings of unseen words; per cent of sounds",
        "max_training_letters": _letters(args),
        "cases": [_case(words, contenders) for words, contenders in rows.items()],
        "training": facts,
    }
    print(harness.write("long-sources.json" if small else f"long-sources-{args.device}.json", record))
    return 0


def _letters(args: argparse.Namespace) -> int:
    """The longest source that was trained on, in letters."""
    from regard.data.text.cmudict import CMUDict

    return max(n for e in CMUDict("cmudict", words_per_row=TRAINED).read("train") if (n := len(e.word)) < 64)


def _case(words: int, contenders: dict[str, Any]) -> dict[str, Any]:
    first = next(iter(contenders.values()))
    shown = {name: {k: found[k] for k in ("per", "seconds")} for name, found in contenders.items()}
    same = {key: first[key] for key in ("letters", "max_letters", "strings")}
    return {"words": words, **same, "contenders": shown}


if __name__ == "__main__":
    sys.exit(main())

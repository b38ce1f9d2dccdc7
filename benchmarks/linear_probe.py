"""Is it a noun or a verb here? What a linear map reads out of one word's vector, static and in context.

    python benchmarks/linear_probe.py --static words-en --elmo runs/elmo/model      -> results/linear-probe.json
    python benchmarks/linear_probe.py --static words-en --elmo runs/elmo/model --minilm

173 words of the Brown corpus that are now one, now the other; 14,103 places to learn from, 1,793 to choose the decay
on, 1,700 for testing, of other files of the corpus (interpret.linear_probe). Three probe seeds; several models of a
kind (other seeds of their training) may be given, and count as seeds too.
"""

from __future__ import annotations

import argparse
import statistics
from typing import Any

import harness

SEEDS = (0, 1, 2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--static", nargs="*", default=[], help="word2vec models: names or folders")
    parser.add_argument("--elmo", nargs="*", default=[], help="ELMo models")
    parser.add_argument("--minilm", action="store_true", help="the installed MiniLM too, layer by layer")
    parser.add_argument("--device", default="cpu", help="cpu or cuda; the probe itself runs on the CPU")
    parser.add_argument("--name", default="linear-probe", help="of the result file")
    args = parser.parse_args()

    import regard
    from regard.interpret.linear_probe import (
        SubwordReader,
        contextual_vectors,
        majority_accuracy,
        noun_verb_examples,
        static_vectors,
    )

    data = noun_verb_examples()
    record: dict[str, Any] = harness.machine() | {"occurrences": {split: len(part) for split, part in data.items()}}
    record["majority"] = round(majority_accuracy(data["train"], data["test"]), 4)
    rows: dict[str, list[Any]] = {}
    for name in args.static:
        rows.setdefault("word2vec", []).append(static_vectors(regard.load(name, args.device)))
    for name in args.elmo:
        reader = regard.load(name, args.device)
        for layer in range(reader.model.config.layers + 1):
            rows.setdefault(f"elmo layer {layer}", []).append(contextual_vectors(reader, layer))
        rows.setdefault("elmo mix", []).append(contextual_vectors(reader))
    if args.minilm:
        embed = regard.load("minilm", args.device)
        pieces = SubwordReader(embed.model, embed.text)
        for layer in range(len(pieces.blocks) + 1):
            rows[f"minilm layer {layer}"] = [contextual_vectors(pieces, layer)]
        rows["minilm mix"] = [contextual_vectors(pieces)]
    record["probes"] = {name: _run_probe(vectors, data) for name, vectors in rows.items()}
    lines = [["vectors", "accuracy", "std", "validation"], ["majority of each word", record["majority"], "", ""]]
    lines += [[n, f["accuracy"], f["std"], f["val_accuracy"]] for n, f in record["probes"].items()]
    print(harness.table(lines))
    print(harness.write(f"{args.name}.json", record))


def _run_probe(models: list[Any], data: Any) -> dict[str, Any]:
    from regard.interpret.linear_probe import train_probe

    found = [train_probe(vectors, data, seed) for vectors in models for seed in SEEDS]
    right = [each["accuracy"] for each in found]
    result = {
        "accuracy": round(statistics.mean(right), 4),
        "std": round(statistics.stdev(right), 4),
        "val_accuracy": round(statistics.mean(each["val_accuracy"] for each in found), 4),
        "runs": len(found),
    }
    if "weights" in found[0]:
        result["weights"] = [round(x, 3) for x in found[0]["weights"]]
    return result


if __name__ == "__main__":
    main()

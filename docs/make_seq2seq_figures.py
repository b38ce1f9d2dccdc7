"""Draw the figures of the section "Before the Transformer" of docs/results.md into docs/assets/.

    python docs/make_seq2seq_figures.py    nmt-de-en.png, nmt-en-de.png    BLEU over source length, by system
                                     long-sources.png                      PER over the length of the source
    python docs/make_seq2seq_figures.py --commands [SEED ...]    print the commands of all Multi30k runs, one per line
                                                         each, for `xargs` or a queue; a few at a time share a GPU well

From docs/results/nmt-*.json and benchmarks/results/long-sources.json. What is not measured is not drawn; pictures
hold no date, so the same files draw the same picture. Then: python docs/make_results.py, which shows what was drawn.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from results_seq2seq import (
    ASSETS,
    MIN_BUCKET_SIZE,
    PAIRS,
    SYSTEMS,
    by_length,
    counts,
    is_run,
    search_of_lengths,
    shell_commands,
)
from results_tables import read_json

from regard import see

HERE = Path(__file__).resolve().parent
RUNS, LONG = HERE / "results", HERE.parent / "benchmarks" / "results" / "long-sources.json"

HIGHLIGHTED = [
    SYSTEMS[system].label for system in ("seq2seq", "additive", "convs2s", "transformer")
]  # the others are alike


def plot_bleu_by_length(runs: Sequence[Mapping[str, Any]], pair: str, folder: Path) -> list[Path]:
    """Plot BLEU over the number of words in the source: a line per measured system, the mean of its seeds."""
    all_runs = [run for run in runs if any(is_run(run, pair, system) for system in SYSTEMS)]
    searches = Counter(search_of_lengths(run) for run in all_runs if by_length(run))
    how = searches.most_common(1)[0][0] if searches else ""  # a figure shows one search: that of most systems
    all_runs = [run for run in all_runs if search_of_lengths(run) == how]
    bucket_sizes = {b: count for b, count in counts(all_runs).items() if count >= MIN_BUCKET_SIZE}
    lines: dict[str, dict[str, float]] = {}
    for system, entry in SYSTEMS.items():
        found = [by_length(run) for run in all_runs if is_run(run, pair, system) and by_length(run)]
        if found:
            lines[entry.label] = {
                b: sum(x[b] for x in found) / len(found) for b in bucket_sizes if all(b in x for x in found)
            }
    if len(lines) < 2:
        return []
    file = folder / f"nmt-{pair}.png"
    title = f"Multi30k {pair.upper()}, test 2016, {how}: BLEU by length"
    foreground = {label: line for label, line in lines.items() if label in HIGHLIGHTED}
    background = {label: line for label, line in lines.items() if label not in HIGHLIGHTED}
    see.score_by_length(
        foreground, file, title, counts=bucket_sizes, background=background, background_label="GRU, other attentions"
    )
    return [file]


def plot_long_sources(record: Mapping[str, Any], folder: Path) -> list[Path]:
    """Plot PER over the number of letters, by aligner."""
    lines: dict[str, dict[str, float]] = {}
    for case in record["cases"]:
        for name, found in case["contenders"].items():
            lines.setdefault(name, {})[f"{case['letters']:,}"] = min(found["per"], 100.0)
    file = folder / "long-sources.png"
    title = f"words strung together; trained on up to {record['max_training_letters']} letters"
    see.score_by_length(lines, file, title, "PER % (100 and more at the top)", "letters in the source")
    return [file]


def main(arguments: Sequence[str]) -> int:
    """Draw and print the names of the files, or print the commands."""
    if arguments[:1] == ["--commands"]:
        seeds = [int(argument) for argument in arguments[1:]] or [1]
        print(*(shell_commands(pair, system, seed) for seed in seeds for pair in PAIRS for system in SYSTEMS), sep="\n")
        return 0
    ASSETS.mkdir(exist_ok=True)
    files = []
    for pair in PAIRS:
        runs = [read_json(file) for file in sorted(RUNS.glob(f"nmt-{pair}-*.json"))]
        files += plot_bleu_by_length(runs, pair, ASSETS)
    if LONG.is_file():
        files += plot_long_sources(read_json(LONG), ASSETS)
    print(*(path.relative_to(HERE.parent) for path in files) if files else ["nothing is measured yet"], sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

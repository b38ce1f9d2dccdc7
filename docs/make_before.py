"""Draws the figures of the section "Before the Transformer" of docs/results.md into docs/assets/.

    python docs/make_before.py       before-de-en.png, before-en-de.png    BLEU over the length of the source, by system
                                     long-sources.png                      sounds wrong over the length of the source
    python docs/make_before.py --commands [SEED ...]     the commands that make every run of the Multi30k tables, a line
                                                         each, for `xargs` or a queue; a few at a time share a GPU well

From docs/results/before-*.json and benchmarks/results/long-sources.json. What is not measured is not drawn; pictures
hold no date, so the same files draw the same picture. Then: python docs/make_results.py, which shows what was drawn.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from results_before import ASSETS, FEWEST, PAIRS, SYSTEMS, by_length, commands, counts, is_run
from results_parts import read

from regard import see

HERE = Path(__file__).resolve().parent
RUNS, LONG = HERE / "results", HERE.parent / "benchmarks" / "results" / "long-sources.json"

FRONT = [SYSTEMS[system].what for system in ("seq2seq", "additive", "convs2s", "transformer")]  # the others are alike


def over_length(runs: Sequence[Mapping[str, Any]], pair: str, folder: Path) -> list[Path]:
    """BLEU over the number of words in the source: a line for each system that has been measured, the mean of seeds."""
    ours = [run for run in runs if any(is_run(run, pair, system) for system in SYSTEMS)]
    known = {b: many for b, many in counts(ours).items() if many >= FEWEST}
    lines: dict[str, dict[str, float]] = {}
    for system, about in SYSTEMS.items():
        found = [by_length(run) for run in ours if is_run(run, pair, system) and by_length(run)]
        if found:
            lines[about.what] = {b: sum(x[b] for x in found) / len(found) for b in known if all(b in x for x in found)}
    if len(lines) < 2:
        return []
    file = folder / f"before-{pair}.png"
    title = f"Multi30k {pair.upper()}, test 2016: BLEU by length"
    front = {what: line for what, line in lines.items() if what in FRONT}
    behind = {what: line for what, line in lines.items() if what not in FRONT}
    see.lengths(front, file, title, counts=known, behind=behind, rest="GRU, other attentions")
    return [file]


def long_sources(record: Mapping[str, Any], folder: Path) -> list[Path]:
    """Sounds wrong over the number of letters, by aligner."""
    lines: dict[str, dict[str, float]] = {}
    for case in record["cases"]:
        for name, found in case["contenders"].items():
            lines.setdefault(name, {})[f"{case['letters']:,}"] = min(found["sounds_wrong"], 100.0)
    file = folder / "long-sources.png"
    title = f"words strung together; trained on up to {record['trained_on']} letters"
    see.lengths(lines, file, title, "sounds wrong, % (100 and more at the top)", "letters in the source")
    return [file]


def main(words: Sequence[str]) -> int:
    """Draw, and say what was drawn; or print the commands."""
    if words[:1] == ["--commands"]:
        seeds = [int(word) for word in words[1:]] or [1]
        print(*(commands(pair, system, seed) for seed in seeds for pair in PAIRS for system in SYSTEMS), sep="\n")
        return 0
    ASSETS.mkdir(exist_ok=True)
    made = []
    for pair in PAIRS:
        runs = [read(file) for file in sorted(RUNS.glob(f"before-{pair}-*.json"))]
        made += over_length(runs, pair, ASSETS)
    if LONG.is_file():
        made += long_sources(read(LONG), ASSETS)
    print(*(path.relative_to(HERE.parent) for path in made) if made else ["nothing is measured yet"], sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

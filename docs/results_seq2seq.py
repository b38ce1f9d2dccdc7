"""The section of docs/results.md on models before the Transformer, and the runs that it shows.

    Multi30k            one row a system, DE-EN and EN-DE, all of about 6.4 million parameters, the same data, the same
                        vocabulary and the same search; BLEU overall and by the number of words in the source
    pronunciation       CMUdict: PER and WER by aligner, and by the number of letters
    speech              WER of speech recognition
    published           published numbers, with their metric

A run belongs to the first table by its name, nmt-<pair>-<system>[-<seed>], to the others by its task. The encoder has
256 units in each direction, so that memory and state have equal width, as the dot product requires.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from shlex import quote
from typing import Any, NamedTuple

from results_tables import (
    bullet_list,
    by_search,
    describe_search,
    format_seeds,
    mean_and_range,
    search_caption,
    table,
)
from results_tasks import PRONUNCIATION_TASKS, SPEECH_TASKS

ASSETS = Path(__file__).resolve().parent / "assets"
PAIRS = ("de-en", "en-de")
MIN_BUCKET_SIZE = 10  # inputs in a bucket; the score of fewer says little
SPLIT, METRIC = "test_2016_flickr", "bleu_tokenized"
GREEDY = describe_search({"beam_size": 1})


class System(NamedTuple):
    """A row of the table."""

    label: str
    recipe: str  # with its settings, as after `regard train`


ATTENTION_LABELS = {
    "additive": "additive (MLP)",
    "dot": "dot",
    "scaled_dot": "scaled dot",
    "bilinear": "bilinear",
    "concat": "concat",
    "local_monotonic": "local, monotonic",
    "local_predictive": "local, predictive",
    "location": "location-aware",
    "gmm": "Gaussian mixture",
    "monotonic": "monotonic",
    "coverage": "coverage",
    "neural_coverage": "neural coverage",
}
ENCODER = 'model.encoder="gru(hidden=256)"'
SYSTEMS = {
    "seq2seq": System("GRU, fixed context vector, no attention", f"seq2seq_multi30k {ENCODER}"),
    **{
        name.replace("_", ""): System(f"GRU, attention: {label}", f"rnnsearch_multi30k model.aligner={name} {ENCODER}")
        for name, label in ATTENTION_LABELS.items()
    },
    "luong": System("Luong's decoder, bilinear, input feeding", f"luong_multi30k {ENCODER}"),
    "unidirectional": System(
        "GRU, additive, unidirectional encoder", 'rnnsearch_multi30k model.encoder="gru(directions=1)"'
    ),
    "embeddings": System(
        "GRU, additive, no encoder (embeddings as memory)", "rnnsearch_multi30k model.encoder='\"none\"'"
    ),
    "convs2s": System("ConvS2S", "convs2s_multi30k model.hidden=256 model.encoder_layers=4 model.decoder_layers=3"),
    "transformer": System(
        "Transformer",
        "transformer_multi30k model.width=256 model.ffn=512 model.encoder_layers=3 model.decoder_layers=3 "
        "train.learning_rate=2e-3",
    ),
}


def run_name(pair: str, system: str) -> str:
    """Return the name of a run, without its seed."""
    return f"nmt-{pair}-{system}"


def train_command(pair: str, system: str, seed: int | None = None) -> str:
    """Return the command that trains a run."""
    source, target = pair.split("-")
    seed_setting = "" if seed is None else f" train.seed={seed}"
    out = run_name(pair, system) if seed is None else f"{run_name(pair, system)}-{seed}"
    recipe = f"{SYSTEMS[system].recipe} data.source={source} data.target={target}{seed_setting}"
    return f"regard train {recipe} --out runs/{out}"


def shell_commands(pair: str, system: str, seed: int = 1) -> str:
    """Return the commands that train, evaluate and add a run, as one line for a shell."""
    run, train = f"{run_name(pair, system)}-{seed}", train_command(pair, system, seed)
    folder = f"runs/{run}"
    return " && ".join(
        [
            train,
            f"regard eval {folder} --output {folder}/evaluation.json",
            f"regard eval {folder} --beam-size 1 --output {folder}/greedy.json",
            f"python docs/make_results.py add {folder} --name {run} --system {quote(SYSTEMS[system].label)} "
            f"--command {quote(train)}",
        ]
    )


def is_seq2seq_run(run: Mapping[str, Any]) -> bool:
    """Return whether a run is in the first table, and so in no other."""
    return str(run["name"]).startswith("nmt-")


def seq2seq_section(all_runs: Sequence[Mapping[str, Any]], published: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the section."""
    yield "## Before the Transformer"
    yield (
        "Encoder-decoders with recurrence and convolution, and everything that was tried as a score, on the same data. "
        "How to train and use one: [pronouncing words](how/pronounce.md)."
    )
    for pair in PAIRS:
        yield f"### Multi30k {pair.upper()}: every score function, at equal size"
        yield from _comparison_tables(pair, [run for run in all_runs if run["name"].startswith(f"nmt-{pair}-")])
        yield from _published_table([line for line in published if line["section"] == f"multi30k {pair}"])
    yield "### The lecture's table: WMT14 EN-FR"
    yield from _lecture_table([line for line in published if line["section"] == "lecture"])
    yield "### Spelling to sounds, by aligner"
    yield from _pronunciation_table([run for run in all_runs if run.get("task") in PRONUNCIATION_TASKS])
    yield "### Sources over a thousand letters"
    yield (
        "Words strung together, by models that were trained on short strings: `benchmarks/long_sources.py`, whose "
        "numbers stand [below](#speed-and-memory) as far as they are measured."
    )
    if (ASSETS / "long-sources.png").is_file():
        yield "![PER over the length of the source, by aligner](assets/long-sources.png)"
    yield "### Speech"
    yield from _speech_table([run for run in all_runs if run.get("task") in SPEECH_TASKS])


# -- Multi30k ----------------------------------------------------------------------------------------------------------


def _comparison_tables(pair: str, all_runs: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    yield (
        f"{SPLIT.replace('_', ' ')}, BLEU of lower-case Moses tokens, joint BPE of 10,000; a table for each search. "
        "The columns on the right are BLEU of the sources of so many words, with how many there are, if most systems "
        "have it with that search. A row of several seeds shows the mean and, in brackets, the lowest and the highest."
    )
    found = [(run, score) for run in all_runs for score in _scores(run)]
    for how, pairs in by_search(found).items():
        yield from search_caption(how)
        yield _comparison_table(pair, how, pairs)
    picture = ASSETS / f"nmt-{pair}.png"
    if picture.is_file():
        yield f"![BLEU over the length of the source, {pair.upper()}](assets/{picture.name})"
        yield "Drawn by `python docs/make_seq2seq_figures.py` from the same files, for the search of its title."


def _comparison_table(pair: str, how: str, found: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]]) -> str:
    """Return the table of one search; only the greedy one has rows of systems that are not measured."""
    recorded = [run for run, _ in found if search_of_lengths(run) == how]
    recorded = recorded if 2 * len(recorded) > len(found) else []  # columns that most rows fill
    bucket_sizes = {b: count for b, count in counts(recorded).items() if count >= MIN_BUCKET_SIZE}
    rows = [["system", "parameters", "BLEU", *(f"{b} ({count})" for b, count in bucket_sizes.items()), "seeds"]]
    for system, entry in SYSTEMS.items():
        measured = [(run, score) for run, score in found if is_run(run, pair, system)]
        runs = [run for run, _ in measured]
        if not runs:
            rows += (
                [[entry.label, "", "not measured yet", *("" for _ in bucket_sizes), ""]] if how in ("", GREEDY) else []
            )
            continue
        lengths = [by_length(run) for run in runs if run in recorded]
        cells = [mean_and_range([x[b] for x in lengths if b in x], 1) for b in bucket_sizes]
        sizes = " / ".join(dict.fromkeys(f"{run['parameters']:,}" for run in runs))
        value = mean_and_range([score["value"] for _, score in measured])
        rows.append([f"**{entry.label}**", sizes, value, *cells, format_seeds(runs)])
    return table(rows)


def is_run(run: Mapping[str, Any], pair: str, system: str) -> bool:
    """Return whether a run belongs to this row, with any seed."""
    name = run_name(pair, system)
    return run["name"] == name or str(run["name"]).removeprefix(f"{name}-").isdigit()


def _scores(run: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the scores of a run, one per beam size, the largest last."""
    found = [s for s in run["scores"] if (s["split"], s["metric"]) == (SPLIT, METRIC)]
    if not found:
        raise ValueError(f"{run['name']} has no {METRIC} on {SPLIT}: evaluate it with sacremoses installed")
    return sorted(found, key=lambda score: score["beam_size"])


def search_of_lengths(run: Mapping[str, Any]) -> str:
    """Return the search with which BLEU by length was recorded: that of the largest beam (make_results.add)."""
    return describe_search(_scores(run)[-1])


def by_length(run: Mapping[str, Any], part: str = SPLIT, metric: str = METRIC) -> dict[str, float]:
    """Return the score of a run by length bucket."""
    return {_bucket(row): row[metric] for row in run.get("by_length", {}).get(part, ()) if metric in row}


def counts(all_runs: Sequence[Mapping[str, Any]], part: str = SPLIT) -> dict[str, int]:
    """Return the number of inputs by length bucket."""
    return {_bucket(row): row["count"] for run in all_runs for row in run.get("by_length", {}).get(part, ())}


def _bucket(row: Mapping[str, Any]) -> str:
    return f"{row['from']}+" if row["to"] is None else f"{row['from']}-{row['to']}"


# -- published numbers -------------------------------------------------------------------------------------------------


def _published_table(lines: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    if not lines:
        return
    yield "Published on the same test part, but with other tokens and another way of counting, so not to the decimal:"
    rows = [["published system", "value", "how it was counted"]]
    rows += [
        [line["system"], _format_published(line), line["search"]] for line in sorted(lines, key=lambda x: x["value"])
    ]
    yield table(rows)
    yield bullet_list(f"{line['system']}: {line['where']}" for line in lines)


def _lecture_table(lines: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    yield (
        "BLEU on newstest2014, all sentences and those without an unknown word; 30 and 50 are the longest sentences in "
        "training, * was trained for longer. None of it is measured here: the corpus is not at hand."
    )
    by_system: dict[str, dict[str, str]] = {}
    for line in lines:
        by_system.setdefault(line["system"], {})[line["split"]] = _format_published(line)
    yield table([["model", "all", "no unknown"], *([s, x["all"], x["no unknown word"]] for s, x in by_system.items())])
    yield bullet_list(line["where"] for line in lines)


def _format_published(line: Mapping[str, Any]) -> str:
    return f"{line['value']:g}" + ("" if line["checked"] else " †")


# -- pronunciation and speech ------------------------------------------------------------------------------------------


def _pronunciation_table(all_runs: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    yield (
        "CMUdict, test part, stress left out, each word against the nearest of its listed pronunciations. Published "
        "rows and losses are under [Language](#cmudict-test)."
    )
    if not all_runs:
        yield "No run has been recorded yet."
        return
    part = "test"
    found = [
        (run, s) for run in all_runs for s in run["scores"] if s["split"] == part and s["metric"] in ("per", "wer")
    ]
    for how, pairs in by_search(found).items():
        rows = [["system", "parameters", "PER %", "WER %", "WER % by number of letters", "seeds"]]
        for system in dict.fromkeys(run["system"] for run, _ in pairs):
            own = [(run, score) for run, score in pairs if run["system"] == system]
            runs = [run for run, score in own if score["metric"] == "wer"]
            cells = [mean_and_range([s["value"] for _, s in own if s["metric"] == metric]) for metric in ("per", "wer")]
            sizes = " / ".join(dict.fromkeys(f"{run['parameters']:,}" for run in runs))
            bucket_sizes = counts(runs[:1], part)
            lengths = by_length(runs[0], part, "wer") if runs else {}
            letters = ", ".join(f"{b} ({bucket_sizes[b]:,}): {value:.1f}" for b, value in lengths.items())
            rows.append([f"**{system}**", sizes, *cells, letters, format_seeds(runs)])
        yield from search_caption(how)
        yield table(rows)


def _speech_table(all_runs: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    if not all_runs:
        yield "No run has been recorded yet."
        return
    yield "Every system with the search of its recipe: over prefixes for CTC, over labels for attention."
    rows = [["system", "corpus", "split", "WER %", "search", "parameters", "seeds"]]
    by_system: dict[tuple[str, str, str], list[tuple[Mapping[str, Any], float]]] = {}
    for run in all_runs:
        for score in run["scores"]:
            if score["metric"] == "wer":
                key = (run["system"], run["corpus"], score["split"])
                by_system.setdefault(key, []).append((run, score["value"]))
    for (system, corpus, part), found in by_system.items():
        sizes = " / ".join(dict.fromkeys(f"{run['parameters']:,}" for run, _ in found if "parameters" in run))
        rows.append(
            [
                f"**{system}**",
                corpus,
                part,
                mean_and_range([v for _, v in found]),
                " / ".join(dict.fromkeys(run["search"] for run, _ in found if "search" in run)),
                sizes,
                format_seeds(r for r, _ in found),
            ]
        )
    yield table(rows)

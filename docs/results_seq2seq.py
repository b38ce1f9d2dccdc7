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

from results_tables import bullet_list, describe_search, format_seeds, mean_and_range, table
from results_tasks import PRONUNCIATION_TASKS, SPEECH_TASKS

ASSETS = Path(__file__).resolve().parent / "assets"
PAIRS = ("de-en", "en-de")
MIN_BUCKET_SIZE = 10  # inputs in a bucket; the score of fewer says little
SPLIT, METRIC = "test_2016_flickr", "bleu_tokenized"


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
        yield from _comparison_table(pair, [run for run in all_runs if run["name"].startswith(f"nmt-{pair}-")])
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


def _comparison_table(pair: str, all_runs: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    found = {system: [run for run in all_runs if is_run(run, pair, system)] for system in SYSTEMS}
    buckets = list(dict.fromkeys(b for runs in found.values() for run in runs for b in by_length(run)))
    bucket_sizes = {
        b: count
        for b, count in counts([run for runs in found.values() for run in runs]).items()
        if count >= MIN_BUCKET_SIZE
    }
    buckets = [b for b in buckets if b in bucket_sizes]
    heads = [f"{b} ({count})" for b, count in bucket_sizes.items() if b in buckets]
    columns = "; the columns on the right are BLEU of the sources of so many words, with how many there are"
    yield (
        f"{SPLIT.replace('_', ' ')}, BLEU of lower-case Moses tokens, joint BPE of 10,000{columns if heads else ''}. "
        "A row of several seeds shows the mean and, in brackets, the lowest and the highest."
    )
    rows = [["system", "parameters", "BLEU", "greedy", *heads, "search", "seeds"]]
    for system, runs in found.items():
        if not runs:
            rows.append([SYSTEMS[system].label, "", "not measured yet", "", *("" for _ in heads), "", ""])
            continue
        scores = [_scores(run)[-1] for run in runs]
        greedy = [_scores(run)[0] for run in runs if _scores(run)[0]["beam_size"] == 1]
        cells = [mean_and_range([by_length(run)[b] for run in runs if b in by_length(run)], 1) for b in buckets]
        sizes = " / ".join(dict.fromkeys(f"{run['parameters']:,}" for run in runs))
        beam, greedy_mean = (mean_and_range([score["value"] for score in group]) for group in (scores, greedy))
        rows.append(
            [
                f"**{SYSTEMS[system].label}**",
                sizes,
                beam,
                greedy_mean,
                *cells,
                describe_search(scores[0]),
                format_seeds(runs),
            ]
        )
    yield table(rows)
    picture = ASSETS / f"nmt-{pair}.png"
    if picture.is_file():
        yield f"![BLEU over the length of the source, {pair.upper()}](assets/{picture.name})"
        yield "Drawn by `python docs/make_seq2seq_figures.py` from the same files."


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
    rows = [["system", "parameters", "PER %", "WER %", "WER % by number of letters", "search", "seeds"]]
    systems: dict[str, list[Mapping[str, Any]]] = {}
    for run in all_runs:
        systems.setdefault(run["system"], []).append(run)
    for system, runs in systems.items():
        errors = {
            metric: [s for run in runs for s in run["scores"] if (s["split"], s["metric"]) == (part, metric)]
            for metric in ("per", "wer")
        }
        if not errors["wer"]:
            continue
        cells = [mean_and_range([s["value"] for s in found]) for found in errors.values()]
        lengths = by_length(runs[0], part, "wer")
        bucket_sizes = counts(runs[:1], part)
        letters = ", ".join(f"{b} ({bucket_sizes[b]:,}): {value:.1f}" for b, value in lengths.items())
        sizes = " / ".join(dict.fromkeys(f"{run['parameters']:,}" for run in runs))
        rows.append([f"**{system}**", sizes, *cells, letters, describe_search(errors["wer"][0]), format_seeds(runs)])
    yield table(rows)


def _speech_table(all_runs: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    if not all_runs:
        yield "No run has been recorded yet."
        return
    rows = [["system", "corpus", "split", "WER %", "parameters", "seeds"]]
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
                sizes,
                format_seeds(r for r, _ in found),
            ]
        )
    yield table(rows)

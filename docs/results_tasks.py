"""The sections of docs/results.md that do not translate: language, tables of any task, and what goes into them.

A score of such a run: {"split", "metric", "value"}, and where it applies

    unit                 what a loss is counted by, what an accuracy is the share of, which return was asked for; scores
                         of different units stand in different columns
    corpus, system       where they are not the run's: the tasks of a mixture; a program that compares several
    counted              {"masked tokens": 4821}
    deviation            where a program gave mean and standard deviation instead of single values
    stride, context, beams, length_penalty, signature

Shares are stored as shares (0 to 1) and shown in per cent; errors, ROUGE and BLEU are in per cent as they come.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import Any, NamedTuple

from results_tables import bullet_list, describe_search, format_seeds, mean_and_range, table


class Metric(NamedTuple):
    """A column: its name for people ({} is the unit), what a stored value is shown times, digits at most."""

    heading: str
    scale: int = 1
    digits: int = 2


METRICS = {
    "loss": Metric("nats per {}", digits=4),
    "bits_per_byte": Metric("bits per byte", digits=4),
    "perplexity": Metric("perplexity"),
    "accuracy": Metric("{} accuracy %", 100),
    "nsp_accuracy": Metric("NSP accuracy %", 100),
    "top5": Metric("top-5 accuracy %", 100),
    "macro_f1": Metric("macro F1 %", 100),
    "matthews_correlation": Metric("Matthews correlation", digits=4),
    "f1": Metric("F1 %", 100),
    "exact_match": Metric("exact match %", 100),
    "wer": Metric("WER %"),
    "per": Metric("PER %"),
    "ler": Metric("LER %"),
    "rouge1": Metric("ROUGE-1"),
    "rouge2": Metric("ROUGE-2"),
    "rougeL": Metric("ROUGE-L"),
    "bleu": Metric("BLEU, cased"),
    "return": Metric("return, {}"),
}


class Units(NamedTuple):
    """What a task's loss is counted by, what its accuracy is the share of, and where its report has how many."""

    loss: str
    accuracy: str
    key: str


TASKS = {
    "language_modeling": Units("token", "token", "tokens"),
    "masked_lm": Units("masked token", "masked token", "words"),
    "classification": Units("text", "text", "texts"),
    "tagging": Units("word", "word", "words"),
    "extractive_qa": Units("question", "question", "questions"),
    "chunking": Units("bracket decision", "word", "sentences"),
    "text_to_text": Units("token", "token", "tokens"),
    "word2vec": Units("word, positives and negatives", "word", "words"),
    "bidirectional_lm": Units("word", "word", "tokens"),
    "decision": Units("action", "action", "actions"),
    "pronunciation": Units("phoneme", "phoneme", "words"),
    "reinforced_pronunciation": Units("phoneme", "phoneme", "words"),
    "ctc_speech_recognition": Units("label", "label", "recordings"),
    "speech_recognition": Units("label", "label", "recordings"),
    "reinforced_speech_recognition": Units("label", "label", "recordings"),
    "handwriting": Units("point", "point", "lines"),
    "arithmetic": Units("digit", "digit", "tokens"),
    "image_classification": Units("image", "image", "images"),
    "distillation": Units("image", "image", "images"),
}
SPEECH_TASKS = (
    "ctc_speech_recognition",
    "speech_recognition",
    "reinforced_speech_recognition",
)  # their errors are shares
PRONUNCIATION_TASKS = ("pronunciation", "reinforced_pronunciation")

# -- an evaluation into scores -----------------------------------------------------------------------------------------


def describe_run(recipe: Mapping[str, Any]) -> dict[str, Any]:
    """What a run is about: its task, its corpus (names, no folders), and what its tokens/s are counted in."""
    task, data = str(recipe["task"]["name"]), recipe["data"]
    named = next((data[key] for key in ("corpus", "corpora", "tasks", "texts", "path") if key in data), data["name"])
    names = [named] if isinstance(named, str) else list(named)
    corpus = " + ".join(_corpus_name(str(name)) for name in names)
    return {"task": task, "corpus": corpus, "unit": _units(task, data).loss.partition(",")[0]}


def scores(results: Mapping[str, Mapping[str, Any]], recipe: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Every number of an evaluation that has a column, part by part."""
    task = str(recipe["task"]["name"])
    units = _units(task, recipe["data"])
    for part, found in results.items():
        if task == "decision":
            yield from _rollout_scores(part, found)
            continue
        written = any(key.endswith("_signature") for key in found)  # then one row says how, for all of its numbers
        settings = ("stride", "context", *(("beam_size", "length_penalty") if written else ()))
        how = {key: found[key] for key in settings if key in found}
        many = {"counts": {_count_name(units, task): found[units.key]}} if units.key in found else {}
        for metric in METRICS:
            if metric in found:
                unit = {"loss": units.loss, "accuracy": units.accuracy}.get(metric)
                scale = 100 if task in SPEECH_TASKS and metric in ("wer", "ler") else 1
                yield {
                    "split": part, "metric": metric, "value": round(scale * float(found[metric]), 4),
                    **({"unit": unit} if unit else {}), **many, **how,
                }  # fmt: skip
        yield from _text_tasks(part, found, how)


def _corpus_name(corpus: str) -> str:
    """Of a path its last part; of a spec, translate(corpus='tatoeba'), the last thing in quotes."""
    quoted = re.findall(r"'([^']+)'", corpus)
    return str(quoted[-1]) if quoted else PurePath(corpus).name


def _units(task: str, data: Mapping[str, Any]) -> Units:
    if task not in TASKS:
        raise ValueError(f"the task '{task}' has no place on the page yet: docs/results_tasks.py, TASKS")
    found = TASKS[task]
    return (
        Units("character", "character", found.key)
        if task == "language_modeling" and data.get("tokenizer") == "char"
        else found
    )


def _count_name(units: Units, task: str) -> str:
    return (
        units.key if task in ("chunking", "handwriting", *PRONUNCIATION_TASKS, *SPEECH_TASKS) else f"{units.accuracy}s"
    )


def _rollout_scores(part: str, found: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for row in found["rollouts"]:
        yield {
            "split": part, "metric": "return", "value": round(float(row["return"]), 4),
            "unit": f"target {row['target_return']:.1f}", "counts": {"episodes": found["episodes"]},
        }  # fmt: skip


def _text_tasks(part: str, found: Mapping[str, Any], how: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """NAME_METRIC with a signature is what a text task of that name scored; in per cent, all of it."""
    for key, value in found.items():
        name, _, metric = key.partition("_")
        if metric in METRICS and f"{key}_signature" in found:
            share = METRICS[metric].scale == 100
            yield {
                "split": part, "corpus": name, "metric": metric,
                "value": round(float(value) / (100 if share else 1), 4),
                **({"unit": "text"} if metric == "accuracy" else {}),
                "signature": found[f"{key}_signature"],
                **how,
            }  # fmt: skip


# -- the section -------------------------------------------------------------------------------------------------------

Found = tuple[Mapping[str, Any], Mapping[str, Any]]  # a run, and one of its scores


def language_section(all_runs: Sequence[Mapping[str, Any]], published: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Runs that neither translate nor read images."""
    yield "## Language"
    yield (
        "Everything but translation and images. Compare numbers within a column only, and losses only where they are "
        "counted by the same thing. `val` is the part by which settings, updates and weights were chosen, so its "
        "numbers are a little too good; where it stands alone there is no other part, or the other was not measured. "
        "† and rows of several seeds are as above; ± is a standard deviation."
    )
    yield from split_tables(all_runs, published)


def split_tables(all_runs: Sequence[Mapping[str, Any]], published: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """For each corpus and part one table, published lines beside ours."""
    every = [(run, score) for run in all_runs for score in run["scores"]]
    places = {(line["corpus"], line["split"]) for line in published} | {_corpus_and_split(*each) for each in every}
    if not places:
        yield "No run has been recorded yet."
    for corpus, part in sorted(places):
        yield f"### {corpus}, {part}"
        lines = [line for line in published if (line["corpus"], line["split"]) == (corpus, part)]
        yield from _one_part(lines, [each for each in every if _corpus_and_split(*each) == (corpus, part)])


def _corpus_and_split(run: Mapping[str, Any], score: Mapping[str, Any]) -> tuple[str, str]:
    return score.get("corpus", run["corpus"]), score["split"]


def _one_part(lines: Sequence[Mapping[str, Any]], found: Sequence[Found]) -> Iterator[str]:
    used = dict.fromkeys(_column(each) for each in (*lines, *(score for _, score in found)))
    columns = sorted(used, key=lambda column: list(METRICS).index(column[0]))
    heads = [METRICS[metric].heading.format(unit) for metric, unit in columns]
    rows = [["system", *heads, "how", "parameters", "seeds"]]
    published: dict[tuple[str, str], dict[tuple[str, str], str]] = {}  # the numbers of one system share a row
    for line in lines:
        mark = "" if line["checked"] else " †"
        published.setdefault((line["system"], line.get("search", "")), {})[_column(line)] = (
            _format_values([line]) + mark
        )
    for (system, how), values in published.items():
        rows.append([f"published: {system}", *(values.get(column, "") for column in columns), how, "", ""])
    systems: dict[tuple[str, str], list[Found]] = {}
    for run, score in found:
        systems.setdefault((score.get("system", run["system"]), _describe_settings(score)), []).append((run, score))
    for (system, how), measured in systems.items():
        cells = [_format_values([score for _, score in measured if _column(score) == column]) for column in columns]
        sizes = " / ".join(dict.fromkeys(f"{run['parameters']:,}" for run, _ in measured if "parameters" in run))
        rows.append([f"**{system}**", *cells, how, sizes, format_seeds(run for run, _ in measured)])
    if not systems:
        rows.append(["**Regard**", *("not measured yet" for _ in columns), "", "", ""])
    empty = [i for i in range(len(rows[0])) if i > len(columns) and not any(row[i] for row in rows[1:])]
    yield table([[cell for i, cell in enumerate(row) if i not in empty] for row in rows])
    notes = [f"{line['system']}: {line['where']}" for line in lines]
    notes += [f"{many:,} {what}" for _, score in found for what, many in score.get("counts", {}).items()]
    notes += [f"{METRICS[s['metric']].heading.format(s.get('unit', ''))}: `{s['signature']}`" for _, s in found
              if "signature" in s]  # fmt: skip
    if notes:
        yield bullet_list(notes)


def _column(score: Mapping[str, Any]) -> tuple[str, str]:
    return score["metric"], score.get("unit", "")


def _format_values(found: Sequence[Mapping[str, Any]]) -> str:
    """Values as a cell, with the digits that were kept, but no more than the metric has."""
    if not found:
        return ""
    metric = METRICS[found[0]["metric"]]
    values = [score["value"] * metric.scale for score in found]
    kept = max(len(f"{value:.{metric.digits}f}".rstrip("0").partition(".")[2]) for value in values)
    shown = mean_and_range(values, max(kept, 1))
    return f"{shown} ± {found[0]['std'] * metric.scale:.{max(kept, 1)}f}" if "std" in found[0] else shown


def _describe_settings(score: Mapping[str, Any]) -> str:
    said = [f"rows of {score['context']:,}"] if "context" in score else []
    said += [f"stride {score['stride']:,}"] if "stride" in score else []
    return ", ".join([*said, *filter(None, [describe_search(score)])])

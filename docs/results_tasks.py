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
from functools import cache
from pathlib import PurePath
from typing import Any, NamedTuple

from results_tables import bullet_list, describe_search, format_seeds, mean_and_range, table

from regard.core.spec import resolve
from regard.metrics.base import F1, Metric, find_metric
from regard.metrics.generation import DECLARED
from regard.tasks import TASKS

# The numbers that have a column, in the order of the columns. Names, units and scales are those of the tasks' metrics.
COLUMNS = (
    "loss", "bits_per_byte", "perplexity", "accuracy", "nsp_accuracy", "top5", "macro_f1", "matthews_correlation", "f1",
    "exact_match", "wer", "per", "ler", "rouge1", "rouge2", "rougeL", "bleu", "return",
)  # fmt: skip
BY_UNIT = {"loss": "nats per {}", "accuracy": "{} accuracy %", "return": "return, {}"}  # a column for each unit
SPEECH_TASKS = ("ctc_speech_recognition", "speech_recognition", "reinforced_speech_recognition")
PRONUNCIATION_TASKS = ("pronunciation", "reinforced_pronunciation")


class Column(NamedTuple):
    """A column: its heading ({} is the unit), what a stored value is multiplied by, digits at most."""

    heading: str
    scale: float
    digits: int


@cache
def column_of(key: str) -> Column:
    """Return the column of a metric, as the first task that has it declares it."""
    declared = [metric for task in TASKS for metric in resolve(TASKS, task, "task").metrics]
    metric = find_metric([*declared, *(each for group in DECLARED.values() for each in group)], key)
    if metric is None:
        raise ValueError(f"no task declares the metric '{key}'")
    return Column(BY_UNIT.get(key, metric.label), metric.scale if is_fraction(metric) else 1, metric.digits)


def is_fraction(metric: Metric) -> bool:
    """Whether a metric is stored as a fraction, here as in reports; error rates are stored in per cent here."""
    return metric.high == 1.0


# -- an evaluation into scores -----------------------------------------------------------------------------------------


def describe_run(recipe: Mapping[str, Any]) -> dict[str, Any]:
    """What a run is about: its task, its corpus (names, no folders), and what its tokens/s are counted in."""
    task, data = str(recipe["task"]["name"]), recipe["data"]
    named = next((data[key] for key in ("corpus", "corpora", "tasks", "texts", "path") if key in data), data["name"])
    names = [named] if isinstance(named, str) else list(named)
    corpus = " + ".join(_corpus_name(str(name)) for name in names)
    return {"task": task, "corpus": corpus, "unit": _unit(task, "loss", data).partition(",")[0]}


def scores(results: Mapping[str, Mapping[str, Any]], recipe: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Every number of an evaluation that has a column, part by part."""
    task = str(recipe["task"]["name"])
    cls = resolve(TASKS, task, "task")
    for part, found in results.items():
        if task == "decision":
            yield from _rollout_scores(part, found)
            continue
        written = any(key.endswith("_signature") for key in found)  # then one row says how, for all of its numbers
        settings = ("stride", "context", *(("beam_size", "length_penalty") if written else ()))
        how = {key: found[key] for key in settings if key in found}
        size, counted = cls.split_size, _unit(task, "loss", recipe["data"]).partition(",")[0]
        name = f"{counted}s" if cls.unit == size else size
        many = {"counts": {name: found[size]}} if size in found else {}
        for key in COLUMNS:
            metric = find_metric([each for each in (*cls.metrics, F1) if each.key == key], key)  # F1: taggers of chunks
            if metric is not None and key in found:
                unit = _unit(task, key, recipe["data"]) if key in BY_UNIT else ""
                value = float(found[key]) * (1 if is_fraction(metric) else metric.scale)
                yield {
                    "split": part, "metric": key, "value": round(value, 4),
                    **({"unit": unit} if unit else {}), **many, **how,
                }  # fmt: skip
        yield from _text_tasks(part, found, how)


def _corpus_name(corpus: str) -> str:
    """Of a path its last part; of a spec, translate(corpus='tatoeba'), the last thing in quotes."""
    quoted = re.findall(r"'([^']+)'", corpus)
    return str(quoted[-1]) if quoted else PurePath(corpus).name


def _unit(task: str, key: str, data: Mapping[str, Any]) -> str:
    """Return what a loss is counted by, or what an accuracy is the share of: token, word, image."""
    if task not in TASKS:
        raise ValueError(f"there is no task '{task}'")
    declared = {metric.key: metric for metric in resolve(TASKS, task, "task").metrics}
    loss = declared["loss"].unit.removeprefix("nats per ").removeprefix("per ")
    if task == "language_modeling" and data.get("tokenizer") == "char":
        return "character"
    own = declared["accuracy"].name.removesuffix("accuracy").strip() if key == "accuracy" else loss
    return own or loss


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
        if metric in COLUMNS and f"{key}_signature" in found:
            share = column_of(metric).scale == 100
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
    columns = sorted(used, key=lambda column: COLUMNS.index(column[0]))
    heads = [column_of(metric).heading.format(unit) for metric, unit in columns]
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
    notes += [f"{column_of(s['metric']).heading.format(s.get('unit', ''))}: `{s['signature']}`" for _, s in found
              if "signature" in s]  # fmt: skip
    if notes:
        yield bullet_list(notes)


def _column(score: Mapping[str, Any]) -> tuple[str, str]:
    return score["metric"], score.get("unit", "")


def _format_values(found: Sequence[Mapping[str, Any]]) -> str:
    """Values as a cell, with the digits that were kept, but no more than the metric has."""
    if not found:
        return ""
    metric = column_of(found[0]["metric"])
    values = [score["value"] * metric.scale for score in found]
    kept = max(len(f"{value:.{metric.digits}f}".rstrip("0").partition(".")[2]) for value in values)
    shown = mean_and_range(values, max(kept, 1))
    return f"{shown} ± {found[0]['std'] * metric.scale:.{max(kept, 1)}f}" if "std" in found[0] else shown


def _describe_settings(score: Mapping[str, Any]) -> str:
    said = [f"rows of {score['context']:,}"] if "context" in score else []
    said += [f"stride {score['stride']:,}"] if "stride" in score else []
    return ", ".join([*said, *filter(None, [describe_search(score)])])

"""The section of docs/results.md on language, and tables of any task except translation.

A score of such a run: {"split", "metric", "value"}, and where it applies

    unit                 unit of a loss, items of an accuracy, or target return; scores of different units are in
                         different columns
    corpus, system       if they differ from the run's: tasks of a mixture; a program that compares several
    counted              {"masked tokens": 4821}
    std                  standard deviation, if a program gave mean and deviation instead of single values
    stride, context, beams, length_penalty, signature

Fractions are stored from 0 to 1 and shown in per cent; error rates, ROUGE and BLEU are stored in per cent.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import PurePath
from typing import Any, NamedTuple

from results_tables import bullet_list, by_search, format_seeds, mean_and_range, search_caption, table

from regard.core.spec import resolve
from regard.metrics.base import F1, Metric, find_metric
from regard.metrics.generation import DECLARED
from regard.tasks import TASKS

# The numbers that have a column, in the order of the columns. Names, units and scales are those of the tasks' metrics.
COLUMNS = (
    "loss", "bound", "kl", "bits_per_byte", "bits_per_dim", "perplexity", "accuracy", "nsp_accuracy", "top5",
    "macro_f1", "matthews_correlation", "f1", "exact_match", "error", "failed", "wrong_bits", "wer", "per", "ler",
    "rouge1", "rouge2", "rougeL", "bleu", "bleu1", "bleu2", "bleu3", "bleu4", "cider", "return", "miou",
    "pixel_accuracy", "point_accuracy", "ap", "ap50", "ap75", "pq", "sq", "rq", "abs_rel", "rmse", "delta1",
    "rms_error", "mae", "low_latitudes", "middle_latitudes", "high_latitudes",
)  # fmt: skip
BY_UNIT = {
    "loss": "nats per {}",
    "accuracy": "{} accuracy %",
    "return": "return, {}",
    "wrong_bits": "wrong bits, {}",
}  # a column for each unit
SPACE_TASKS = (
    "point_classification",
    "point_segmentation",
    "graph_classification",
    "graph_regression",
    "node_classification",
    "place_classification",
)
SPEECH_TASKS = (
    "ctc_speech_recognition", "speech_recognition", "joint_speech_recognition", "reinforced_speech_recognition",
)  # fmt: skip
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
    metric = find_metric(
        [*declared, *(declared_metric for group in DECLARED.values() for declared_metric in group)], key
    )
    if metric is None:
        raise ValueError(f"no task declares the metric '{key}'")
    return Column(BY_UNIT.get(key, metric.label), metric.scale if is_fraction(metric) else 1, metric.digits)


def is_fraction(metric: Metric) -> bool:
    """Whether a metric is stored as a fraction, here as in reports; error rates are stored in per cent here."""
    return metric.high == 1.0


# -- an evaluation into scores -----------------------------------------------------------------------------------------


def describe_run(recipe: Mapping[str, Any]) -> dict[str, Any]:
    """Return the task of a run, its corpus (names, no folders), and the unit of its tokens/s."""
    task, data = str(recipe["task"]["name"]), recipe["data"]
    value = next(
        (data[key] for key in ("dataset", "corpus", "corpora", "tasks", "texts", "path") if key in data), data["name"]
    )
    names = [value] if isinstance(value, str) else list(value)
    corpus = " + ".join(_corpus_name(str(name)) for name in names)
    if task == "story_answering":
        corpus = f"{corpus} {data['size']}, {len(data['tasks']) or 20} tasks"
    if data["name"] == "binarized_images":
        corpus = f"binarised {corpus}"
    fold = {"fold": data["fold"]} if "fold" in data else {}
    return {"task": task, "corpus": corpus, "unit": _item(task, data), **fold}


def scores(results: Mapping[str, Mapping[str, Any]], recipe: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield every number of an evaluation that has a column, split by split."""
    task = str(recipe["task"]["name"])
    cls = resolve(TASKS, task, "task")
    for part, found in results.items():
        if task == "decision":
            yield from _rollout_scores(part, found)
            continue
        has_signature = any(
            key.endswith("_signature") for key in found
        )  # then the search settings apply to all numbers of the row
        settings = ("stride", "context", *(("beam_size", "length_penalty") if has_signature else ()))
        search = {key: found[key] for key in settings if key in found}
        size = cls.split_size
        name = f"{_item(task, recipe['data'])}s" if cls.unit == size else size
        counts = {"counts": {name: found[size]}} if size in found else {}
        for key in COLUMNS:
            metric = find_metric(
                [candidate for candidate in (*cls.metrics, F1) if candidate.key == key], key
            )  # F1: taggers of chunks
            if (
                metric is not None and key in found and not (key == "loss" and "bound" in found)
            ):  # the bound is the loss
                unit = _unit(task, key, recipe["data"]) if key in BY_UNIT else ""
                value = float(found[key]) * (1 if is_fraction(metric) else metric.scale)
                yield {
                    "split": part, "metric": key, "value": round(value, 4),
                    **({"unit": unit} if unit else {}), **counts, **search,
                }  # fmt: skip
        yield from _text_tasks(part, found, search)
        for key in found if task == "visual_question_answering" else ():
            if key.startswith("accuracy_"):  # of one kind of question
                unit = key.removeprefix("accuracy_")
                yield {"split": part, "metric": "accuracy", "value": round(found[key], 4), "unit": unit, **counts}
        for key in found:
            if key.startswith("wrong_bits_"):  # a tape's size, for example its length or its items and repeats
                unit = f"size {key.removeprefix('wrong_bits_')}"
                yield {"split": part, "metric": "wrong_bits", "value": round(found[key], 4), "unit": unit, **counts}


def _corpus_name(corpus: str) -> str:
    """Return the last part of a path, or the last quoted word of a spec such as translate(corpus='tatoeba')."""
    quoted = re.findall(r"'([^']+)'", corpus)
    return str(quoted[-1]) if quoted else PurePath(corpus).name


def _unit(task: str, key: str, data: Mapping[str, Any]) -> str:
    """Return what a loss is counted by, or what an accuracy is the share of: token, word, image."""
    if task not in TASKS:
        raise ValueError(f"there is no task '{task}'")
    if key == "wrong_bits":
        return "all sizes"
    declared = {metric.key: metric for metric in resolve(TASKS, task, "task").metrics}
    loss = declared["loss"].unit.removeprefix("nats per ").removeprefix("per ")
    if task == "language_modeling" and data.get("tokenizer") == "char":
        return "character"
    name = declared["accuracy"].name.removesuffix("accuracy").strip() if key == "accuracy" else loss
    return name or loss


def _item(task: str, data: Mapping[str, Any]) -> str:
    """Return what is counted of a split and of a second: an image, though its loss is per pixel.

    Of text it is what the loss is counted by, such as a character or a masked token."""
    loss, unit = _unit(task, "loss", data).partition(",")[0], resolve(TASKS, task, "task").unit
    return loss if unit in ("tokens", "words") else str(unit).removesuffix("s")


def _rollout_scores(part: str, found: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for row in found["rollouts"]:
        yield {
            "split": part, "metric": "return", "value": round(float(row["return"]), 4),
            "unit": f"target {row['target_return']:.1f}", "counts": {"episodes": found["episodes"]},
        }  # fmt: skip


def _text_tasks(part: str, found: Mapping[str, Any], search: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the scores NAME_METRIC of text tasks that have a signature; all are in per cent."""
    for key, value in found.items():
        name, _, metric = key.partition("_")
        if metric in COLUMNS and f"{key}_signature" in found:
            is_percent = column_of(metric).scale == 100
            yield {
                "split": part, "corpus": name, "metric": metric,
                "value": round(float(value) / (100 if is_percent else 1), 4),
                **({"unit": "text"} if metric == "accuracy" else {}),
                "signature": found[f"{key}_signature"],
                **search,
            }  # fmt: skip


# -- the section -------------------------------------------------------------------------------------------------------

Found = tuple[Mapping[str, Any], Mapping[str, Any]]  # a run, and one of its scores


def language_section(all_runs: Sequence[Mapping[str, Any]], published: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the section on runs that are neither translation nor images."""
    yield "## Language"
    yield (
        "Everything but translation and images. Compare numbers within a column only, and losses only where they are "
        "counted by the same thing. `val` is the part by which settings, updates and weights were chosen, so its "
        "numbers are a little too good; where it stands alone there is no other part, or the other was not measured. "
        "† and rows of several seeds are as above; ± is a standard deviation."
    )
    yield from split_tables(all_runs, published)


def space_section(all_runs: Sequence[Mapping[str, Any]], published: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the section on points, graphs and places; nothing where no run is recorded."""
    if not all_runs:
        return
    yield "## Points, graphs, places"
    yield "Compare numbers within a column only. † and rows of several seeds, or folds, are as above."
    yield from split_tables(all_runs, published)


def split_tables(all_runs: Sequence[Mapping[str, Any]], published: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield one table per corpus and split, with published numbers and measured ones."""
    all_scores = [(run, score) for run in all_runs for score in run["scores"]]
    corpora_and_splits = {(line["corpus"], line["split"]) for line in published} | {
        _corpus_and_split(*pair) for pair in all_scores
    }
    if not corpora_and_splits:
        yield "No run has been recorded yet."
    for corpus, part in sorted(corpora_and_splits):
        yield f"### {corpus}, {part}"
        lines = [line for line in published if (line["corpus"], line["split"]) == (corpus, part)]
        yield from _one_part(lines, [pair for pair in all_scores if _corpus_and_split(*pair) == (corpus, part)])


def _corpus_and_split(run: Mapping[str, Any], score: Mapping[str, Any]) -> tuple[str, str]:
    return score.get("corpus", run["corpus"]), score["split"]


def _one_part(lines: Sequence[Mapping[str, Any]], found: Sequence[Found]) -> Iterator[str]:
    columns_used = dict.fromkeys(_column(entry) for entry in (*lines, *(score for _, score in found)))
    columns = sorted(columns_used, key=lambda column: COLUMNS.index(column[0]))
    heads = [column_of(metric).heading.format(unit) for metric, unit in columns]
    published: dict[tuple[str, str], dict[tuple[str, str], str]] = {}  # the numbers of one system share a row
    for line in lines:
        mark = "" if line["checked"] else " †"
        published.setdefault((line["system"], line.get("search", "")), {})[_column(line)] = (
            _format_values([line]) + mark
        )
    for how, some in by_search(found).items():
        rows = [["system", *heads, "how", "parameters", "seeds"]]
        for (system, search), values in published.items():
            rows.append([f"published: {system}", *(values.get(column, "") for column in columns), search, "", ""])
        published = {}  # in the first table
        systems: dict[tuple[str, str], list[Found]] = {}
        for run, score in some:
            systems.setdefault((score.get("system", run["system"]), _describe_settings(score)), []).append((run, score))
        for (system, settings), measured in systems.items():
            cells = [_format_values([score for _, score in measured if _column(score) == column]) for column in columns]
            sizes = " / ".join(dict.fromkeys(f"{run['parameters']:,}" for run, _ in measured if "parameters" in run))
            rows.append([f"**{system}**", *cells, settings, sizes, format_seeds(run for run, _ in measured)])
        if not systems:
            rows.append(["**Regard**", *("not measured yet" for _ in columns), "", "", ""])
        empty = [i for i in range(len(rows[0])) if i > len(columns) and not any(row[i] for row in rows[1:])]
        yield from search_caption(how)
        yield table([[cell for i, cell in enumerate(row) if i not in empty] for row in rows])
    notes = [f"{line['system']}: {line['where']}" for line in lines]
    notes += [f"{count:,} {what}" for _, score in found for what, count in score.get("counts", {}).items()]
    notes += [f"{column_of(s['metric']).heading.format(s.get('unit', ''))}: `{s['signature']}`" for _, s in found
              if "signature" in s]  # fmt: skip
    if notes:
        yield bullet_list(notes)


def _column(score: Mapping[str, Any]) -> tuple[str, str]:
    # A published line has a unit also to name its section.
    return score["metric"], score.get("unit", "") if score["metric"] in BY_UNIT else ""


def _format_values(found: Sequence[Mapping[str, Any]]) -> str:
    """Format values as a cell, with the digits that are stored, but no more than the metric has."""
    if not found:
        return ""
    metric = column_of(found[0]["metric"])
    values = [score["value"] * metric.scale for score in found]
    digits = max(len(f"{value:.{metric.digits}f}".rstrip("0").partition(".")[2]) for value in values)
    shown = mean_and_range(values, max(digits, 1))
    return f"{shown} ± {found[0]['std'] * metric.scale:.{max(digits, 1)}f}" if "std" in found[0] else shown


def _describe_settings(score: Mapping[str, Any]) -> str:
    settings = [f"rows of {score['context']:,}"] if "context" in score else []
    settings += [f"stride {score['stride']:,}"] if "stride" in score else []
    return ", ".join(settings)

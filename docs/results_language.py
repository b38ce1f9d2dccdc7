"""The sections of docs/results.md that do not translate: language, tables of any task, and what goes into them.

A score of such a run: {"part", "metric", "value"}, and where it applies

    unit                 what a loss is counted by, what an accuracy is the share of, which return was asked for; scores
                         of different units stand in different columns
    corpus, system       where they are not the run's: the tasks of a mixture; a program that compares several
    counted              {"hidden words": 4821}
    deviation            where a program gave mean and standard deviation instead of single values
    stride, context, beams, length_penalty, signature

Shares are stored as shares (0 to 1) and shown in per cent; errors, ROUGE and BLEU are in per cent as they come.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import Any, NamedTuple

from results_parts import listed, search, seeds, spread, table


class Metric(NamedTuple):
    """A column: its name for people ({} is the unit), what a stored value is shown times, digits at most."""

    heading: str
    times: int = 1
    digits: int = 2


METRICS = {
    "loss": Metric("loss, nats a {}", digits=4),
    "bits_per_byte": Metric("bits a byte", digits=4),
    "perplexity": Metric("perplexity"),
    "accuracy": Metric("right, % of {}s", 100),
    "next_accuracy": Metric("what follows, right, %", 100),
    "top5": Metric("among the first five, %", 100),
    "macro_f1": Metric("macro F1, %", 100),
    "matthews": Metric("Matthews correlation", digits=4),
    "f1": Metric("F1, %", 100),
    "exact_match": Metric("exact match, %", 100),
    "word_error": Metric("words wrong, %"),
    "phoneme_error": Metric("sounds wrong, %"),
    "label_error": Metric("labels wrong, %"),
    "rouge1": Metric("ROUGE-1"),
    "rouge2": Metric("ROUGE-2"),
    "rougeL": Metric("ROUGE-L"),
    "bleu": Metric("BLEU, cased"),
    "reached": Metric("return reached, {}"),
}
SAME = {"exact": "exact_match"}  # of text tasks


class Counted(NamedTuple):
    """What a task's loss is counted by, what its accuracy is the share of, and where its report has how many."""

    loss: str
    right: str
    key: str


TASKS = {
    "language": Counted("token", "token", "tokens"),
    "masked": Counted("hidden word", "hidden word", "words"),
    "classification": Counted("text", "text", "texts"),
    "tagging": Counted("word", "word", "words"),
    "span": Counted("question", "question", "questions"),
    "chunking": Counted("decision", "word", "sentences"),
    "text_to_text": Counted("token", "token", "tokens"),
    "words": Counted("word, near and drawn", "word", "words"),
    "bilm": Counted("word", "word", "tokens"),
    "decision": Counted("action", "action", "actions"),
    "pronunciation": Counted("sound", "sound", "words"),
    "reinforced_pronunciation": Counted("sound", "sound", "words"),
    "transcription": Counted("label", "label", "recordings"),
    "listening": Counted("label", "label", "recordings"),
    "reinforced_listening": Counted("label", "label", "recordings"),
    "handwriting": Counted("point", "point", "lines"),
    "arithmetic": Counted("digit", "digit", "tokens"),
    "images": Counted("image", "image", "images"),
    "distillation": Counted("image", "image", "images"),
}
HEARD = ("transcription", "listening", "reinforced_listening")  # their errors are shares
SAID = ("pronunciation", "reinforced_pronunciation")
CALLED = {  # what a report calls otherwise than the columns do
    "arithmetic": {"right": "exact_match", "digits": "accuracy"},
    **{task: {"right": "exact_match"} for task in HEARD},
}

# -- an evaluation into scores -----------------------------------------------------------------------------------------


def described(recipe: Mapping[str, Any]) -> dict[str, Any]:
    """What a run is about: its task, its corpus (names, no folders), and what its tokens/s are counted in."""
    task, data = str(recipe["task"]["name"]), recipe["data"]
    named = next((data[key] for key in ("corpus", "corpora", "tasks", "texts", "path") if key in data), data["name"])
    names = [named] if isinstance(named, str) else list(named)
    corpus = " + ".join(_name(str(name)) for name in names)
    return {"task": task, "corpus": corpus, "unit": _counted(task, data).loss.partition(",")[0]}


def scores(results: Mapping[str, Mapping[str, Any]], recipe: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Every number of an evaluation that has a column, part by part."""
    task = str(recipe["task"]["name"])
    counted = _counted(task, recipe["data"])
    for part, found in results.items():
        if task == "decision":
            yield from _played(part, found)
            continue
        written = any(key.endswith("_signature") for key in found)  # then one row says how, for all of its numbers
        settings = ("stride", "context", *(("beams", "length_penalty") if written else ()))
        how = {key: found[key] for key in settings if key in found}
        many = {"counted": {_plural(counted, task): found[counted.key]}} if counted.key in found else {}
        found = {CALLED.get(task, {}).get(key, key): value for key, value in found.items()}
        for metric in METRICS:
            if metric in found:
                unit = {"loss": counted.loss, "accuracy": counted.right}.get(metric)
                times = 100 if task in HEARD and metric.endswith("_error") else 1
                yield {
                    "part": part, "metric": metric, "value": round(times * float(found[metric]), 4),
                    **({"unit": unit} if unit else {}), **many, **how,
                }  # fmt: skip
        yield from _text_tasks(part, found, how)


def _name(corpus: str) -> str:
    """Of a path its last part; of a spec, translate(corpus='tatoeba'), the last thing in quotes."""
    quoted = re.findall(r"'([^']+)'", corpus)
    return str(quoted[-1]) if quoted else PurePath(corpus).name


def _counted(task: str, data: Mapping[str, Any]) -> Counted:
    if task not in TASKS:
        raise ValueError(f"the task '{task}' has no place on the page yet: docs/results_language.py, TASKS")
    found = TASKS[task]
    return Counted("character", "character", found.key) if task == "language" and data.get("kind") == "char" else found


def _plural(counted: Counted, task: str) -> str:
    return counted.key if task in ("chunking", "handwriting", *SAID, *HEARD) else f"{counted.right}s"


def _played(part: str, found: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for row in found["played"]:
        yield {
            "part": part, "metric": "reached", "value": round(float(row["reached"]), 4),
            "unit": f"asked for {row['wanted']:.1f}", "counted": {"episodes": found["episodes"]},
        }  # fmt: skip


def _text_tasks(part: str, found: Mapping[str, Any], how: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """NAME_METRIC with a signature is what a text task of that name scored; in per cent, all of it."""
    for key, value in found.items():
        name, _, metric = key.partition("_")
        metric = SAME.get(metric, metric)
        if metric in METRICS and f"{key}_signature" in found:
            share = METRICS[metric].times == 100
            yield {
                "part": part, "corpus": name, "metric": metric,
                "value": round(float(value) / (100 if share else 1), 4),
                **({"unit": "text"} if metric == "accuracy" else {}),
                "signature": found[f"{key}_signature"],
                **how,
            }  # fmt: skip


# -- the section -------------------------------------------------------------------------------------------------------

Found = tuple[Mapping[str, Any], Mapping[str, Any]]  # a run, and one of its scores


def language(ours: Sequence[Mapping[str, Any]], theirs: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Runs that neither translate nor read images."""
    yield "## Language"
    yield (
        "Everything but translation and images. Compare numbers within a column only, and losses only where they are "
        "counted by the same thing. `val` is the part by which settings, updates and weights were chosen, so its "
        "numbers are a little too good; where it stands alone there is no other part, or the other was not measured. "
        "† and rows of several seeds are as above; ± is a standard deviation."
    )
    yield from parts(ours, theirs)


def parts(ours: Sequence[Mapping[str, Any]], theirs: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """For each corpus and part one table, published lines beside ours."""
    every = [(run, score) for run in ours for score in run["scores"]]
    places = {(line["corpus"], line["part"]) for line in theirs} | {_place(*each) for each in every}
    if not places:
        yield "No run has been recorded yet."
    for corpus, part in sorted(places):
        yield f"### {corpus}, {part}"
        lines = [line for line in theirs if (line["corpus"], line["part"]) == (corpus, part)]
        yield from _one_part(lines, [each for each in every if _place(*each) == (corpus, part)])


def _place(run: Mapping[str, Any], score: Mapping[str, Any]) -> tuple[str, str]:
    return score.get("corpus", run["corpus"]), score["part"]


def _one_part(lines: Sequence[Mapping[str, Any]], found: Sequence[Found]) -> Iterator[str]:
    used = dict.fromkeys(_column(each) for each in (*lines, *(score for _, score in found)))
    columns = sorted(used, key=lambda column: list(METRICS).index(column[0]))
    heads = [METRICS[metric].heading.format(unit).replace(" a image", " an image") for metric, unit in columns]
    rows = [["system", *heads, "how", "parameters", "seeds"]]
    theirs: dict[tuple[str, str], dict[tuple[str, str], str]] = {}  # the numbers of one system share a row
    for line in lines:
        mark = "" if line["checked"] else " †"
        theirs.setdefault((line["system"], line.get("search", "")), {})[_column(line)] = _shown([line]) + mark
    for (system, how), values in theirs.items():
        rows.append([f"published: {system}", *(values.get(column, "") for column in columns), how, "", ""])
    systems: dict[tuple[str, str], list[Found]] = {}
    for run, score in found:
        systems.setdefault((score.get("system", run["system"]), _how(score)), []).append((run, score))
    for (system, how), measured in systems.items():
        cells = [_shown([score for _, score in measured if _column(score) == column]) for column in columns]
        sizes = " / ".join(dict.fromkeys(f"{run['parameters']:,}" for run, _ in measured if "parameters" in run))
        rows.append([f"**{system}**", *cells, how, sizes, seeds(run for run, _ in measured)])
    if not systems:
        rows.append(["**Regard**", *("not measured yet" for _ in columns), "", "", ""])
    empty = [i for i in range(len(rows[0])) if i > len(columns) and not any(row[i] for row in rows[1:])]
    yield table([[cell for i, cell in enumerate(row) if i not in empty] for row in rows])
    notes = [f"{line['system']}: {line['where']}" for line in lines]
    notes += [f"{many:,} {what}" for _, score in found for what, many in score.get("counted", {}).items()]
    notes += [f"{METRICS[s['metric']].heading.format(s.get('unit', ''))}: `{s['signature']}`" for _, s in found
              if "signature" in s]  # fmt: skip
    if notes:
        yield listed(notes)


def _column(score: Mapping[str, Any]) -> tuple[str, str]:
    return score["metric"], score.get("unit", "")


def _shown(found: Sequence[Mapping[str, Any]]) -> str:
    """Values as a cell, with the digits that were kept, but no more than the metric has."""
    if not found:
        return ""
    metric = METRICS[found[0]["metric"]]
    values = [score["value"] * metric.times for score in found]
    kept = max(len(f"{value:.{metric.digits}f}".rstrip("0").partition(".")[2]) for value in values)
    shown = spread(values, max(kept, 1))
    return f"{shown} ± {found[0]['deviation'] * metric.times:.{max(kept, 1)}f}" if "deviation" in found[0] else shown


def _how(score: Mapping[str, Any]) -> str:
    said = [f"rows of {score['context']:,}"] if "context" in score else []
    said += [f"stride {score['stride']:,}"] if "stride" in score else []
    return ", ".join([*said, *filter(None, [search(score)])])

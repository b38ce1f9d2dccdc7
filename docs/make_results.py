"""Write docs/results.md from result files. A test compares the page with the output of this script.

    python docs/make_results.py                        write docs/results.md
    python docs/make_results.py add RUN_FOLDER         a run's scores into docs/results/NAME.json, then the same
        ...                                                of several folders: stories, a model for each task of bAbI
        --name multi30k-en-de-tiny-1                       the file's name, and the run's on the page
        --system "Transformer tiny"                        its row in the tables; runs that differ in their seed alone
                                                           share a row, which shows mean and range (default: the recipe)
        --command "regard train transformer_multi30k train.seed=1 --out runs/tiny-1"
        [--machine TEXT] [--date YYYY-MM-DD] [--note TEXT] [--evaluation FILE]

A run folder, of any task, holds recipe.json and result.json (the training loop writes them) and evaluation.json
(``regard eval RUN_FOLDER --output RUN_FOLDER/evaluation.json``). Folders and paths of the machine are left out. Of a
translation, greedy.json (optional) holds the scores of greedy search (``--beam-size 1``).

docs/results/NAME.json, one run:

    name, system, command, note      text                       seed, parameters, steps, epochs     whole numbers
    machine, date                    text, YYYY-MM-DD           minutes, tokens_per_second          numbers
    versions                         {"regard": ..., "torch": ...}
    corpus, source, target, style    the data of a translation; style is raw, or moses (lower-case tokens)
    task, corpus, unit               of every other run; unit is what its tokens/s are counted in
    fold                             the fold that was for test; the runs of a row may differ in it, too
    weights, precision               which weights were kept; how matrix products were taken
    by_length                        {part: [{"from", "to", "count", metric: value}]}, by the length of the input
    scores                           [{"split", "metric", "value", "signature", "sentences", "beam_size", ...}]
                                     of runs that do not translate: results_tasks.py

Of a run that was written down by hand only name, system, seed (null: not known), machine, date, corpus and scores must
be there, and command or recorded_in (where the numbers were written down); the rest is left out where it was not kept.

docs/published.json holds what others published: a list of {"system", "corpus", "source", "target", "split", "metric",
"value", "search", "where", "checked"}; where "checked" is false the number was recalled and the page says so. Without
source and target, and with "unit" where a metric has one, it stands under Language, or under Images where the unit is
"image"; with "section" it stands where results_seq2seq.py puts it, or in a table of the lectures. "on_slide" is how the
slide writes the value.

benchmarks/results/*.json are what the programs in benchmarks/ write: "cases" with "contenders", or "contenders" alone,
beside command, date, cpu or gpu, and versions, or with all of these under "machine". Cases may also stand under names
of their own ("decoding", "training"). Whatever else they hold in numbers is listed as it is.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from results_images import TASKS as IMAGE_TASKS
from results_images import images_section
from results_seq2seq import is_seq2seq_run, seq2seq_section
from results_tables import (
    bullet_list,
    by_search,
    console_block,
    format_seeds,
    mean_and_range,
    pluralize,
    read_json,
    search_caption,
    table,
    write,
)
from results_tasks import SPACE_TASKS, column_of, describe_run, language_section, space_section
from results_tasks import scores as language_scores

HERE = Path(__file__).resolve().parent
RUNS, PUBLISHED, PAGE = HERE / "results", HERE / "published.json", HERE / "results.md"
SPEED = HERE.parent / "benchmarks" / "results"

METRICS = {key: column_of(key).heading for key in ("bleu_tokenized", "bleu", "bleu_lower", "chrf")}  # of translations

MAX_LOAD = 2.0  # as in benchmarks/harness.py
SPACE_UNITS = ("cloud", "graph", "node", "place")
CASED = {"bleu", "chrf"}  # not reported for models that write lower case only

BENCHMARK_TITLES = {  # of benchmarks/results/NAME.json
    "augment-cpu": "Image augmentation on a CPU",
    "augment-cuda": "Image augmentation on a GPU",
    "cost-cpu": "Cost of a training update on a CPU: estimated and counted",
    "cost-cuda": "Cost of a training update on a GPU: estimated and measured",
    "ctc-cpu": "CTC loss on a CPU",
    "ctc-cuda": "CTC loss on a GPU",
    "dense-cpu": "Detection and depth on a CPU, compared with transformers",
    "dense-cuda": "Detection and depth on a GPU, compared with transformers",
    "dense-training-cpu": "Training detectors and depth models on a CPU, and the share of matching",
    "dense-training-cuda": "Training detectors and depth models on a GPU, and the share of matching",
    "encode-cpu": "Text embedding on a CPU",
    "encode-cuda": "BERT-base encoding on a GPU",
    "explorer-backend": "Explorer: time to compute attention maps",
    "explorer-frontend": "Explorer: time to draw attention maps",
    "generate-cpu": "Text generation with GPT-2 124M on a CPU",
    "generate-cuda": "Text generation with GPT-2 124M on a GPU",
    "faithfulness": "Maps of image models against known masks",
    "local-relation-cuda": "Local relation layers on a GPU",
    "handwriting-legibility": "Handwriting synthesis: legibility",
    "linear-probe-cpu": "Linear probe, noun or verb: word2vec",
    "linear-probe-gpu": "Linear probe, noun or verb: word2vec and ELMo",
    "linear-probe-minilm": "Linear probe, noun or verb: MiniLM, word2vec and ELMo",
    "long-sources": "PER on sources of more than 1,000 letters, by aligner",
    "memory-cpu": "Networks with an external memory on a CPU: one update, compared with plain loops",
    "own-data": "Own data in minutes, compared with simple baselines",
    "points-cpu": "Vector attention, neighbours and samples of point clouds on a CPU",
    "points-cuda": "Vector attention, neighbours and samples of point clouds on a GPU",
    "recurrent-cpu": "Recurrent encoder-decoders on a CPU",
    "recurrent-cuda": "Recurrent encoder-decoders on a GPU",
    "reinforce": "Variance of REINFORCE gradients, by baseline",
    "serve": "HTTP service under load",
    "shards": "Reading batches from shards",
    "speech-cpu": "Speech encoding with Conformer-M on a CPU",
    "speech-cuda": "Speech encoding with Conformer-M on a GPU",
    "startup": "Start-up time",
    "train-cuda": "Training a Transformer on a GPU",
    "train-gpt2-cuda": "Training GPT-2 124M on a GPU",
    "translate-cpu": "Translation on a CPU",
    "translate-cpu-int8": "Translation on a CPU, int8 weights",
    "translate-cuda": "Translation on a GPU",
    "translate-memory": "Peak memory while translating 1,000 sentences",
    "vision-cpu": "Image classification on a CPU, compared with timm",
    "vision-cuda": "Image classification on a GPU, compared with timm",
    "vision-training-cuda": "Training vision models on a GPU, compared with timm",
    "watch-cpu": "Overhead of capturing attention maps on a CPU",
    "window-attention-cuda": "Window attention on a GPU",
    "word2vec-cpu": "Training word2vec on a CPU, compared with gensim",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Add a run if requested, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb")
    add_parser = verbs.add_parser("add", help="a run folder into docs/results/NAME.json")
    add_parser.add_argument("folders", type=Path, nargs="+", metavar="RUN_FOLDER")
    add_parser.add_argument("--name", required=True)
    add_parser.add_argument("--command", required=True)
    for option in ("--system", "--machine", "--date", "--note"):
        add_parser.add_argument(option)
    add_parser.add_argument("--evaluation", type=Path, help="default: RUN_FOLDER/evaluation.json")
    args = parser.parse_args(arguments)
    try:
        if args.verb == "add":
            print(os.path.relpath(add(args)))
        write(PAGE, build_page())
    except (OSError, ValueError, KeyError) as error:
        print(f"make_results: {error if not isinstance(error, KeyError) else f'missing {error}'}", file=sys.stderr)
        return 1
    print(os.path.relpath(PAGE))
    return 0


# -- a run folder into a result file -----------------------------------------------------------------------------------


def add(args: argparse.Namespace) -> Path:
    """Read the three files of a run and write docs/results/NAME.json."""
    if not re.fullmatch(r"[a-z0-9][a-z0-9-]*", args.name):
        raise ValueError(f"--name must be lower-case letters, digits and hyphens, got '{args.name}'")
    folder = args.folders[0]
    recipe, result, evaluation = join_tasks([read_run(each, args.evaluation) for each in args.folders])
    translates = "source" in recipe["data"]
    description = (
        {key: recipe["data"][key] for key in ("corpus", "source", "target", "style")}
        if translates
        else describe_run(recipe)
    )
    found = (
        scores(evaluation["results"], recipe["data"]["style"])
        if translates
        else language_scores(evaluation["results"], recipe)
    )
    day = datetime.fromtimestamp((folder / "result.json").stat().st_mtime, UTC).strftime("%Y-%m-%d")
    record = {
        "name": args.name,
        "system": args.system or str(recipe["name"]),
        "command": args.command,
        "seed": result["seed"],
        "machine": args.machine or result["machine"],
        "date": args.date or day,
        "minutes": round(result["seconds"] / 60, 1),
        "parameters": evaluation.get("parameters", result["parameters"]),
        "steps": result["steps"],
        "epochs": result["epochs"],
        "tokens_per_second": result["tokens_per_second"],
        "precision": result["precision"],
        "weights": result["final_weights"] if evaluation["weights"] == "final" else evaluation["weights"],
        "versions": {"regard": evaluation["regard"], "torch": result["torch"]},
        **description,
        "scores": list(found),
    }
    results = evaluation["results"]
    if translates and (folder / "greedy.json").is_file():
        greedy = read_json(folder / "greedy.json")["results"]
        record["scores"] += scores(greedy, recipe["data"]["style"])
        results = greedy | results  # parts that were not searched have their lengths from there
    if lengths := {part: round_buckets(x["by_length"]) for part, x in results.items() if "by_length" in x}:
        record["by_length"] = lengths
    if not record["scores"]:
        raise ValueError(f"nothing in the evaluation of {folder.name} has a column on the page")
    if args.note:
        record["note"] = args.note
    RUNS.mkdir(exist_ok=True)
    path = RUNS / f"{args.name}.json"
    write(path, json.dumps(record, indent=2, ensure_ascii=False) + "\n")
    return path


Run = tuple[dict[str, Any], dict[str, Any], dict[str, Any]]  # recipe, result, evaluation


def read_run(folder: Path, evaluation: Path | None = None) -> Run:
    """Read the three files of a run."""
    first, second = read_json(folder / "recipe.json"), read_json(folder / "result.json")
    return first, second, read_json(evaluation or folder / "evaluation.json")


def join_tasks(runs: Sequence[Run]) -> Run:
    """Return runs that answer questions about stories, a model for each task, as one: means of their scores."""
    recipe, result, evaluation = runs[0]
    if len(runs) == 1:
        return recipe, result, evaluation
    tasks = [task for run in runs for task in run[0]["data"].get("tasks", [])]
    same = {json.dumps([run[0]["task"], run[0]["train"], run[0]["data"] | {"tasks": []}]) for run in runs}
    if recipe["task"]["name"] != "story_answering" or len(same) > 1 or not len(set(tasks)) == len(tasks) == len(runs):
        raise ValueError("several run folders must be of story answering, alike but for data.tasks, with one task each")
    total = {key: sum(run[1][key] for run in runs) for key in ("seconds", "steps")}
    total["epochs"] = max(run[1]["epochs"] for run in runs)
    total["tokens_per_second"] = round(sum(run[1]["tokens"] for run in runs) / total["seconds"], 1)
    results = {}
    for split in evaluation["results"]:
        parts = [run[2]["results"][split] for run in runs]
        size = sum(part["questions"] for part in parts)
        joined = {key: sum(part[key] * part["questions"] for part in parts) / size for key in ("accuracy", "loss")}
        joined |= {"error": sum(part["error"] for part in parts) / len(parts), "questions": size}
        results[split] = joined | {"failed": sum(part["failed"] for part in parts)}
    parameters = sum(run[2]["parameters"] for run in runs)
    evaluation = evaluation | {"results": results, "parameters": parameters, "weights": "of each by validation"}
    return recipe | {"data": recipe["data"] | {"tasks": tasks}}, result | total, evaluation


def scores(results: Mapping[str, Mapping[str, Any]], style: str) -> Iterator[dict[str, Any]]:
    """Yield every number of an evaluation that has a signature; of a lower-case model, those without case."""
    for part, found in results.items():
        for metric in METRICS:
            if metric in found and not (style == "moses" and metric in CASED):
                yield {
                    "split": part,
                    "metric": metric,
                    "value": round(float(found[metric]), 2),
                    "signature": found[f"{metric}_signature"],
                    **{key: found[key] for key in ("sentences", "beam_size", "length_penalty") if key in found},
                }


def round_buckets(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Round the scores of length buckets to two digits."""
    return [{key: round(x, 2) if isinstance(x, float) else x for key, x in row.items()} for row in rows]


# -- the page ----------------------------------------------------------------------------------------------------------


def build_page() -> str:
    """Return the contents of docs/results.md."""
    all_runs = [read_json(file) for file in sorted(RUNS.glob("*.json"))]
    published = json.loads(PUBLISHED.read_text(encoding="utf-8"))
    measured = {file.stem: read_json(file) for file in sorted(SPEED.glob("*.json"))}
    plain = [line for line in published if "section" not in line]
    parts = [
        "# Results",
        "This page is made by `python docs/make_results.py` from the files in `docs/results/`, `docs/published.json` "
        "and `benchmarks/results/`. It is not edited by hand; a test compares it with what the script makes. Every "
        "number of ours has its command, seed, machine and date under [Runs](#runs) or beside it.",
        *translation_section(
            [run for run in all_runs if "source" in run and not is_seq2seq_run(run)],
            [x for x in plain if "source" in x],
        ),
        *lecture_transformer([line for line in published if line.get("section") == "lecture transformer"]),
        *language_section(
            [run for run in all_runs if "source" not in run and run.get("task") not in (*IMAGE_TASKS, *SPACE_TASKS)],
            [x for x in plain if "source" not in x and x.get("unit") not in ("image", *SPACE_UNITS)],
        ),
        *space_section(
            [run for run in all_runs if run.get("task") in SPACE_TASKS],
            [x for x in plain if x.get("unit") in SPACE_UNITS],
        ),
        *images_section(
            [run for run in all_runs if run.get("task") in IMAGE_TASKS], [x for x in plain if x.get("unit") == "image"]
        ),
        *lecture_vit([line for line in published if line.get("section") == "lecture vit"]),
        *lecture_dpt([line for line in published if line.get("section") == "lecture dpt"]),
        *seq2seq_section(all_runs, [line for line in published if "section" in line]),
        *runs_section(all_runs),
        *benchmarks_section(measured),
    ]
    return "\n\n".join(parts) + "\n"


def translation_section(all_runs: Sequence[Mapping[str, Any]], published: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield one table per test split, with published numbers and measured ones."""
    yield "## Translation"
    yield (
        "Compare numbers within a column only. The columns count different tokens: see "
        "[how scores are counted](packages/metrics.md). † marks a published number that was recalled and not "
        "checked at its source. A row of several seeds shows the mean and, in brackets, the lowest and the highest."
    )
    keys = {(line["corpus"], line["source"], line["target"], line["split"]) for line in published}
    keys |= {(run["corpus"], run["source"], run["target"], s["split"]) for run in all_runs for s in run["scores"]}
    for corpus, source, target, part in sorted(keys):
        yield f"### {corpus} {source.upper()}-{target.upper()}, {part}"
        key = (corpus, source, target)
        lines = [t for t in published if (t["corpus"], t["source"], t["target"], t["split"]) == (*key, part)]
        found = [
            (run, s)
            for run in all_runs
            if (run["corpus"], run["source"], run["target"]) == key
            for s in run["scores"]
            if s["split"] == part
        ]
        yield from _one_part(lines, found)


def _one_part(
    lines: Sequence[Mapping[str, Any]], found: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]]
) -> Iterator[str]:
    metrics_used = {s["metric"] for _, s in found} | {line["metric"] for line in lines}
    columns = [metric for metric in METRICS if metric in metrics_used]
    published = []
    for line in sorted(lines, key=lambda line: -line["value"]):
        mark = "" if line["checked"] else " †"
        cells = [f"{line['value']:g}{mark}" if metric == line["metric"] else "" for metric in columns]
        published.append([f"published: {line['system']}", *cells, "", ""])
    for how, some in by_search(found).items():
        rows = [["system", *(METRICS[metric] for metric in columns), "parameters", "seeds"], *published]
        published = []  # in the first table
        systems: dict[tuple[str, str], list[tuple[Mapping[str, Any], Mapping[str, Any]]]] = {}
        for run, s in some:
            systems.setdefault((run["system"], _text(run["style"])), []).append((run, s))
        for (system, style), measured in systems.items():
            cells = [mean_and_range([s["value"] for _, s in measured if s["metric"] == metric]) for metric in columns]
            sizes = " / ".join(dict.fromkeys(f"{run['parameters']:,}" for run, _ in measured))
            rows.append([f"**{system}**, {style}", *cells, sizes, format_seeds(run for run, _ in measured)])
        if not systems:
            rows.append(["**Regard**", *("not measured yet" for _ in columns), "", ""])
        yield from search_caption(how)
        yield table(rows)
    sentences = dict.fromkeys(f"{s['sentences']:,} sentences" for _, s in found if "sentences" in s)
    signatures = dict.fromkeys(f"{METRICS[s['metric']]}: `{s['signature']}`" for _, s in found)
    sources = dict.fromkeys(
        "; search: ".join([f"{line['system']}: {line['where']}", *([line["search"]] if "search" in line else [])])
        for line in lines
    )
    if sources or signatures:
        yield "\n".join(f"- {text}" for text in (*sources, *sentences, *signatures))


def lecture_transformer(lines: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the Transformer's numbers of lecture 4, for both sizes of the paper."""
    if not lines:
        return
    yield "### The lecture's numbers: the Transformer on WMT14"
    yield (
        "BLEU on newstest2014, as published. None of it is measured here: the corpus is not at hand. The same model on "
        "smaller corpora stands in the tables above; these two sizes are `transformer:base` and `transformer:big`."
    )
    yield from _as_published(lines, "system", lambda line: f"EN-{line['target'].upper()}")


def lecture_vit(lines: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the table of lecture 2."""
    if not lines:
        return
    yield "### The lecture's table: ViT"
    yield (
        "Accuracy %, and what training took, as on the slide. Pre-trained on up to 300 million images that are "
        "not at hand, then fine-tuned; of these sets only CIFAR-10 is here, and [ours on it](#cifar10_jpeg-test) are "
        "trained from scratch. The sizes are `vit:h14` and `vit:l16`."
    )
    yield from _as_published(lines, "corpus", lambda line: str(line["system"]))


def lecture_dpt(lines: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the table of lecture 5."""
    if not lines:
        return
    yield "### The lecture's table: DPT"
    yield (
        "Validation set of ADE20K, as on the slide; quoted, not compared: the images "
        "are not at hand. The sizes are `dpt:hybrid` and `dpt:large`; ours, small and trained from scratch, are on "
        "[CamVid](#camvid-test)."
    )
    yield from _as_published(lines, "system", lambda line: str(line["metric"]))


def _as_published(
    lines: Sequence[Mapping[str, Any]], row: str, column: Callable[[Mapping[str, Any]], str]
) -> Iterator[str]:
    """Yield published numbers as one table with their sources; cells that are not on the slide stay empty."""
    columns = list(dict.fromkeys(column(line) for line in lines))
    cells: dict[str, dict[str, str]] = {}
    for line in lines:
        mark = "" if line["checked"] else " †"
        cells.setdefault(line[row], {})[column(line)] = line.get("on_slide", f"{line['value']:g}") + mark
    yield table([["", *columns], *([name, *(found.get(c, "") for c in columns)] for name, found in cells.items())])
    counted_so = [f"how {line['value']:g} was counted: {line['search']}" for line in lines if "search" in line]
    yield bullet_list([*(line["where"] for line in lines), *counted_so])


def runs_section(all_runs: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the command, seed, machine and date of every run."""
    yield "## Runs"
    if not all_runs:
        yield "No run has been recorded yet."
    for run in all_runs:
        yield f"### {run['name']}"
        if "command" in run:
            yield console_block(run["command"])
        facts = {
            "seed": "not recorded" if run["seed"] is None else run["seed"],
            "machine": run["machine"],
            "date": run["date"],
            "training": ", ".join(_training(run)),
            "parameters": f"{run['parameters']:,}" if "parameters" in run else "",
            "weights": run.get("weights"),
            "versions": ", ".join(f"{name} {version}" for name, version in run.get("versions", {}).items()),
            "note": run.get("note"),
            "recorded in": run.get("recorded_in"),
        }
        yield bullet_list(f"{name}: {value}" for name, value in facts.items() if value not in ("", None))


def _training(run: Mapping[str, Any]) -> Iterator[str]:
    """Yield the duration, updates and speed of a run, as far as recorded."""
    if "minutes" in run:
        yield pluralize(f"{run['minutes']:g}", "minute")
    if "steps" in run:
        yield f"{run['steps']:,} updates"
    if "epochs" in run:
        yield f"{run['epochs']} epochs"
    if "tokens_per_second" in run:
        yield f"{run['tokens_per_second']:,.0f} {run.get('unit', 'target token')}s/s"
    if "precision" in run:
        yield run["precision"]


def benchmarks_section(measured: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Yield the results of the programs in benchmarks/."""
    yield "## Speed and memory"
    yield (
        "Contenders take turns in processes of their own; numbers are medians over rounds, with the range in brackets. "
        "Ratios are taken within a round, so that a noisy machine is noisy for all."
    )
    if not measured:
        yield "Nothing has been measured yet."
    for name, result in measured.items():
        record = {**result["machine"], **result} if isinstance(result.get("machine"), Mapping) else result
        yield f"### {BENCHMARK_TITLES.get(name, name)}"
        if "command" in record:
            yield console_block(record["command"])
        yield "\n".join(f"- {line}" for line in _environment(record))
        if "cases" in record:
            yield table(list(_cases(record["cases"])))
            yield from _case_runs(record)
        elif "contenders" in record:
            yield table(_contenders(record["contenders"]))
        rest = {key: value for key, value in record.items() if key not in _SHOWN_KEYS}
        for key, rows in rest.items():
            if isinstance(rows, list) and rows and all(isinstance(row, Mapping) for row in rows):
                yield f"{key.replace('_', ' ').capitalize()}:"
                yield table(_cases(rows) if "contenders" in rows[0] else _rows(rows))
        numbers = [[key, _format_value(value)] for key, value in _flatten(rest)]
        if numbers:
            yield table([["", "value"], *numbers])


_SHOWN_KEYS = {
    "command", "date", "cpu", "gpu", "cuda", "cores", "system", "python", "versions", "load_at_start", "steal",
    "threads", "dtype", "rounds", "cases", "contenders", "model", "note", "machine", "merged", "measured",
}  # fmt: skip


# -- formatting --------------------------------------------------------------------------------------------------------


def _cases(cases: Sequence[Mapping[str, Any]]) -> Iterator[list[str]]:
    """Yield a row per contender of each case: its speed, and Regard's ratio to it."""
    settings = [key for key in cases[0] if not isinstance(cases[0][key], Mapping)] if cases else []
    loads = [case.get("measured", {}) for case in cases]
    has_loads = _have_loads(cases)
    facts = list(dict.fromkeys(key for case in cases for found in case["contenders"].values() for key in found))
    forms = list(dict.fromkeys(key.split(" / ")[0] for case in cases for key in case if " / " in key))  # of ours
    heads = ["regard / it" if fact == "regard_speedup" else fact.replace("_", " ") for fact in facts]
    yield [*settings, "contender", *heads, *(f"{form} / it" for form in forms), *(["host load"] if has_loads else [])]
    for case, load in zip(cases, loads, strict=True):
        for name, found in case["contenders"].items():
            cells = [_format_value(found[fact]) if fact in found else "" for fact in facts]
            ratios = [_format_value(case.get(f"{form} / {name}", "")) for form in forms]
            yield [*(str(case[key]) for key in settings), name, *cells, *ratios, *([_load(load)] if has_loads else [])]


def _case_runs(record: Mapping[str, Any]) -> Iterator[str]:
    """Say which cases come from another run than the one above the table, or were entered by hand."""
    rows = [case for case in record["cases"] if "measured" in case] if isinstance(record["cases"], list) else []
    groups: dict[tuple[str, str, str], list[str]] = {}
    for case in rows:
        about = case["measured"]
        settings = ", ".join(str(x) for key, x in case.items() if not isinstance(x, Mapping))
        key = (about.get("date", ""), about.get("command", ""), about.get("source", ""))
        groups.setdefault(key, []).append(settings)
    own = (record.get("date", ""), record.get("command", ""), "")
    lines = [
        f"- {'; '.join(settings)}: {', '.join(filter(None, (source, date, f'`{command}`' if command else '')))}"
        for (date, command, source), settings in groups.items()
        if (date, command, source) != own
    ]
    if lines:
        yield "Not from the run above:\n\n" + "\n".join(lines)


def _have_loads(cases: Sequence[Mapping[str, Any]]) -> bool:
    return any(case.get("measured", {}).get("load") is not None for case in cases)


def _load(about: Mapping[str, Any]) -> str:
    """Return the host load while a case was measured; above 2 a timing is not to be trusted."""
    load, when = about.get("load"), " at the start" if about.get("load_at") == "start" else ""
    if load is None:
        return "not kept"
    return f"**{load:.1f}{when}, busy**" if load > MAX_LOAD else f"{load:.1f}{when}"


def _rows(rows: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """Return a row per mapping, with a column per number."""
    found = [dict(_flatten({key: x for key, x in row.items() if key != "measured"})) for row in rows]
    heads = list(dict.fromkeys(key for row in found for key in row))
    table_rows = [[_format_value(row[key]) if key in row else "" for key in heads] for row in found]
    if not _have_loads(rows):
        return [heads, *table_rows]
    loads = [_load(row.get("measured", {})) for row in rows]
    return [[*heads, "host load"], *([*row, load] for row, load in zip(table_rows, loads, strict=True))]


def _contenders(contenders: Mapping[str, Mapping[str, Any]]) -> list[list[str]]:
    facts = list(dict.fromkeys(key for found in contenders.values() for key in found))
    rows = [
        [name, *(_format_value(found[f]) if f in found else "" for f in facts)] for name, found in contenders.items()
    ]
    return [["contender", *(fact.replace("_", " ") for fact in facts)], *rows]


def _environment(record: Mapping[str, Any]) -> Iterator[str]:
    machine = record.get("gpu") or record.get("cpu") or "machine not recorded"
    details = [pluralize(record["threads"], "thread")] if "threads" in record else []
    details += [str(record["dtype"])] if "dtype" in record else []
    details += [pluralize(record["rounds"], "round")] if "rounds" in record else []
    yield ", ".join([f"{record.get('date', 'no date')}, {machine}", *details])
    if record.get("versions"):
        yield ", ".join(f"{name} {version}" for name, version in record["versions"].items())
    if isinstance(record.get("model"), Mapping):
        yield "model: " + ", ".join(f"{key} {value}" for key, value in record["model"].items())
    if record.get("note"):
        yield str(record["note"])
    if record.get("merged"):
        yield "put together from several runs: see below the table"
    own = record.get("measured", {})  # of a record without cases
    if own.get("source"):
        yield str(own["source"])
    load = max(record.get("load_at_start") or 0, own.get("load") or 0)
    if load > MAX_LOAD:
        when = " at the start" if load == record.get("load_at_start") else ""
        yield f"**host load {load:.1f}{when}: a busy host, timings are not to be trusted**"
    elif own:
        yield f"host load: {_load(own)}"
    if record.get("steal") is not None:
        yield f"share of CPU time taken by others (steal): {100 * record['steal']:.1f} %"


def _flatten(values: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every number of a record with its path; {"median", "min", "max"} counts as one number."""
    if isinstance(values, Mapping) and not _is_summary(values):
        for key, value in values.items():
            yield from _flatten(value, f"{name} {key}".strip().replace("_", " "))
    elif isinstance(values, bool) or not isinstance(values, (int, float, Mapping)):
        return
    else:
        yield name, values


def _is_summary(value: Any) -> bool:
    return isinstance(value, Mapping) and set(value) == {"median", "min", "max"}


def _format_value(value: Any) -> str:
    if _is_summary(value):
        return f"{_number(value['median'])} ({_number(value['min'])} to {_number(value['max'])})"
    return _number(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else str(value)


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 or value == int(value) else f"{value:.4g}"


def _text(style: str) -> str:
    return {"raw": "cased text", "moses": "lower-case tokens"}.get(style, style)


if __name__ == "__main__":
    sys.exit(main())

"""Tables of docs/variants.md, made from the registries and from the measurements (docs/mkdocs_hook.py calls it).

    <!-- variants: contents -->      every mechanism and mixer, family by family: the survey's figure as a table
    <!-- variants: speed cpu -->     time by length, exponent beside the claimed cost, crossover; or what is missing
    <!-- variants: growth -->        how operations, bytes and memory grow, counted, beside the claimed cost
    <!-- variants: peers cuda -->    some of them beside transformers' and fla's own; or what is missing
    <!-- variants: scores -->        scores on the long-range tasks; or what is missing
    <!-- variants: old weights -->   what ``regard eval --attention`` measured (benchmarks/results/variants/eval-*.json)

Numbers come from the measurement files alone (regard.cost.measurements).
"""

from __future__ import annotations

import json
import statistics
from typing import Any

from regard.attention import MECHANISMS, MIXERS
from regard.core.spec import resolve
from regard.cost.measurements import (
    DENSE,
    MAX_LOAD,
    MODES,
    claimed_exponent,
    find_crossover,
    fit_exponent,
    measurement_folder,
    read_scores,
    read_speeds,
    total_times,
)
from regard.interpret.mechanism_gallery import FAMILIES

OF_HEADS = ("collaborative", "simple_routing", "em_routing")  # the survey's, among projections and joins
Rows = list[dict[str, str]]

# What each is good for. Measured claims belong into the tables, not here.
GOOD_FOR = {
    "softmax": "Everything that fits into memory; the one to beat.",
    "window": "Long texts whose meaning is local, with a few tokens that see everything.",
    "longformer": "Long documents to classify or to ask about: windows, and global tokens of their own kind.",
    "etc": "Structured long inputs: a short global side sees all, and labels tell how tokens relate.",
    "local_blocks": "Cheap local context where block borders do not matter, or as one half of a mixed model.",
    "bigbird": "Long documents, with random blocks as short cuts between distant parts.",
    "sparse_strided": "Data with a period, such as images row by row: the last tokens, and every l-th before them.",
    "sparse_fixed": "Text in a decoder: its own block, and a summary at the end of every earlier block.",
    "image_local_1d": "Generating images pixel by pixel along the rows.",
    "image_local_2d": "Generating images or enlarging them: a rectangle looks at a larger one around it.",
    "axial": "Images and other grids: rows in one layer, columns in the next.",
    "sinkhorn": "Text whose relevant block lies far away: a learned sorting brings it near.",
    "sortcut": "Encoders of long texts of which a few blocks matter to every token.",
    "routing": "Long texts in which related tokens form topics: a token attends to its own cluster.",
    "reformer": "Very long inputs with few strong matches, where queries and keys may be the same vectors.",
    "linear": "Decoding without end at a constant cost a token, where sharp look-ups are not needed.",
    "performer": "An unbiased stand-in for softmax attention whose error falls as features are added.",
    "rfa": "Like Performer with fewer features: normalised queries and keys, sines and cosines.",
    "gated_rfa": "Language modelling with a state that should forget: recent tokens count more.",
    "dpfp": "Linear attention with more room for keys, without random numbers.",
    "delta": "A state of fixed size that corrects what it stored: recall after overwriting.",
    "clustered": "Many queries that ask the same: one row of attention serves a whole cluster.",
    "improved_clustered": "Clustered attention that keeps the strongest keys exact for every query.",
    "informer": "Long time series, where few queries have something particular to look for.",
    "linformer": "Encoders of a fixed length: keys and values are projected to a few rows.",
    "low_rank_local": "Translation, where distant tokens need few dimensions and near ones all of them.",
    "csalr": "Sharing a few landmarks of columns, with low-rank scores.",
    "nystrom": "Encoders of long inputs with smooth maps: landmarks approximate the whole matrix.",
    "localness": "Translation and speech, where each query has a centre and a width of its own to learn.",
    "gaussian": "Sentence pairs, where near tokens should count more unless learned otherwise.",
    "evolving": "Deep models whose maps resemble one another: each layer refines the map below by a convolution.",
    "realformer": "Deep post-norm models: the scores of the layer below are added, so maps change slowly.",
    "lazyformer": "Faster training and inference: several layers share one map.",
    "camtl": "One model for several tasks: the map is shifted by a vector of the task.",
    "hard_coded_gaussian": "Knowing how much of attention is looking at neighbours; nothing in it is learned.",
    "synthesizer_dense": "Asking whether scores need keys at all: each token writes its own row.",
    "synthesizer_factorised_dense": "The same with fewer parameters: a row is the product of two short ones.",
    "synthesizer_random": "A fixed or learned map that ignores the input; a baseline.",
    "synthesizer_factorised_random": "The same baseline with fewer parameters.",
    "per_head": "Mixing mechanisms within a layer: some heads near and exact, others far and cheap.",
    "talking_heads": "A little more quality from the same heads, which mix before and after the softmax.",
    "multi_scale": "Small data sets: some heads are held to phrases, others see the whole text.",
    "adaptive_span": "Character models with long contexts: each head learns how far it has to look.",
    "disagreement": "Heads that should not all learn the same: a term of the loss keeps them apart.",
    "pattern_guidance": "Little data: heads are guided towards patterns that are known to be useful.",
    "poolingformer": "Long documents: a sharp window, and a wider one whose keys are pooled.",
    "luna": "Long encoders at a cost of N: a short memory packs the tokens and travels up the layers.",
    "star_transformer": "Short texts to classify: two steps between any two tokens, through one relay.",
    "bp_transformer": "Long texts whose far parts matter as wholes only: the farther, the coarser.",
    "sac": "Learning which tokens need each other, by reward; it decides slowly.",
    "collaborative": "Heads that ask for similar things: they share one set of key and query dimensions.",
    "simple_routing": "Joining heads by agreement: what fits the other heads counts more.",
    "em_routing": "The same with a variance for each: the dearer way of the two.",
    "isab": "Sets of many elements: they attend through a few inducing points.",
    "memory_compressed": "Long documents in a decoder: keys and values are pooled by a strided convolution.",
    "average": "Decoders that must be fast: each token sees the mean of those before it.",
}


def table(rows: Rows) -> str:
    """Format rows as a Markdown table."""
    lines = [[*rows[0]], ["---"] * len(rows[0]), *([*row.values()] for row in rows)]
    return "\n".join("| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |" for line in lines)


def expand(what: str) -> str:
    """Return the replacement of a marker."""
    kind, _, device = what.partition(" ")
    make = {
        "contents": contents,
        "speed": lambda: speed(device),
        "growth": growth,
        "peers": lambda: peers(device),
        "scores": scores,
        "old": old_weights,
    }
    return make[kind]()


def every() -> dict[str, Any]:
    """Return the traits of all mechanisms and mixers by name."""
    found = {name: resolve(MECHANISMS, name, "attention").traits for name in MECHANISMS}  # type: ignore[attr-defined]
    mixers = {
        name: getattr(resolve(MIXERS, name, "attention"), "traits", None) for name in MIXERS if name != "multihead"
    }
    return found | {name: traits for name, traits in mixers.items() if traits is not None}


def contents() -> str:
    """Return a table for each family; the projection and the joins stand with what concerns heads."""
    from regard import catalogue

    parts = []
    for family in FAMILIES:
        rows = []
        for row in catalogue.list("attention"):
            own = "heads" if row["kind"] in ("projection", "join") and row["name"] in OF_HEADS else row["family"]
            if own != family or row["name"] not in GOOD_FOR:
                continue
            rows.append(
                {
                    "name": f"`{row['name']}`",
                    "kind": row["kind"],
                    "what it does": row["description"].rstrip(".").split(": ", 1)[-1],
                    "cost": row["cost"],
                    "causality": row["causal"],
                    "paper": row["paper"],
                    "good for": GOOD_FOR[row["name"]],
                }
            )
        parts.append(f"### {family[0].upper()}{family[1:]}\n\n{table(rows) if rows else 'None yet.'}")
    return "\n\n".join(parts)


def speed(device: str) -> str:
    """Return times by length with exponent and crossover, or that nothing was measured."""
    record = read_speeds(device)
    if record is None:
        return f"Nothing was measured on {device} yet: `python benchmarks/variants.py --device {device}`."
    lengths, parts = [int(n) for n in record["lengths"]], []
    for mode in MODES:
        dense, rows = total_times(record, DENSE, mode), []
        for name, cells in record["cases"].items():
            if mode not in cells or not (times := total_times(record, name, mode)):
                continue
            traits, power = every().get(name), fit_exponent(times)
            crossover = find_crossover(times, dense) if name != DENSE else None
            claimed = claimed_exponent(traits.cost) if traits else None
            row = {"name": f"`{name}`"} | {f"{n:,}": _cell(cells[mode].get(str(n), {})) for n in lengths}
            row["exponent"] = "" if power is None else f"{power:.2f}"
            row["claimed"] = "" if claimed is None or traits is None else f"N^{claimed:g}: O({traits.cost})"
            row["faster than dense from"] = (
                "" if name == DENSE else f"{crossover:,}" if crossover else "never, up to here"
            )
            rows.append(row)
        if rows:
            parts.append(f"#### {mode[0].upper()}{mode[1:]}, {device}\n\n{table(rows)}")
    where = record.get("gpu") or record.get("cpu", device)
    loads = [c["measured"]["load"] for c in record["cases"].values() if c.get("measured", {}).get("load") is not None]
    busy = ", **a busy host: times are not to be trusted**" if max(loads, default=0) > MAX_LOAD else ""
    load = f"; load of the host while measuring {min(loads)} to {max(loads)}{busy}" if loads else ""
    note = (
        f"Milliseconds of forward and backward together. {where}, {record['date']}; batch {record['batch']}, "
        f"{record['heads']} heads of {record['head_dim']}, {record['dtype']}, {record['threads']} thread{load}. "
        f"`{record['command']}`"
    )
    return "\n\n".join([note, *parts])


def growth() -> str:
    """Return the exponents of what was counted, or that nothing was."""
    file = measurement_folder() / "growth.json"
    if not file.is_file():
        return "Nothing was counted yet: `python benchmarks/variants.py --count`."
    record, rows = json.loads(file.read_text(encoding="utf-8")), []
    for name, modes in record["cases"].items():
        traits = every()[name]
        row = {"name": f"`{name}`", "claimed": f"N^{claimed_exponent(traits.cost):g}: O({traits.cost})"}
        for mode in MODES:
            cells = {int(n): cell for n, cell in modes.get(mode, {}).items()}
            found = [fit_exponent({n: c[key] for n, c in cells.items()}, 2) for key in ("operations", "bytes", "peak")]
            row[mode] = " / ".join("" if power is None else f"{power:.2f}" for power in found) if cells else ""
        rows.append(row)
    note = (
        f"Exponents between {' and '.join(f'{n:,}' for n in record['lengths'])} tokens: operations of products / "
        f"bytes read and written / bytes alive at the peak, forward and backward. {record['heads']} heads of "
        f"{record['head_dim']}, {record['date']}. `{record['command']}`"
    )
    return f"{note}\n\n{table(rows)}"


def _cell(cell: dict[str, Any]) -> str:
    if "forward" in cell:
        return f"{1000 * (cell['forward'] + cell['backward']):.3g}"
    why = cell.get("failed", "")
    return (
        "memory" if "out of memory" in why else "refused" if "refused" in why else "too slow" if "limit" in why else ""
    )


def old_weights() -> str:
    """Return the scores of shipped models under other mechanisms, or that nothing was evaluated."""
    parts = []
    for file in sorted(measurement_folder().glob("eval-*.json")):
        found = json.loads(file.read_text(encoding="utf-8"))
        parts.append(f"`{found['command']}` ({found['date']})\n\n{table(found['rows'])}")
    return "\n\n".join(parts) or "Nothing was evaluated yet."


def scores() -> str:
    """Return the scores of all tasks, or that nothing was trained."""
    runs = [run for run in read_scores() if "value" in run]
    if not runs:
        return "Nothing was trained yet: `python benchmarks/variant_scores.py`."
    tasks = list(dict.fromkeys(run["task"] for run in runs))
    names = [name for name in every() if any(run["attention"] == name for run in runs)]
    rows = []
    for name in names:
        row = {"attention": f"`{name}`"}
        for task in tasks:
            values = [run["value"] for run in runs if run["task"] == task and run["attention"] == name]
            metric = next(run["metric"] for run in runs if run["task"] == task)
            scale = 100 if metric == "accuracy" else 1
            spread = f" ± {scale * statistics.pstdev(values):.1f} ({len(values)})" if len(values) > 1 else ""
            row[f"{task}, {metric}{' %' if scale == 100 else ''}"] = (
                f"{scale * statistics.mean(values):.{1 if scale == 100 else 3}f}{spread}" if values else ""
            )
        rows.append(row)
    refused = [run for run in read_scores() if "failed" in run]
    said = f" Refused: {', '.join(sorted({run['attention'] for run in refused}))}." if refused else ""
    notes = "\n".join(_about_task(task, [run for run in runs if run["task"] == task]) for task in tasks)
    return f"{notes}\n{said}\n\n{table(rows)}"


def _about_task(task: str, runs: list[dict[str, Any]]) -> str:
    """Return where and how the runs of a task were made, as an item of a list."""
    where, updates = runs[0].get("gpu") or runs[0].get("cpu", ""), sorted(run["steps"] for run in runs)
    seeds, dates = len({run["seed"] for run in runs}), sorted({run["date"] for run in runs})
    many = f"{updates[0]:,}" if updates[0] == updates[-1] else f"{updates[0]:,} to {updates[-1]:,}"
    budget = "the updates that fit into the same seconds, " if task.endswith("_screen") else ""
    when = dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"
    return (
        f"- `{task}`: {budget}{many} updates, {seeds} seed{'s' if seeds > 1 else ''}, split {runs[0]['split']}; "
        f"{where}, {when}"
    )


def peers(device: str) -> str:
    """Return tokens per second of ours and of other libraries, or that nothing was measured."""
    file = measurement_folder() / f"peers-{device}.json"
    if not file.is_file():
        return f"Beside other libraries nothing was measured on {device} yet: `python benchmarks/variant_peers.py`."
    record = json.loads(file.read_text(encoding="utf-8"))
    rows = []
    for case in record["cases"]:
        peer = next(whose for whose in ("transformers", "fla") if whose in case)
        row = {"": f"{case['kind']}, {case['part']}", "beside": peer, "tokens": f"{case['length']:,}"}
        for key, what in (("forward", "forward"), ("training", "forward and backward")):
            for whose, title in (("ours", "ours"), (peer, "theirs")):
                row[f"{title}, {what}"] = f"{case[whose][key]:,.0f}" if key in case[whose] else "-"
            ratio = case.get(f"{key}_ratio")
            row[f"times, {what}"] = f"{ratio['median']:.2f} ({ratio['min']:.2f} to {ratio['max']:.2f})" if ratio else ""
        rows.append(row | {"aim": f"{case['aim']:g}"})
    note = f"Tokens per second. {record.get('gpu', device)}, {record['date']}. `{record['command']}`"
    return f"{note}\n\n{table(rows)}"

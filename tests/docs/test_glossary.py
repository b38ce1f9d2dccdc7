"""The glossary names what exists: our names are found in the packages, and words we do not use stay out of them."""

import ast
import re
from dataclasses import fields, is_dataclass
from importlib import import_module

from regard.attention import ALIGNERS, JOINS, MECHANISMS, MIXERS, PROJECTIONS
from regard.core.spec import config_class, resolve
from regard.models import MODELS
from regard.positions import POSITIONS

from .blocks import ROOT

PAGE = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
PRIVATE_WORDS = {"theatre", "scribe", "hearer", "onlooker", "beside", "theirs", "rooms", "manieth", "listener", "walks"}
SOURCES = sorted((ROOT / "src" / "regard").rglob("*.py"))


def our_names():
    """The code names of the second column of the table of names."""
    rows = PAGE.split("## Names in other libraries")[1].split("## Terms")[0].splitlines()
    cells = [row.split("|")[2] for row in rows if row.startswith("| ") and not row.startswith("| lecture")]
    return [name for cell in cells for name in re.findall(r"`([A-Za-z_.]+)[`(]", cell)]


def defined_names():
    """Every class, function, method, field, parameter and attribute name of the package, and every registry name."""
    found = {name for table in (ALIGNERS, JOINS, MECHANISMS, MIXERS, PROJECTIONS, POSITIONS, MODELS) for name in table}
    for file in SOURCES:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
                found.add(node.name)
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                found.add(node.target.id)
            elif isinstance(node, ast.arg):
                found.add(node.arg)
    return found


def test_glossary_names_exist():
    names = our_names()
    assert len(names) > 30
    known = defined_names()
    assert [name for name in names if name.split(".")[-1] not in known] == []


def test_terms_are_sorted_and_defined_once():
    terms = re.findall(r"^([^\n:#|].*)\n:   ", PAGE, re.MULTILINE)
    assert len(terms) > 40
    assert terms == sorted(terms, key=str.lower)
    assert len({term.lower() for term in terms}) == len(terms)


def test_private_words_are_not_names():
    found = []
    for file in SOURCES:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
                words = set(re.findall(r"[a-z]+", re.sub(r"([A-Z])", r"_\1", node.name).lower()))
                found += [f"{file.name}: {node.name}" for _ in words & PRIVATE_WORDS]
        found += [file.name for _ in set(file.stem.split("_")) & PRIVATE_WORDS]
    assert found == []


def test_fields_of_configs_are_words_of_the_glossary_or_plain():
    """Config fields have the names of the glossary where it has one: no second word for the same thing."""
    other = {"hidden_size", "num_heads", "n_head", "embed_dim", "d_model", "num_hidden_layers", "lr", "num_beams"}
    for name in MODELS:
        config = config_class(MODELS, name, "model")
        assert is_dataclass(config)
        assert not {f.name for f in fields(config)} & other, name
        assert import_module(MODELS[name][0]).__doc__
        assert resolve(MODELS, name, "model").__doc__

"""The catalogue says what the tables hold, and counts what the models hold."""

import re
from functools import cache
from importlib import import_module

import pytest

import regard
from regard import catalogue, cli
from regard.core.errors import UnknownName
from regard.models import MODELS

UNCOUNTED = catalogue.sizes
SIZES = cache(catalogue.sizes)


@pytest.fixture(autouse=True)
def _count_once(monkeypatch):
    """Counting builds every size of a model; its card and its table do it once."""
    monkeypatch.setattr(catalogue, "sizes", SIZES)


@pytest.mark.parametrize("kind", catalogue.KINDS)
def test_every_name_has_a_line_and_a_card(kind, monkeypatch):
    monkeypatch.setattr(catalogue, "_parameters", lambda *_: 1)  # counting all sizes takes seconds; see the tests below
    monkeypatch.setattr(catalogue, "sizes", UNCOUNTED)
    rows = {kind: cache(read) for kind, read in catalogue.KINDS.items()}  # every card would read all files anew
    monkeypatch.setattr(catalogue, "KINDS", rows)
    for row in catalogue.list(kind):
        assert row["name"]
        assert row["description"]
        card = catalogue.show(f"{kind}/{row['name']}")
        assert card.startswith(f"{kind}/{row['name']}\n=")
        assert len(card.splitlines()) > 5
        assert card in catalogue.show(row["name"])


def test_every_table_is_there():
    from regard.attention import ALIGNERS, JOINS, MECHANISMS, MIXERS, PROJECTIONS
    from regard.blocks import STEMS
    from regard.data.augment import AUGMENTATIONS, MIX_METHODS
    from regard.models.mvit import POOLINGS
    from regard.positions import GRID_POSITIONS, POSITIONS, WINDOW_BIASES
    from regard.tasks import TASKS
    from regard.tokens.tokenizer import KINDS

    tables = {"mechanisms": MECHANISMS, "aligners": ALIGNERS, "mixers": MIXERS, "positions": POSITIONS}
    tables |= {"projections": PROJECTIONS, "joins": JOINS}
    tables |= {
        "models": MODELS,
        "tasks": TASKS,
        "tokens": KINDS,
        "grids": GRID_POSITIONS,
        "windows": WINDOW_BIASES,
        "stems": STEMS,
    }
    tables |= {"poolings": POOLINGS, "augmentations": AUGMENTATIONS, "blends": MIX_METHODS}
    for kind, table in tables.items():
        assert {row["name"] for row in catalogue.list(kind)} == set(table)
    assert {row["kind"] for row in catalogue.list()} >= set(tables)


def test_attention_is_listed_as_one_with_a_column_for_the_kind():
    from regard.attention import ALIGNERS, JOINS, MECHANISMS, MIXERS, PROJECTIONS

    rows = catalogue.list("attention")
    kinds = {"mechanism": MECHANISMS, "mixer": MIXERS, "projection": PROJECTIONS, "join": JOINS, "aligner": ALIGNERS}
    assert {(row["kind"], row["name"]) for row in rows} == {(k, name) for k, table in kinds.items() for name in table}
    assert len({tuple(row) for row in rows}) == 1  # the same columns
    assert catalogue.show("attention/softmax") == catalogue.show("mechanisms/softmax")


def test_parts_of_one_file_are_told_apart():
    assert len({row["description"] for row in catalogue.list("stems")}) == len(catalogue.list("stems"))


@pytest.mark.parametrize("model", ["deit", "swinv2"])
def test_settings_that_are_inherited_are_explained_too(model):
    said = catalogue._settings(import_module(MODELS[model][0]).Config)
    assert re.search(r"num_classes +1000 +0: no head", said)
    expected = {
        "deit": r"num_prefix_tokens +2 +class and distillation token",
        "swinv2": r"window_size +8 +side in tokens",
    }
    assert re.search(expected[model], said)


@pytest.mark.parametrize("model", MODELS)
def test_parameters_are_counted_right_without_making_them(model, monkeypatch):
    every = catalogue._sizes
    monkeypatch.setattr(catalogue, "_sizes", lambda module: {"tiny": every(module)["tiny"]})
    (row,) = UNCOUNTED(model)
    words = "parameters" not in row
    built = regard.build(model, size="tiny", **({"vocab": 8000} if words else {}))
    counted = row["parameters at vocab=8000" if words else "parameters"]
    assert int(counted.replace(",", "")) == sum(p.numel() for p in built.parameters())


@pytest.mark.long
@pytest.mark.parametrize("model", MODELS)
def test_every_size_is_counted(model):
    rows = catalogue.sizes(model)
    assert {row["size"] for row in rows} == set(import_module(MODELS[model][0]).SIZES)
    assert all(int(row.get("parameters", row.get("parameters at vocab=8000")).replace(",", "")) > 0 for row in rows)


def test_paper_sizes_of_the_transformer():
    rows = {row["size"]: row for row in catalogue.sizes("transformer")}
    body = int(rows["base"]["without"].replace(",", ""))
    assert 62e6 < body + 37_000 * 512 < 66e6  # Table 3: 65 million with 37,000 words
    assert 205e6 < int(rows["big"]["without"].replace(",", "")) + 37_000 * 1024 < 217e6  # 213 million


def test_a_saved_model_shows_its_card(translator_folder):
    card = catalogue.show(str(translator_folder))
    assert "Untrained, for tests." in card
    assert "name translation, source en, target de" in card


def test_kinds_have_other_names_and_unknown_ones_are_refused():
    assert catalogue.list("mechanism") == catalogue.list("mechanisms")
    assert catalogue.list("model") == catalogue.list("models")
    with pytest.raises(UnknownName, match="did you mean 'positions'"):
        catalogue.list("postions")
    with pytest.raises(UnknownName, match="did you mean 'rotary'"):
        catalogue.show("positions/rotari")


def test_what_was_measured_is_told_to_the_end_of_a_clause():
    told = {row["name"]: row["measured"] for row in regard.list("recipes")}
    assert all(told.values())  # those of cards that are indented, too
    assert told["an4_online_attention"].endswith("25 to 34 minutes of one CPU core)")
    assert told["an4_attention"].endswith(", where CTC itself has 8.7 …")
    for name, text in told.items():
        assert text.count("(") == text.count(")"), name
    long = "one (two; 2. three), four. " * 8
    assert catalogue._shorten(long, 30) == "one (two; 2. three), four …"
    assert catalogue._shorten(long, 3) == "one (two; 2. three), four …"
    assert catalogue._shorten("one " * 50, 30) == "one " * 50


def test_tables_are_printed_in_columns(capsys):
    assert cli.main(["list", "positions"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["name", "where", "paper", "description"]
    assert (
        len({line.index(cell) for line, cell in zip(lines[1:4], ("added", "added", "qk_transform"), strict=True)}) == 1
    )
    assert cli.main(["show", "softmax"]) == 0
    out = capsys.readouterr().out
    assert "o_n = Σ_m exp(q_n·k_m / √D) v_m" in out
    assert "https://arxiv.org/abs/1706.03762" in out

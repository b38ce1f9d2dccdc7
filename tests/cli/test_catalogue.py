"""The catalogue says what the tables hold, and counts what the models hold."""

import json
import re
import subprocess
import sys
from functools import cache
from importlib import import_module

import pytest
import torch

import regard
from regard import catalogue, cli
from regard.api import PACKAGED_MODELS
from regard.core.errors import UnknownName
from regard.core.terminal_text import reflow
from regard.models import MODELS
from regard.training.recipe import load_recipe, to_json


@pytest.mark.parametrize("kind", catalogue.KINDS)
def test_every_name_has_a_line_and_a_card(kind, monkeypatch):
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
    from regard.positions import ENCODINGS
    from regard.tasks import TASKS
    from regard.tokens.tokenizer import KINDS

    tables = {"mechanisms": MECHANISMS, "aligners": ALIGNERS, "mixers": MIXERS}
    tables |= {"projections": PROJECTIONS, "joins": JOINS}
    tables |= {
        "models": MODELS,
        "tasks": TASKS,
        "tokens": KINDS,
        "positions": {name for table in ENCODINGS for name in table},
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
    kinds["model"] = catalogue.ATTENTION_ENCODERS
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
def test_parameters_are_counted_right_without_making_them(model):
    words = any(vocab for _, vocab in catalogue.counted_sizes(model))
    built = regard.build(model, size="tiny", **({"vocab": 8000} if words else {}))
    counted = catalogue.count_parameters(model, "tiny", 8000 if words else None)
    assert counted == sum(p.numel() for p in built.parameters())
    assert catalogue._stored_counts()[f"{model}:tiny:8000"] == counted, "run scripts/count_parameters.py"


@pytest.mark.parametrize("model", MODELS)
def test_every_size_has_a_number_of_parameters(model):
    stored = catalogue._stored_counts()
    keys = [f"{model}:{size}:{vocab or catalogue.VOCABULARY}" for size, vocab in catalogue.counted_sizes(model)]
    assert {key.split(":")[1] for key in keys} == set(import_module(MODELS[model][0]).SIZES)
    assert all(stored.get(key, 0) > 0 for key in keys), "run scripts/count_parameters.py"


@pytest.mark.long
@pytest.mark.parametrize("model", MODELS)
def test_every_size_is_counted(model):
    for size, vocab in catalogue.counted_sizes(model):
        stored = catalogue._stored_counts()[f"{model}:{size}:{vocab or catalogue.VOCABULARY}"]
        assert stored == catalogue.count_parameters(model, size, vocab), "run scripts/count_parameters.py"


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
    columns = ["name", "encodes", "where", "learned", "other", "sizes", "invariant", "to", "paper", "description"]
    assert lines[0].split() == columns
    assert (
        len({line.index(cell) for line, cell in zip(lines[1:4], ("added", "added", "qk_transform"), strict=True)}) == 1
    )
    assert cli.main(["show", "softmax"]) == 0
    out = capsys.readouterr().out
    assert "o_n = Σ_m exp(q_n·k_m / √D) v_m" in out
    assert "https://arxiv.org/abs/1706.03762" in out


# -- without torch -----------------------------------------------------------------------------------------------------

EVERYTHING = """
import json, sys
from regard import catalogue
rows = {kind: read() for kind, read in catalogue.KINDS.items()}
cards = {f"{kind}/{row['name']}": catalogue.CARDS[kind](row["name"]) for kind in rows for row in rows[kind]}
assert "torch" not in sys.modules
json.dump([rows, cards], sys.stdout)
"""


def test_what_is_read_without_torch_is_what_importing_gives():
    found = subprocess.run([sys.executable, "-c", EVERYTHING], capture_output=True, check=True, text=True, timeout=120)
    rows, cards = json.loads(found.stdout)
    for table in ("models", "tasks", "data", "attention.mechanisms", "attention.mixers", "attention.aligners"):
        registry = getattr(import_module(f"regard.{table}"), table.rsplit(".", 1)[-1].upper())
        for module, _ in registry.values():
            import_module(module)
    assert rows == {kind: [*read()] for kind, read in catalogue.KINDS.items()}
    assert len(cards) > 300
    for name, card in cards.items():
        assert card == catalogue.show(name), name
    recipe = to_json(load_recipe("gpt_shakespeare_char"))
    for group in ("model", "task", "data", "train"):
        shown = cards["recipes/gpt_shakespeare_char"].split(f"\n{group}.\n")[1].split("\n\n")[0]
        assert dict(line.split(None, 1) for line in shown.splitlines()) == {k: str(v) for k, v in recipe[group].items()}


@pytest.mark.parametrize(
    "words", [["--help"], ["list"], ["list", "zoo"], ["list", "recipes"], ["show", "en-de"], ["show", "models/gpt"]]
)
def test_looking_up_needs_no_torch(words):
    program = "import sys; from regard.cli import main; sys.exit(main(sys.argv[1:]) or 'torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", program, *words], check=True, timeout=60, stdout=subprocess.DEVNULL)


# -- in a terminal -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [None, *catalogue.KINDS, *catalogue.GROUPS])
def test_listings_fit_the_terminal_and_name_everything(kind):
    for width in (60, 80, 100, 160):
        table = catalogue.format_listing(kind, width)
        assert max(map(len, table.splitlines())) <= width
        if kind is not None:
            assert all(row["name"] in table for row in catalogue.list(kind))
    assert len(catalogue.format_listing(kind, 200)) >= len(catalogue.format_listing(kind, 120).split("\n")[0])


def test_cards_fit_the_terminal():
    for kind in catalogue.KINDS:
        for row in catalogue.list(kind):
            card = catalogue.show(f"{kind}/{row['name']}")
            assert max(map(len, reflow(card, 80).splitlines())) <= 80, f"{kind}/{row['name']}"


def test_output_to_another_program_keeps_one_row_a_line_and_all_columns(capsys):
    assert cli.main(["list", "recipes"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split("  ")[0] == "name"
    assert [cell.strip() for cell in lines[0].split("  ") if cell.strip()] == [*catalogue.list("recipes")[0]]
    assert len(lines) == 1 + len(catalogue.list("recipes"))


def test_the_zoo_says_what_each_model_is_for():
    rows = {row["name"]: row for row in catalogue.list("zoo")}
    assert rows["en-de"]["description"] == "translate English to German"
    assert set(catalogue.PACKAGED_USES) == set(PACKAGED_MODELS)
    for name, row in rows.items():
        assert len(row["description"].split()) >= 3, name
        assert "_" not in row["description"]


def test_recipes_say_where_they_run():
    rows = {row["name"]: row for row in catalogue.list("recipes")}
    assert rows["gpt_shakespeare_cpu"]["runs on"] == "CPU, 3 min"
    assert rows["an4_ctc"]["runs on"] == "CPU, an hour, or GPU, a few min"
    assert rows["gpt_shakespeare_char"]["parameters"] == "11 M"
    for name, row in rows.items():
        assert re.match(r"CPU|GPU|H200", row["runs on"]), name


def test_numbers_of_parameters_are_short():
    numbers = (178, 999, 1000, 9940, 9960, 999_400, 999_600, 124_439_808, 1.5e9, 2e12)
    written = [catalogue._thousands(n) for n in numbers]
    assert written == ["178", "999", "1.0 K", "9.9 K", "10 K", "999 K", "1.0 M", "124 M", "1.5 B", "2000 B"]


# -- folders of other libraries ----------------------------------------------------------------------------------------


def test_folders_of_transformers_and_timm_have_cards(tmp_path):
    timm, transformers = pytest.importorskip("timm"), pytest.importorskip("transformers")
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    bert = transformers.BertForSequenceClassification(transformers.BertConfig(vocab_size=99, **sizes))
    bert.save_pretrained(tmp_path / "bert")
    card = catalogue.show(str(tmp_path / "bert"))
    assert re.search(r"library +transformers", card)
    assert re.search(r"task +classification", card)
    assert re.search(r"missing +tokenizer.json", card)
    assert re.search(rf"parameters +{sum(p.numel() for p in bert.parameters()):,}\n", card)
    assert f"regard cost {tmp_path / 'bert'}" in card
    assert card.startswith(f"{tmp_path / 'bert'}\n===")
    assert "regard run" not in card  # without its tokenizer it is the bare model
    llama = transformers.LlamaForCausalLM(transformers.LlamaConfig(vocab_size=99, **sizes))
    llama.save_pretrained(tmp_path / "llama")
    card = catalogue.show(str(tmp_path / "llama"))
    assert "A LlamaForCausalLM, which Regard cannot load." in card
    assert "regard run" not in card
    vit = timm.create_model("vit_tiny_patch16_224", img_size=32, num_classes=4)
    timm.models.save_for_hf(vit, tmp_path / "vit", safe_serialization=True)
    card = catalogue.show(str(tmp_path / "vit"))
    assert re.search(r"library +timm", card)
    assert re.search(r"task +image_classification", card)
    assert re.search(rf"parameters +{sum(p.numel() for p in vit.parameters()):,}\n", card)

import json
import sys

import pytest

from regard.core.errors import BadInput, RegardError, UnknownName
from regard.data.text import moses
from regard.training import train
from regard.training.__main__ import main
from regard.training.recipe import (
    build,
    changed_settings,
    from_json,
    list_recipes,
    load_recipe,
    load_saved_recipe,
    override_recipe,
    quick_recipe,
    recipe_card,
    save_recipe,
    to_json,
)

CARD = ("task", "data", "licence", "paper", "machine", "expected", "measured", "command")


def test_the_recipes_are_found():
    assert {"transformer_multi30k", "transformer_tatoeba", "rnnsearch_multi30k"} <= list_recipes().keys()


@pytest.mark.parametrize("name", sorted(list_recipes()))
def test_every_recipe_has_a_card_and_survives_json(name, tmp_path):
    for line in CARD:
        assert f"    {line} " in f"    {recipe_card(name)}".replace("\n", "\n    "), f"the card lacks '{line}'"
    assert f"regard train {name}" in recipe_card(name)
    recipe = load_recipe(name)
    assert recipe.name == name
    save_recipe(recipe, tmp_path)
    assert load_saved_recipe(tmp_path) == recipe
    assert changed_settings(recipe, load_saved_recipe(tmp_path)) == {}


def _missing(recipe):
    try:
        recipe.data.splits()
    except BadInput as error:
        return str(error)
    return "" if moses.is_available() or getattr(recipe.data, "style", "") != "moses" else "sacremoses is optional"


def _run_quickly(name, out, steps):
    settings = ["train.device=cpu", "train.final_weights=last"]  # one evaluation at the end, not one for each candidate
    if steps < 12:
        settings += [f"train.steps={steps}", f"train.eval_interval={steps}", f"train.save_interval={steps}"]
    assert train(name, out, settings=settings, quick=True)["steps"] == steps
    assert (out / "model" / "config.json").is_file()


def _pairs():
    """Names of recipes by what they train, `model-task`."""
    found = {}
    for name in sorted(list_recipes()):
        recipe = load_recipe(name)
        pair = (type(config).__module__.rpartition(".")[2] for config in (recipe.model, recipe.task))
        found.setdefault("-".join(pair), []).append(name)
    return found


PAIRS = _pairs()
SMALL_DATA = {"gpt_shakespeare_cpu"}  # where another recipe of the pair reads a large text first


@pytest.mark.parametrize("pair", PAIRS)
def test_one_recipe_of_every_model_and_task_runs_quickly(pair, tmp_path):
    why = {name: _missing(load_recipe(name)) for name in PAIRS[pair]}
    if all(why.values()):
        pytest.skip(why[PAIRS[pair][0]])
    runnable = [name for name in PAIRS[pair] if not why[name]]
    _run_quickly(next((name for name in runnable if name in SMALL_DATA), runnable[0]), tmp_path / "run", steps=3)


@pytest.mark.long
@pytest.mark.parametrize("name", sorted(list_recipes()))
def test_every_recipe_runs_quickly(name, tmp_path):
    if why := _missing(load_recipe(name)):
        pytest.skip(why)
    _run_quickly(name, tmp_path / "run", steps=12)


def test_the_cards_numbers_are_the_recipes():
    tiny = load_recipe("transformer_multi30k")
    m, t = tiny.model, tiny.train
    assert (m.width, m.ffn, m.heads, m.encoder_layers, m.decoder_layers, m.dropout) == (128, 256, 4, 4, 4, 0.3)
    assert (t.learning_rate, t.warmup_steps, t.steps, t.average_checkpoints) == (5e-3, 2000, 8000, 10)
    assert (tiny.task.beam_size, tiny.task.label_smoothing) == (5, 0.1)
    assert (tiny.data.vocab_size, tiny.data.batch_tokens, tiny.data.style) == (10_000, 8192, "moses")


def test_the_shipped_translators_fit_16_mib_in_float16():
    from regard.training.recipe import build

    recipe = load_recipe("transformer_tatoeba")
    assert recipe.train.save_dtype == "float16"
    parameters = sum(p.numel() for p in build(recipe.model).parameters())
    assert parameters > 7_000_000
    assert 2 * parameters < 15.4 * 2**20  # the vocabulary needs about half a MiB more


def test_settings_change_what_they_name_with_its_type(recipe):
    new = override_recipe(recipe, ["train.steps=7", "model.dropout=0", "data.target=fr", "train.betas=(0.8, 0.9)"])
    assert (new.train.steps, new.model.dropout, new.data.target, new.train.betas) == (7, 0.0, "fr", (0.8, 0.9))
    assert override_recipe(recipe, ["train.compile=true"]).train.compile is True
    assert override_recipe(recipe, ["train.compile=none"]).train.compile is None
    assert recipe.train.steps == 20


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("train.stepss=7", "did you mean 'steps'"),
        ("model.widht=7", "did you mean 'width'"),
        ("trian.steps=7", "did you mean 'train'"),
        ("steps=7", "train."),
        ("train.steps=many", "must be int, got"),
        ("train.schedule=cosinus", "'cosine'"),
        ("train.steps", "key=value"),
        ("name=x", "settings begin with"),
    ],
)
def test_a_setting_that_is_not_one_is_an_error_with_the_nearest(recipe, setting, message):
    with pytest.raises(RegardError, match=message.replace(".", r"\.")):
        override_recipe(recipe, [setting])


def test_quick_is_small_and_still_the_same_kind(recipe):
    quick = quick_recipe(load_recipe("transformer_tatoeba"))
    assert quick.model.width == 32
    assert quick.model.norm == "pre"
    assert quick.data.limit
    assert quick.train.steps == 12
    assert quick_recipe(recipe).model.width == 16  # never larger


def test_quick_lets_a_listener_begin_with_the_encoder_of_a_quick_ctc():
    ctc, listener = (build(quick_recipe(load_recipe(name)).model).encoder for name in ("an4_ctc", "an4_attention"))
    shapes = [{name: x.shape for name, x in each.state_dict().items()} for each in (ctc, listener)]
    assert shapes[0] == shapes[1]


def test_an_unknown_recipe_offers_the_nearest():
    with pytest.raises(UnknownName, match="did you mean 'transformer_tatoeba'"):
        load_recipe("translate_tatoba")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("def recipe(: pass", "SyntaxError"),
        ("x = 1", "AttributeError"),
        ("def recipe():\n    return 7", "returned a int"),
        ("import no_such_module_here", "ModuleNotFoundError"),
    ],
)
def test_a_recipe_file_that_cannot_be_used_says_why(tmp_path, content, message):
    (tmp_path / "bad.py").write_text(content)
    with pytest.raises(BadInput, match=message):
        load_recipe(tmp_path / "bad.py")


def test_a_stored_recipe_of_a_newer_format_or_of_something_else_is_refused(recipe, tmp_path):
    with pytest.raises(BadInput, match="update regard"):
        from_json(to_json(recipe) | {"format": 99})
    with pytest.raises(BadInput, match="not a stored recipe"):
        from_json({"hello": 1})
    with pytest.raises(BadInput, match="holds no run"):
        load_saved_recipe(tmp_path)
    values = to_json(recipe)
    values["model"]["wings"] = 2
    with pytest.raises(UnknownName, match="no field 'wings'"):
        from_json(json.loads(json.dumps(values)))


def test_the_shell_entry_trains_measures_and_reports_errors_in_one_line(tmp_path, capsys, toy):
    file = tmp_path / "mine.py"
    file.write_text(
        '"""Mine."""\n'
        "from regard.data.text.parallel_corpus import ParallelCorpus\nfrom regard.models.transformer import Config\n"
        "from regard.tasks.text import translation\nfrom regard.training.recipe import Recipe\n"
        f"def recipe():\n    data = ParallelCorpus({str(toy)!r}, vocab_size=300)\n"
        "    return Recipe(Config(300), translation.Config(), data)\n"
    )
    out = str(tmp_path / "run")
    assert main([str(file), "train.steps=2", "train.device=cpu", "--quick", "--out", out]) == 0
    assert json.loads(capsys.readouterr().out)["steps"] == 2
    assert main(["--resume", "--out", out, "train.steps=3"]) == 0
    assert json.loads(capsys.readouterr().out)["steps"] == 3
    assert main(["--evaluate", "--out", out, "--split", "val", "--beam-size", "1"]) == 0
    assert json.loads(capsys.readouterr().out)["results"]["val"]["beam_size"] == 1
    assert main(["--list"]) == 0
    assert "transformer_tatoeba" in capsys.readouterr().out
    for words in (
        ["nothing_like_it", "--out", out],
        [str(file), "train.stepss=1", "--out", out],
        [],
        ["--resume", "--out", str(tmp_path)],
    ):
        assert main(words) == 1
        message = capsys.readouterr()
        assert message.err.startswith("error: ")
        assert len(message.err.splitlines()) == 1
        assert message.out == ""


def test_recipes_of_a_family_share_a_module_that_is_no_recipe(tmp_path):
    shared = "from regard.training.recipe import load_recipe\nBASE = load_recipe('{}')\n"
    for folder, base in (("a", "cct_mnist"), ("b", "vit_cifar10")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "_family.py").write_text(shared.format(base))
        (tmp_path / folder / "mine.py").write_text("from _family import BASE\n\n\ndef recipe():\n    return BASE\n")
        found = load_recipe(tmp_path / folder / "mine.py")
        assert (found.name, found.model) == ("mine", load_recipe(base).model)
    assert "_family" not in sys.modules
    assert not any(name.startswith("_") for name in list_recipes())

"""Language modelling: what is trained, how it is measured, and that a run can be resumed."""

import json
import math
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

import regard
from regard import cli
from regard.core.errors import BadInput, RegardError
from regard.core.layer_state import PassState
from regard.data.batching import StreamPosition
from regard.data.shards.packing import pack_text
from regard.data.shards.token_shards import IGNORE_INDEX, TokenShards
from regard.data.text.text_file import TextFile
from regard.models.gpt import GPT, Config
from regard.tasks.text import language_modeling
from regard.tasks.text.language_modeling import TextGenerator
from regard.training import evaluate, train
from regard.training.evaluation import dataset_for_model
from regard.training.recipe import Recipe, Train, build, load_recipe
from tests.long_params import rest_is_long

LINES = [
    f"{a} {b} the {c}.\n" for a in ("one", "two", "no") for b in ("saw", "ate", "is") for c in ("dog", "cat", "end")
]


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    place = tmp_path_factory.mktemp("text") / "lines.txt"
    place.write_text("".join(LINES) * 4, encoding="utf-8")
    return place


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    folder = tmp_path_factory.mktemp("packed")
    for n in range(40):
        (folder / f"{n:02}.txt").write_text("".join(LINES[n % 5 :]) * 3, encoding="utf-8")
    pack_text([folder], folder / "shards", tokens="char", val=0.2)
    return folder / "shards"


@pytest.fixture
def task(file):
    return language_modeling.Config().build(TextFile(str(file), context_length=8, batch_size=4), seed=3)


def model(task, **settings):
    made = GPT(task.fit(Config(vocab=1, **{"width": 16, "heads": 2, "layers": 2, "length": 16} | settings)))
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return made.eval()


def test_the_loss_is_the_sum_of_cross_entropies(task):
    m = model(task)
    drawn = next(task.batches().start(StreamPosition()))
    assert drawn.count == task.count(drawn.batch) == 32
    total, parts = task.loss(m, drawn.batch)
    expected = F.cross_entropy(m(drawn.batch.inputs).flatten(0, 1), drawn.batch.targets.flatten(), reduction="sum")
    torch.testing.assert_close(total, expected, rtol=1e-5, atol=1e-4)
    assert not parts["loss"].requires_grad
    smooth = language_modeling.Config(label_smoothing=0.1, chunk_size=5).build(task.data)
    expected = F.cross_entropy(
        m(drawn.batch.inputs).flatten(0, 1), drawn.batch.targets.flatten(), reduction="sum", label_smoothing=0.1
    )
    torch.testing.assert_close(smooth.loss(m, drawn.batch)[0], expected, rtol=1e-5, atol=1e-4)


def test_every_token_of_the_part_is_measured_once(task):
    m, tokens = model(task), torch.tensor(task.text.encode_one(task.data.read("val")))
    found = task.evaluate(m, "val")
    nll, right = 0.0, 0
    with torch.no_grad():
        for at in range(0, len(tokens) - 1, 8):
            row = tokens[at : at + 9]
            logits = m(row[None, :-1])[0]
            nll += float(F.cross_entropy(logits, row[1:], reduction="sum"))
            right += int((logits.argmax(-1) == row[1:]).sum())
    assert found["tokens"] == len(tokens) - 1
    assert found["loss"] == pytest.approx(nll / found["tokens"], rel=1e-5)
    assert found["perplexity"] == pytest.approx(math.exp(found["loss"]))
    assert found["accuracy"] == right / found["tokens"]
    assert found["bits_per_byte"] == pytest.approx(found["loss"] / math.log(2))  # one byte a character here


@pytest.mark.parametrize("stride", [1, 3, 7, 8])
def test_with_a_stride_every_token_has_the_rest_of_the_context_before_it(task, stride):
    """The brute-force twin: each token by itself, after the tokens it is to be predicted from."""
    m, tokens = model(task), task.text.encode_one(task.data.read("val"))
    found = task.evaluate(m, "val", stride=stride)
    nll, right = 0.0, 0
    with torch.no_grad():
        for at in range(1, len(tokens)):
            row = max(0, -(-(at - 8) // stride))  # the first row that reaches it
            before = tokens[row * stride : at]
            assert at <= 8 or 8 - stride < len(before) <= 8
            logits = m(torch.tensor([before]))[0, -1]
            nll -= float(logits.log_softmax(-1)[tokens[at]])
            right += int(logits.argmax()) == tokens[at]
    assert found["tokens"] == len(tokens) - 1
    assert found["loss"] == pytest.approx(nll / found["tokens"], rel=1e-5)
    assert found["accuracy"] == right / found["tokens"]
    assert found["bits_per_byte"] == pytest.approx(nll / found["tokens"] / math.log(2), rel=1e-5)
    if stride == 8:
        assert found == task.evaluate(m, "val")


def test_reports_take_the_stride_that_is_asked_for(file):
    task = language_modeling.Config(stride=2).build(TextFile(str(file), context_length=8))
    m = model(task)
    assert task.report(m, "val") == task.evaluate(m, "val", stride=2) | {"split": "val", "context": 8, "stride": 2}
    assert task.report(m, "val", stride=5)["loss"] == task.evaluate(m, "val", stride=5)["loss"]
    for wrong in (0, 9):
        with pytest.raises(BadInput, match="stride must be 1 to 8"):
            task.report(m, "val", stride=wrong)


def test_a_saved_model_is_measured_on_data_of_a_name(tmp_path, file, shards):
    """Stored in eight bits and scored as it is stored."""
    data = TextFile(str(file), context_length=16, batch_size=3)
    result = train(recipe(data, save_dtype="int8", steps=6), tmp_path / "run")
    folder = tmp_path / "run" / "model"
    of_run = evaluate(tmp_path / "run", ["val"], device="cpu")["results"]["val"]
    found = evaluate(folder, ["val"], device="cpu", data=str(file))["results"]["val"]
    assert found["loss"] == pytest.approx(result["validation"][result["final_weights"]]["loss"], rel=1e-6)
    assert found["loss"] == pytest.approx(of_run["loss"], rel=1e-6)
    assert found["context"] == 16
    again = evaluate(folder, ["val"], device="cpu", data=data, stride=4)["results"]["val"]
    assert again["tokens"] == found["tokens"]
    assert again["loss"] != found["loss"]
    assert isinstance(dataset_for_model(folder, str(shards)), TokenShards)
    assert dataset_for_model(folder, str(file), limit=3).limit == 3
    with pytest.raises(BadInput, match="take no source; leave it out"):
        dataset_for_model(folder, str(file), source="en")
    with pytest.raises(RegardError, match="give the data to evaluate it on"):
        evaluate(folder)
    regard.save(regard.load(folder).model, tmp_path / "bare")
    with pytest.raises(BadInput, match="saved without a task"):
        evaluate(tmp_path / "bare", data=data)


def test_the_command_measures_runs_and_saved_models(tmp_path, file, capsys):
    train(recipe(TextFile(str(file), context_length=16, batch_size=3), steps=3), tmp_path / "run")
    shown = []
    for words in ([tmp_path / "run"], [tmp_path / "run" / "model", "--data", file]):
        assert cli.main(["eval", *map(str, words), "--split", "val", "--stride", "4", "--device", "cpu"]) == 0
        shown.append(capsys.readouterr().out)
    assert shown[0] == shown[1]
    assert "bits per byte" in shown[0]
    for words, said in ((["--stride", "40"], "stride must be 1 to 16"), (["--from", "en"], "have no source")):
        assert cli.main(["eval", str(tmp_path / "run"), "--split", "val", *words]) == 1
        assert said in capsys.readouterr().err


def test_bits_per_byte_do_not_depend_on_the_vocabulary(file):
    """A model that knows nothing needs as many bits for a text, however it is cut into tokens."""
    for kind in ("char", "bytes"):
        task = language_modeling.Config().build(TextFile(str(file), context_length=8, tokenizer=kind, vocab_size=300))
        m = model(task)
        torch.nn.init.zeros_(m.head.weight)
        found = task.evaluate(m, "val")
        whole = len(task.text.encode_one(task.data.read("val")))
        assert found["loss"] == pytest.approx(math.log(task.text.size), rel=1e-5)
        assert found["bits_per_byte"] == pytest.approx(math.log2(task.text.size) * whole / task.data.bytes("val"))


def test_looks_read_the_same_few_rows_and_reports_read_all(file):
    task = language_modeling.Config(eval_examples=2).build(TextFile(str(file), context_length=8))
    m = model(task)
    few, again, all_ = task.evaluate(m, effort=1), task.evaluate(m, effort=0), task.evaluate(m, effort=2)
    assert few == again
    assert few["tokens"] == 16 < all_["tokens"]
    assert task.report(m, "val") == all_ | {"split": "val", "context": 8}


def test_a_model_that_is_too_short_for_the_rows_is_refused_before_it_is_built(task):
    with pytest.raises(BadInput, match=r"data\.context"):
        model(task, length=7)
    assert model(task, length=7, positions="rotary").config.vocab == task.text.size


def test_shards_are_trained_on_as_plain_text_is(shards):
    task = language_modeling.Config().build(TokenShards(str(shards), context_length=8, batch_size=4), seed=1)
    m = model(task)
    assert m.config.vocab == task.text.size
    assert m.config.eos == task.text.eos
    drawn = next(task.batches().start(StreamPosition()))
    assert drawn.batch.inputs.shape == (4, 8)
    found = task.evaluate(m, "val")
    assert found["loss"] > 0
    bits, part = found["loss"] * found["tokens"] / math.log(2), task.dataset("val")
    assert found["bits_per_byte"] == pytest.approx(bits / task.data.bytes("val") * part.tokens / found["tokens"])
    assert "rows of 8" in task.card()


def recipe(data, **settings):
    return Recipe(
        Config(vocab=1, width=16, heads=2, layers=1, ffn=32, length=16, dropout=0.1),
        language_modeling.Config(),
        data,
        Train(**{"steps": 12, "learning_rate": 3e-3, "warmup_steps": 4, "gradient_accumulation_steps": 2,
                 "eval_interval": 6, "save_interval": 3, "log_interval": 3, "device": "cpu",
                 "ema_decay": 0.9} | settings),
        "lines",
    )  # fmt: skip


@pytest.mark.parametrize("kind", ["plain", "shards"])
def test_training_on_equals_training_at_once(tmp_path, file, shards, kind):
    data = (
        TextFile(str(file), context_length=8, batch_size=3)
        if kind == "plain"
        else TokenShards(str(shards), context_length=8, batch_size=3)
    )
    train(recipe(data), tmp_path / "once")
    train(recipe(data, steps=5), tmp_path / "twice")
    train(recipe(data), tmp_path / "twice", resume=True)
    once, twice = (regard.load(tmp_path / name / "model").model.state_dict() for name in ("once", "twice"))
    for name, value in once.items():
        assert torch.equal(value, twice[name]), name


def test_the_experts_own_loss_counts_beside_the_texts(task):
    m, batch = (
        model(task, feedforward="moe(num_experts=4, top_k=1)"),
        next(task.batches().start(StreamPosition())).batch,
    )
    plain, parts = task.loss(m, batch)
    even = language_modeling.Config(balance=0.5).build(task.data)
    total, said = even.loss(m, batch)
    pass_state = PassState()
    m(batch.inputs, pass_state=pass_state)
    aux = pass_state.losses("balance")
    busiest = max(float(load.max()) for load in pass_state.collect("expert_load"))
    torch.testing.assert_close(total, plain + 0.5 * 32 * sum(aux), rtol=1e-5, atol=1e-4)
    torch.testing.assert_close(plain.detach(), said["loss"])
    assert float(said["balance"]) / 32 == pytest.approx(float(sum(aux).detach()) / 2, rel=1e-5)
    assert float(said["busiest"]) / 32 == pytest.approx(busiest, rel=1e-5)
    assert not said["balance"].requires_grad
    assert parts.keys() == said.keys()
    (a,) = torch.autograd.grad(plain, [m.decoder.blocks[0].feed.router.weight])
    (b,) = torch.autograd.grad(total, [m.decoder.blocks[0].feed.router.weight])
    assert not torch.allclose(a, b)


def test_a_look_says_how_busy_every_expert_is(task):
    m = model(task, feedforward="moe(num_experts=4, top_k=2)")
    found = task.evaluate(m, "val")["experts"]
    assert len(found) == 2
    assert all(sum(row) == pytest.approx(1, abs=1e-3) for row in found)
    assert "experts" not in task.evaluate(model(task), "val")


@pytest.mark.parametrize("optimizer", rest_is_long(["adamw", "muon"], "adamw"))
def test_experts_are_trained_on_exactly_too_and_the_log_says_how_busy_they_are(tmp_path, file, optimizer):
    data, feed = TextFile(str(file), context_length=8, batch_size=3), "moe(num_experts=3, top_k=2)"
    runs = [recipe(data, optimizer=optimizer), recipe(data, optimizer=optimizer, steps=5)]
    runs = [
        replace(r, model=replace(r.model, feedforward=feed), task=language_modeling.Config(balance=0.01)) for r in runs
    ]
    train(runs[0], tmp_path / "once")
    train(runs[1], tmp_path / "twice")
    train(runs[0], tmp_path / "twice", resume=True)
    once, twice = (regard.load(tmp_path / name / "model").model.state_dict() for name in ("once", "twice"))
    for name, value in once.items():
        assert torch.equal(value, twice[name]), name
    rows = [json.loads(line) for line in (tmp_path / "once" / "metrics.jsonl").read_text().splitlines()]
    assert all(0.9 < row["balance"] < 3 and 1 / 3 <= row["busiest"] <= 1 for row in rows if "grad_norm" in row)
    assert [len(row["experts"][0]) for row in rows if "val_loss" in row] == [3, 3]
    write = regard.load(tmp_path / "once" / "model")
    assert len(write(["one saw"], max_new_tokens=5, temperature=0)[0]) <= 5


def test_a_run_learns_and_what_it_saved_writes(tmp_path, file):
    result = train(
        recipe(
            TextFile(str(file), context_length=16, batch_size=8),
            steps=50,
            learning_rate=0.01,
            gradient_accumulation_steps=1,
            ema_decay=0.0,
        ),
        tmp_path / "run",
    )
    assert result["validation"][result["final_weights"]]["loss"] < 2.3  # from log 19 = 2.9
    write = regard.load(tmp_path / "run" / "model")
    assert isinstance(write, TextGenerator)
    assert len(write(["one saw"], max_new_tokens=8, temperature=0)[0]) == 8


def test_writing_depends_on_the_prompt_alone(task):
    write = TextGenerator(model(task, length=40), task.text)
    prompts = ["one", "the cat is", "no"]
    for how in ({"temperature": 0}, {"temperature": 0.8, "top_k": 5}):
        whole = write(prompts, max_new_tokens=10, seed=4, **how)
        assert whole == [write([p], max_new_tokens=10, seed=4 + n, **how)[0] for n, p in enumerate(prompts)]
    assert write([]) == []


def test_prompts_that_cannot_be_written_on_are_refused(task):
    write = TextGenerator(model(task), task.text)
    for prompts, said in (
        (["one", ""], "empty"),
        (["one two three"], "do not fit"),
        (["one", 7], "text 2: Expected a text"),
    ):
        with pytest.raises(BadInput, match=said):
            write(prompts, max_new_tokens=10)
    assert len(write(["one"], max_new_tokens=14, temperature=0)[0]) <= 14  # 3 + 14 - 1 = all 16 places
    with pytest.raises(BadInput, match="at most 14"):
        write(["one"], max_new_tokens=15)


def test_the_gpt2_recipe_runs_quickly_on_any_shards(tmp_path, shards):
    result = train("gpt2_124m", tmp_path / "run", settings=["train.device=cpu", f"data.path={shards}"], quick=True)
    assert result["steps"] == 12
    assert (tmp_path / "run" / "model" / "config.json").is_file()


def test_the_cards_numbers_are_the_recipes():
    char, large = load_recipe("gpt_shakespeare_char"), load_recipe("gpt2_124m")
    with torch.device("meta"):
        assert sum(p.numel() for p in build(char.model).parameters()) < 10_800_000
        assert sum(p.numel() for p in build(large.model).parameters()) == 124_337_664
    m = char.model
    assert (m.width, m.heads, m.layers, m.length, char.data.context_length, char.data.batch_size) == (
        384,
        6,
        6,
        256,
        256,
        64,
    )
    assert char.train.save_dtype == "int8"
    assert large.data.batch_size * large.data.context_length * large.train.gradient_accumulation_steps == 2**19
    assert 9.9e9 < 2**19 * large.train.steps < 10.1e9


@pytest.mark.parametrize("stride", [1, 3, 7, 8])
@pytest.mark.parametrize("rows", [1, 2, 5])
def test_with_a_stride_several_batches_predict_every_token_once(task, stride, rows):
    tokens = task.text.encode_one(task.data.read("val"))
    batches = list(task.dataset("val").eval_batches(8 * rows, stride=stride))
    assert len(batches) > 2
    predicted = [batch.targets[batch.targets != IGNORE_INDEX] for batch in batches]
    assert torch.cat(predicted).tolist() == tokens[1:]
    for number, batch in enumerate(batches):
        late = batch.targets[int(number == 0) :] != IGNORE_INDEX  # all rows but the first
        assert not late[:, : 8 - stride].any()  # have enough tokens before the first that they predict

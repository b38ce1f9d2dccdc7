"""Chunking by writing brackets: decisions are learned, parses come out well formed, company changes nothing."""

from dataclasses import replace

import pytest
import torch

import regard
from regard.core.errors import BadInput
from regard.data.shards.token_shards import IGNORE_INDEX
from regard.data.text.chunking_seq2seq import CLOSE, OPEN, ChunkedSentence, ChunkingSeq2Seq, ChunkingSplit
from regard.models.transformer import Config, Transformer
from regard.tasks.text import chunking
from regard.tasks.text.chunking import Chunker, bracket_chunks
from regard.training import train
from regard.training.recipe import load_recipe
from tests.long_params import rest_is_long

WORDS = {"the": "DT", "a": "DT", "dog": "NN", "cat": "NN", "sees": "VB", "will": "MD", "run": "VB", ".": "."}
PATTERNS = [
    (["the", "dog", "sees", "a", "cat", "."], ["B-NP", "I-NP", "B-VP", "B-NP", "I-NP", "O"]),
    (["a", "cat", "will", "run", "."], ["B-NP", "I-NP", "B-VP", "I-VP", "O"]),
    (["the", "cat", "will", "run"], ["B-NP", "I-NP", "B-VP", "I-VP"]),
    (["run", "."], ["B-VP", "O"]),
]
SMALL = Config(vocab=1, width=16, heads=2, ffn=32, encoder_layers=1, decoder_layers=1, dropout=0.0, norm="pre")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("chunks")
    lines = ["\n".join(f"{w} {WORDS[w]} {t}" for w, t in zip(*pattern, strict=True)) for pattern in PATTERNS]
    for name, times in (("train", 8), ("val", 1), ("test", 1)):
        (place / f"{name}.txt").write_text("\n\n".join(lines * times) + "\n")
    return place


def task(folder, **settings):
    return chunking.Config().build(
        ChunkingSeq2Seq(str(folder), tokenizer="word", vocab_size=60, batch_tokens=128, **settings), seed=2
    )


def model(of):
    made = Transformer(of.fit(SMALL)).eval()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return made


def test_the_loss_is_that_of_decisions_among_those_that_may_be_made(folder):
    of = task(folder)
    m, batch = model(of), of.dataset("train").collate(torch.tensor([0, 1]))
    total, _ = of.loss(m, batch)
    logits = m(batch.source, batch.target[:, :-1], batch.source_lengths, batch.target_lengths - 1)
    base, many, expected = of.symbols.base, 0, 0.0
    for row in range(2):
        for place in range(batch.outside.shape[1]):
            for wanted, may in ((batch.outside, {0, *range(OPEN, 4)}), (batch.inside, {0, CLOSE})):
                if (right := int(wanted[row, place])) != IGNORE_INDEX:
                    scores = {d: float(logits[row, place, base + d].detach()) for d in may}
                    expected += float(torch.tensor(list(scores.values())).logsumexp(0)) - scores[right]
                    many += 1
    assert of.count(batch) == many
    assert float(total.detach()) == pytest.approx(expected, rel=1e-5)
    smooth = chunking.Config(label_smoothing=0.1).build(of.data, folder=None)
    assert float(smooth.loss(m, batch)[0].detach()) > float(total.detach())


@pytest.mark.parametrize("pos_column", [None, 1])
def test_writing_depends_on_the_sentence_alone(folder, pos_column):
    of = task(folder, pos_column=pos_column)
    parse = Chunker(model(of), of.text, of.symbols.kinds, of.symbols.speech)
    sentences = [words * times for times in (1, 3, 2) for words, _ in PATTERNS]
    tagged = None if pos_column is None else [[WORDS[w] for w in words] for words in sentences]
    whole = parse.tags(sentences, tagged)
    for n, words in enumerate(sentences):
        assert whole[n] == parse.tags([words], None if tagged is None else [tagged[n]])[0]
        assert len(whole[n]) == len(words)
    assert len({tuple(tags) for tags in whole}) > 1
    assert parse.brackets([], []) == []
    assert parse([]) == []


def test_each_decision_is_the_likeliest_given_all_before_it(folder):
    """What was written, read again in one pass without a cache."""
    of = task(folder)
    m = model(of)
    parse = Chunker(m, of.text, of.symbols.kinds)
    said = parse.tags([words for words, _ in PATTERNS])
    sentences = [
        ChunkedSentence(tuple(words), tuple(tags), ()) for (words, _), tags in zip(PATTERNS, said, strict=True)
    ]
    of._parts["val"] = ChunkingSplit(of.data, of.text, of.symbols, sentences)
    assert of.evaluate(m, "val", effort=0)["token_accuracy"] == 1.0
    assert of.evaluate(m, "val", effort=1)["f1"] == 1.0


@pytest.mark.parametrize("pos_column", rest_is_long([None, 1], 1))
def test_a_run_learns_goes_on_exactly_and_what_it_saved_parses(folder, tmp_path, pos_column):
    recipe = load_recipe("transformer_conll2000")
    recipe = replace(
        recipe,
        model=SMALL,
        data=task(folder, pos_column=pos_column).data,
        train=replace(recipe.train, steps=60, eval_interval=30, save_interval=20, log_interval=10, warmup_steps=5,
                      learning_rate=0.01, schedule="constant", ema_decay=0.0, device="cpu"),
    )  # fmt: skip
    result = train(recipe, tmp_path / "once")
    assert result["validation"][result["final_weights"]]["f1"] > 0.9
    train(replace(recipe, train=replace(recipe.train, steps=30)), tmp_path / "twice")
    train(recipe, tmp_path / "twice", resume=True)
    parsers = [regard.load(tmp_path / name / "model") for name in ("once", "twice")]
    for name, value in parsers[0].model.state_dict().items():
        assert torch.equal(value, parsers[1].model.state_dict()[name]), name
    asked = (["the dog sees a cat ."], ["DT NN VB DT NN ."] if pos_column else None)
    assert parsers[0].brackets(*asked) == ["(NP the dog ) (VP sees ) (NP a cat ) ."]
    if not pos_column:
        assert str(parsers[0](asked[0][0])) == "the/B-NP dog/I-NP sees/B-VP a/B-NP cat/I-NP ./O"
    regard.save(parsers[0], tmp_path / "again")
    assert regard.load(tmp_path / "again").brackets(*asked) == parsers[0].brackets(*asked)


def test_brackets_stand_round_chunks():
    assert bracket_chunks(["He", "reckons", ",", "so"], ["B-NP", "B-VP", "O", "O"]) == "(NP He ) (VP reckons ) , so"
    assert bracket_chunks(["a", "b", "c"], ["B-NP", "I-NP", "B-NP"]) == "(NP a b ) (NP c )"


def test_what_cannot_be_parsed_is_refused(folder):
    of = task(folder, pos_column=1)
    parse = Chunker(model(of), of.text, of.symbols.kinds, of.symbols.speech)
    for asked, said in (
        (("the dog",), "list of sentences"),
        ((["the dog", " "],), "sentence 2 has no words"),
        ((["the dog"],), "also needs parts of speech"),
        ((["the dog"], ["DT"]), "needs one part of speech"),
    ):
        with pytest.raises(BadInput, match=said):
            parse.brackets(*asked)
    with pytest.raises(BadInput, match="also needs parts of speech"):
        parse("the dog")
    with pytest.raises(BadInput, match="beam_size"):
        of.report(parse.model, beam_size=3)

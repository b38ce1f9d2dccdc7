"""Texts cut as models read them: the numbers are those that reach the model, pieces stand where they are said to."""

import pytest
import torch
from torch import nn

import regard
from regard.api import zoo
from regard.core.errors import BadInput, Unsupported
from regard.interpret.tokenization import can_tokenize, tokenize
from regard.models import build
from regard.models.t5 import T5
from regard.models.t5 import Config as T5Config
from regard.models.transformer import Config, Transformer
from regard.tasks.text.chunking import Chunker
from regard.tasks.text.classification import TextClassifier
from regard.tasks.text.embedder import TextEmbedder
from regard.tasks.text.encoder_base import EncoderPredictor
from regard.tasks.text.language_modeling import TextGenerator
from regard.tasks.text.masked_lm import FillMask
from regard.tasks.text.pronunciation import Pronouncer
from regard.tasks.text.tagging import Tagger
from regard.tasks.text.text_to_text import TextToTextGenerator
from regard.tasks.text.translation import Translator
from regard.tasks.text.word2vec import NearestWords
from regard.tokens.sentinels import add_sentinels
from regard.tokens.tokenizer import Tokenizer

LINES = ["The old dog barks at the cat.", "A cat sleeps on the mat, and the dogs look on."] * 3
TASKS = (
    "masked_lm", "classification", "tagging", "embedding", "translation", "text_to_text", "pronunciation",
    "language_modeling", "chunking",
)  # fmt: skip
SMALL = {"width": 16, "heads": 2}


def bert(text, head):
    return build("bert", vocab=text.size, layers=1, length=64, head=head, **SMALL)


def transformer(vocab):
    return Transformer(Config(vocab=vocab, ffn=32, encoder_layers=1, decoder_layers=1, **SMALL))


def predictors():
    torch.manual_seed(0)
    words, pairs = (
        Tokenizer.train(LINES, kind="bert", size=90, lower=True),
        Tokenizer.train(LINES, kind="bytes", size=300),
    )
    sentinels, letters = add_sentinels(pairs, 3), Tokenizer.train(["t h e o l d AA B"] * 2, kind="word", size=60)
    gpt = build("gpt", vocab=pairs.size, layers=1, length=64, **SMALL)
    t5 = T5(T5Config(vocab=sentinels.size, encoder_layers=1, decoder_layers=1, ffn=32, **SMALL))
    return {
        "masked_lm": FillMask(bert(words, "masked"), words),
        "classification": TextClassifier(bert(words, "classes(2)"), words, ["a", "b"]),
        "tagging": Tagger(bert(words, "tags(2)"), words, ["a", "b"]),
        "embedding": TextEmbedder(bert(words, None), words),
        "translation": Translator(transformer(pairs.size), pairs),
        "text_to_text": TextToTextGenerator(t5, sentinels, max_new_tokens=4),
        "pronunciation": Pronouncer(transformer(letters.size), letters),
        "language_modeling": TextGenerator(gpt, pairs),
        "chunking": Chunker(transformer(pairs.size + 200), pairs, ["NP"]),
    }


ASKED = {
    "masked_lm": lambda fill, line: fill([line]),
    "translation": lambda translate, line: translate([line], beam_size=1),
    "text_to_text": lambda answer, line: answer([line], beam_size=1),
    "pronunciation": lambda say, line: say([line], beam_size=1),
    "language_modeling": lambda write, line: regard.inspect(write, {"text": line, "max_new_tokens": 0}),
}
ODD = "\tThe old\x00 dogs,  bark"  # a translator reads what it cannot as spaces
LINE = {"masked_lm": " The old [MASK], barks", "text_to_text": " The old <extra_id_1> dog", "pronunciation": " The"}


def read_by(predictor, act):
    """The numbers of the first row that a model looks up while something is done with it."""
    seen = []
    tables, vocabulary = predictor.model.modules(), predictor.model.config.vocab
    tables = [m for m in tables if isinstance(m, nn.Embedding) and m.num_embeddings == vocabulary]
    hooks = [table.register_forward_pre_hook(lambda _, given: seen.append(given[0])) for table in tables]
    act()
    for hook in hooks:
        hook.remove()
    return seen[0].flatten().tolist()


@pytest.mark.parametrize("task", [task for task in TASKS if task != "chunking"])
def test_the_numbers_are_those_that_reach_the_model(task):
    predictor, line = predictors()[task], LINE.get(task, " The old dogs, bärk.")
    ask = ASKED.get(task, lambda predictor, line: predictor([line]))
    wanted = read_by(predictor, lambda: ask(predictor, line))
    found = tokenize(predictor, line)
    assert [each.id for each in found] == wanted
    assert [each.piece for each in found] == predictor.text.pieces(wanted)


def test_a_chunker_puts_its_place_before_every_word():
    parse = predictors()["chunking"]
    found = tokenize(parse, "the dog barks")
    words = [parse.text.encode_one(word) for word in ("the", "dog", "barks")]
    assert [each.id for each in found] == parse.symbols.source(words, (), parse.text.eos)
    assert [each.added for each in found].count(True) == 4
    spoken = Chunker(transformer(parse.text.size + 300), parse.text, ["NP"], ["DT"])
    with pytest.raises(Unsupported, match="parts of speech"):
        tokenize(spoken, "the dog")


@pytest.mark.parametrize("task", TASKS)
def test_pieces_stand_where_they_are_said_to_stand(task):
    predictor, line = predictors()[task], LINE.get(task, ODD if task == "translation" else "  The old dogs,  bark")
    found = tokenize(predictor, line)
    assert [each.span is None for each in found] == [each.added for each in found]
    for each in found:
        if each.span is not None and not each.unknown:
            begin, end = each.span
            assert line[begin:end].lower() == each.piece.strip("▁").removeprefix("##").lower() or each.piece == "▁"
    spans = [each.span for each in found if each.span is not None]
    assert spans == sorted(spans)


def test_what_the_model_adds_and_what_it_does_not_know_is_marked():
    fill = predictors()["masked_lm"]
    found = tokenize(fill, "the [MASK] 日 barks")
    assert [each.piece for each in found if each.added] == ["[CLS]", "[SEP]"]
    assert [(each.piece, each.span) for each in found if each.unknown] == [("[UNK]", (11, 12))]
    assert [each.span for each in found if each.id == fill.text.mask] == [(4, 10)]
    marks = tokenize(fill, "[CLS]")  # typed, it is characters
    assert [each.added for each in marks] == [True, *[False] * (len(marks) - 2), True]
    assert fill.text.bos not in [each.id for each in marks[1:-1]]


def test_a_text_may_be_longer_than_the_model_reads():
    fill = predictors()["masked_lm"]
    assert len(tokenize(fill, "the " * 500)) == 502


def test_a_vocabulary_adds_nothing():
    text = Tokenizer.train(LINES, kind="bytes", size=300)
    found = tokenize(text, "The old dogs")
    assert [each.id for each in found] == text.encode_one("The old dogs")
    assert not any(each.added or each.unknown for each in found)


def test_letters_that_were_changed_stand_nowhere():
    say = predictors()["pronunciation"]
    assert [each.span for each in tokenize(say, "Théo")] == [None] * 5
    with pytest.raises(BadInput, match="more than one word"):
        tokenize(say, "the old")


def test_tokenised_text_is_found_in_the_line():
    pytest.importorskip("sacremoses")
    plain = predictors()["translation"]
    translate = Translator(plain.model, plain.text, style="moses")
    line = "The old dogs,  they bark."
    found = tokenize(translate, line)
    assert [each.id for each in found] == read_by(translate, lambda: translate([line], beam_size=1))
    assert {line[slice(*each.span)] for each in found if each.span} >= {",", "."}


def test_words_and_readers_of_other_things():
    from regard.models.word2vec import Config as Vectors
    from regard.models.word2vec import Word2Vec
    from regard.tasks.text.arithmetic import Calculator
    from regard.tokens.word_tokenizer import build_vocabulary

    text = build_vocabulary([["dog", "cat"]], size=20)
    words = NearestWords(Word2Vec(Vectors(vocab=text.size, width=6)), text)
    assert [(each.piece, each.unknown) for each in tokenize(words, "dog bird")] == [("dog", False), ("<unk>", True)]
    assert can_tokenize(words)
    assert can_tokenize(EncoderPredictor(bert(text, None), text))
    other = Calculator(nn.Linear(1, 1))
    assert not can_tokenize(other)
    with pytest.raises(Unsupported, match="a Calculator reads no text by a vocabulary"):
        tokenize(other, "1+1")


def test_what_ships_reads_as_it_says():
    if "en-de" not in zoo():
        pytest.skip("en-de is not here")
    found = tokenize(regard.load("en-de"), "Two dogs.")
    assert [each.piece for each in found] == ["▁Two", "▁dogs", ".", "</s>"]
    assert [each.span for each in found] == [(0, 3), (4, 8), (8, 9), None]

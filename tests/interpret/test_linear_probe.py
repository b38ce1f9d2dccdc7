"""The probe reads what is there and no more: a vector a word cannot beat the majority of each word."""

import pytest
import torch

from regard.core.errors import BadInput
from regard.interpret.linear_probe import (
    ProbeExamples,
    SubwordReader,
    contextual_vectors,
    majority_accuracy,
    noun_verb_examples,
    static_vectors,
    train_probe,
)
from regard.models.elmo import Config, ELMo
from regard.models.word2vec import Config as Word2VecConfig
from regard.models.word2vec import Word2Vec
from regard.tasks.text.bidirectional_lm import ContextualEmbedder
from regard.tasks.text.word2vec import NearestWords
from regard.tokens.word_tokenizer import build_vocabulary

WORDS = {"play": 0.7, "show": 0.3, "run": 0.5}  # how often each is a noun


def made(n, seed):
    """Sentences in which what stands before the word says what it is."""
    generator = torch.Generator().manual_seed(seed)
    sentences, labels = [], []
    for i in range(n):
        word, share = list(WORDS.items())[i % 3]
        noun = float(torch.rand((), generator=generator)) < share
        sentences.append(["a" if noun else "to", word, "it"])
        labels.append(0 if noun else 1)
    return ProbeExamples(sentences, [1] * n, torch.tensor(labels))


@pytest.fixture(scope="module")
def data():
    return {"train": made(600, 1), "val": made(150, 2), "test": made(300, 3)}


def test_a_vector_a_word_learns_the_majority_and_no_more(data):
    text = build_vocabulary([list(WORDS)], size=20)
    words = NearestWords(Word2Vec(Word2VecConfig(vocab=text.size, width=8)), text)
    found = train_probe(static_vectors(words), data)
    best = majority_accuracy(data["train"], data["test"])
    assert 0.5 < best < 0.75
    assert found["accuracy"] == pytest.approx(best, abs=0.06)


def test_a_vector_in_context_says_what_the_word_is_and_the_word_alone_does_not(data):
    text = build_vocabulary([list(WORDS)], size=20)
    torch.manual_seed(0)
    reader = ContextualEmbedder(
        ELMo(Config(vocab=text.size, width=12, hidden=12, filters=(4, 4), max_word_length=8)), text
    )
    best = majority_accuracy(data["train"], data["test"])
    alone, first, mixed = (train_probe(contextual_vectors(reader, layer), data) for layer in (0, 1, None))
    assert alone["accuracy"] == pytest.approx(best, abs=0.06)
    assert first["accuracy"] > 0.95  # even untrained: the word before is in the state
    assert mixed["accuracy"] > 0.95
    assert len(mixed["weights"]) == 3
    assert sum(mixed["weights"]) == pytest.approx(1)
    assert train_probe(contextual_vectors(reader, 1), data) == first  # the same seed, the same answer


def test_pieces_of_a_word_are_averaged_alone_and_in_any_batch():
    from regard.models.gpt import GPT
    from regard.models.gpt import Config as GPTConfig
    from regard.tokens.tokenizer import Tokenizer

    text = Tokenizer.train(["the dog runs", "a dog ran to the end"] * 3, kind="bpe", size=24)
    model = GPT(GPTConfig(vocab=text.size, width=12, heads=2, layers=2, length=40)).eval()
    reader = SubwordReader(model, text)
    sentences = [["the", "dogs", "run"], ["a"], ["to", "the", "end", "ran", "a", "dog"]]
    found = reader.layers(sentences, rows=2)
    assert [x.shape for x in found] == [(3, 3, 12), (3, 1, 12), (3, 6, 12)]
    for words, together in zip(sentences, found, strict=True):
        torch.testing.assert_close(reader.layers([words])[0], together)
    ids = text.encode(sentences[0])
    assert len(ids[1]) > 1
    tokens = torch.tensor([[text.bos, *(i for word in ids for i in word), text.eos]])
    last = model.decoder.blocks[-1]
    seen = []
    hook = last.register_forward_hook(lambda _, inputs, out: seen.append(out))
    model.hidden(tokens)
    hook.remove()
    begin = 1 + len(ids[0])
    torch.testing.assert_close(found[0][-1, 1], seen[0][0, begin : begin + len(ids[1])].mean(0))


def test_vectors_of_another_number_are_refused(data):
    with pytest.raises(BadInput, match="600 positions gave vectors"):
        train_probe(lambda sentences, places: torch.zeros(3, 4), data)


@pytest.mark.long
def test_browns_words_are_nouns_and_verbs_in_every_part():
    try:
        found = noun_verb_examples()
    except BadInput as error:
        pytest.skip(str(error))
    train, test = found["train"], found["test"]
    assert len(train) > 10_000
    assert len(test) > 1000
    assert {"work", "play", "show"} <= set(train.words)
    labels = {word: set() for word in train.words}
    for word, label in zip(train.words, train.labels.tolist(), strict=True):
        labels[word].add(label)
    assert all(both == {0, 1} for both in labels.values())
    assert set(test.words) <= set(train.words)
    assert 0.6 < majority_accuracy(train, test) < 0.7
    inside = {" ".join(words) for words in train.sentences if len(words) > 6}
    assert len(inside & {" ".join(words) for words in test.sentences}) < 5  # formulas that several files share

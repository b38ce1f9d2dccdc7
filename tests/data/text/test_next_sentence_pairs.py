"""Next-sentence pairs with masked tokens: the statistics of BERT's paper."""

import random

import numpy as np
import pytest
import torch

from regard.core.errors import BadInput
from regard.data.batching import StreamPosition, prefetch
from regard.data.shards.token_shards import IGNORE_INDEX
from regard.data.text.corpora import get_corpus, split_documents
from regard.data.text.masked_sentences import MaskedSentences
from regard.data.text.next_sentence_pairs import NextSentencePairs, NextSentenceSplit
from regard.data.text.token_masking import mask_tokens, max_masked
from regard.tokens.tokenizer import Tokenizer

BEGIN = StreamPosition()
WORDS = [
    "the",
    "a",
    "dog",
    "cat",
    "bird",
    "house",
    "tree",
    "sees",
    "likes",
    "hears",
    "one",
    "two",
    "red",
    "blue",
    "old",
    "new",
    "and",
    "or",
    "runs",
    "sits",
]


def written(seed, sentences):
    rng = random.Random(seed)
    return [" ".join(rng.choice(WORDS) for _ in range(rng.randint(2, 9))) + " ." for _ in range(sentences)]


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    """Thirty documents of 4 to 12 sentences."""
    place, rng = tmp_path_factory.mktemp("documents") / "text.txt", random.Random(5)
    place.write_text("\n\n".join("\n".join(written(n, rng.randint(4, 12))) for n in range(30)), encoding="utf-8")
    return place


@pytest.fixture(scope="module")
def data(file):
    return NextSentencePairs((str(file),), max_length=32, batch_size=8, vocab_size=200)


@pytest.fixture(scope="module")
def pages(data):
    return data.load("train", data.build_tokenizer())


def rows(pages, batches=40, seed=1):
    """Several batches, concatenated."""
    stream = pages.stream(seed).start(StreamPosition())
    drawn = [next(stream).batch for _ in range(batches)]
    return type(drawn[0])(*(torch.cat(parts) for parts in zip(*drawn, strict=True)))


def restored(batch):
    """The tokens before masking."""
    tokens = batch.tokens.clone()
    asked = batch.targets != IGNORE_INDEX
    tokens[
        torch.arange(len(tokens))[:, None].expand_as(batch.masked_positions)[asked], batch.masked_positions[asked]
    ] = batch.targets[asked]
    return tokens


def test_row_has_two_texts_with_special_tokens(pages):
    text, batch = pages.tokenizer, rows(pages, 5)
    for row, which, length, follows in zip(*(restored(batch), *batch[1:3], batch.next_sentence_labels), strict=True):
        real = row[:length].tolist()
        assert real[0] == text.bos
        assert real[-1] == text.eos
        assert set(row[length:].tolist()) <= {text.pad}
        ends = [n for n, token in enumerate(real) if token == text.eos]
        assert len(ends) == (1 if follows == IGNORE_INDEX else 2)
        expected = [0] * (ends[0] + 1) + [1] * (len(real) - ends[0] - 1)
        assert which[:length].tolist() == expected
        assert set(which[length:].tolist()) <= {0}
        assert len(real) <= 32


def test_second_text_follows_or_comes_from_another_document(pages):
    """Searched in the text itself, independent of the code under test."""
    text, batch, flat = pages.tokenizer, rows(pages, 60), pages.tokens.tolist()
    joined = " ".join(map(str, flat))
    document = {}  # the documents that each stretch of words occurs in
    for n, begin in enumerate(sorted(set(pages.begin.tolist()))):
        end = int(pages.end[begin])
        document[n] = " ".join(map(str, flat[pages.starts[begin] : pages.starts[end]]))
    counts = {0: 0, 1: 0, IGNORE_INDEX: 0}
    for row, length, follows in zip(
        restored(batch).tolist(), batch.lengths.tolist(), batch.next_sentence_labels.tolist(), strict=True
    ):
        counts[follows] += 1
        if follows == IGNORE_INDEX:
            continue
        middle = row.index(text.eos)
        a, b = row[1:middle], row[middle + 1 : length - 1]
        assert min(len(a), len(b)) > 0
        message = [" ".join(map(str, part)) for part in (a, b, a + b)]
        if follows == 0:
            assert message[2] in joined
        else:
            homes = [{n for n, full in document.items() if part in full} for part in message[:2]]
            assert all(homes)
            assert len(homes[0] | homes[1]) > 1  # not in one and the same document only
    asked = counts[0] + counts[1]
    assert asked > 300
    assert abs(counts[1] / asked - 0.5) < 4 * 0.5 / asked**0.5


def test_15_percent_are_masked_80_10_10_and_never_a_special_token():
    text = Tokenizer.train(written(0, 300), kind="bert", size=200)
    special = np.zeros(text.size, bool)
    special[[text.pad, text.bos, text.eos, text.unk, text.mask]] = True
    rng = np.random.default_rng(0)
    tokens = rng.integers(0, text.size, (4000, 64))
    seen, at, targets = mask_tokens(tokens, rng.integers(0, 2**62, 4000), special, text.mask)
    able = (~special[tokens]).sum(1)
    asked = targets != IGNORE_INDEX
    assert at.shape == targets.shape == (4000, max_masked(64))
    assert (asked.sum(1) == np.clip(np.rint(0.15 * able), 1, max_masked(64))).all()
    row = np.broadcast_to(np.arange(4000)[:, None], at.shape)
    assert (tokens[row, at] == targets)[asked].all()  # what is asked for is what stood there
    assert not special[targets[asked]].any()
    assert len(set(zip(row[asked].tolist(), at[asked].tolist(), strict=True))) == asked.sum()  # no place twice
    changed = np.zeros_like(tokens, bool)
    changed[row[asked], at[asked]] = True
    assert (seen == tokens)[~changed].all()
    put, n = seen[row, at][asked], asked.sum()
    assert not special[put[put != text.mask]].any()
    hidden, kept = (put == text.mask).sum() / n, (put == targets[asked]).sum() / n
    words = (~special).sum()
    for share, expected in ((hidden, 0.8), (kept, 0.1 + 0.1 / words)):  # any word may be the word itself
        assert abs(share - expected) < 4 * (expected * (1 - expected) / n) ** 0.5
    # every place and every word is as likely as another
    spread = np.bincount(at[asked], minlength=64) / n
    assert abs(spread - 1 / 64).max() < 5 * (1 / 64 / n) ** 0.5
    other = put[(put != text.mask) & (put != targets[asked])]
    assert len(set(other.tolist())) > 0.9 * words


def test_row_without_words_has_no_targets():
    special = np.array([True, True, False])
    _, at, targets = mask_tokens(np.zeros((2, 16), int), np.array([1, 2]), special, 1)
    assert (targets == IGNORE_INDEX).all()
    assert (at == 0).all()


def test_epoch_has_every_sentence_once_in_different_spans(pages):
    found = []
    for key in (1, 2):
        stretches = pages.sentence_spans(key)
        assert stretches[0, 0] == 0
        assert stretches[-1, 1] == len(pages)
        assert torch.equal(stretches[1:, 0], stretches[:-1, 1])
        for begin, end, _ in stretches.tolist():
            assert pages.end[begin] >= end  # of one document
            assert end - begin == 1 or pages.starts[end] - pages.starts[begin] <= pages.capacity
        found.append(stretches[:, 0].tolist())
    assert found[0] != found[1]


def test_rows_depend_on_seed_and_epoch_alone(pages):
    def drawn(seed, share=0, shares=1, workers=1, place=BEGIN):
        with prefetch(pages.stream(seed).start(place, share, shares), workers=workers) as batches:
            return [next(batches) for _ in range(30)]  # more than an epoch

    full = drawn(3)
    assert full[-1].next_position.epoch > 0
    for one, two in zip(full, drawn(3, workers=4), strict=True):
        assert all(torch.equal(a, b) for a, b in zip(one.batch, two.batch, strict=True))
    parts = drawn(3, 0, 2), drawn(3, 1, 2)
    for n, one in enumerate(full):
        for share in (0, 1):
            for a, b in zip(one.batch, parts[share][n].batch, strict=True):
                assert torch.equal(a[share::2], b)
        assert one.count == sum(part[n].count for part in parts)
    later = drawn(3, place=full[10].next_position)
    assert all(torch.equal(a, b) for a, b in zip(full[11].batch, later[0].batch, strict=True))
    assert not torch.equal(full[0].batch.tokens, drawn(4)[0].batch.tokens)


def test_independent_sentences_have_no_next_sentence_label(file):
    data = MaskedSentences((str(file),), max_length=16, batch_size=8, vocab_size=200)
    part = data.load("train", data.build_tokenizer())
    batch = rows(part, 10)
    assert (batch.next_sentence_labels == IGNORE_INDEX).all()
    assert (batch.segments == 0).all()
    assert batch.tokens.shape == (80, 16)
    text, sentences = part.tokenizer, {part.tokenizer.decode([part.tokens[a:b].tolist()])[0] for a, b in zip(part.starts, part.starts[1:], strict=False)}  # fmt: skip  # noqa: E501
    for row, length in zip(restored(batch).tolist(), batch.lengths.tolist(), strict=True):
        assert text.decode([row[1 : length - 1]])[0] in sentences
    order = part.stream(0).order(0)
    assert sorted(torch.cat([order[i] for i in range(len(order))])[:, 0].tolist()) == sorted(
        set(torch.cat([order[i] for i in range(len(order))])[:, 0].tolist())
    )


def test_unrelated_sentences_in_a_row_have_no_next_sentence_label():
    text = Tokenizer.train(written(0, 100), kind="bert", size=200)
    pages = NextSentenceSplit(text, [[[s] for s in written(1, 60)]], [False], 48, 4, 45)
    batch = rows(pages, 4)
    assert (batch.next_sentence_labels == IGNORE_INDEX).all()
    assert (pages.sentence_spans(0)[:, 1] - pages.sentence_spans(0)[:, 0]).max() > 1


def test_single_document_has_no_random_pairs():
    text = Tokenizer.train(written(0, 100), kind="bert", size=200)
    batch = rows(NextSentenceSplit(text, [[written(1, 40)]], [True], 48, 4, 45), 3)
    assert (batch.next_sentence_labels == IGNORE_INDEX).all()


def test_unknown_word_of_the_corpus_is_never_a_target():
    text = Tokenizer.train(written(0, 100), kind="bert", size=200)
    pages = NextSentenceSplit(text, [[["the <unk> sees a <unk>", "<unk> runs"], ["one dog"]]], [True], 16, 2, 13)
    assert pages.tokens.tolist().count(text.unk) == 3
    assert text.decode([pages.tokens.tolist()])[0] == "the sees a runs one dog"
    batch = rows(pages, 20)
    assert text.unk not in batch.targets


def test_long_sentences_are_split_without_loss(file):
    text = Tokenizer.train(written(0, 100), kind="bert", size=200)
    long = " ".join(WORDS * 5)
    pages = NextSentenceSplit(text, [[[long, "one dog"], ["a cat"]]], [True], 16, 2, 13)
    assert text.decode([pages.tokens.tolist()])[0] == f"{long} one dog a cat"
    assert (np.diff(pages.starts) <= 13).all()


def test_text_is_split_into_documents_and_sentences():
    found = split_documents('One. "Two?" Three!\nfour\n \n\nFive; six.\n\n')
    assert found == [["One.", '"Two?"', "Three!", "four"], ["Five; six."]]


def test_evaluation_masks_are_fixed(pages):
    for most in (None, 5):
        one, two = (list(pages.eval_batches(7, most)) for _ in range(2))
        assert sum(len(b.tokens) for b in one) == (len(pages.sentence_spans(0)) if most is None else 5)
        for a, b in zip(one, two, strict=True):
            assert all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


def test_unusable_settings_are_reported(file):
    with pytest.raises(BadInput, match="corpora is empty"):
        NextSentencePairs(()).splits()
    with pytest.raises(BadInput, match="no dataset"):
        NextSentencePairs(("no_such_text",)).splits()
    plain = Tokenizer.train(written(0, 20), kind="char")
    with pytest.raises(BadInput, match=r"no \[MASK\]"):
        NextSentencePairs((str(file),)).load("train", plain)
    with pytest.raises(BadInput, match=r"data\.max_length"):
        NextSentencePairs((str(file),), max_length=6).load("train", plain)


def _there(name):
    try:
        return bool(get_corpus(name))
    except BadInput:
        return False


@pytest.mark.skipif(not _there("tatoeba"), reason="data are missing: set REGARD_DATA")
def test_tatoeba_splits_are_disjoint():
    found = get_corpus("tatoeba")
    train, val, test = ({s for (s,) in found.read(part)} for part in ("train", "val", "test"))
    assert len(train) == 182_282
    assert not train & val
    assert not train & test
    assert not val & test


@pytest.mark.skipif(not _there("ptb"), reason="data are missing: set REGARD_DATA")
def test_ptb_excludes_the_chunking_test_section():
    found = get_corpus("ptb").read("train")
    assert sum(map(len, found)) == 42_068 - 2_012
    assert not [s for document in found for s in document if s.startswith("rockwell said the agreement calls for it")]

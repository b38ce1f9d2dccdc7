"""Sentences of several corpora, and splitting into words."""

import pytest
import torch

from regard.core.errors import BadInput
from regard.data.batching import StreamPosition
from regard.data.text.char_sentences import CharSentences
from regard.data.text.word_sentences import WordSentences
from regard.models.elmo import Config, words_to_char_ids
from regard.tokens.tokenizer import Tokenizer
from regard.tokens.word_tokenizer import build_vocabulary, split_words, word_ids

LINES = ["The dog runs.", "A dog doesn't run, Mr. Hu-Li!", "The cat sees the dog at 10:30.", "No."]


@pytest.fixture
def file(tmp_path):
    place = tmp_path / "lines.txt"
    place.write_text("\n".join(LINES * 8) + "\n", encoding="utf-8")
    return str(place)


def test_words_are_split_at_spaces_and_punctuation():
    assert split_words("A dog doesn't run, Mr. Hu-Li!") == ["A", "dog", "doesn't", "run", ",", "Mr.", "Hu-Li", "!"]
    assert split_words("In the U.S. it's 3,500.50 (say).") == [
        "In",
        "the",
        "U.S.",
        "it's",
        "3,500.50",
        "(",
        "say",
        ")",
        ".",
    ]
    assert split_words("naïve çok 漢字 ½ ...") == ["naïve", "çok", "漢字", "½", ".", ".", "."]
    assert split_words("  ") == []
    with pytest.raises(BadInput, match="expected text"):
        split_words(7)


def test_vocabulary_splits_like_split_words(tmp_path):
    text = build_vocabulary(map(split_words, LINES), size=12, lower=True)
    known = word_ids(text)
    assert text.size == 12
    assert [*known][:2] == [".", "dog"]  # the most frequent first, then by the alphabet
    for line in [*LINES, "Unseen words, dog!"]:
        assert text.encode_one(line) == [known.get(word.lower(), text.unk) for word in split_words(line)]
    text.save(tmp_path / "v")
    assert Tokenizer.load(tmp_path / "v").encode(LINES) == text.encode(LINES)
    assert word_ids(build_vocabulary(map(split_words, LINES), size=99, min_count=3)).keys() == {".", "dog"}
    with pytest.raises(BadInput, match="no word occurs 50 times"):
        build_vocabulary(map(split_words, LINES), size=99, min_count=50)


def test_user_text_is_read_and_encoded(file):
    data = WordSentences((file,), vocab_size=50, min_count=1, max_length=4)
    assert data.splits() == ["train", "val"]
    rows = data.read("train")
    assert rows[:3] == [["The", "dog", "runs", "."], ["A", "dog", "doesn't", "run"], [",", "Mr.", "Hu-Li", "!"]]
    text = data.build_tokenizer()
    flat = data.numbers("train", text)
    assert text.decode([flat.row(0)]) == ["the dog runs ."]
    assert data.fingerprint("train") != WordSentences((file,), limit=2).fingerprint("train")
    with pytest.raises(BadInput, match="no dataset"):
        WordSentences(("nowhere",)).splits()


def test_known_corpora_are_read():
    data = WordSentences(limit=300)
    try:
        data.splits()
    except BadInput as error:
        pytest.skip(str(error))
    assert data.splits() == ["train", "val", "test"]
    by_name = {name: WordSentences((name,), limit=300).read("train") for name in data.corpora}
    assert sum(map(len, by_name.values())) == len(data.read("train"))
    assert by_name["brown"][0][:4] == ["The", "Fulton", "County", "Grand"]
    assert "``" not in {w for row in by_name["brown"] for w in row}
    assert not {"N", "n't", "'s"} & {w for row in by_name["ptb"] for w in row}
    assert any("don't" in row for row in WordSentences(("ptb",)).read("val"))
    train = {" ".join(row) for row in WordSentences(("tatoeba",)).read("train")}
    assert not train & {" ".join(row) for row in WordSentences(("tatoeba",)).read("val")}


def test_batch_has_each_distinct_word_once(file):
    data = WordSentences((file,), vocab_size=8, min_count=1)
    text, config = data.build_tokenizer(), Config(vocab=8, filters=(2, 2), max_word_length=8)
    read = CharSentences(data.read("train"), lambda words: words_to_char_ids(words, config), text, True, 40)
    item = next(read.stream(1).start(StreamPosition()))
    spelled, words, lengths, targets = item.batch
    assert len(spelled.unique(dim=0)) == len(spelled)
    assert item.count == 2 * int((lengths - 1).sum())
    assert (targets[:, 0] == text.bos).all()
    for row, own, n in zip(words, targets, lengths.tolist(), strict=True):
        assert own[n - 1] == text.eos
        assert (own[n:] == -100).all()
        assert spelled[row[0], 1] == 256
        assert spelled[row[n - 1], 1] == 257
    assert sum(len(batch.words) for batch in read.eval_batches(64)) == len(read)
    first = item.batch.rows(1)
    assert torch.equal(first.words, words[:1])
    assert torch.equal(first.char_ids, spelled)

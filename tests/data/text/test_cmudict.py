"""Pronunciations: read as published scores count them, and joined to rows of several words."""

import gzip

import pytest
import torch

from regard.core.errors import BadInput, UnknownName
from regard.data.text.cmudict import WORD_SEPARATOR, CMUDict, Entry, read_entries
from regard.data.text.parallel_corpus import PairBatch
from regard.data.text.text_tasks import Pronounce

ROWS = ["tomato\tT AH0 M EY1 T OW2\tT AH0 M AA1 T OW2", "it's\tIH1 T S", "record\tR AH0 K AO1 R D\tR AH1 K AO0 R D"]
ROWS += [f"{word}\t{' '.join(word.upper())}1" for word in ("cat", "nap", "dog", "sun", "fan", "pit", "tap")]


@pytest.fixture
def folder(tmp_path):
    for split in ("train", "val", "test"):
        (tmp_path / f"words.{split}.tsv").write_text("\n".join(ROWS) + "\n")
    return tmp_path


def test_pronunciations_without_stress_are_unique(folder):
    tomato, its, record, *_ = CMUDict(str(folder)).read("train")
    assert tomato == Entry("tomato", ("T AH M EY T OW", "T AH M AA T OW"))
    assert record.pronunciations == ("R AH K AO R D",)  # noun and verb differ in stress alone
    assert its.word == "it's"
    stored = CMUDict(str(folder), stress=True).read("train")
    assert stored[2].pronunciations == ("R AH0 K AO1 R D", "R AH1 K AO0 R D")


def test_the_text_task_reads_the_same_words(folder, tmp_path, monkeypatch):
    place = tmp_path / "home" / "cmudict"
    place.mkdir(parents=True)
    (place / "cmudict.train.tsv.gz").write_bytes(gzip.compress(("\n".join(ROWS) + "\n").encode()))
    monkeypatch.setenv("REGARD_DATA", str(tmp_path / "home"))
    for stress in (False, True):
        actual = CMUDict(stress=stress).read("train")
        reference = Pronounce(stress=stress).read("train")
        assert [(" ".join(e.word), e.pronunciations) for e in actual] == [(x.source, x.references) for x in reference]


def test_letters_are_the_source_and_phonemes_the_target(folder):
    part = CMUDict(str(folder), pad_to_multiple_of=1).load("train")
    text = part.tokenizer
    assert text.pieces(part.source.row(1)) == ["i", "t", "'", "s", "</s>"]
    assert text.pieces(part.target.row(1)) == ["<s>", "IH", "T", "S", "</s>"]
    batch = part.collate(torch.tensor([0, 1]))
    assert isinstance(batch, PairBatch)
    assert batch.source_lengths.tolist() == [7, 5]
    assert batch.target_lengths.tolist() == [8, 5]
    assert text.decode(batch.target.tolist()) == ["T AH M EY T OW", "IH T S"]


def test_letters_and_phonemes_are_disjoint_and_all_phonemes_are_known(folder):
    text = CMUDict(str(folder), stress=True).load("train").tokenizer
    pieces = text.pieces(range(text.size))
    assert {"t", "T", "AA1", "EY1", "'"} <= set(pieces)
    assert len(set(pieces)) == text.size
    assert text.unk not in text.encode_one("T AH0 M AA1 T OW2")


def test_all_pronunciations_are_used_only_if_set(folder):
    assert len(CMUDict(str(folder)).load("train")) == len(ROWS)
    data = CMUDict(str(folder), all_pronunciations=True)
    train = data.load("train")
    assert len(train) == len(ROWS) + 1
    assert train.tokenizer.decode([train.target.row(1)]) == ["T AH M AA T OW"]
    assert len(data.load("val", train.tokenizer)) == len(ROWS)
    assert len(train.entries) == len(ROWS)


def test_joined_words_have_one_pronunciation_and_growing_counts(folder):
    train = CMUDict(str(folder), words_per_row=3).read("train")
    assert [e.word.count(WORD_SEPARATOR) + 1 for e in train] == [1, 2, 3, 1, 2]
    used = [word for e in train for word in e.word.split(WORD_SEPARATOR)]
    assert len(set(used)) == len(used) == 9
    assert "tomato" not in used
    known = {e.word: e.pronunciations[0] for e in CMUDict(str(folder)).read("train")}
    for e in train:
        assert e.pronunciations == (f" {WORD_SEPARATOR} ".join(known[word] for word in e.word.split(WORD_SEPARATOR)),)
    test = CMUDict(str(folder), words_per_row=4).read("test")
    assert [e.word.count(WORD_SEPARATOR) + 1 for e in test] == [4, 4]


def test_word_separator_is_a_token_of_both_sides(folder):
    part = CMUDict(str(folder), words_per_row=2).load("train")
    assert part.tokenizer.pieces(part.source.row(1)).count(WORD_SEPARATOR) == 1
    assert part.tokenizer.pieces(part.target.row(1)).count(WORD_SEPARATOR) == 1


def test_epoch_has_every_word_once(folder):
    part = CMUDict(str(folder), batch_tokens=64).load("train")
    stream = part.stream(seed=3)
    batches = list(stream.order(0))
    assert sorted(torch.cat(batches).tolist()) == list(range(len(ROWS)))


@pytest.mark.parametrize("line", ["word", "word\t", "two words\tT UW", "\tT UW", "a\tAH\t\tEY", ""])
def test_invalid_dictionary_line_is_named(tmp_path, line):
    (tmp_path / "train.tsv").write_text(f"cat\tK AE T\n{line}\n")
    with pytest.raises(BadInput, match=r"train.tsv, line 2: expected word<TAB>phonemes"):
        CMUDict(str(tmp_path)).read("train")


def test_missing_splits_are_reported(folder, tmp_path):
    with pytest.raises(UnknownName, match="has no split 'vall'; did you mean 'val'"):
        CMUDict(str(folder)).read("vall")
    (tmp_path / "empty").mkdir()
    with pytest.raises(BadInput, match="has no training words"):
        CMUDict(str(tmp_path / "empty")).splits()
    with pytest.raises(BadInput, match="has no split 'dev'"):
        read_entries(folder, "dev")
    with pytest.raises(BadInput, match=r"only 9 words with one pronunciation, too few for data\.words_per_row=50"):
        CMUDict(str(folder), words_per_row=50).read("test")

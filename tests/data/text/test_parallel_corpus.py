import gzip
import re
from itertools import chain, islice

import pytest
import torch

from regard.core.errors import BadInput, UnknownName
from regard.data import data_dir
from regard.data.batching import StreamPosition
from regard.data.text.parallel_corpus import (
    LANGUAGES,
    PHRASES,
    PairBatch,
    ParallelCorpus,
    agreeing_rows,
    count_target_tokens,
    read_pairs,
)
from regard.data.text.table import read_table

EN = ["a dog runs", "two cats sleep here", "a line\u2028break stays", "", "one"]
DE = ["ein hund läuft", "zwei katzen schlafen hier", "ein zeilen\u2028umbruch bleibt", "leer", "eins"]


@pytest.fixture
def folder(tmp_path):
    """Five pairs in the layout of Multi30k (one side compressed), and two splits in the layout of Tatoeba."""
    (tmp_path / "train.en").write_bytes(("\n".join(EN) + "\n").encode())
    (tmp_path / "train.de.gz").write_bytes(gzip.compress(("\n".join(DE) + "\n").encode()))
    rows = "".join(f"{a}\t{b}\n" for a, b in zip(EN, DE, strict=True))
    (tmp_path / "en-de.test_2016_flickr.tsv").write_bytes(rows.encode())
    (tmp_path / "en-de.val.tsv").write_bytes(rows.encode())
    return tmp_path


def data(folder, **settings):
    return ParallelCorpus(str(folder), **({"tokenizer": "bytes", "vocab_size": 300} | settings))


def test_both_layouts_give_the_same_pairs(folder):
    assert data(folder).read("train") == (EN, DE)
    assert data(folder).read("test_2016_flickr") == (EN, DE)


def test_languages_can_be_swapped(folder):
    assert data(folder, source="de", target="en").read("test_2016_flickr") == (DE, EN)
    assert data(folder, source="de", target="en").read("train") == (DE, EN)


def test_split_is_found_by_the_beginning_of_its_name(folder):
    assert data(folder).split("test_2016") == "test_2016_flickr"
    with pytest.raises(UnknownName, match="no split 'tests'"):
        data(folder).split("tests")


def test_limit_takes_the_first_pairs(folder):
    assert data(folder, limit=2).read("train") == (EN[:2], DE[:2])


def test_source_has_eos_and_target_has_bos_and_eos(folder):
    corpus = data(folder).load("train")
    text = corpus.tokenizer
    assert corpus.source.row(0) == [*text.encode_one(EN[0]), text.eos]
    assert corpus.target.row(0) == [text.bos, *text.encode_one(DE[0]), text.eos]


def test_empty_and_long_pairs_are_only_left_out_of_training(folder):
    corpus = data(folder).load("train")
    assert corpus.usable().tolist() == [0, 1, 2, 4]
    assert len(corpus) == 5
    longest = int(corpus.target.lengths.max())
    shorter = data(folder, max_length=longest - 1).load("train", corpus.tokenizer)
    assert longest not in shorter.target.lengths[shorter.usable()].tolist()


def test_batch_is_padded_to_a_multiple_and_counts_target_tokens(folder):
    corpus = data(folder, pad_to_multiple_of=8).load("train")
    batch = corpus.collate(torch.tensor([0, 1]))
    assert batch.source.shape[1] % 8 == 0
    assert batch.target.shape[1] % 8 == 1  # the decoder reads all but the last
    assert count_target_tokens(batch) == sum(len(corpus.target.row(i)) - 1 for i in (0, 1))
    for row in (0, 1):
        length = int(batch.target_lengths[row])
        assert batch.target[row, :length].tolist() == corpus.target.row(row)
        assert (batch.target[row, length:] == corpus.tokenizer.pad).all()
    assert isinstance(batch.to("cpu"), PairBatch)


def test_batch_rows(folder):
    corpus = data(folder).load("train")
    batch = corpus.collate(torch.tensor([0, 1, 4]))
    first = batch.rows(2)
    assert isinstance(first, PairBatch)
    assert torch.equal(first.source, batch.source[:2])
    assert count_target_tokens(first) == count_target_tokens(corpus.collate(torch.tensor([0, 1])))


def test_evaluation_gives_every_row_once(folder):
    corpus = data(folder).load("train")
    for tokens in (8, 64, 10_000):
        batches = list(corpus.eval_batches(tokens))
        assert sum(len(b.source) for b in batches) == 5
        assert sum(count_target_tokens(b) for b in batches) == int(corpus.target.lengths.sum()) - 5


def test_axes_of_different_length_are_an_error(folder):
    (folder / "train.en").write_text("only one\n")
    with pytest.raises(BadInput, match="not pairs"):
        data(folder).read("train")


def test_row_without_two_columns_raises_with_its_line(folder):
    (folder / "en-de.val.tsv").write_text("a\tb\nno tab here\n")
    with pytest.raises(BadInput, match="line 2"):
        data(folder).read("val")


# Named: a gzip header holds the time of day, and parallel test runs must agree on the names of their tests.
@pytest.mark.parametrize(
    "content",
    [b"\xff\xfe not utf-8 \xff", gzip.compress(b"a\n" * 1000, mtime=0)[:-20]],
    ids=["not-utf-8", "cut-off-gzip"],
)
def test_damaged_file_is_named(folder, content):
    packed = content.startswith(b"\x1f\x8b")
    file = folder / ("train.de.gz" if packed else "train.de")
    (folder / "train.de.gz").unlink()
    file.write_bytes(content)
    with pytest.raises(BadInput, match=f"cannot read .*{file.name}"):
        data(folder).read("train")


def test_folder_without_pairs_says_what_is_expected(tmp_path):
    (tmp_path / "notes.txt").write_text("nothing")
    with pytest.raises(BadInput, match=r"train\.en"):
        data(tmp_path).splits()


def test_missing_dataset_says_where_it_was_searched(tmp_path, monkeypatch):
    monkeypatch.setenv("REGARD_DATA", str(tmp_path))
    with pytest.raises(BadInput, match="REGARD_DATA"):
        data_dir.find_dataset("multi31k")
    (tmp_path / "multi31k").mkdir()
    assert data_dir.find_dataset("multi31k") == tmp_path / "multi31k"


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("t.tsv", "7\ta dog\t70\tein Hund\n8\ta cat\t80\teine Katze\n"),  # as Tatoeba exports pairs
        ("t.csv", "id,English,German\n1,a dog,ein Hund\n2,a cat,eine Katze\n"),
        ("t.jsonl", '{"id": 1, "translation": {"en": "a dog", "de": "ein Hund"}}\n'
                    '{"id": 2, "translation": {"en": "a cat", "de": "eine Katze"}}\n'),
        ("t.tsv", "a dog\tein Hund\tby me, 1\na cat\teine Katze\tby you\n"),
    ],
)  # fmt: skip
def test_numbers_of_sentences_are_not_taken_for_sentences(tmp_path, name, content):
    (tmp_path / name).write_text(content)
    assert read_pairs(tmp_path / name, "en", "de") == (["a dog", "a cat"], ["ein Hund", "eine Katze"])
    (tmp_path / name).write_text("one\t1\ntwo\t2\n")
    if name == "t.tsv":
        assert read_pairs(tmp_path / name, "en", "de") == (["one", "two"], ["1", "2"])


def test_without_a_validation_split_some_of_the_training_pairs_are_kept_for_it(tmp_path):
    for side in ("en", "de"):
        (tmp_path / f"train.{side}").write_text("".join(f"{side} {n}\n" for n in range(30)))
    data = ParallelCorpus(str(tmp_path), "en", "de")
    assert data.splits() == ["train", "val"]
    parts = {part: data.read(part) for part in data.splits()}
    assert {part: len(source) for part, (source, _) in parts.items()} == {"train": 27, "val": 3}
    for source, target in parts.values():
        assert [line.replace("en", "de") for line in source] == target
    assert sorted(parts["train"][0] + parts["val"][0]) == sorted(f"en {n}" for n in range(30))
    (tmp_path / "val.en").write_text("en x\n")
    (tmp_path / "val.de").write_text("de x\n")
    assert (len(data.read("train")[0]), data.read("val")) == (30, (["en x"], ["de x"]))


def test_augmented_batches_depend_on_seed_epoch_and_row_alone(folder):
    (folder / "train.en").write_text("I am Tom.\nWhere is Mary?\nI don't know.\nHello!\nMy name is Tom.\n")
    corpus = data(folder, augment=True, batch_tokens=24).load("train")

    def texts(seed, start, count):
        items = islice(iter(corpus.stream(seed).start(start)), count)
        return [corpus.tokenizer.decode(item.batch.source.tolist()) for item in items]

    per_epoch = len(corpus.stream(1).order(0))
    both = texts(1, StreamPosition(), 2 * per_epoch)
    assert texts(1, StreamPosition(1, 1), per_epoch - 1) == both[per_epoch + 1 :]  # resumed in the second epoch
    first, second = (sorted(chain(*part)) for part in (both[:per_epoch], both[per_epoch:]))
    assert first != second
    assert len({str(texts(seed, StreamPosition(), per_epoch)) for seed in range(5)}) == 5


def test_of_many_targets_those_stay_that_agree_most():
    source = ["Hi!", "Who?", "Hi!", "Hi!", "Hi!"]
    target = ["Hallo!", "Wer?", "Hallo, du!", "Hallo!", "Grüezi mitenand!"]
    assert agreeing_rows(source, target, 2) == [0, 1, 3]
    assert agreeing_rows(source, target, 9) == [0, 1, 2, 3, 4]


def test_phrases_are_added_to_training_alone(folder):
    corpus = data(folder, phrases=2)
    assert len(corpus.read("val")[0]) == len(EN)
    source, target = corpus.read("train")
    assert (source[: len(EN)], target[: len(DE)]) == (EN, DE)
    assert (source.count("Good morning."), target.count("Guten Morgen.")) == (2, 2)
    with pytest.raises(BadInput, match="phrases in en, fr, de, not in cs"):
        data(folder, phrases=2, target="cs")._for_training([], [])


@pytest.mark.skipif(not any((folder / "tatoeba").is_dir() for folder in data_dir.data_dirs()), reason="no Tatoeba")
def test_no_phrase_is_held_out():
    def plain(line):
        return re.sub(r"[.!?,]", "", line.lower())

    for target in ("fr", "de"):
        corpus = ParallelCorpus("tatoeba", target=target)
        held_out = {plain(line) for part in ("val", "test") for line in corpus.read(part)[0]}
        assert not held_out & {plain(line) for line in read_table(PHRASES, LANGUAGES).column("en")}

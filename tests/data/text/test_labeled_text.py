"""Labelled texts, tagged words and questions: reading, missing splits, rows."""

import gzip
import json

import pytest
import torch

from regard.core.errors import BadInput
from regard.data import data_dir
from regard.data.batching import StreamPosition
from regard.data.shards.token_shards import IGNORE_INDEX
from regard.data.text.labeled_text import LabeledText, encode_pair
from regard.data.text.question_answering import QuestionAnswering, encode_windows, locate_answer
from regard.data.text.stories import parse_stories
from regard.data.text.tagged_sentences import TaggedSentences, encode_sentences
from regard.tokens.tokenizer import Tokenizer

LINES = [f"{a} {b} {c}" for a in ("red", "blue", "old") for b in ("dogs", "cats", "birds") for c in ("run", "sit")]


@pytest.fixture(scope="module")
def text():
    return Tokenizer.train(LINES * 2, kind="bert", size=60)


@pytest.fixture
def table(tmp_path):
    rows = [f"{line}\t{'good' if 'dogs' in line else 'bad'}" for line in LINES] * 3
    (tmp_path / "own.tsv").write_text("\n".join(rows) + "\n")
    return tmp_path / "own.tsv"


def here(name):
    try:
        return bool(data_dir.find_dataset(name))
    except BadInput:
        return False


def test_missing_splits_are_tenths_that_rotate_with_the_fold(table):
    seen = []
    for fold in range(10):
        data = LabeledText(str(table), fold=fold)
        parts = {part: data.read(part) for part in data.splits() if part != "all"}
        assert data.splits() == ["all", "test", "train", "val"]
        assert sorted(data.read("all")) == sorted(row for part in parts.values() for row in part)
        assert sum(map(len, parts.values())) == 54
        assert len(parts["test"]) in (5, 6)
        seen += parts["test"]
    assert sorted(seen) == sorted(LabeledText(str(table)).read("train") + LabeledText(str(table)).read("val") + LabeledText(str(table)).read("test"))  # fmt: skip  # noqa: E501
    with pytest.raises(BadInput, match="fold must be 0 to 9"):
        LabeledText(str(table), fold=10).splits()


CSV = """\ufeffid,Label,"text"\r
1,good,"red dogs, and ""blue"" cats\r
sit"\r
\r
2,bad, old birds run \r
"""


def test_a_csv_is_read_by_the_names_in_its_first_row(tmp_path):
    (tmp_path / "train.csv").write_bytes(CSV.encode())
    with gzip.open(tmp_path / "val.csv.gz", "wt", newline="") as file:
        file.write("text,label\na,good\n")
    data = LabeledText(str(tmp_path))
    assert data.read("train") == [('red dogs, and "blue" cats sit', "good"), ("old birds run", "bad")]
    assert data.read("val") == [("a", "good")]
    assert data.labels() == ["bad", "good"]


def test_csv_equals_the_same_tsv(table):
    rows = [line.split("\t") for line in table.read_text().splitlines()]
    own = table.with_suffix(".csv")
    own.write_text("label,text\n" + "".join(f'{label},"{line}"\n' for line, label in rows))
    for part in ("train", "val", "test"):
        assert LabeledText(str(own)).read(part) == LabeledText(str(table)).read(part)
    own.write_text("other,label,text\n" + "b,c,a\n" * 30)
    assert LabeledText(str(own), columns="text other label").read("val")[0] == ("a", "b", "c")


def test_tsv_is_preferred_to_csv(table):
    (table.parent / "notes.csv").write_text("a,b\n")
    assert len(LabeledText(str(table.parent)).read("train")) == len(LabeledText(str(table)).read("train"))


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("sentence,stars\na,b\n", r"own\.csv: no column is called 'text' .* has 'sentence', 'stars'"),
        ("text,stars\na,b\n", "no column is called 'label' in its first row, which has 'text', 'stars'"),
        ("text,text,label\na,b,c\n", "2 columns are called 'text'"),
        ("", "has no rows"),
        ("text,label\n", "has no rows but the names of its columns"),
        ("text,label\na,b\na\n", "line 3: 1 column; its first row has 2"),
        ("text,label\na,b,c\n", "line 2: 3 columns; its first row has 2"),
        ("text,label\na,\n", "line 2: label is empty"),
        ('text,label\n"a,b\n', "line 2: unexpected end of data"),
    ],
)
def test_unreadable_csv_is_refused(tmp_path, written, message):
    (tmp_path / "own.csv").write_text(written)
    with pytest.raises(BadInput, match=message) as caught:
        LabeledText(str(tmp_path / "own.csv")).splits()
    assert "\n" not in str(caught.value)


def test_columns_in_any_order_and_text_pairs(tmp_path):
    (tmp_path / "train.tsv").write_text("yes\tit rains\tit is wet\nno\tit rains\tit is dry\n")
    (tmp_path / "val.tsv").write_text("no\ta\tb\n")
    data = LabeledText(str(tmp_path), columns="label text other")
    assert data.read("train")[0] == ("it rains", "it is wet", "yes")
    assert data.labels() == ["no", "yes"]
    assert data.splits() == ["train", "val"]
    text = Tokenizer.train(["it rains is wet dry a b"] * 2, kind="bert", size=60)
    batch = data.load("train", text).collate(torch.tensor([0]))
    ids = [text.encode_one(s) for s in ("it rains", "it is wet")]
    row, which = text.with_special_tokens(*ids)
    assert batch.tokens[0, : len(row)].tolist() == row
    assert batch.segments[0, : len(row)].tolist() == which
    assert batch.labels.tolist() == [1]


def test_a_folder_for_each_label_is_read(tmp_path):
    for kind in ("spam", "mail"):
        (tmp_path / kind).mkdir()
        for n in range(12):
            (tmp_path / kind / f"{n:02}.txt").write_text(f"{kind} {n}\nsecond line\n")
    data = LabeledText(str(tmp_path))
    assert data.labels() == ["mail", "spam"]
    rows = data.read("all")
    assert len(rows) == 24
    assert ("spam 3 second line", "spam") in rows


def test_the_longer_of_two_texts_is_cut_first(text):
    a, b = list(range(10, 40)), list(range(50, 54))
    for first, second, keep in ((a, b, (9, 4)), (b, a, (4, 9)), (a, a, (7, 6)), (b, b, (4, 4))):
        row, which = encode_pair(text, [first, second], 16)
        assert (which.count(0) - 2, which.count(1) - 1) == keep
        assert len(row) <= 16
    assert encode_pair(text, [a], 16)[0] == [text.bos, *a[:14], text.eos]


def test_epoch_has_every_text_once(table, text):
    part = LabeledText(str(table), batch_size=7).load("train", text)
    order = part.stream(1).order(0)
    rows = torch.cat([order[i] for i in range(len(order))])
    assert len(rows) == len(part) // 7 * 7
    assert len(set(rows.tolist())) == len(rows)
    assert sum(len(batch.labels) for batch in part.eval_batches(64)) == len(part)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a\tx\nb", "line 2: 1 column;"),
        (" \ty\n \tx", "line 1: text is empty"),
        ("a\tx\nb\tx\nc\tx\n" * 5, "needs at least 2 labels"),
        ("a\tx\nb\ty", "too few"),
    ],
)
def test_invalid_table_is_reported(tmp_path, content, message):
    (tmp_path / "own.tsv").write_text(content)
    with pytest.raises(BadInput, match=message):
        LabeledText(str(tmp_path / "own.tsv")).labels()


def test_rows_with_an_empty_cell_are_left_out_and_named(tmp_path, caplog):
    (tmp_path / "own.csv").write_text("text,label\n" + "a,x\nb,y\n" * 20 + "c,\n,x\n")
    assert len(LabeledText(str(tmp_path / "own.csv")).read("all")) == 40
    assert "left out line 42" in caplog.text
    assert "label is empty, and 1 more like it" in caplog.text


def test_a_label_that_occurs_once_is_trained_on(tmp_path):
    for place in range(0, 30, 3):  # wherever it stands
        rows = ["a\tx", "b\ty"] * 15
        (tmp_path / f"{place}.tsv").write_text("\n".join([*rows[:place], "c\trare", *rows[place:]]))
        data = LabeledText(str(tmp_path / f"{place}.tsv"), test_split=False)
        assert data.labels() == ["rare", "x", "y"]
        assert len(data.read("train")) + len(data.read("val")) == 31


def test_label_missing_from_training_is_refused(tmp_path, text):
    (tmp_path / "train.tsv").write_text("a\tx\nb\ty\n")
    (tmp_path / "val.tsv").write_text("a\tz\n")
    with pytest.raises(BadInput, match="'z' is not in the training split"):
        LabeledText(str(tmp_path)).load("val", text)


@pytest.mark.skipif(not here("text_classification"), reason="data are missing: set REGARD_DATA")
def test_known_datasets_have_their_published_sizes():
    sizes = {"sst2": (6920, 872, 1821), "trec6": (5452 - 546, 546, 500), "mr": (8529, 1067, 1066)}
    for name, expected in sizes.items():
        data = LabeledText(name)
        assert tuple(len(data.read(part)) for part in ("train", "val", "test")) == expected
    assert LabeledText("trec6").labels() == ["abbreviation", "description", "entity", "human", "location", "number"]
    assert ("How far is it from Denver to Aspen ?", "number") in LabeledText("trec6").read("test")


# -- tags --------------------------------------------------------------------------------------------------------------


def test_tag_is_at_the_first_piece_of_its_word(tmp_path, text):
    (tmp_path / "train.txt").write_text("red JJ X\ndogsx NN Y\nrun VB X\n\nsit VB X\n\n\n")
    (tmp_path / "val.txt.gz").write_bytes(gzip.compress(b"cats NN Z\n"))
    data = TaggedSentences(str(tmp_path), column=1)
    assert data.read("train") == [(("red", "dogsx", "run"), ("JJ", "NN", "VB")), (("sit",), ("VB",))]
    assert TaggedSentences(str(tmp_path)).labels() == ["X", "Y"]
    assert data.labels() == ["JJ", "NN", "VB"]
    batch = data.load("train", text).collate(torch.tensor([0, 1]))
    pieces = [text.encode_one(word) or [text.unk] for word in ("red", "dogsx", "run")]
    places = [1, 1 + len(pieces[0]), 1 + len(pieces[0]) + len(pieces[1])]
    assert batch.tokens[0, : int(batch.lengths[0])].tolist() == [
        text.bos,
        *(i for ids in pieces for i in ids),
        text.eos,
    ]
    expected = [IGNORE_INDEX] * batch.targets.shape[1]
    for place, tag in zip(places, (0, 1, 2), strict=True):
        expected[place] = tag
    assert batch.targets[0].tolist() == expected
    assert (
        TaggedSentences(str(tmp_path)).load("val", text).collate(torch.tensor([0])).targets.max() == IGNORE_INDEX
    )  # unknown tag


def test_long_sentence_is_split_between_words(text):
    words = ["red", "dogs", "run"] * 9
    (cut,) = encode_sentences(text, [words], 12)
    assert len(cut) > 1
    assert sum(len(places) for _, places in cut) == 27
    assert all(len(row) <= 12 and row[0] == text.bos and row[-1] == text.eos for row, _ in cut)
    assert [i for row, _ in cut for i in row[1:-1]] == text.encode_one(" ".join(words))


def test_invalid_tag_file_is_reported(tmp_path):
    (tmp_path / "own.txt").write_text("red JJ\nalone\n")
    with pytest.raises(BadInput, match="line 2: 1 columns"):
        TaggedSentences(str(tmp_path / "own.txt")).labels()


@pytest.mark.skipif(not here("conll2000"), reason="data are missing: set REGARD_DATA")
def test_conll2000_has_its_official_sizes():
    data = TaggedSentences("conll2000", column=2)
    sizes = {part: len(data.read(part)) for part in data.splits()}
    assert sizes["test"] == 2012
    assert sizes["train"] + sizes["val"] == 8936
    assert len(data.labels()) == 22
    assert sum(len(words) for words, _ in data.read("test")) == 47_377


# -- questions ---------------------------------------------------------------------------------------------------------

STORY = """1 Mary moved to the bathroom.
2 John went to the hallway.
3 Where is Mary? \tbathroom\t1
4 Mary went to the hallway.
5 Where is Mary? \thallway\t4
1 Ann took the milk.
2 Ann went to the garden.
3 Where is the milk? \tgarden\t1 2
"""


def test_story_ends_at_its_question_and_contains_the_answer():
    one, two, three = (locate_answer(q) for story in parse_stories(STORY) for q in story)
    assert one.context == "Mary moved to the bathroom. John went to the hallway."
    assert two.context.endswith("hallway. Mary went to the hallway.")
    assert two.begin > two.context.index("hallway") + 8  # the second one: the first does not support it
    assert three.context == "Ann took the milk. Ann went to the garden."
    for q in (one, two, three):
        assert q.context[q.begin : q.end] == q.answers[0]


def test_rows_of_questions_point_at_the_answer(tmp_path):
    rows = [{"context": "The red dog (old) runs.", "question": "Which dog?", "answer": ["red dog", "dog"]}] * 12
    (tmp_path / "own.jsonl").write_text("\n".join(map(json.dumps, rows)))
    data = QuestionAnswering(str(tmp_path / "own.jsonl"), vocab_size=60)
    text = data.build_tokenizer()
    batch = data.load("train", text).collate(torch.tensor([0]))
    row, begin, end = batch.tokens[0].tolist(), int(batch.start_positions[0]), int(batch.end_positions[0])
    assert text.decode([row[begin : end + 1]])[0] == "red dog"
    assert batch.segments[0, begin] == 1
    assert data.read("train")[0].answers == ("red dog", "dog")


def test_windows_overlap_by_half_and_cover_the_text(text):
    context = " ".join(LINES * 3)
    ((*found,),) = encode_windows(text, [("red dogs run", context)], 32)
    assert len(found) > 3
    covered = set()
    for window in found:
        assert len(window.tokens) <= 32
        inside = window.tokens[window.first : -1]
        assert len(inside) == len(window.spans)
        assert inside == text.encode_one(context[window.spans[0][0] : window.spans[-1][1]])
        covered.update(window.spans)
    assert len(covered) == len(context.split())
    assert set(found[0].spans[len(found[0].spans) // 2 :]) <= set(found[1].spans)


def test_answer_missing_from_the_text_is_refused(tmp_path):
    (tmp_path / "own.tsv").write_text("a dog\twho?\tcat\n")
    with pytest.raises(BadInput, match="does not occur in the text"):
        QuestionAnswering(str(tmp_path / "own.tsv")).splits()
    (tmp_path / "own.tsv").write_text("a dog\twho?\n")
    with pytest.raises(BadInput, match="2 columns"):
        QuestionAnswering(str(tmp_path / "own.tsv")).splits()
    with pytest.raises(BadInput, match="occurs in no supporting sentence"):
        locate_answer(parse_stories("1 Mary is here.\n2 Is Mary here? \tyes\t1\n")[0][0])


@pytest.mark.skipif(not here("babi"), reason="data are missing: set REGARD_DATA")
def test_babi_answers_occur_in_their_stories():
    data = QuestionAnswering("babi", (1, 2, 3), "1k")
    assert {part: len(data.read(part)) for part in data.splits()} == {"train": 2700, "val": 300, "test": 3000}
    assert all(q.context[q.begin : q.end] == q.answers[0] for q in data.read("test"))


def test_batches_are_the_same_for_any_number_of_processes(table, text):
    part = LabeledText(str(table), batch_size=6).load("train", text)
    full = part.stream(2).start(StreamPosition())
    shares = [part.stream(2).start(StreamPosition(), share, 2) for share in (0, 1)]
    for _ in range(9):
        one, parts = next(full), [next(share) for share in shares]
        for share, each in enumerate(parts):
            assert torch.equal(one.batch.labels[share::2], each.batch.labels)
        assert one.count == sum(each.count for each in parts)

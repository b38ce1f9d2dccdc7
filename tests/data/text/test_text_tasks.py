"""Text tasks on the datasets, where those are available, and summaries checked by hand."""

import gzip
import json

import pytest

from regard.core.errors import BadInput, UnknownName
from regard.core.spec import build_part
from regard.data import TEXT_TASKS
from regard.data.text.text_tasks import Pronounce, Sentiment, Summarize, Translate, _summary_spans, read_examples

ARTICLE = 'Profits rose 2% on Friday. The firm was "pleased".\nShares fell. Nobody knows why. It is 3.5 today.'


@pytest.fixture
def home(tmp_path, monkeypatch):
    """Small datasets in the layouts of the real ones."""
    rows = [
        {"title": "A", "text": ARTICLE, "summary": "Shares fell.Profits rose 2% on Friday.", "split": split}
        for split in ("train", "val", "test")
    ]
    files = {
        "bbc_news_summary/bbc_news_summary.jsonl.gz": "\n".join(map(json.dumps, rows)),
        "cmudict/cmudict.train.tsv.gz": "tomato\tT AH0 M EY1 T OW2\tT AH0 M AA1 T OW2\nit's\tIH1 T S",
        "pairs/en-de.train.tsv.gz": "a dog\tein Hund\n\tleer\nno\t",
        "pairs/en-de.test_b.tsv.gz": "b\tB",
        "pairs/en-de.test_a.tsv.gz": "a\tA",
        "text_classification/sst2.train.tsv.gz": "1\tgood film\n0\tbad film",
        "text_classification/sst2.val.tsv.gz": "1\tgood",
        "text_classification/sst2.test.tsv.gz": "0\tbad",
    }
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(gzip.compress((content + "\n").encode()))
    monkeypatch.setenv("REGARD_DATA", str(tmp_path))
    return tmp_path


def test_summary_is_in_article_order(home):
    (example,) = Summarize().read("train")
    assert example.source == " ".join(ARTICLE.split())
    assert example.target == "Profits rose 2% on Friday. Shares fell."
    assert example.references == (example.target,)


def test_training_target_is_limited_to_the_input_but_reference_is_not(home):
    (example,) = Summarize(words=6).read("train")
    assert example.source == "Profits rose 2% on Friday. The"
    assert example.target == "Profits rose 2% on Friday."
    assert example.references == ("Profits rose 2% on Friday. Shares fell.",)


def test_long_article_gives_several_training_windows_and_one_evaluation_example(home):
    examples = Summarize(words=8, stride=4).read("train")
    assert [(e.source, e.target) for e in examples] == [
        ("Profits rose 2% on Friday. The firm was", "Profits rose 2% on Friday."),
        ('The firm was "pleased". Shares fell. Nobody knows', "Shares fell."),
        ("Shares fell. Nobody knows why. It is 3.5", "Shares fell."),
    ]
    assert len(Summarize(words=8, stride=4).read("test")) == len(Summarize(words=8, stride=0).read("train")) == 1


def test_joined_sentences_are_found_with_their_quotes():
    article = 'It rose 6.4% to $42.09bn. The U.S. firm is glad. "We won," he said. "Yes. No." Then it fell.'
    for summary, expected in {
        "Then it fell.It rose 6.4% to $42.09bn.": ["It rose 6.4% to $42.09bn.", "Then it fell."],
        'The U.S. firm is glad."We won," he said.': ['The U.S. firm is glad. "We won," he said.'],
        '"Yes. No."': ['"Yes. No."'],
        'It rose 6.4% to $42.09bn."Yes. No.': ["It rose 6.4% to $42.09bn.", '"Yes. No."'],
        "Not in it.": [],
    }.items():
        assert [article[a:b] for a, b in _summary_spans(article, summary)] == expected


def test_pronunciations_drop_stress_and_keep_variants(home):
    tomato, its = Pronounce().read("train")
    assert tomato.source == "t o m a t o"
    assert tomato.target == "T AH M EY T OW"
    assert tomato.references == ("T AH M EY T OW", "T AH M AA T OW")
    assert its.source == "i t ' s"
    assert Pronounce(stress=True).read("train")[0].target == "T AH0 M EY1 T OW2"


def test_translations_name_their_languages_and_take_the_first_test_split(home):
    task = Translate("pairs")
    assert task.prefix == "translate English to German: "
    assert [tuple(e) for e in task.read("train")] == [("a dog", "ein Hund", ("ein Hund",))]
    assert task.read("test")[0].source == "a"
    assert Translate("pairs", test="test_b").read("test")[0].source == "b"


def test_labels_are_names(home):
    assert [e.target for e in Sentiment().read("train")] == ["positive", "negative"]


def test_missing_splits_and_data_are_reported(home, tmp_path, monkeypatch):
    with pytest.raises(UnknownName, match="no split 'dev'"):
        read_examples(Summarize(), "dev")
    monkeypatch.setenv("REGARD_DATA", str(tmp_path / "nowhere"))
    for spec in TEXT_TASKS:
        with pytest.raises(BadInput, match="REGARD_DATA"):
            build_part(TEXT_TASKS, spec, "text task").splits()

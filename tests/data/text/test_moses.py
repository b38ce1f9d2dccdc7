import sys

import pytest

from regard.core.errors import BadInput, RegardError
from regard.data import data_dir
from regard.data.text import moses
from regard.data.text.parallel_corpus import ParallelCorpus

needs_sacremoses = pytest.mark.skipif(not moses.is_available(), reason="sacremoses is optional")


@needs_sacremoses
def test_tokens_are_lower_case_with_single_spaces_and_nothing_is_escaped():
    assert moses.tokenize(["Ein Mann, der läuft.", " "], "de") == ["ein mann , der läuft .", ""]
    assert moses.tokenize(['It\'s "fine" & good-looking!'], "en") == ['it \'s " fine " & good-looking !']


@needs_sacremoses
def test_tokens_are_joined_into_running_text():
    assert moses.detokenize(["ein mann , der läuft .", ""], "de") == ["ein mann, der läuft.", ""]


@needs_sacremoses
def test_reference_token_count_equals_the_published_one():
    try:
        data_dir.find_dataset("multi30k")
    except BadInput:
        pytest.skip("Multi30k is missing: set REGARD_DATA")
    _, german = ParallelCorpus("multi30k").read("test_2016")
    assert sum(len(line.split()) for line in moses.tokenize(german, "de")) == 12_103


def test_without_sacremoses_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "sacremoses", None)
    moses._tools.cache_clear()
    with pytest.raises(RegardError, match=r"regard\[moses\]"):
        moses.tokenize(["a"], "en")
    moses._tools.cache_clear()

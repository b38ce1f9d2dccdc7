"""Which folder a name means; what was read is kept by where datasets were then, not only by name."""

import re
from pathlib import Path

import pytest

from regard.core.errors import BadInput
from regard.data import corpora, home, images
from regard.data.an4 import AN4
from regard.data.parallel import Parallel
from regard.data.plain import PlainText
from regard.data.pronounced import Pronounced
from regard.data.questions import Questions
from regard.data.speech import Digits

PACKAGE = Path(home.__file__).parents[1]


def test_what_was_read_is_kept_and_another_home_is_another_dataset(tmp_path, monkeypatch):
    for place in ("one", "two"):
        (tmp_path / place / "words").mkdir(parents=True)
        (tmp_path / place / "words" / "all.txt").write_text(place)
    times = []

    @home.remembered(4)
    def read(name):
        """The file of a dataset."""
        times.append(name)
        return (home.folder(name) / "all.txt").read_text()

    for place, many in (("one", 1), ("one", 1), ("two", 2), ("one", 2)):
        monkeypatch.setenv("REGARD_DATA", str(tmp_path / place))
        assert read("words") == place
        assert len(times) == many
    monkeypatch.setenv("REGARD_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(BadInput, match="REGARD_DATA"):
        read("words")
    assert read.__doc__ == "The file of a dataset."


@pytest.fixture
def two(tmp_path, monkeypatch):
    """A home of datasets and a place to stand, each with a folder of photos and one of a known name."""
    for place in ("data", "here"):
        for name in ("photos", "cifar10"):
            (tmp_path / place / name).mkdir(parents=True)
    monkeypatch.setenv("REGARD_DATA", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path


def test_a_folder_where_one_stands_is_taken_before_one_among_the_datasets(two, caplog):
    for _ in range(2):
        assert home.folder("photos").resolve() == two / "here" / "photos"
    (line,) = caplog.messages  # said once
    assert all(str(two / place / "photos") in line for place in ("here", "data"))
    assert home.folder("./photos").resolve() == two / "here" / "photos"


def test_a_known_name_is_the_dataset_and_says_so_where_a_folder_here_has_it_too(two, caplog):
    assert home.folder("cifar10") == two / "data" / "cifar10"
    (line,) = caplog.messages
    assert str(two / "data" / "cifar10") in line
    assert "./cifar10" in line
    assert home.folder("./cifar10").resolve() == two / "here" / "cifar10"


def test_nothing_is_said_where_there_is_one_folder(two, caplog, monkeypatch):
    (two / "here" / "photos").rmdir()
    assert home.folder("photos") == two / "data" / "photos"
    monkeypatch.chdir(two / "data")  # the same one
    assert home.folder("photos").resolve() == two / "data" / "photos"
    assert not caplog.messages


def test_names_are_those_the_readers_ask_for():
    asked = {*images.KNOWN, *(folder for folder, *_ in corpora._KNOWN.values()), Parallel.corpus, PlainText.corpus}
    asked |= {Digits.corpus, AN4.corpus, Pronounced.corpus, Questions.corpus}
    asked |= {*re.findall(r'home\.folder\("(\w+)"\)', "".join(f.read_text() for f in PACKAGE.rglob("*.py")))}
    assert asked == home.NAMES

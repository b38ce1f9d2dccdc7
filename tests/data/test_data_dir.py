"""Which folder a name means; caches depend on the dataset folders, not only on the name."""

import re
from pathlib import Path

import pytest

from regard.core.errors import BadInput
from regard.data import data_dir
from regard.data.audio.an4 import AN4
from regard.data.audio.fsdd import SpokenDigits
from regard.data.datasets import DATASETS
from regard.data.globe.land_mask import LandMask
from regard.data.graphs.citations import Citations
from regard.data.graphs.csl import CSL
from regard.data.graphs.esol import ESOL
from regard.data.graphs.tu import TU
from regard.data.images import image_dataset
from regard.data.images.coco import BCCD
from regard.data.images.flickr8k import Flickr8k
from regard.data.points.modelnet10 import ModelNet10
from regard.data.text import corpora
from regard.data.text.cmudict import CMUDict
from regard.data.text.parallel_corpus import ParallelCorpus
from regard.data.text.question_answering import QuestionAnswering
from regard.data.text.text_file import TextFile

PACKAGE = Path(data_dir.__file__).parents[1]


def test_reader_cache_depends_on_the_data_dir(tmp_path, monkeypatch):
    for place in ("one", "two"):
        (tmp_path / place / "words").mkdir(parents=True)
        (tmp_path / place / "words" / "all.txt").write_text(place)
    times = []

    @data_dir.cached_by_data_dir(4)
    def read(name):
        """The file of a dataset."""
        times.append(name)
        return (data_dir.find_dataset(name) / "all.txt").read_text()

    for place, count in (("one", 1), ("one", 1), ("two", 2), ("one", 2)):
        monkeypatch.setenv("REGARD_DATA", str(tmp_path / place))
        assert read("words") == place
        assert len(times) == count
    monkeypatch.setenv("REGARD_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(BadInput, match="REGARD_DATA"):
        read("words")
    assert read.__doc__ == "The file of a dataset."


@pytest.fixture
def two(tmp_path, monkeypatch):
    """A data folder and a working directory, each with a folder of photos and one of a known name."""
    for place in ("data", "here"):
        for name in ("photos", "cifar10"):
            (tmp_path / place / name).mkdir(parents=True)
    monkeypatch.setenv("REGARD_DATA", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path


def test_local_folder_wins_over_an_unknown_dataset(two, caplog):
    for _ in range(2):
        assert data_dir.find_dataset("photos").resolve() == two / "here" / "photos"
    (line,) = caplog.messages  # said once
    assert all(str(two / place / "photos") in line for place in ("here", "data"))
    assert data_dir.find_dataset("./photos").resolve() == two / "here" / "photos"


def test_known_dataset_wins_over_a_local_folder_with_a_warning(two, caplog):
    assert data_dir.find_dataset("cifar10") == two / "data" / "cifar10"
    (line,) = caplog.messages
    assert str(two / "data" / "cifar10") in line
    assert "./cifar10" in line
    assert data_dir.find_dataset("./cifar10").resolve() == two / "here" / "cifar10"


def test_no_warning_with_one_folder(two, caplog, monkeypatch):
    (two / "here" / "photos").rmdir()
    assert data_dir.find_dataset("photos") == two / "data" / "photos"
    monkeypatch.chdir(two / "data")  # the same one
    assert data_dir.find_dataset("photos").resolve() == two / "data" / "photos"
    assert not caplog.messages


def test_known_datasets_are_those_that_readers_use():
    requested = {
        *image_dataset.IMAGE_DATASETS,
        *(folder for folder, *_ in corpora._CORPORA.values()),
        ParallelCorpus.corpus,
        TextFile.corpus,
    }
    requested |= {SpokenDigits.corpus, AN4.corpus, CMUDict.corpus, QuestionAnswering.corpus, BCCD.path, Flickr8k.corpus}
    requested |= {part.path for part in (ModelNet10, CSL, TU, ESOL, Citations, LandMask)}
    requested |= {
        *re.findall(r'data_dir\.find_dataset\("(\w+)"\)', "".join(f.read_text() for f in PACKAGE.rglob("*.py")))
    }
    assert requested | {"conll2000", "coco", "openwebtext"} == {*DATASETS}  # the last three: only of recipes

import pytest

from tests.stories.command import tiny_corpus, tiny_translator


@pytest.fixture(scope="session")
def translator_folder(tmp_path_factory):
    """A saved translator."""
    return tiny_translator(tmp_path_factory.mktemp("zoo") / "tiny")


@pytest.fixture(scope="session")
def corpus(tmp_path_factory):
    """A folder of sentence pairs."""
    return tiny_corpus(tmp_path_factory.mktemp("data") / "pairs")

import pytest

from tests.stories.command import Warm, tiny_corpus, tiny_translator


@pytest.fixture(scope="session")
def translator_folder(tmp_path_factory):
    """A saved translator."""
    return tiny_translator(tmp_path_factory.mktemp("zoo") / "tiny")


@pytest.fixture(scope="session")
def corpus(tmp_path_factory):
    """A folder of sentence pairs."""
    return tiny_corpus(tmp_path_factory.mktemp("data") / "pairs")


@pytest.fixture(scope="session")
def warm(tmp_path_factory):
    """Commands without their start-up."""
    commands = Warm(tmp_path_factory.mktemp("streams"))
    yield commands
    commands.close()

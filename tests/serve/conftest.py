import pytest
from starlette.testclient import TestClient

from regard.serve.app import make
from regard.serve.host import Host
from regard.serve.settings import Settings

HERE = "http://127.0.0.1"  # a name that is ours; the default of a TestClient is not


@pytest.fixture(scope="session")
def host():
    """Models that ship, as the explorer holds them."""
    found = Host(["en-de", "shakespeare", "fill-en", "languages", "sounds-en", "digits"])
    found.load()
    return found


@pytest.fixture
def client(host):
    """Asks a service of these models; not as a context, so that the models outlive it."""
    return TestClient(make(host, Settings(explore=True)), base_url=HERE, raise_server_exceptions=False)


def asks(host, **settings):
    """The same with other limits."""
    return TestClient(make(host, Settings(**settings)), base_url=HERE, raise_server_exceptions=False)

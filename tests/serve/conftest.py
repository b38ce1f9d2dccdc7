import pytest
from starlette.testclient import TestClient

from regard.serve.http.app import make_app
from regard.serve.http.model_pool import ModelPool
from regard.serve.http.settings import Settings

HERE = "http://127.0.0.1"  # a name that is ours; the default of a TestClient is not


@pytest.fixture(scope="session")
def pool():
    """Models that ship, as the explorer holds them."""
    found = ModelPool(["en-de", "shakespeare", "fill-en", "languages", "sounds-en", "digits"])
    found.load()
    return found


@pytest.fixture
def client(pool):
    """Asks a service of these models; not as a context, so that the models outlive it."""
    return TestClient(make_app(pool, Settings(explore=True)), base_url=HERE, raise_server_exceptions=False)


def asks(pool, **settings):
    """The same with other limits."""
    return TestClient(make_app(pool, Settings(**settings)), base_url=HERE, raise_server_exceptions=False)

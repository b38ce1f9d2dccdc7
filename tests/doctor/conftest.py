import pytest


@pytest.fixture(autouse=True, scope="session")
def _kept(tmp_path_factory):
    """What is measured here is kept here; once for all tests, since trying a type takes seconds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REGARD_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield

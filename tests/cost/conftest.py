import pytest


@pytest.fixture(autouse=True)
def _unchecked(unchecked):
    """Shapes in signatures are checked where the models are tested; here they would take most of the time."""

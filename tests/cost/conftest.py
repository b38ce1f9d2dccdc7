import pytest


@pytest.fixture(autouse=True)
def _unchecked(unchecked):
    """Disable the run-time check of annotated shapes, which would take most of the time here."""

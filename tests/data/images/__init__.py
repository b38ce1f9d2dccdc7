import pytest

from regard.core.errors import BadInput
from regard.data import data_dir


def needs_data(name):
    """Skip a test unless a dataset is installed."""
    try:
        data_dir.find_dataset(name)
        missing = False
    except BadInput:
        missing = True
    return pytest.mark.skipif(missing, reason=f"{name} is missing: set REGARD_DATA")

"""A task of one's own in one file outside the package: toy_detector.py, registered as a plugin or by `imported`."""

import sys
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path

FOLDER = Path(__file__).parent


@contextmanager
def imported():
    """The module, registered; afterwards the registries are as they were."""
    from regard.data import DATA
    from regard.models import MODELS
    from regard.tasks import PREDICTORS, TASKS

    tables = (DATA, MODELS, PREDICTORS, TASKS)
    before = [dict(table) for table in tables]
    sys.path.insert(0, str(FOLDER))
    try:
        yield import_module("toy_detector")
    finally:
        sys.path.remove(str(FOLDER))
        sys.modules.pop("toy_detector", None)
        for table, entries in zip(tables, before, strict=True):
            table.clear()
            table.update(entries)

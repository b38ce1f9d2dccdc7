"""Parametrisations whose default run takes some values only; `make test-long` takes the others."""

import pytest


def rest_is_long(values, *default):
    """The values, of which all but the `default` ones are marked long."""
    return [value if value in default else pytest.param(value, marks=pytest.mark.long) for value in values]

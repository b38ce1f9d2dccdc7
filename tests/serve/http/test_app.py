"""The app itself: models that cannot be loaded are named in the log, and nothing else is."""

import asyncio

from regard.core.errors import BadInput
from regard.serve.http.app import _log_load_error


def test_a_model_that_cannot_be_loaded_is_logged_once_and_others_are_not(caplog):
    async def load(outcome):
        loading = asyncio.get_running_loop().create_future()
        if outcome == "cancelled":
            loading.cancel()
        elif outcome is None:
            loading.set_result(None)
        else:
            loading.set_exception(outcome)
        _log_load_error(loading)

    with caplog.at_level("ERROR", "regard"):
        for outcome in (None, "cancelled", BadInput("there is no such folder")):
            asyncio.run(load(outcome))
    assert caplog.messages == ["A model could not be loaded: there is no such folder"]

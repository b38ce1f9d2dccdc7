"""What is wrong with a request is said of what was nearly given, in words of the request."""

import pytest

from regard.serve.http.batching import DeadlineExceeded, QueueFull, ShuttingDown
from regard.serve.http.errors import to_response

LIST = "Input should be a valid string or a valid list"


@pytest.mark.parametrize(
    ("prompt", "field", "said"),
    [
        ([], "prompt", "List should have at least 1 item, not 0"),
        (None, "prompt", LIST),
        ([-1], "prompt.0", "Input should be greater than or equal to 0"),
        ([[5], [-1]], "prompt.1.0", "Input should be greater than or equal to 0"),
        ([5, "b"], "prompt.1", "Input should be a valid integer, unable to parse string as an integer"),
        (["b", 5], "prompt.1", "Input should be a valid string"),
        ([{}], "prompt.0", "Input should be a valid string, a valid integer or a valid list"),
    ],
)
def test_a_prompt_that_may_be_texts_or_tokens(client, prompt, field, said):
    found = client.post("/v1/completions", json={"model": "shakespeare", "prompt": prompt})
    assert found.status_code == 422
    assert found.json()["error"] == {"type": "invalid", "message": f"{field}: {said}", "field": field}


def test_a_name_that_looks_like_one_of_ours_is_still_named(client):
    found = client.post("/v1/translate", json={"inputs": ["a"], "constrained-str": 1}).json()["error"]
    assert found["field"] == "constrained-str"
    given = {"model": "fill-en", "inputs": {"text": "a"}, "constrained-str": 1}
    found = client.post("/explore/inspections", json=given).json()["error"]
    assert found["field"] == "constrained-str"


@pytest.mark.parametrize(("kind", "status"), [(QueueFull, 429), (ShuttingDown, 503), (DeadlineExceeded, 504)])
def test_who_may_try_again_is_told_when(kind, status):
    found = to_response(kind("Later.", 7))
    assert (found.status_code, found.headers["retry-after"]) == (status, "7")

"""Whatever fits the service's own description, and much that does not: no crash, no leak, only answers it describes.

Requests are made up by schemathesis from /openapi.json and sent over a socket; half of those about a look are about one
that is there. The default run tries a few of each, the long one hundreds.
"""

from __future__ import annotations

import httpx
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

schemathesis = pytest.importorskip("schemathesis")

from schemathesis import GenerationMode  # noqa: E402
from schemathesis.checks import load_all_checks  # noqa: E402
from schemathesis.specs.openapi.checks import (  # noqa: E402
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from regard.serve.http.app import make_app  # noqa: E402
from regard.serve.http.model_pool import ModelPool  # noqa: E402
from regard.serve.http.server import running_server  # noqa: E402
from regard.serve.http.settings import Settings  # noqa: E402

load_all_checks()
CHECKS = [status_code_conformance, content_type_conformance, response_schema_conformance]
LEAKS = ("Traceback", 'File "', "site-packages", "/src/", "/home/", "/usr/", "/root", "Errno")
LIMITS = Settings(
    explore=True,
    max_characters=400,
    max_generated_tokens=400,
    timeout=15.0,
    max_body_bytes=50_000,
    max_upload_bytes=100_000,
)
USUAL = {
    "deadline": None,
    "suppress_health_check": list(HealthCheck),
    "derandomize": True,  # the same requests every time: a failure can be looked at
    "phases": (Phase.explicit, Phase.generate),
}


MODELS = ["fill-en", "languages", "sounds-en", "shakespeare", "digits"]
OPERATIONS = [
    found.ok()
    for found in schemathesis.openapi.from_dict(make_app(ModelPool(MODELS), LIMITS).openapi()).get_all_operations()
]
every = pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.label)


@pytest.fixture(scope="module")
def service():
    pool = ModelPool(MODELS, device="cpu")
    with running_server(make_app(pool, LIMITS)) as url:
        pool.load()
        yield url


@pytest.fixture(scope="module")
def look(service):
    given = {"model": "fill-en", "inputs": {"text": "A [MASK] is here."}}
    found = httpx.post(f"{service}/explore/inspections", json=given, timeout=60).json()
    return found["id"], found["maps"][0]["name"]


def sent(case, service, look):
    """A made-up request, about a look that is there where it is about one; its answer is one that is described."""
    if "id" in (case.path_parameters or {}):
        known, name = look
        if len(str(case.path_parameters["id"])) % 2 == 0:
            case.path_parameters["id"] = known
        if case.query and "map" in case.query and len(str(case.query["map"])) % 3:
            case.query["map"] = name
    answer = case.call(base_url=service, timeout=60)
    assert answer.status_code != 500, answer.text[:500]
    assert answer.status_code < 500 or answer.status_code in (503, 504), answer.status_code
    if answer.status_code >= 400:
        assert not [leak for leak in LEAKS if leak in answer.text]
        assert set(answer.json()) == {"error"}
    case.validate_response(answer, checks=CHECKS)


def tried(operation, service, look, number):
    """So many requests to one route, those that fit its description and those that do not."""
    kinds = [operation.as_strategy(generation_mode=mode) for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE)]

    @settings(max_examples=number, **USUAL)
    @given(st.one_of(kinds))
    def run(case):
        sent(case, service, look)

    run()


@every
def test_a_few_requests_of_each_kind_are_answered_as_described(operation, service, look):
    tried(operation, service, look, 6)


@pytest.mark.long
@every
def test_hundreds_of_requests_of_each_kind_are_answered_as_described(operation, service, look):
    tried(operation, service, look, 300)


def test_the_description_names_every_route(service):
    told = httpx.get(f"{service}/openapi.json").json()["paths"]
    assert {
        "/v1/translate",
        "/v1/generate",
        "/v1/completions",
        "/explore/inspections",
        "/explore/inspections/{id}/export",
    } <= set(told)
    for path, operations in told.items():
        for operation in operations.values():
            assert {"413", "422", "429", "503"} <= set(operation["responses"]), path

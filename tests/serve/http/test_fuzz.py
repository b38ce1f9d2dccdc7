"""Whatever fits the service's own description, and much that does not: no crash, no leak, only answers it describes.

Requests are made up by schemathesis from /openapi.json and sent over a socket. Half of those to a model get an input
that it can use, half of those about an inspection one that exists. Every route that runs a model answers some of them.
"""

from __future__ import annotations

import base64
import io
import tempfile
from pathlib import Path

import httpx
import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from PIL import Image

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
    max_generated_tokens=60,
    max_tokens=400,
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


FOLDER = Path(tempfile.mkdtemp()) / "vectors"  # an embedder, which `service` saves; its routes follow from its task
FOLDER.mkdir()
(FOLDER / "config.json").write_text('{"task": {"name": "embedding"}}')
MODELS = ["en-de", "fill-en", "languages", "sounds-en", "shakespeare", "digits", "fashion", str(FOLDER)]
OPERATIONS = [
    found.ok()
    for found in schemathesis.openapi.from_dict(make_app(ModelPool(MODELS), LIMITS).openapi()).get_all_operations()
]
every = pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.label)


def sound():
    """A short .wav file."""
    soundfile, file = pytest.importorskip("soundfile"), io.BytesIO()
    soundfile.write(file, 0.3 * np.sin(np.arange(2000) / 3), 8000, format="WAV")
    return base64.b64encode(file.getvalue()).decode()


def picture():
    """A small .png file."""
    file = io.BytesIO()
    Image.new("L", (28, 28), 90).save(file, "PNG")
    return base64.b64encode(file.getvalue()).decode()


USABLE = {"fill-en": "A [MASK].", "fill": "A [MASK].", "sounds-en": "dog", "pronounce": "dog", "digits": sound(),
          "transcribe": sound(), "fashion": picture()}  # fmt: skip


@pytest.fixture(scope="module")
def service():
    import regard
    from regard.tasks.text.embedder import TextEmbedder

    if not any(FOLDER.glob("*.safetensors")):  # workers that steal tests set this up more than once
        (FOLDER / "config.json").unlink()
        fill = regard.load("fill-en")
        regard.save(TextEmbedder(fill.model, fill.text, max_length=32), FOLDER)
    pool = ModelPool(MODELS, device="cpu")
    with running_server(make_app(pool, LIMITS)) as url:
        pool.load()
        yield url


@pytest.fixture(scope="module")
def look(service):
    given = {"model": "fill-en", "inputs": {"text": "A [MASK] is here."}}
    found = httpx.post(f"{service}/explore/inspections", json=given, timeout=300).json()
    return found["id"], found["maps"][0]["name"]


def sent(case, service, look):
    """Send a made-up request, improved at times, and return its status; its answer is one that is described."""
    if isinstance(case.body, dict) and "inputs" in case.body and len(str(case.body)) % 2:
        case.body["inputs"] = [USABLE.get(case.path.rpartition("/")[2], "Two dogs.")]
        case.body.pop("model", None)
        if len(str(case.body)) % 2:
            writes = case.path in ("/v1/generate", "/v1/run/shakespeare")
            case.body["options"] = {"max_new_tokens": 8} if writes else {}
    if "id" in (case.path_parameters or {}):
        known, name = look
        if len(str(case.path_parameters["id"])) % 2 == 0:
            case.path_parameters["id"] = known
        if case.query and "map" in case.query and len(str(case.query["map"])) % 3:
            case.query["map"] = name
    if "/inspections" in case.path and isinstance(case.body, dict) and "inputs" in case.body:
        case.body |= {"model": "fill-en", "inputs": {"text": "A [MASK]."}} if len(str(case.body)) % 2 else {}
    answer = case.call(base_url=service, timeout=300)
    assert answer.status_code != 500, answer.text[:500]
    assert answer.status_code < 500 or answer.status_code in (503, 504), answer.status_code
    if answer.status_code >= 400:
        assert not [leak for leak in LEAKS if leak in answer.text]
        assert set(answer.json()) == {"error"}
    case.validate_response(answer, checks=CHECKS)
    return answer.status_code


def tried(operation, service, look, number):
    """So many requests to one route, those that fit its description and those that do not."""
    kinds = [operation.as_strategy(generation_mode=mode) for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE)]
    statuses = set()

    @settings(max_examples=number, **USUAL)
    @given(st.one_of(kinds))
    def run(case):
        statuses.add(sent(case, service, look))

    run()
    if operation.path.startswith("/v1/") and 200 not in statuses:
        usable = {"inputs": [USABLE.get(operation.path.rpartition("/")[2], "Two dogs.")]}
        assert httpx.post(f"{service}{operation.path}", json=usable, timeout=300).status_code == 200


@every
def test_forty_requests_of_each_kind_are_answered_as_described(operation, service, look):
    tried(operation, service, look, 40)


@pytest.mark.long
@every
def test_hundreds_of_requests_of_each_kind_are_answered_as_described(operation, service, look):
    tried(operation, service, look, 300)


def test_the_description_names_every_route(service):
    told = httpx.get(f"{service}/openapi.json").json()["paths"]
    verbs = ("translate", "generate", "fill", "classify", "embed", "transcribe", "pronounce", "completions")
    wanted = {*(f"/v1/{verb}" for verb in verbs), *(f"/v1/run/{Path(model).name}" for model in MODELS)}
    assert wanted | {"/explore/inspections", "/explore/inspections/{id}/export"} <= set(told)
    assert "/v1/detect" not in told  # no model here detects
    for path, operations in told.items():
        for operation in operations.values():
            assert {"413", "422", "429", "503"} <= set(operation["responses"]), path

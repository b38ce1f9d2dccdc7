"""The routes of the search view: what they return, and what it refuses with a typed error."""

import json

import pytest

import regard
from regard.serve.http.app import make_app
from regard.serve.http.model_pool import ModelPool
from regard.serve.http.settings import Settings

TestClient = pytest.importorskip("fastapi.testclient").TestClient
SOUND = "docs/assets/digits.wav"


@pytest.fixture(scope="module")
def client():
    pool = ModelPool(["en-de", "digits", "languages"], device="cpu")
    pool.load()
    with TestClient(make_app(pool, Settings(explore=True)), base_url="http://localhost") as found:
        yield found


def test_models_that_search_are_listed_with_their_ways(client):
    told = client.get("/explore/search").json()
    assert {one["name"]: (one["input"], one["methods"]) for one in told["models"]} == {
        "en-de": ("text", ["beam", "greedy", "diverse", "sample"]),
        "digits": ("audio", ["beam", "greedy"]),
    }
    assert told["defaults"]["beam_size"] == 4


def test_a_search_is_played_as_the_predictor_runs_it(client):
    asked = {"model": "en-de", "inputs": {"text": "A dog runs."}, "search": {"method": "beam", "beam_size": 3}}
    shown = client.post("/explore/search", json=asked).json()
    assert shown["hypotheses"][0]["text"] == regard.load("en-de")(["A dog runs."], beam_size=3)[0]
    assert {node["status"] for step in shown["steps"] for node in step["nodes"]} == {"kept", "finished", "pruned"}


def test_a_sound_comes_in_a_form(client):
    with open(SOUND, "rb") as file:
        form = {"model": "digits", "search": json.dumps({"method": "beam", "beam_size": 2})}
        shown = client.post("/explore/search", data=form, files={"file": ("digits.wav", file)}).json()
    assert shown["hypotheses"][0]["text"] == "one four zero five five six"
    assert max(len(step["kept"]) for step in shown["steps"]) == 2


@pytest.mark.parametrize(
    ("asked", "status", "says"),
    [
        ({"model": "nope", "inputs": {"text": "a"}}, 404, "nope"),
        ({"model": "en-de"}, 422, "give a text"),
        ({"model": "en-de", "inputs": {"text": " "}}, 422, "empty"),
        ({"model": "en-de", "inputs": {"text": "a " * 900}}, 422, "shorten"),
        ({"model": "en-de", "inputs": {"text": "a" * 2001}}, 422, "2000"),
        ({"model": "en-de", "inputs": {"text": "a", "file": "x"}}, 422, "inputs.file"),
        ({"model": "en-de", "inputs": {"text": "a"}, "search": {"beam_size": 9}}, 422, "search.beam_size"),
        ({"model": "en-de", "inputs": {"text": "a"}, "search": {"method": "diverse", "beam_size": 5}}, 422, "divide"),
        ({"model": "en-de", "inspection": "gone"}, 404, "no longer stored"),
        ({"model": "digits", "inputs": {"text": "a"}}, 422, "give a recording"),
        ({"model": "languages", "inputs": {"text": "a"}}, 422, "does not search"),
        ([], 422, ""),
    ],
)
def test_what_cannot_be_played_is_a_typed_error(client, asked, status, says):
    answer = client.post("/explore/search", json=asked)
    assert answer.status_code == status
    error = answer.json()["error"]
    assert error["type"] in ("invalid", "not_found")
    assert says in error["message"]


def test_what_is_no_sound_and_no_json_is_refused(client):
    files = {"file": ("x.wav", b"not a sound at all")}
    assert client.post("/explore/search", data={"model": "digits"}, files=files).status_code == 422
    assert client.post("/explore/search", data={"model": "en-de"}, files=files).status_code == 422
    broken = {"model": "digits", "search": "{"}
    assert client.post("/explore/search", data=broken, files=files).status_code == 400
    headers = {"Content-Type": "application/json"}
    assert client.post("/explore/search", content=b"{", headers=headers).status_code == 400


def test_there_is_no_search_view_without_the_explorer():
    pool = ModelPool(["languages"], device="cpu")
    with TestClient(make_app(pool, Settings()), base_url="http://localhost") as found:
        assert found.get("/explore/search").status_code == 404

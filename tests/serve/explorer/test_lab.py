"""The lab and the interventions over HTTP."""

import pytest
from fastapi.testclient import TestClient

from regard.serve.http.app import make_app
from regard.serve.http.model_pool import ModelPool
from regard.serve.http.settings import Settings


@pytest.fixture(scope="module")
def client():
    with TestClient(
        make_app(ModelPool(["languages", "en-de", "words-en"]), Settings(explore=True)), base_url="http://localhost"
    ) as made:
        yield made


def ask(client, **body):
    return client.post("/explore/lab", json=body)


def test_thinking_machines_scores_112_becomes_14_becomes_088(client):
    found = ask(client, what="six_steps").json()
    assert found["scores"][0] == [112, 96]
    assert found["scaled"][0] == [14, 12]
    assert [round(w, 2) for w in found["weights"][0]] == [0.88, 0.12]


def test_the_matrices_of_the_six_steps_can_be_changed(client):
    given = client.get("/explore/lab").json()["six_steps"]
    given["w_q"][0][0] = 5.5
    found = ask(client, what="six_steps", **given).json()
    assert found["q"][0] == [8.5, 4, 4]
    assert found["scores"][0] == [117, 100]


def test_every_part_of_the_tables_answers_on_ones_own_tokens(client):
    there, tokens = client.get("/explore/lab").json(), ["two", "dogs", "are", "playing"]
    for entry in there["mechanisms"]:
        found = ask(client, what="mechanism", mechanism=entry["example"], tokens=tokens)
        assert found.status_code == 200, found.text
    for entry in there["positions"]:
        assert ask(client, what="positions", positions=entry["example"], tokens=tokens).status_code == 200
        found = ask(client, what="mechanism", positions=entry["example"], tokens=tokens)
        assert found.status_code == 200, found.text
    for entry in there["aligners"]:
        found = ask(client, what="aligner", aligner=entry["example"], tokens=tokens, written=["zwei", "Hunde"]).json()
        assert len(found["weights"][0]) == 2
        assert len(found["weights"][0][0]) == 4
    for entry in there["masks"]:
        assert ask(client, mask=entry["example"], tokens=tokens).status_code == 200


def test_words_that_the_word_model_knows_have_its_vectors(client):
    found = ask(client, what="mechanism", tokens=["dog", "qqqzz"]).json()
    assert found["learned"] == [True, False]
    alike = ask(client, what="mechanism", tokens=["dog", "puppy", "bridge"]).json()["scores"]
    mean = [[sum(head[n][m] for head in alike) / 4 for m in range(3)] for n in range(3)]
    assert mean[0][1] > mean[0][2]  # a dog is more like a puppy than like a bridge


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"what": "magic"}, 422),
        ({"tokens": []}, 422),
        ({"tokens": ["a"] * 65}, 422),
        ({"mask": "__import__('os')"}, 422),
        ({"mask": "cauusal"}, 404),
        ({"mechanism": "softmx"}, 404),
        ({"mechanism": "softmax(backend='x')"}, 404),
        ({"what": "six_steps", "x": [[1]]}, 422),
        ({"what": "six_steps", "x": [[1], [2]], "w_q": [[1]], "w_k": [[1]], "w_v": [[1]], "tokens": ["a"]}, 422),
        ({"what": "aligner", "tokens": ["a"] * 40, "written": ["b"] * 40}, 422),
        ({"heads": 3}, 422),
        ({"what": "aligner", "aligner": "location(filters=0)"}, 422),
        ({"what": "aligner", "aligner": "location(filters=100000000)"}, 422),
        ({"mechanism": "softmax(scale='a')"}, 422),
        ({"mechanism": "softmax(scale=1e400)"}, 422),
        ({"positions": "learned(length=3000000)"}, 422),
        ({"positions": "per_layer(base='learned(length=3000000)')"}, 422),
        ({"what": "positions", "positions": "relative(buckets=513)"}, 422),
    ],
    ids=str,
)
def test_what_cannot_be_done_is_said_in_a_line(client, body, status):
    found = ask(client, **body)
    assert found.status_code == status, found.text
    assert found.json()["error"]["message"]


@pytest.mark.parametrize("spec", ["learned(length=3000000)", "per_layer(base='learned(length=3000000)')"])
def test_sizes_in_specs_are_limited_before_anything_is_built(client, monkeypatch, spec):
    def build(*given, **sizes):
        raise AssertionError("built")

    for module in ("playground", "position_override", "attention_override"):
        monkeypatch.setattr(f"regard.interpret.{module}.build_part", build)
    monkeypatch.setattr("regard.core.spec.build_part", build)
    text = {"model": "languages", "inputs": {"text": "Wo?"}}
    for do in ("positions", "mechanism"):
        change = {"interventions": [{"do": do, "spec": spec}]}
        for path in ("/explore/interventions", "/explore/inspections"):
            found = client.post(path, json=text | change)
            assert (found.status_code, found.json()["error"]["type"]) == (422, "invalid")
            assert "up to 512" in found.json()["error"]["message"]
    assert "up to 512" in ask(client, what="positions", positions=spec).json()["error"]["message"]


def test_outputs_stand_beside_one_another(client):
    given = {"model": "languages", "inputs": {"text": "Wo ist der Bahnhof?"}, "interventions": [{"do": "off"}]}
    found = client.post("/explore/interventions", json=given).json()
    assert found["loss"]["changed"] > found["loss"]["original"]
    assert found["original"]["text"] == "German"


def test_an_inspection_and_its_changed_one_can_be_compared(client):
    body = {"model": "en-de", "inputs": {"text": "Two dogs are playing in the snow."}}
    look = client.post("/explore/inspections", json=body).json()
    changes = [{"do": "uniform", "map": "decoder.blocks.*.cross", "heads": [0, 1]}]
    found = client.post("/explore/interventions", json={"inspection": look["id"], "interventions": changes}).json()
    assert found["original"]["text"] == look["output"]["text"]
    changed = client.post("/explore/inspections", json=body | {"interventions": changes}).json()
    assert changed["output"]["text"] == found["changed"]["text"]


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"do": "explode"}, 422),
        ({"do": "off", "map": "nowhere"}, 422),
        ({"do": "off", "heads": [99]}, 422),
        ({"do": "mask", "mask": [[1, 2, 3]]}, 422),
        ({"do": "mechanism", "spec": "sofmax"}, 404),
        ({"do": "off", "extra": 1}, 422),
    ],
    ids=str,
)
def test_interventions_that_cannot_be_done_are_refused(client, change, status):
    body = {"model": "languages", "inputs": {"text": "Wo?"}, "interventions": [change]}
    found = client.post("/explore/interventions", json=body)
    assert found.status_code == status, found.text
    assert client.post("/explore/interventions", json={"interventions": [{"do": "off"}]}).status_code == 422
    assert (
        client.post("/explore/interventions", json={"inspection": "x", "interventions": [{"do": "off"}]}).status_code
        == 404
    )

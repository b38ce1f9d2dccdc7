"""The explorer's routes give what a Look gives, as bytes, and keep no more looks than they may."""

import json

import numpy as np
import pytest

import regard
from regard.core.errors import UnknownName
from regard.interpret.inspection import inspect
from regard.serve.explorer.cache import InspectionCache
from regard.serve.http.model_pool import ModelPool
from tests.serve.conftest import asks

GIVEN = {"text": "Two dogs are playing in the snow."}


@pytest.fixture(scope="module")
def explorer(pool):
    return asks(pool, explore=True)


@pytest.fixture(scope="module")
def seen(explorer):
    found = explorer.post("/explore/inspections", json={"model": "en-de", "inputs": GIVEN})
    assert found.status_code == 200, found.text
    return found.json()


@pytest.fixture(scope="module")
def wanted():
    return inspect(regard.load("en-de"), GIVEN)


def test_routes_give_what_the_library_gives(seen, wanted):
    own = json.loads(json.dumps(wanted.about()))
    assert seen["model"] == "en-de"
    for part in ("axes", "output", "maps", "task"):
        assert seen[part] == own[part]


def test_rows_and_columns_are_exact(explorer, seen, wanted):
    name = seen["maps"][-1]["name"]
    for path, made in (
        (f"row?map={name}&head=2&query=3", wanted.row(name, 2, 3)),
        (f"row?map={name}&query=3", wanted.row(name, -1, 3)),
        (f"row?map={name}&head=0&query=1&view=value", wanted.row(name, 0, 1, "value")),
        (f"column?map={name}&head=1&key=0", wanted.column(name, 1, 0)),
        ("rollout?query=1", wanted.rollout(1)),
        ("relevance?target=1", wanted.relevance(1)),
    ):
        found = explorer.get(f"/explore/inspections/{seen['id']}/{path}")
        assert found.headers["content-type"] == "application/octet-stream", found.text
        assert np.allclose(np.frombuffer(found.content, "<f4"), made, atol=1e-6), path


def test_thumbnails_and_tiles_come_with_their_scale(explorer, seen, wanted):
    name = seen["maps"][0]["name"]
    found = explorer.get(f"/explore/inspections/{seen['id']}/sample?map={name}&size=16")
    pixels, scales = wanted.sample(name, 16)
    assert np.array_equal(np.frombuffer(found.content, np.uint8).reshape(pixels.shape), pixels)
    assert json.loads(found.headers["x-scale"]) == pytest.approx(scales, rel=1e-4)
    tile = explorer.get(f"/explore/inspections/{seen['id']}/tile?map={name}&head=1&rows=1:4&columns=0:5&size=64")
    part, scale = wanted.tile(name, 1, (1, 4), (0, 5), 64)
    assert json.loads(tile.headers["x-shape"]) == list(part.shape)
    assert np.array_equal(np.frombuffer(tile.content, np.uint8).reshape(part.shape), part)
    assert json.loads(tile.headers["x-scale"]) == pytest.approx(scale, rel=1e-4)
    assert explorer.get(f"/explore/inspections/{seen['id']}/tile?map={name}").status_code == 200  # all of it


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("row?map={map}&head=99&query=0", 422),
        ("row?map={map}&head=0&query=9999", 422),
        ("row?map={map}&head=0&query=-1", 422),
        ("row?map={map}&head=0&query=0&view=other", 422),
        ("row?map=nothing&head=0&query=0", 404),
        ("row?head=0&query=0", 422),
        ("sample?map={map}&size=100000", 422),
        ("tile?map={map}&rows=3:1", 422),
        ("tile?map={map}&rows=0:99999999999999999999", 422),
        ("tile?map={map}&rows=x", 422),
        ("tile?map=nothing", 404),
        ("rollout?query=9999", 422),
        ("relevance?target=9999", 422),
        ("picture", 404),
        ("spectrogram", 404),
        ("nothing", 404),
    ],
)
def test_what_an_inspection_lacks_is_an_error(explorer, seen, path, status):
    found = explorer.get(f"/explore/inspections/{seen['id']}/{path.format(map=seen['maps'][0]['name'])}")
    assert found.status_code == status, found.text
    assert found.json()["error"]["message"]


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"model": "en-de"}, 422),
        ({"model": "en-de", "inputs": {"text": ""}}, 422),
        ({"model": "en-de", "inputs": {"text": 5}}, 422),
        ({"model": "en-de", "inputs": {"txt": "a"}}, 404),
        ({"model": "en-de", "inputs": {"text": "x" * 30_000}}, 422),
        ({"model": "nothing", "inputs": GIVEN}, 404),
        ({"model": "shakespeare", "inputs": {"text": "R", "max_new_tokens": 10**9}}, 422),
        ({"inputs": GIVEN}, 422),
        ({"model": "en-de", "inputs": GIVEN, "more": 1}, 422),
        ([], 422),
    ],
)
def test_what_cannot_be_read_is_said(explorer, body, status):
    found = explorer.post("/explore/inspections", json=body)
    assert found.status_code == status, found.text


def test_models_are_listed_with_what_they_read_and_their_examples_can_be_read(explorer):
    zoo = regard.list("zoo")
    models = explorer.get("/explore/models").json()
    assert {"en-de", "shakespeare", "fill-en"} <= {each["name"] for each in models}
    for each in models:
        lists = {"inputs", "options", "run_options", "examples"}
        assert set(each) == {"name", "task", "description", "output", "needs_token"} | lists
        assert each["description"] == next(row["description"] for row in zoo if row["name"] == each["name"])
        assert all(option["description"] for option in each["options"].values())
        first = next(iter(each["inputs"]))
        for example in each["examples"]:
            found = explorer.post("/explore/inspections", json={"model": each["name"], "inputs": {first: example}})
            assert found.status_code == 200, found.text


def test_a_model_of_pictures_offers_those_that_it_knows():
    explorer = asks(ModelPool(["fashion"], device="cpu"), explore=True)
    (model,) = explorer.get("/explore/models").json()
    assert [each["title"] for each in model["examples"]] == ["An ankle boot", "A pullover"]
    for example, label in zip(model["examples"], ["ankle boot", "pullover"], strict=True):
        content = explorer.get(f"/page/{example['file']}").content
        found = explorer.post(
            "/explore/inspections", data={"model": "fashion"}, files={"file": (example["file"], content)}
        )
        assert found.status_code == 200, found.text
        assert found.json()["output"]["label"] == label


class Kept:
    def __init__(self, id, bytes):
        self.id, self.bytes = id, bytes


def test_only_the_newest_inspections_are_cached_within_their_memory_limit():
    looks = InspectionCache(max_entries=3, memory=100)
    for name in "abcd":
        looks.add(Kept(name, 10))
    with pytest.raises(UnknownName, match="no longer stored"):
        looks.get("a")
    looks.get("b")  # whoever is asked for stays
    looks.add(Kept("e", 10))
    assert [name for name in "bcde" if name in looks._entries] == ["b", "d", "e"]
    looks.add(Kept("large", 95))
    assert len(looks) == 1
    looks.add(Kept("larger", 200))  # the newest always stays
    assert looks.get("larger").bytes == 200


def test_without_the_explorer_its_routes_are_not_there(pool):
    client = asks(pool)
    for path in ("/page/main.js", "/explore/models"):
        assert client.get(path).status_code == 404
    assert "page/main.js" not in client.get("/").text  # the page of the service


def test_only_files_of_the_page_are_given(explorer):
    assert explorer.get("/").headers["content-type"].startswith("text/html")
    assert explorer.get("/page/main.js").headers["content-type"].startswith("text/javascript")
    names = ("../app.py", "..%2fapp.py", "%2e%2e/app.py", "/etc/passwd", "nothing.js", "main.js/", "a\\..\\b")
    for name in names:
        assert explorer.get(f"/page/{name}").status_code == 404, name


@pytest.mark.parametrize(
    ("kind", "task", "given"),
    [
        ("tagged", "tagging", {"text": "the dog sees the garden ."}),
        ("questions", "extractive_qa", {"text": "the dog sees the garden .", "question": "what did the dog see ?"}),
    ],
)
def test_a_run_of_words_is_explored_from_its_folder(tmp_path, monkeypatch, kind, task, given):
    from regard.training import train
    from tests.tasks.text_data import recipe, written

    monkeypatch.setattr("regard.training.loop.TrainingRun._draw", lambda self, force=False: None)
    made = recipe(
        written(tmp_path / "data"), kind, steps=2, gradient_accumulation_steps=1, eval_interval=2, save_interval=2
    )
    train(made, tmp_path / "run")
    client = asks(ModelPool([str(tmp_path / "run")], device="cpu"), explore=True)
    (one,) = client.get("/explore/models").json()
    assert (one["name"], one["task"], one["inputs"]) == ("run", task, dict.fromkeys(given, "text"))
    found = client.post("/explore/inspections", json={"model": "run", "inputs": given})
    assert found.status_code == 200, found.text
    look, name = found.json(), found.json()["maps"][0]["name"]
    assert any(look["axes"]["text"]["notes"])
    assert client.get(f"/explore/inspections/{look['id']}/row?map={name}&query=1").status_code == 200
    assert client.get(f"/explore/inspections/{look['id']}/relevance?target=0").status_code == 200
    assert b'"notes"' in client.get(f"/explore/inspections/{look['id']}/export").content
    changed = {"inspection": look["id"], "interventions": [{"do": "off"}]}
    assert client.post("/explore/interventions", json=changed).json()["loss"]["changed"] > 0


@pytest.mark.parametrize("name", ["scenes", "scene-captions", "scene-questions", "scene-segments"])
def test_examples_of_models_of_scenes_are_of_the_kind_they_were_trained_on(name):
    from PIL import Image

    import regard
    from regard.see.html_export import PAGE
    from regard.serve.explorer.inspections import EXAMPLES_OF_MODELS

    right = {
        "clothes.png": ["sneaker", "t-shirt"],
        "scene.png": ["car", "floor", "house", "trouser", "wall"],
        "things.png": "a blue digit on the wall and a purple dress on the floor and a yellow bag on the floor",
        "Which colour is the digit?": "purple",
        "How many red shoes are in the picture?": "1",
    }
    predictor = regard.load(name)
    for example in EXAMPLES_OF_MODELS[name]:
        picture = Image.open(str(PAGE / example["file"]))
        item = {"image": picture} | ({"question": example["question"]} if "question" in example else {})
        assert predictor.domain_notes([predictor.read_item(item)]) == [""]
        found = predictor(*item.values())
        if name == "scene-segments":
            said = sorted(mask.label for mask in found.masks if mask.score > 0.5)
        else:
            said = sorted(box.label for box in found.boxes) if name == "scenes" else getattr(found, "label", found)
        assert said == right[example.get("question", example["file"])]

"""A task of one's own, "image -> boxes", in one file outside the package: it gets training, `regard run` and `see`, the
REST route, the explorer, the row in `regard list` and the contract tests, without an edit inside the package."""

import ast
import base64
import io
import json

import numpy as np
import pytest
from PIL import Image
from starlette.testclient import TestClient

import regard
from regard.modalities import Boxes
from regard.modalities.boxes import Box
from regard.see.outputs import label_colors
from regard.serve.http.app import make_app
from regard.serve.http.model_pool import ModelPool
from regard.serve.http.settings import Settings
from tests.contracts import test_predictors as contracts
from tests.stories.own_task import FOLDER, imported

FILE = FOLDER / "toy_detector.py"
SHOWN = 8  # pictures that are tried
HERE = "http://127.0.0.1"
COMMANDS = {}  # `regard`, in processes whose imports are done


@pytest.fixture(scope="module")
def home(tmp_path_factory, warm):
    """A folder of a user's own: the file, the run that `regard train` made of it, and pictures."""
    folder = tmp_path_factory.mktemp("own")
    COMMANDS["regard"] = warm
    (folder / "toy_detector.py").write_text(FILE.read_text(encoding="utf-8"), encoding="utf-8")
    done = regard_at(folder, "train", "toy_detector.py", "--out", "runs/toy")
    assert done.status == 0, done.err
    with imported() as module:
        examples = module.Shapes().load("test").examples
    for n in range(SHOWN):
        Image.fromarray(examples.pixels[n].permute(1, 2, 0).numpy()).save(folder / f"{n}.png")
    rows = zip((32 * examples.boxes[:SHOWN]).tolist(), examples.labels[:SHOWN].tolist(), strict=True)
    truth = [[*corners, module.LABELS[label]] for corners, label in rows]
    (folder / "truth.json").write_text(json.dumps(truth))
    return folder


@pytest.fixture(scope="module")
def own_task():
    with imported() as module:
        yield module


@pytest.fixture(scope="module")
def client(home, own_task):
    pool = ModelPool([f"toy={home / 'runs' / 'toy'}"], device="cpu")
    return TestClient(make_app(pool, Settings(explore=True)), base_url=HERE, raise_server_exceptions=False)


def regard_at(folder, *words):
    """``regard WORDS`` in a folder, with its file as a plugin."""
    return COMMANDS["regard"](*words, cwd=folder, REGARD_PLUGINS="toy_detector.py")


def truth(home):
    return [Box(*each) for each in json.loads((home / "truth.json").read_text())]


def content(image):
    file = io.BytesIO()
    image.save(file, "PNG")
    return file.getvalue()


# -- the file ----------------------------------------------------------------------------------------------------------


def test_the_file_is_short():
    lines = FILE.read_text(encoding="utf-8").splitlines()
    tree = ast.parse("\n".join(lines))
    nodes = [node for node in (tree, *tree.body) if isinstance(node, (ast.Module, ast.ClassDef))]
    nodes = [node for node in nodes if ast.get_docstring(node)]
    docs = {n for node in nodes for n in range(node.body[0].lineno, node.body[0].end_lineno + 1)}
    code = [line for n, line in enumerate(lines, 1) if line.strip() and n not in docs]
    assert len([line for line in code if not line.startswith(("import ", "from "))]) <= 100


# -- training ----------------------------------------------------------------------------------------------------------


def test_it_learns_to_find_the_shape(home, own_task):
    found = json.loads((home / "runs" / "toy" / "result.json").read_text())["validation"]["last"]
    boxes = own_task.Shapes().load("val").examples.boxes.mul(32).tolist()
    middle = Box(*np.mean(boxes, 0).tolist(), "")  # the best one can say without looking
    chance = np.mean([middle.iou(Box(*box, "")) for box in boxes])
    assert chance < 0.35
    assert found["iou"] > 0.7
    assert found["accuracy"] > 0.9


def test_it_is_evaluated_on_the_test_split(home):
    done = regard_at(home, "eval", "runs/toy", "-o", "scores.json")
    assert done.status == 0, done.err
    assert "IoU 0." in done.out
    assert json.loads((home / "scores.json").read_text())["results"]["test"]["iou"] > 0.7


def test_settings_and_quick_runs_work_as_for_any_recipe(home):
    done = regard_at(home, "train", "toy_detector.py", "--quick", "task.box_weight=-1", "--out", "runs/bad")
    assert done.status != 0
    assert "task.box_weight must be at least 0" in done.err
    words = ("model.layers=1", "data.examples=64", "--quick", "--out", "runs/quick")
    assert regard_at(home, "train", "toy_detector.py", *words).status == 0
    assert regard_at(home, "run", "runs/quick", "0.png").status == 0


# -- commands ----------------------------------------------------------------------------------------------------------


def test_run_prints_the_boxes_of_pictures(home):
    files = [f"{n}.png" for n in range(SHOWN)]
    done = regard_at(home, "run", "runs/toy", *files, "--json")
    assert done.status == 0, done.err
    rows = [json.loads(line) for line in done.lines]
    assert [(row.pop("number"), row.pop("input")) for row in rows] == [*enumerate(files, 1)]
    found = [Boxes.from_json(row) for row in rows]
    overlaps = [boxes.boxes[0].iou(box) for boxes, box in zip(found, truth(home), strict=True)]
    assert np.mean(overlaps) > 0.6
    text = regard_at(home, "run", "runs/toy", files[0])
    assert text.out == f"{found[0]}\n"


def test_run_draws_the_boxes_over_the_picture(home):
    done = regard_at(home, "run", "runs/toy", "0.png", "--out", "boxes.png")
    assert done.status == 0, done.err
    row = json.loads(regard_at(home, "run", "runs/toy", "0.png", "--json", "--out", "again.png").out)
    (box,) = (Box(**each) for each in row["boxes"])
    for name in ("boxes.png", "again.png"):
        assert has_frame(home / name, box)


def has_frame(file, box):
    """Whether the colour of a label is drawn along the sides of its box, whatever stands above the picture."""
    drawn = np.asarray(Image.open(file).convert("RGB")).astype(int)
    color = np.array([int(label_colors([box.label])[box.label][k : k + 2], 16) for k in (1, 3, 5)])
    rows, columns = np.nonzero((np.abs(drawn - color) < 12).all(-1))
    scale = drawn.shape[1] / 32
    title = drawn.shape[0] - drawn.shape[1]
    edges = [columns.min() / scale, (rows.min() - title) / scale, columns.max() / scale, (rows.max() - title) / scale]
    return np.allclose(edges[2:], [box.right, box.bottom], atol=1) and np.allclose(edges[:2], box[:2], atol=1)


def test_options_of_the_predictor_are_options_of_the_command(home):
    done = regard_at(home, "run", "runs/toy", "--help")
    assert "--min-score" in done.out
    assert "leave out boxes with a lower score" in done.out
    assert regard_at(home, "run", "runs/toy", "0.png", "--min-score", "1").out == "nothing found\n"
    done = regard_at(home, "run", "runs/toy", "0.png", "--min-score", "2")
    assert done.status == 2
    assert "--min-score must be from 0 to 1" in done.err
    assert regard_at(home, "run", "runs/toy", "0.png", "--min-scor", "1").status == 2
    done = regard_at(home, "run", "runs/toy")
    assert done.status == 2
    assert "give texts or files, or --from FILE" in done.err


def test_bad_pictures_are_named_and_the_others_are_done(home):
    (home / "broken.png").write_bytes(b"no picture")
    done = regard_at(home, "run", "runs/toy", "0.png", "broken.png", "missing.png")
    assert done.status == 1
    assert len(done.lines) == 1
    assert len(done.complaints) == 2
    assert all(name in line for name, line in zip(("broken.png", "missing.png"), done.complaints, strict=True))


def test_see_draws_the_output_and_writes_the_explorers_page(home):
    done = regard_at(home, "see", "0.png", "--model", "runs/toy", "-o", "seen.png", "-o", "seen.html")
    assert done.status == 0, done.err
    assert done.lines[-2:] == ["drawn: seen.png", "drawn: seen.html"]
    assert Image.open(home / "seen.png").size[0] > 100
    assert '"kind":"boxes"' in (home / "seen.html").read_text().replace(": ", ":")
    done = regard_at(home, "see", "0.png", "--model", "runs/toy", "--view", "rollout")
    assert "leave out --view" in done.err


def test_it_is_listed_and_shown(home):
    (row,) = [line for line in regard_at(home, "list", "tasks").lines if line.startswith("toy_detection ")]
    assert row.split()[1:3] == ["image", "boxes"]
    assert "box_weight" in regard_at(home, "show", "tasks/toy_detection").out
    assert "patch_size" in regard_at(home, "show", "models/toy_detector").out


def test_without_the_plugin_loading_says_what_is_missing(home):
    done = COMMANDS["regard"]("run", "runs/toy", "0.png", cwd=home)
    assert done.status != 0
    assert "toy_detector" in done.err
    assert "REGARD_PLUGINS" in done.err


# -- service -----------------------------------------------------------------------------------------------------------


def test_its_route_is_described_with_schemas(client, own_task):
    described = client.get("/openapi.json").json()["paths"]["/v1/run/toy"]["post"]
    body = described["requestBody"]["content"]
    assert {"application/json", "multipart/form-data", "image/*"} <= body.keys()
    declared = own_task.Detector.request_schema()
    declared["properties"]["inputs"]["maxItems"] = Settings().max_items  # of this service
    assert body["application/json"]["schema"] == declared
    answer = described["responses"]["200"]["content"]["application/json"]["schema"]
    assert answer == own_task.Detector.answer_schema()
    contracts.check_schema(answer)


def test_its_route_answers_json_forms_and_bare_files(client, home, own_task):
    sent = (home / "0.png").read_bytes()
    inputs = {"inputs": [base64.b64encode(sent).decode()], "options": {"min_score": 0.1}}
    answers = [
        client.post("/v1/run/toy", json=inputs),
        client.post("/v1/run/toy", json={"inputs": [{"image": inputs["inputs"][0]}]}),
        client.post("/v1/run/toy", files={"image": ("0.png", sent)}, data={"options": '{"min_score": 0.1}'}),
        client.post("/v1/run/toy", content=sent, headers={"Content-Type": "image/png"}),
    ]
    for answer in answers:
        assert answer.status_code == 200, answer.text
        assert contracts.fits(answer.json(), own_task.Detector.answer_schema())
        (found,) = (Boxes.from_json(each) for each in answer.json()["outputs"])
        assert found.boxes[0].iou(truth(home)[0]) > 0.5
    parts = [("image", (f"{n}.png", (home / f"{n}.png").read_bytes())) for n in (0, 1)]
    several = client.post("/v1/run/toy", files=parts)
    assert len(several.json()["outputs"]) == 2


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"inputs": []},
        {"inputs": ["no base64!"]},
        {"inputs": [base64.b64encode(b"no picture").decode()]},
        {"inputs": ["/etc/passwd"]},
        {"inputs": [5]},
        {"inputs": [{"picture": "AAAA"}]},
        {"inputs": ["AAAA"], "options": {"min_score": 2}},
        {"inputs": ["AAAA"], "options": {"score": 0.5}},
        {"inputs": ["AAAA"], "more": 1},
    ],
    ids=str,
)
def test_its_route_refuses_bad_input(client, body):
    answer = client.post("/v1/run/toy", json=body)
    assert 400 <= answer.status_code < 500, answer.text
    assert answer.json()["error"]["message"]


def test_explorer_lists_it_and_shows_boxes_with_attention(client, home):
    (model,) = client.get("/explore/models").json()
    assert (model["name"], model["task"]) == ("toy", "toy_detection")
    assert (model["inputs"], model["output"]) == ({"image": "image"}, "boxes")
    assert model["options"]["min_score"]["maximum"] == 1
    wide = Image.new("RGB", (96, 64))
    wide.paste(Image.open(home / "0.png").resize((64, 64)), (16, 0))
    files = {"file": ("wide.png", content(wide))}
    found = client.post("/explore/inspections", data={"model": "toy", "inputs": "{}"}, files=files).json()
    assert found["output"]["kind"] == "boxes"
    assert found["region"] == [16, 0, 80, 64]  # the middle, which the model saw
    box = truth(home)[0]
    wanted = Box(*(x * 2 + shift for x, shift in zip(box[:4], (16, 0, 16, 0), strict=True)), box.label)
    assert Box(**found["output"]["boxes"][0]).iou(wanted) > 0.5
    assert [each["rows"] for each in found["maps"]] == ["patches", "patches"]
    assert len(found["axes"]["patches"]["tokens"]) == 16
    assert client.get(f"/explore/inspections/{found['id']}/rollout?query=3").status_code == 200
    given = json.dumps({"min_score": 2})
    refused = client.post("/explore/inspections", data={"model": "toy", "inputs": given}, files=files)
    assert refused.status_code == 422


# -- contracts ---------------------------------------------------------------------------------------------------------

CONTRACTS = [
    contracts.test_the_declaration_is_complete,
    contracts.test_schemas_are_valid_and_requests_and_answers_fit_them,
    contracts.test_a_batch_gives_what_its_singles_give,
    contracts.test_a_call_takes_one_item_or_a_list,
    contracts.test_bad_input_is_one_clear_line,
    contracts.test_bad_options_are_one_clear_line,
]


@pytest.fixture
def name(home, own_task, monkeypatch):
    """The task among those whose contracts are tested."""
    pictures = [(np.asarray(Image.open(home / f"{n}.png")),) for n in range(3)]
    monkeypatch.setitem(contracts.MAKE, "toy_detection", lambda: regard.load(home / "runs" / "toy"))
    monkeypatch.setitem(contracts.ITEMS, "toy_detection", pictures)
    contracts.predictor.cache_clear()
    yield "toy_detection"
    contracts.predictor.cache_clear()


@pytest.mark.parametrize("contract", CONTRACTS, ids=lambda contract: contract.__name__)
def test_it_obeys_the_contracts_of_predictors(contract, name):
    contract(name)


def test_it_is_saved_and_loaded(name, tmp_path):
    contracts.test_saved_and_loaded_gives_the_same_outputs(name, tmp_path)

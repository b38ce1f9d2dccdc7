"""Every route that uses a model: what it answers is what the library gives, whoever else asks at the time."""

import base64
import io
import json
import struct
import threading
import time
import zlib
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import soundfile
from PIL import Image

import regard
from regard.modalities.image import Preprocess
from regard.serve.http.app import make_app
from regard.serve.http.model_pool import ModelPool
from regard.tasks.image.image_classification import ImageClassifier
from tests.serve.conftest import asks

LINES = [
    "Two dogs are playing in the snow.",
    "A man in a blue shirt is standing on a ladder cleaning a window.",
    "",
    "A girl.",
    "Several people are waiting in front of a small wooden house near the beach.",
]


def events(response):
    return [json.loads(line[6:]) for line in response.text.splitlines() if line.startswith("data: {")]


def at_once(client, max_queue_size, path, bodies):
    """Requests that all stand in the queue before the model begins with any; their answers."""
    gate, began = threading.Event(), threading.Event()

    def hold(items):
        began.set()
        gate.wait(60)
        return items

    max_queue_size.put("hold", [None], hold)
    assert began.wait(10)
    with ThreadPoolExecutor(len(bodies)) as pool:
        asked = [pool.submit(client.post, path, json=body) for body in bodies]
        until = time.monotonic() + 20
        while max_queue_size.waiting < len(bodies) and time.monotonic() < until:
            time.sleep(0.01)
        gate.set()
        return [each.result(60).json() for each in asked]


def test_translations_are_those_of_the_library(client):
    translate = regard.load("en-de")
    texts = [line for line in LINES if line]
    found = client.post("/v1/translate", json={"inputs": texts, "to": "de", "options": {"num_candidates": 2}}).json()
    wanted = translate(texts, num_candidates=2)
    assert found["model"] == "en-de"
    assert [[c["text"] for c in each["candidates"]] for each in found["outputs"]] == [
        [c.text for c in each.candidates] for each in wanted
    ]
    greedy = {"inputs": texts[:1], "options": {"beam_size": 1}}
    one = client.post("/v1/translate", json=greedy).json()
    assert [each["text"] for each in one["outputs"]] == translate(texts[:1], beam_size=1)
    assert client.post("/v1/run/en-de", json=greedy).json() == one


def test_requests_that_run_together_are_answered_as_if_they_were_alone(pool):
    client = asks(pool)
    queue = pool.batcher("en-de")
    bodies = [
        {"inputs": [f"{line} {n}"], "options": {"beam_size": 1 + n % 2 * 3}}
        for n in range(4)
        for line in LINES[:4]
        if line
    ]
    bodies += [{"inputs": ["Two dogs."], "options": {"sample": True, "seed": n}} for n in range(3)]
    alone = [client.post("/v1/translate", json=body).json() for body in bodies]
    groups = []
    queue.on_batch, before = lambda jobs, items, seconds: groups.append(jobs), queue.on_batch
    try:
        together = at_once(client, queue, "/v1/translate", bodies)
    finally:
        queue.on_batch = before
    for one, other in zip(alone, together, strict=True):
        assert [t["text"] for t in one["outputs"]] == [t["text"] for t in other["outputs"]]
        assert one["outputs"][0]["score"] == pytest.approx(other["outputs"][0]["score"], abs=1e-4)
    assert max(groups) > 4


def test_drawn_texts_keep_their_random_numbers_in_company(pool):
    client, queue, write = asks(pool), pool.batcher("shakespeare"), regard.load("shakespeare")
    prompts, options = ["ROMEO:", "JULIET: I"], {"max_new_tokens": 12, "temperature": 0.8}
    bodies = [{"inputs": prompts, "options": options | {"seed": seed}} for seed in (0, 1, 7)]
    wanted = [write(prompts, **body["options"]) for body in bodies]
    groups = []
    queue.on_batch, before = lambda jobs, items, seconds: groups.append(jobs), queue.on_batch
    try:
        answers = at_once(client, queue, "/v1/generate", bodies)
    finally:
        queue.on_batch = before
    assert [[each["text"] for each in one["outputs"]] for one in answers] == wanted
    assert max(groups) == 3  # different seeds run together


def test_streamed_pieces_make_up_the_text_that_a_call_gives(client):
    options = {"max_new_tokens": 15, "num_candidates": 2, "seed": 4, "stop": ["\n\n"]}
    body = {"inputs": ["ROMEO:", "First"], "options": options}
    whole = client.post("/v1/generate", json=body).json()["outputs"]
    for path in ("/v1/generate", "/v1/run/shakespeare"):
        response = client.post(path, json=body | {"stream": True})
        assert response.headers["content-type"].startswith("text/event-stream")
        *pieces, last = events(response)
        assert last == {"done": True, "model": "shakespeare", "outputs": whole}
        assert len(pieces) > 20
        for n, output in enumerate(whole):
            for k, candidate in enumerate(output["candidates"]):
                own = [p["text"] for p in pieces if (p["input"], p["candidate"]) == (n, k)]
                assert "".join(own) == candidate["text"]


def test_a_stream_that_cannot_begin_is_an_error_with_a_status(client):
    response = client.post("/v1/generate", json={"inputs": ["R"], "stream": True, "options": {"beam_size": 2}})
    assert response.status_code == 422
    assert "beam_size" in response.json()["error"]["message"]
    response = client.post("/v1/translate", json={"inputs": ["Two dogs."], "stream": True})
    assert response.status_code == 422
    assert "en-de cannot stream" in response.json()["error"]["message"]


def test_filling_classifying_and_pronouncing_are_those_of_the_library(client):
    text = "A man is riding a [MASK] on the [MASK]."
    found = client.post("/v1/fill", json={"inputs": [text], "options": {"top_k": 2}}).json()["outputs"][0]
    wanted = regard.load("fill-en")(text, top_k=2).masks
    assert [[g["word"] for g in mask] for mask in found["masks"]] == [[g.word for g in mask] for mask in wanted]
    assert found["text"] == f"A man is riding a {wanted[0][0].word} on the {wanted[1][0].word}."
    classes = client.post("/v1/classify", json={"inputs": ["Zwei Hunde spielen.", {"text": "Two dogs."}]}).json()
    assert [each["label"] for each in classes["outputs"]] == ["German", "English"]
    words = {"inputs": ["xylophone", "read"], "options": {"num_candidates": 2}}
    sounds = client.post("/v1/pronounce", json=words).json()["outputs"]
    wanted = regard.load("sounds-en")(["xylophone", "read"], num_candidates=2)
    assert [[c["text"] for c in each["candidates"]] for each in sounds] == [
        [c.text for c in each.candidates] for each in wanted
    ]


def test_embeddings_are_those_of_the_library(tmp_path):
    from regard.tasks.text.embedder import TextEmbedder

    fill = regard.load("fill-en")
    regard.save(TextEmbedder(fill.model, fill.text, max_length=32), tmp_path / "vectors")
    client = asks(ModelPool([str(tmp_path / "vectors")]))
    found = client.post("/v1/embed", json={"inputs": ["Two dogs.", "A cat sat."]}).json()
    assert found["model"] == "vectors"
    wanted = regard.load(tmp_path / "vectors")(["Two dogs.", "A cat sat."])
    assert np.allclose([each["vector"] for each in found["outputs"]], wanted.numpy(), atol=1e-5)


def wav(seconds=0.8, rate=8000, kind="WAV"):
    t = np.arange(int(seconds * rate)) / rate
    file = io.BytesIO()
    soundfile.write(file, 0.3 * np.sin(2 * np.pi * 440 * t), rate, format=kind)
    return file.getvalue()


def test_sounds_are_heard_as_a_body_or_in_a_form(client):
    plain = client.post("/v1/transcribe", content=wav(), headers={"Content-Type": "audio/wav"})
    assert plain.status_code == 200
    form = client.post("/v1/transcribe", files={"audio": ("a.wav", wav())}, data={"model": "digits"})
    assert form.json() == plain.json()
    named = client.post("/v1/transcribe?model=en-de", content=wav(), headers={"Content-Type": "audio/wav"})
    assert "Model 'en-de' cannot transcribe" in named.json()["error"]["message"]
    assert client.post("/v1/transcribe", content=b"no sound", headers={"Content-Type": "audio/wav"}).status_code == 422


def test_a_sound_of_hours_in_few_bytes_is_not_unpacked(pool):
    file = io.BytesIO()
    soundfile.write(file, np.zeros(8000 * 900), 8000, format="FLAC")
    assert len(file.getvalue()) < 200_000
    found = asks(pool, max_audio_seconds=60).post(
        "/v1/transcribe", content=file.getvalue(), headers={"Content-Type": "audio/flac"}
    )
    assert found.status_code == 422
    assert "longer than the 60 seconds" in found.json()["error"]["message"]


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    folder = tmp_path_factory.mktemp("zoo") / "squares"
    model = regard.build("vit", num_classes=3, image_size=32, patch_size=8, width=16, layers=1, heads=2)
    regard.save(ImageClassifier(model, ["red", "green", "blue"], Preprocess(32)), folder)
    return folder


def png(side, colour="red"):
    file = io.BytesIO()
    Image.new("RGB", (side, side), colour).save(file, "PNG")
    return file.getvalue()


def test_pictures_are_looked_at_as_a_body_or_in_a_form(pictures):
    client = asks(ModelPool([f"colours={pictures}"]))
    wanted = regard.load(pictures)([png(40), png(50, "blue")])
    plain = client.post("/v1/classify", content=png(40), headers={"Content-Type": "image/png"}).json()
    assert plain["model"] == "colours"
    assert plain["outputs"][0]["label"] == wanted[0].label
    both = client.post("/v1/classify", files=[("image", ("a", png(40))), ("image", ("b", png(50, "blue")))]).json()
    assert [c["probability"] for c in both["outputs"]] == pytest.approx([w.probability for w in wanted], abs=1e-5)


def test_of_several_models_for_a_verb_the_first_whose_inputs_fit_is_chosen(pictures):
    client = asks(ModelPool([f"colours={pictures}", "languages"]))
    picture = base64.b64encode(png(40)).decode()
    for body, model in (
        ({"inputs": ["Two dogs."]}, "languages"),
        ({"inputs": [{"text": "Two dogs."}]}, "languages"),
        ({"inputs": [{"image": picture}]}, "colours"),
        ({"inputs": [picture], "model": "colours"}, "colours"),
    ):
        found = client.post("/v1/classify", json=body)
        assert (found.status_code, found.json().get("model")) == (200, model), found.text
    assert client.post("/v1/classify", files={"image": ("a", png(40))}).json()["model"] == "colours"
    wrong = client.post("/v1/classify", json={"inputs": [{"picture": picture}]})
    assert "has no input 'picture'" in wrong.json()["error"]["message"]


def test_all_pictures_of_a_form_are_counted_together(pictures):
    client = asks(ModelPool([str(pictures)]), max_pixels=5000)
    assert client.post("/v1/classify", files=[("image", ("a", png(50)))] * 2).status_code == 200
    found = client.post("/v1/classify", files=[("image", ("a", png(50)))] * 3)
    assert found.status_code == 422
    assert found.json()["error"] == {
        "type": "invalid",
        "message": "The inputs of this request have 7,500 pixels together; the limit is 5,000.",
        "field": "inputs.2",
    }


@pytest.mark.parametrize(("contents", "message"), [([b""], "empty"), ([], "no file"), ([b"a", b"b"], "one file at a")])
def test_the_explorer_takes_one_file(client, contents, message):
    parts = [("file", ("a", content)) for content in contents] or [("other", (None, "x"))]
    for path in ("/explore/inspections", "/explore/search"):
        found = client.post(path, data={"model": "digits"}, files=parts)
        assert found.status_code == 422
        assert message in found.json()["error"]["message"]


def test_uploads_are_decoded_off_the_event_loop_and_the_models_thread(pictures, monkeypatch):
    from regard.modalities import decode_image

    threads, decode = [], decode_image.decode_image

    def record(*given, **how):
        threads.append(threading.current_thread().name)
        return decode(*given, **how)

    monkeypatch.setattr(decode_image, "decode_image", record)
    client = asks(ModelPool([f"colours={pictures}"]), explore=True, max_pixels=2000)
    assert client.post("/v1/classify", content=png(40), headers={"Content-Type": "image/png"}).status_code == 200
    looked = client.post("/explore/inspections", data={"model": "colours"}, files={"file": ("a", png(40))})
    assert looked.status_code == 200, looked.text
    changed = {"inspection": looked.json()["id"], "interventions": [{"do": "off"}]}
    assert client.post("/explore/interventions", json=changed).status_code == 200
    for side, status in ((40, 200), (50, 422)):  # the limit holds for a picture in JSON as well
        inputs = {"image": base64.b64encode(png(side)).decode()}
        found = client.post("/explore/inspections", json={"model": "colours", "inputs": inputs})
        assert found.status_code == status, found.text
    assert len(threads) == 3
    assert all(name.startswith("asyncio_") for name in threads), threads  # a worker of asyncio.to_thread


def test_a_picture_of_many_pixels_in_few_bytes_is_not_unpacked(pictures):
    client = asks(ModelPool([str(pictures)]), max_pixels=10_000)
    found = client.post("/v1/classify", content=png(101), headers={"Content-Type": "image/png"})
    assert found.status_code == 422
    assert "101 x 101 pixels are more than the 10,000 that are allowed" in found.json()["error"]["message"]


def test_of_several_pictures_the_one_that_cannot_be_used_is_named_and_why(pictures):
    client = asks(ModelPool([str(pictures)]))
    file = io.BytesIO()
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (50, 50, 3), dtype=np.uint8)).save(file, "PNG")
    whole = file.getvalue()
    damaged = whole[:1000] + bytes(200) + whole[1200:]
    head = struct.pack(">IIBBBBB", 20_000, 20_000, 8, 2, 0, 0, 0)
    crc = struct.pack(">I", zlib.crc32(b"IHDR" + head))
    bomb = b"\x89PNG\r\n\x1a\n" + struct.pack(">I", len(head)) + b"IHDR" + head + crc + png(8)[33:]
    for bad, why in (
        (bomb, "400,000,000 pixels are more than the 33,554,432 that are allowed"),
        (whole[:2000], "the file ends too early"),
        (damaged, "damaged"),
        (b"no picture", "it is none of JPEG, PNG"),
    ):
        found = client.post("/v1/classify", files=[("image", ("a", png(40))), ("image", ("b", bad))])
        assert found.status_code == 422
        assert found.json()["error"]["message"].startswith("image 2: ")
        assert why in found.json()["error"]["message"]


@pytest.mark.parametrize(
    ("path", "body", "field", "says"),
    [
        ("/v1/translate", {"to": "fr"}, None, "No model of this service can translate fr"),
        ("/v1/translate", {"model": "en-dee"}, None, "did you mean 'en-de'"),
        ("/v1/translate", {"model": "shakespeare"}, None, "cannot translate; its task is language_modeling"),
        ("/v1/translate", {"model": 3}, "model", "model must be a string"),
        ("/v1/translate", {"options": {"beam": 3}}, "options.beam", "did you mean 'beam_size'"),
        ("/v1/translate", {"options": {"beam_size": "3"}}, "options.beam_size", "must be int"),
        ("/v1/translate", {"options": {"beam_size": 0}}, "options.beam_size", "from 1 to 256"),
        ("/v1/translate", {"options": {"beam_size": 17}}, "options.beam_size", "must be at most 16 here, got 17"),
        ("/v1/translate", {"options": {"stop": ["x"]}}, "options.stop", "is for models that continue a text"),
        ("/v1/translate", {"options": {"length_penalty": 10**400}}, "options.length_penalty", "must be float"),
        (
            "/v1/translate",
            {"options": {"beam_size": 1, "num_candidates": 3}},
            "options.beam_size",
            "num_candidates must be at most beam_size",
        ),
        ("/v1/translate", {"options": []}, "options", "options must be an object"),
        ("/v1/translate", {"inputs": []}, "inputs", "at least one item"),
        ("/v1/translate", {"inputs": "Two dogs."}, "inputs", "must be a list"),
        ("/v1/translate", {"inputs": ["a", 3]}, "inputs.1", "text 2: Expected a text (str), got int"),
        ("/v1/translate", {"inputs": [{"text": {}}]}, "inputs.0", "Expected a text (str), got dict"),
        ("/v1/translate", {"inputs": ["a"] * 65}, "inputs", "65 inputs; the limit is 64"),
        ("/v1/translate", {"text": "a"}, "text", "Unknown field 'text'; expected inputs"),
        ("/v1/translate", {"stream": 1}, "stream", "true or false"),
        ("/v1/generate", {"options": {"max_new_tokens": 0}}, "options.max_new_tokens", "at least 1"),
        (
            "/v1/generate",
            {"inputs": ["R"] * 64, "options": {"max_new_tokens": 4096}},
            "options.max_new_tokens",
            "262,144 tokens (inputs x max_new_tokens x beams or candidates); the limit is 16,384",
        ),
        ("/v1/fill", {"inputs": ["no mask"]}, None, "has no [MASK]"),
        ("/v1/pronounce", {"inputs": ["two words"]}, None, "more than one word"),
        ("/v1/embed", {}, None, "No model of this service can embed"),
        ("/v1/run/en-dee", {}, None, "did you mean 'en-de'"),
    ],
)
def test_what_a_user_can_put_right_is_said_in_a_line_with_its_status_and_field(client, path, body, field, says):
    found = client.post(path, json={"inputs": ["Two dogs."]} | body)
    status = 404 if "en-dee" in path + str(body) else 422
    assert found.status_code == status
    error = found.json()["error"]
    assert says in error["message"]
    assert error["type"] == {404: "not_found", 422: "invalid"}[status]
    assert error.get("field") == field


def test_models_are_listed_as_openai_lists_them(client):
    found = client.get("/v1/models").json()
    assert found["object"] == "list"
    assert {"id": "en-de", "object": "model", "created": 0, "owned_by": "regard", "task": "translation"} in found[
        "data"
    ]


def test_folders_are_served_under_their_names_and_never_named(tmp_path, pictures):
    run = tmp_path / "secret" / "run7" / "model"
    regard.save(regard.load(pictures), run)
    pool = ModelPool([str(run), f"other={pictures}"])
    assert pool.names() == ["run7", "other"]
    client = asks(pool)
    for path in ("/v1/models", "/metrics", "/openapi.json"):
        assert "secret" not in client.get(path).text
    with pytest.raises(regard.RegardError, match="Two models are called 'run7'"):
        ModelPool([str(run), f"run7={pictures}"])


def test_readiness_waits_for_the_models(pool):
    late = ModelPool(["languages"])
    client = asks(late)
    assert client.get("/health").json() == {"status": "ok"}
    assert client.get("/ready").status_code == 503
    late.load()
    assert client.get("/ready").json() == {"status": "ready"}
    assert make_app(late).state.pool is late


def test_metrics_count_routes_groups_and_what_waits(pool):
    client = asks(pool)
    client.post("/v1/translate", json={"inputs": ["Two dogs."]})
    client.get("/nothing/here")
    text = client.get("/metrics").text
    assert 'regard_requests_total{route="/v1/translate",status="200"}' in text
    assert 'route="other",status="404"' in text
    assert "/nothing/here" not in text
    assert 'regard_queued_requests{model="en-de"} 0' in text
    groups = next(line for line in text.splitlines() if line.startswith('regard_batches_total{model="en-de"}'))
    assert float(groups.split()[-1]) >= 1
    for line in text.splitlines():
        assert line.startswith("# ") or float(line.rpartition(" ")[2]) >= 0

"""Every route that uses a model: what it answers is what the library gives, whoever else asks at the time."""

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
    found = client.post("/v1/translate", json={"text": texts, "to": "de", "num_candidates": 2}).json()
    wanted = translate(texts, num_candidates=2)
    assert found["model"] == "en-de"
    assert [[c["text"] for c in each["candidates"]] for each in found["translations"]] == [
        [c.text for c in each.candidates] for each in wanted
    ]
    one = client.post("/v1/translate", json={"text": texts[0], "beam_size": 1}).json()["translations"]
    assert [each["text"] for each in one] == translate(texts[:1], beam_size=1)


def test_requests_that_run_together_are_answered_as_if_they_were_alone(pool):
    client = asks(pool)
    queue = pool.batcher("en-de")
    bodies = [{"text": f"{line} {n}", "beam_size": 1 + n % 2 * 3} for n in range(4) for line in LINES[:4] if line]
    bodies += [{"text": "Two dogs.", "sample": True, "seed": n} for n in range(3)]
    alone = [client.post("/v1/translate", json=body).json() for body in bodies]
    groups = []
    queue.on_batch, before = lambda jobs, items, seconds: groups.append(jobs), queue.on_batch
    try:
        together = at_once(client, queue, "/v1/translate", bodies)
    finally:
        queue.on_batch = before
    for one, other in zip(alone, together, strict=True):
        assert [t["text"] for t in one["translations"]] == [t["text"] for t in other["translations"]]
        assert one["translations"][0]["score"] == pytest.approx(other["translations"][0]["score"], abs=1e-4)
    assert max(groups) > 4


def test_drawn_texts_keep_their_random_numbers_in_company(pool):
    client, queue, write = asks(pool), pool.batcher("shakespeare"), regard.load("shakespeare")
    bodies = [{"prompt": ["ROMEO:", "JULIET: I"], "max_new_tokens": 12, "seed": seed} for seed in (0, 1, 7)]
    wanted = [write(b["prompt"], max_new_tokens=12, temperature=0.8, seed=b["seed"]) for b in bodies]
    found = [[each["text"] for each in one["texts"]] for one in at_once(client, queue, "/v1/generate", bodies)]
    assert found == wanted


def test_streamed_pieces_make_up_the_text_that_a_call_gives(client):
    body = {"prompt": ["ROMEO:", "First"], "max_new_tokens": 15, "num_candidates": 2, "seed": 4, "stop": ["\n\n"]}
    whole = client.post("/v1/generate", json=body).json()["texts"]
    response = client.post("/v1/generate", json=body | {"stream": True})
    assert response.headers["content-type"].startswith("text/event-stream")
    *pieces, last = events(response)
    assert last == {"done": True, "model": "shakespeare", "texts": whole}
    assert len(pieces) > 20
    for text in whole:
        own = [p["text"] for p in pieces if (p["prompt"], p["sample"]) == (text["prompt"], text["sample"])]
        assert "".join(own) == text["text"]


def test_a_stream_that_cannot_begin_is_an_error_with_a_status(client):
    response = client.post("/v1/generate", json={"prompt": "R", "stream": True, "beam_size": 2})
    assert response.status_code == 422
    assert "beam_size" in response.json()["error"]["message"]


def test_filling_classifying_and_pronouncing_are_those_of_the_library(client):
    text = "A man is riding a [MASK] on the [MASK]."
    found = client.post("/v1/fill", json={"text": text, "top_k": 2}).json()["filled"][0]
    wanted = regard.load("fill-en")(text, top_k=2).masks
    assert [[g["word"] for g in mask] for mask in found["masks"]] == [[g.word for g in mask] for mask in wanted]
    assert found["text"] == f"A man is riding a {wanted[0][0].word} on the {wanted[1][0].word}."
    classes = client.post("/v1/classify", json={"text": ["Zwei Hunde spielen.", "Two dogs."]}).json()["classes"]
    assert [each["label"] for each in classes] == ["German", "English"]
    sounds = client.post("/v1/pronounce", json={"word": ["xylophone", "read"], "num_candidates": 2}).json()[
        "pronunciations"
    ]
    wanted = regard.load("sounds-en")(["xylophone", "read"], num_candidates=2)
    assert sounds == [[c.text for c in each.candidates] for each in wanted]


def test_embeddings_are_those_of_the_library(tmp_path):
    from regard.tasks.text.embedder import TextEmbedder

    fill = regard.load("fill-en")
    regard.save(TextEmbedder(fill.model, fill.text, max_length=32), tmp_path / "vectors")
    client = asks(ModelPool([str(tmp_path / "vectors")]))
    found = client.post("/v1/embed", json={"text": ["Two dogs.", "A cat sat."]}).json()
    assert found["model"] == "vectors"
    wanted = regard.load(tmp_path / "vectors")(["Two dogs.", "A cat sat."])
    assert np.allclose(found["vectors"], wanted.numpy(), atol=1e-5)


def wav(seconds=0.8, rate=8000, kind="WAV"):
    t = np.arange(int(seconds * rate)) / rate
    file = io.BytesIO()
    soundfile.write(file, 0.3 * np.sin(2 * np.pi * 440 * t), rate, format=kind)
    return file.getvalue()


def test_sounds_are_heard_as_a_body_or_in_a_form(client):
    plain = client.post("/v1/transcribe", content=wav(), headers={"Content-Type": "audio/wav"})
    assert plain.status_code == 200
    form = client.post("/v1/transcribe", files={"file": ("a.wav", wav())}, data={"model": "digits"})
    assert form.json() == plain.json()
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
    assert plain["classes"][0]["label"] == wanted[0].label
    both = client.post("/v1/classify", files=[("file", ("a", png(40))), ("file", ("b", png(50, "blue")))]).json()
    assert [c["probability"] for c in both["classes"]] == pytest.approx([w.probability for w in wanted], abs=1e-5)


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
        found = client.post("/v1/classify", files=[("file", ("a", png(40))), ("file", ("b", bad))])
        assert found.status_code == 422
        assert found.json()["error"]["message"].startswith("image 2: ")
        assert why in found.json()["error"]["message"]


@pytest.mark.parametrize(
    ("path", "body", "status", "says"),
    [
        ("/v1/translate", {"text": "Two dogs.", "to": "fr"}, 422, "none of the models here can translate fr"),
        ("/v1/translate", {"text": "Two dogs.", "model": "en-dee"}, 404, "did you mean 'en-de'"),
        ("/v1/translate", {"text": "Two dogs.", "model": "shakespeare"}, 422, "it is for language"),
        ("/v1/translate", {"text": "Two dogs.", "beam": 3}, 422, "beam: "),
        ("/v1/translate", {"text": "Two dogs.", "beam_size": "3"}, 422, "beam_size: "),
        (
            "/v1/translate",
            {"text": "Two dogs.", "beam_size": 1, "num_candidates": 3},
            422,
            "num_candidates must be at most beam_size",
        ),
        ("/v1/translate", {"text": []}, 422, "text"),
        ("/v1/translate", {}, 422, "text: Field required"),
        ("/v1/generate", {"prompt": "R", "max_new_tokens": 0}, 422, "max_new_tokens"),
        ("/v1/generate", {"prompt": ["R"] * 64, "max_new_tokens": 4096}, 422, "tokens are more than"),
        ("/v1/fill", {"text": "no mask"}, 422, "has no [MASK]"),
        ("/v1/pronounce", {"word": "two words"}, 422, "more than one word"),
        ("/v1/embed", {"text": "a"}, 422, "none of the models here can embed"),
        ("/v1/classify", {"text": ["a", "b"], "text_pair": "c"}, 422, "not pairs"),
    ],
)
def test_what_a_user_can_put_right_is_said_in_a_line_with_its_status(client, path, body, status, says):
    found = client.post(path, json=body)
    assert found.status_code == status
    error = found.json()["error"]
    assert says in error["message"]
    assert error["type"] == {404: "not_found", 422: "invalid"}[status]
    if ": " in says:
        assert error["field"] == says.partition(":")[0]


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
    with pytest.raises(regard.RegardError, match="two models are called 'run7'"):
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
    client.post("/v1/translate", json={"text": "Two dogs."})
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

"""Who may send requests, how much they may send, and what those who may not are told."""

import asyncio
import json
import threading
from http.cookies import SimpleCookie
from pathlib import Path
from types import SimpleNamespace

import pytest
from starlette.responses import Response
from starlette.testclient import TestClient

from regard.core.errors import BadInput
from regard.serve.http import middleware
from regard.serve.http.app import make_app
from regard.serve.http.batching import QueueFull
from regard.serve.http.errors import ApiError
from regard.serve.http.jobs import Jobs
from regard.serve.http.middleware import SecurityMiddleware
from regard.serve.http.model_pool import ModelPool
from regard.serve.http.settings import Settings
from tests.deadline import wait_until
from tests.serve.conftest import asks


@pytest.fixture(scope="module")
def small():
    """One small model, with a queue of two."""
    found = ModelPool(["languages"], max_queue_size=2, wait=0.0)
    found.load()
    return found


def held(pool):
    """The model busy until let go: (let go, wait until so many stand in its queue)."""
    name = pool.names()[0]
    gate, began = threading.Event(), threading.Event()

    def hold(_):
        began.set()
        gate.wait(20)
        return [None]

    pool.batcher(name).put("held", [None], hold)
    assert began.wait(5)
    return gate


def error(response, status, kind):
    assert response.status_code == status
    found = response.json()["error"]
    assert found["type"] == kind
    assert "Traceback" not in response.text
    return found["message"]


# -- who ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["127.0.0.1", "127.0.0.1:8000", "localhost", "LOCALHOST:1", "[::1]:8000", "192.168.1.7"]
)
def test_addresses_and_localhost_are_ours(small, name):
    assert asks(small).get("/health", headers={"Host": name}).status_code == 200


@pytest.mark.parametrize(
    "name", ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "", "a b", "127.0.0.1@evil", "[::1"]
)
def test_a_name_that_is_not_ours_is_refused(small, name):
    error(asks(small).get("/health", headers={"Host": name}), 421, "unknown_host")


def test_a_name_that_is_allowed_is_ours(small):
    client = asks(small, allowed_hosts=("models.example",))
    assert client.get("/health", headers={"Host": "Models.Example:8000"}).status_code == 200
    error(client.get("/health", headers={"Host": "other.example"}), 421, "unknown_host")


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:9"},  # another port is another origin
        {"Origin": "http://["},  # not a URL
        {"Origin": "http://[::1]x"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "no-cors"},
    ],
)
def test_a_page_of_elsewhere_may_not_even_ask(small, headers):
    error(asks(small).post("/v1/classify", json={"inputs": ["a"]}, headers=headers), 403, "forbidden_origin")


def test_our_own_page_may_ask_and_a_link_may_lead_to_it(small):
    client = asks(small, explore=True)
    own = {"Origin": "http://127.0.0.1", "Sec-Fetch-Site": "same-origin"}
    assert client.post("/v1/classify", json={"inputs": ["Two dogs."]}, headers=own).status_code == 200
    link = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
    assert client.get("/", headers=link).status_code == 200


def test_other_origins_are_off_and_can_be_let_in_one_by_one(small):
    there = {"Origin": "https://page.example"}
    asking = there | {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "content-type"}
    shut = asks(small)
    assert shut.options("/v1/classify", headers=asking).status_code == 403
    assert "access-control-allow-origin" not in shut.get("/health").headers
    client = asks(small, cors_origins=("https://page.example",), token="word")
    assert client.options("/v1/classify", headers=asking).headers["access-control-allow-origin"] == there["Origin"]
    known = there | {"Authorization": "Bearer word"}
    answer = client.post("/v1/classify", json={"inputs": ["Two dogs."]}, headers=known)
    assert answer.status_code == 200
    assert answer.headers["access-control-allow-origin"] == there["Origin"]
    error(client.get("/v1/models", headers={"Origin": "https://other.example"}), 403, "forbidden_origin")


def test_with_a_token_only_those_who_know_it_are_answered(small):
    client = asks(small, token="word", explore=True)
    for said in (b"", b"Bearer wor", b"Bearer w\xf6rd", b"Basic word", b"word"):
        found = client.get("/v1/models", headers={"Authorization": said, "Cookie": "regard_token=word"})
        error(found, 401, "unauthorized")
        assert found.headers["www-authenticate"] == "Bearer"
    assert client.get("/v1/models", headers={"Authorization": "Bearer word"}).status_code == 200
    assert client.get("/health").status_code == 200
    error(client.get("/metrics"), 401, "unauthorized")
    error(client.get("/page/main.js"), 401, "unauthorized")


@pytest.mark.parametrize("token", ["", "two words", "wörd", "a\nb"])
def test_a_token_is_something_that_a_header_can_hold(token):
    with pytest.raises(BadInput, match="ASCII"):
        Settings(token=token)


def test_long_cookies_are_cut_before_they_are_parsed(small, monkeypatch):
    parsed = []
    monkeypatch.setattr(middleware, "SimpleCookie", lambda text: parsed.append(len(text)) or SimpleCookie(text))
    client = asks(small, token="word")
    error(client.get("/v1/models", headers={"Cookie": "a=" + "b" * 100_000}), 401, "unauthorized")
    assert parsed == [middleware.MAX_COOKIE_CHARACTERS]


@pytest.mark.parametrize("header", [(b"content-length", b"3000000"), (b"transfer-encoding", b"chunked")])
def test_a_large_body_without_a_token_is_read_before_it_is_refused(small, header):
    """A client that is still sending would not receive the 401."""
    parts = [{"type": "http.request", "body": b" " * 1_000_000, "more_body": more} for more in (True, True, False)]
    events = []

    async def receive():
        events.append("part")
        return parts.pop(0)

    async def send(message):
        events.append((message["type"], message.get("status")))

    scope = {
        "type": "http", "method": "POST", "path": "/v1/classify", "query_string": b"", "http_version": "1.1",
        "scheme": "http", "client": ("127.0.0.1", 1), "headers": [(b"host", b"localhost"), header],
    }  # fmt: skip
    asyncio.run(make_app(small, Settings(token="right"))(scope, receive, send))
    assert events[:4] == ["part", "part", "part", ("http.response.start", 401)]


def test_a_browser_gets_a_cookie_for_the_token_and_an_address_without_it(small):
    client = asks(small, token="word", explore=True)
    error(client.get("/?token=wrong"), 401, "unauthorized")
    found = client.get("/?token=word", follow_redirects=False)
    assert found.status_code == 303
    assert found.headers["location"] == "/"
    cookie = found.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert "=word" not in cookie
    assert client.get("/").status_code == 200
    assert client.get("/explore/models").status_code == 200


def test_every_answer_carries_the_headers_that_bind_a_browser(small):
    client = asks(small, explore=True)
    for answer in (
        client.get("/"),
        client.get("/health"),
        client.get("/nothing"),
        client.post("/v1/fill", content=b"{"),
    ):
        policy = answer.headers["content-security-policy"]
        assert policy.startswith("default-src 'self';")
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert "access-control-allow-origin" not in answer.headers


# -- how much ----------------------------------------------------------------------------------------------------------


def test_a_body_that_is_too_large_is_refused_whatever_its_header_says(small):
    client = asks(small, max_body_bytes=1000, max_upload_bytes=5000)
    large = json.dumps({"inputs": ["x" * 2000]}).encode()
    kind = {"Content-Type": "application/json"}
    assert "1,000 bytes" in error(client.post("/v1/classify", content=large, headers=kind), 413, "too_large")
    parts = (large[at : at + 100] for at in range(0, len(large), 100))  # no length is said
    error(client.post("/v1/classify", content=parts, headers=kind), 413, "too_large")
    picture = {"Content-Type": "image/png"}
    error(client.post("/v1/classify", content=b"x" * 5001, headers=picture), 413, "too_large")
    assert client.post("/v1/classify", content=b"x" * 4999, headers=picture).status_code == 415  # of a text model
    error(client.post("/v1/classify", content=b"", headers=kind | {"Content-Length": "9" * 30}), 413, "too_large")


def test_a_compressed_body_is_refused_rather_than_unpacked(small):
    headers = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
    error(asks(small).post("/v1/classify", content=b"x", headers=headers), 415, "unsupported_media_type")


def test_all_requests_together_hold_no_more_than_they_may(small):
    async def read(scope, receive, send):
        await Response(json.dumps({"bytes": len((await receive())["body"])}))(scope, receive, send)

    guard = SecurityMiddleware(read, small, Settings(max_buffered_bytes=1000))
    guard.buffered_bytes = 990
    said = run(guard, b"x" * 20)
    assert (said["status"], said["error"]["type"]) == (503, "unavailable")
    assert guard.buffered_bytes == 990  # what was refused is not held
    assert run(guard, b"x" * 5)["bytes"] == 5
    assert guard.buffered_bytes == 990
    assert guard.active_requests == 0


def test_texts_are_limited_in_all(small):
    client = asks(small, max_characters=100)
    assert "120 characters together" in error(
        client.post("/v1/classify", json={"inputs": ["x" * 40] * 3}), 422, "invalid"
    )
    assert client.post("/v1/classify", json={"inputs": ["x" * 50] * 2}).status_code == 200  # exactly at the limit
    error(client.post("/v1/classify", json={"inputs": ["x"] * 65}), 422, "invalid")


def test_tokens_times_beams_are_limited(pool):
    text = "[MASK] " * 20
    tokens = pool.get("en-de").count_tokens([text])
    assert tokens > 80
    client = asks(pool, max_tokens=4 * tokens)
    for options, status in (({}, 200), ({"beam_size": 5}, 422), ({"sample": True, "num_candidates": 5}, 422)):
        found = client.post("/v1/translate", json={"inputs": [text], "options": options})
        assert found.status_code == status, found.text
    assert f"{tokens} tokens, x 5 beams or candidates = {5 * tokens}" in error(found, 422, "invalid")
    assert "the limit is" in error(client.post("/v1/translate", json={"inputs": [text] * 2}), 422, "invalid")
    assert asks(pool).post("/v1/translate", json={"inputs": ["[MASK]" * 3300]}).status_code == 422  # 20 kB


def test_a_prompt_is_limited_unless_it_slides(pool):
    client, options = asks(pool, max_prompt_tokens=10), {"max_new_tokens": 1}
    for text, status in (("a" * 10, 200), ("a" * 11, 422)):
        assert client.post("/v1/generate", json={"inputs": [text], "options": options}).status_code == status
    slides = {"inputs": ["a" * 11], "options": options | {"slide": True}}
    assert client.post("/v1/generate", json=slides).status_code == 200


def test_a_text_is_inspected_up_to_as_many_tokens_as_a_prompt(pool):
    client = asks(pool, explore=True, max_prompt_tokens=10)
    for text, status in (("a" * 10, 200), ("a" * 11, 422)):
        asked = {"model": "shakespeare", "inputs": {"text": text, "max_new_tokens": 1}}
        looked = client.post("/explore/inspections", json=asked)
        changed = client.post("/explore/interventions", json=asked | {"interventions": [{"do": "off"}]})
        assert (looked.status_code, changed.status_code) == (status, status), looked.text + changed.text
    assert "11 tokens together; the limit is 10" in error(looked, 422, "invalid")


def test_a_model_whose_queue_is_full_says_429_and_when_to_come_back(small):
    client, gate = asks(small), held(small)
    try:
        waiting = [
            threading.Thread(target=client.post, args=("/v1/classify",), kwargs={"json": {"inputs": ["a"]}})
            for _ in "ab"
        ]
        for each in waiting:
            each.start()
        wait_until(lambda: small.batcher("languages").waiting == 2)
        found = client.post("/v1/classify", json={"inputs": ["Two dogs."]})
        assert "2 requests wait" in error(found, 429, "too_many_requests")
        assert 1 <= int(found.headers["retry-after"]) <= 60
    finally:
        gate.set()
    for each in waiting:
        each.join(10)
    assert client.post("/v1/classify", json={"inputs": ["Two dogs."]}).status_code == 200


def test_an_answer_that_takes_too_long_is_given_up(small):
    client, gate = asks(small, timeout=0.1), held(small)
    try:
        found = client.post("/v1/classify", json={"inputs": ["Two dogs."]})
        assert "within 0.1 s" in error(found, 504, "deadline_exceeded")
        assert "retry-after" in found.headers
    finally:
        gate.set()


def test_more_clients_than_allowed_are_told_to_come_back(small):
    client, gate = asks(small, max_concurrent_requests=1), held(small)
    one = threading.Thread(target=client.post, args=("/v1/classify",), kwargs={"json": {"inputs": ["a"]}})
    try:
        one.start()
        wait_until(lambda: small.batcher("languages").waiting)
        found = client.get("/v1/models")
        error(found, 503, "unavailable")
        assert found.headers["retry-after"] == "1"
        assert client.get("/health").status_code == 200  # needs no token and is always answered
    finally:
        gate.set()
        one.join(10)


def test_a_service_that_is_about_to_stop_says_503(small):
    one = ModelPool(["languages"])
    one.load()
    client = asks(one)
    one.stop()
    found = client.post("/v1/classify", json={"inputs": ["a"]})
    error(found, 503, "unavailable")
    assert found.headers["retry-after"] == "5"
    assert client.get("/ready").status_code == 503
    assert client.get("/health").status_code == 200


# -- what --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body", [b"", b"{", b"\xff\xfe", b"[" * 100_000, b"NaN", b'{"inputs": [1e999]}', b"9" * 5000, b'"\\ud800"']
)
def test_what_is_no_json_is_an_error_of_whoever_sent_it(small, body):
    for path in ("/v1/translate", "/v1/classify", "/v1/completions"):
        found = asks(small).post(path, content=body, headers={"Content-Type": "application/json"})
        assert found.status_code in (400, 422), found.text
        assert set(found.json()["error"]) <= {"type", "message", "field"}


@pytest.mark.parametrize("text", ['"\\ud800"', '"a\\u0000b"', '"\\udfff\\ud800"', '{"\\ud800": 1}'])
def test_half_characters_are_refused_or_read_and_never_break_an_answer(client, text):
    kind = {"Content-Type": "application/json"}
    for path in ("/v1/translate", "/v1/generate", "/v1/classify"):
        more = ', "options": {"max_new_tokens": 4}' if path == "/v1/generate" else ""
        found = client.post(path, content=f'{{"inputs": [{text}]{more}}}'.encode(), headers=kind)
        assert found.status_code in (200, 400, 422), found.text
        found.json()


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        ({"Content-Type": "multipart/form-data"}, b"x"),
        ({"Content-Type": "multipart/form-data; boundary=b"}, b"--b\r\nbroken"),
        (
            {"Content-Type": "multipart/form-data; boundary=b"},
            b"--b\r\nContent-Disposition: form-data\r\n\r\nx\r\n--b--",
        ),
        ({"Content-Type": "multipart/form-data; boundary=b"}, b"--b--\r\n"),
    ],
)
def test_a_broken_form_is_an_error_of_whoever_sent_it(small, headers, body):
    for path in ("/v1/classify", "/v1/transcribe", "/explore/inspections"):
        found = asks(small, explore=True).post(path, content=body, headers=headers)
        assert found.status_code in (400, 422), found.text
        assert "error" in found.json()


def test_other_kinds_of_bodies_and_other_methods_are_refused_by_name(small):
    client = asks(small)
    error(
        client.post("/v1/classify", content=b"x", headers={"Content-Type": "text/plain"}), 415, "unsupported_media_type"
    )
    found = client.post("/v1/classify", content=b"x", headers={"Content-Type": "audio/wav"})
    assert "send application/json" in error(found, 415, "unsupported_media_type")
    found = client.get("/v1/translate")
    assert error(found, 405, "method_not_allowed") == "This route takes POST; got GET."
    assert found.headers["allow"] == "POST"
    assert error(client.get("/v2/anything"), 404, "not_found") == "There is no such route; /docs has all of them."


def test_a_bug_of_ours_says_nothing_of_this_machine_and_leaves_its_traceback_in_the_log(small, caplog):
    app = make_app(small, Settings())

    @app.get("/broken")
    async def broken():
        raise RuntimeError("/home/somebody/secret.py")

    @app.get("/path")
    async def path():
        raise BadInput("cannot read /home/somebody/models/secret.bin: no such file")

    client = TestClient(app, base_url="http://127.0.0.1", raise_server_exceptions=False)
    with caplog.at_level("ERROR", "regard"):
        found = client.get("/broken")
    error(found, 500, "internal")
    assert "secret" not in found.text
    assert "RuntimeError: /home/somebody/secret.py" in caplog.text  # the traceback is for the log
    assert "Traceback" in caplog.text
    assert error(client.get("/path"), 422, "invalid") == "cannot read a file: no such file"


# -- clients that leave ------------------------------------------------------------------------------------------------


def test_a_client_that_hangs_up_has_its_request_ended(small):
    guard, gate = make_app(small, Settings()), held(small)
    body = json.dumps({"inputs": ["Two dogs."]}).encode()
    try:
        assert run(guard, body, path="/v1/classify", leaves=0.1) == {}
        queue = small.batcher("languages")
        assert all(job.is_abandoned for job in queue._waiting)
    finally:
        gate.set()


def test_a_body_that_does_not_come_is_not_waited_for(small):
    guard = make_app(small, Settings(client_timeout=0.1))
    said = run(guard, b"{", path="/v1/classify", stuck=True)
    assert (said["status"], said["error"]["type"]) == (408, "request_timeout")
    assert said["headers"]["connection"] == "close"


def run(app, body, path="/health", leaves=None, stuck=False):
    """One POST to an ASGI app: what it says. `leaves`: the client goes after so many seconds; `stuck`: after a part."""
    said = {}

    async def call():
        parts = [{"type": "http.request", "body": body, "more_body": stuck}]

        async def receive():
            if parts:
                return parts.pop()
            await asyncio.sleep(60 if leaves is None else leaves)
            return {"type": "http.disconnect"}

        async def send(message):
            if message["type"] == "http.response.start":
                said["status"] = message["status"]
                said["headers"] = {k.decode().lower(): v.decode() for k, v in message["headers"]}
            elif message.get("body"):
                said.update(json.loads(message["body"]))

        headers = [(b"host", b"localhost"), (b"content-type", b"application/json")]
        scope = {"type": "http", "method": "GET" if path == "/health" else "POST", "path": path, "headers": headers,
                 "query_string": b"", "raw_path": path.encode(), "scheme": "http", "http_version": "1.1",
                 "root_path": "", "server": ("localhost", 80), "client": ("127.0.0.1", 1)}  # fmt: skip
        await app(scope, receive, send)

    asyncio.run(asyncio.wait_for(call(), 10))
    return said


def test_the_limits_are_those_of_the_documentation():
    mib, settings = 2**20, Settings()
    table = (Path(__file__).parents[3] / "docs" / "how" / "serve.md").read_text(encoding="utf-8").replace("\n", " ")
    for name, value, shown in (
        ("max_body_bytes", mib, "1 MiB of JSON"),
        ("max_upload_bytes", 16 * mib, "16 MiB of a file"),
        ("max_buffered_bytes", 256 * mib, "| 256 MiB, 512 |"),
        ("max_concurrent_requests", 512, "| 256 MiB, 512 |"),
        ("client_timeout", 10.0, "10 s for its headers, 10 s for its body"),
        ("timeout", 30.0, "`--timeout`, 30 s"),
        ("max_items", 64, "| 64, 8 |"),
        ("max_files", 8, "| 64, 8 |"),
        ("max_characters", 20_000, "20,000 characters"),
        ("max_tokens", 32_768, "32,768 tokens x beams"),
        ("max_pixels", 2**25, "33 million pixels"),
        ("max_audio_seconds", 120.0, "120 s"),
        ("max_beams", 16, "| `beam_size`, `num_candidates` | 16 |"),
        ("max_prompt_tokens", 4096, "4,096 tokens"),
        ("max_generated_tokens", 16_384, "16,384: inputs"),
    ):
        assert (getattr(settings, name), shown in table) == (value, True), name


# -- exactly at the bound ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("said", ["words", "wordword", "word,word", "word word", "word\x7f"])
def test_a_token_with_a_longer_tail_is_another(small, said):
    client = asks(small, token="word", explore=True)
    assert client.get("/v1/models", headers={"Authorization": "Bearer word"}).status_code == 200
    error(client.get("/v1/models", headers={"Authorization": f"Bearer {said}"}), 401, "unauthorized")
    error(client.get("/", params={"token": said}), 401, "unauthorized")


def test_a_body_of_exactly_the_limit_is_read_and_one_byte_more_is_not(small):
    body = json.dumps({"inputs": ["Two dogs."]}).encode()
    client = asks(small, max_body_bytes=len(body))
    kind = {"Content-Type": "application/json"}
    assert client.post("/v1/classify", content=body, headers=kind).status_code == 200
    assert error(client.post("/v1/classify", content=body + b" ", headers=kind), 413, "too_large")
    parts = iter([body, b" "])  # without a length that could be looked at first
    assert error(client.post("/v1/classify", content=parts, headers=kind), 413, "too_large")
    assert client.post("/v1/classify", content=iter([body]), headers=kind).status_code == 200


def test_texts_of_exactly_the_characters_allowed_are_read(small):
    client = asks(small, max_characters=9)
    assert client.post("/v1/classify", json={"inputs": ["Two dogs."]}).status_code == 200
    assert client.post("/v1/classify", json={"inputs": ["Two ", "dogs."]}).status_code == 200
    assert client.post("/v1/classify", json={"inputs": ["Two dogs.."]}).status_code == 422
    jobs = Jobs(small, Settings(max_characters=9))
    asyncio.run(jobs.check_texts("languages", ["Two ", "dogs."]))
    with pytest.raises(ApiError, match="10 characters"):
        asyncio.run(jobs.check_texts("languages", ["Two ", "dogs.."]))


def test_exactly_as_many_inputs_as_allowed_are_read(small):
    client = asks(small, max_items=2)
    assert client.post("/v1/classify", json={"inputs": ["a", "b"]}).status_code == 200
    assert client.post("/v1/classify", json={"inputs": ["a", "b", "c"]}).status_code == 422


@pytest.mark.parametrize(("limit", "most"), [("max_beams", 2), ("max_generated_tokens", 12), ("max_tokens", 12)])
def test_exactly_the_computation_allowed_may_be_asked_for(small, limit, most):
    """2 inputs x 3 tokens x 2 beams: 12 tokens in, 12 tokens out."""
    predictor = SimpleNamespace(count_tokens=lambda texts: 3 * len(texts))
    options = SimpleNamespace(beam_size=2, max_new_tokens=3)
    asyncio.run(Jobs(small, Settings(**{limit: most}))._check(predictor, ["abc"] * 2, options))
    with pytest.raises(ApiError, match=f"{most - 1}"):
        asyncio.run(Jobs(small, Settings(**{limit: most - 1}))._check(predictor, ["abc"] * 2, options))


def test_a_queue_takes_as_many_as_it_says(small):
    gate = held(small)
    name = small.names()[0]
    try:
        jobs = [small.batcher(name).put(object(), [None], lambda items: items) for _ in range(2)]
        with pytest.raises(QueueFull):
            small.batcher(name).put("k", [None], lambda items: items)
    finally:
        gate.set()
    assert [job.future.result(5) for job in jobs] == [[None], [None]]

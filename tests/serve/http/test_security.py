"""What strangers may try, over real sockets: nothing is read that is not ours, nothing falls over, nothing leaks.

Whatever is sent, the answer is a typed error (or the connection is closed), and the service still answers afterwards.
"""

from __future__ import annotations

import io
import json
import socket
import struct
import threading
import time
import zlib
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

import httpx
import pytest
import torch

import regard
from regard.modalities.image import Preprocess
from regard.serve.http.app import make_app
from regard.serve.http.model_pool import ModelPool
from regard.serve.http.server import running_server
from regard.serve.http.settings import Settings
from regard.tasks.image.image_classification import ImageClassifier

SCRIPT = "</script><script>alert(1)</script><img src=x onerror=alert(1)>"
PATIENCE = 1.0
LIMITS = {
    "max_body_bytes": 20_000,
    "max_upload_bytes": 60_000,
    "max_pixels": 250_000,
    "client_timeout": PATIENCE,
    "timeout": 20.0,
    "max_audio_seconds": 5.0,
}
LEAKS = ("Traceback", 'File "', "site-packages", "/src/", "/tmp/", "/home/", "/usr/", "/root", "Errno")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    torch.manual_seed(0)
    sizes = {"image_size": (24, 32), "patch_size": 8, "width": 12, "heads": 3, "layers": 2, "ffn": 20}
    place = tmp_path_factory.mktemp("secret") / "pets"
    model = regard.build("vit", num_classes=2, **sizes)
    regard.save(ImageClassifier(model, ["cat", SCRIPT], Preprocess((24, 32))), place)
    return place


@pytest.fixture(scope="module")
def url(folder):
    pool = ModelPool(["fill-en", "digits", str(folder)], device="cpu")
    with running_server(make_app(pool, Settings(explore=True, **LIMITS))) as found:
        pool.load()
        yield found


@pytest.fixture
def client(url):
    """A client; whatever happened to the service, it is still there afterwards and answers as before."""
    with httpx.Client(base_url=url, timeout=30) as made:
        yield made
        answer = made.post("/v1/fill", json={"inputs": ["A man is riding a [MASK]."]})
        assert answer.status_code == 200
        assert answer.json()["outputs"][0]["masks"]


def refused(answer, *statuses):
    """A typed error with one of these statuses and nothing in it of this machine."""
    assert answer.status_code in statuses, (answer.status_code, answer.text[:300])
    assert set(answer.json()) == {"error"}
    assert answer.json()["error"]["message"]
    clean(answer)


def clean(answer):
    assert answer.status_code != 500
    for leak in LEAKS:
        assert leak not in answer.text


def address(url):
    parts = urlsplit(url)
    return parts.hostname, parts.port


def spoken(url, data, wait=10.0):
    """Bytes sent as they are, and all that comes back until the other side has closed, or nothing more comes."""
    with socket.create_connection(address(url), timeout=wait) as wire:
        wire.sendall(data)
        got = b""
        try:
            while part := wire.recv(65536):
                got += part
        except (TimeoutError, ConnectionResetError):
            pass
        return got


def all_spoken(url, messages, wait):
    """What `spoken` returns for each, on connections side by side."""
    with ThreadPoolExecutor(len(messages)) as pool:
        return dict(zip(messages, pool.map(lambda said: spoken(url, said, wait), messages.values()), strict=True))


# -- paths and hosts ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path",
    [
        "/page/../app.py", "/page/..%2fapp.py", "/page/%2e%2e/app.py", "/page/%2e%2e%2fapp.py", "/page/..\\app.py",
        "/page//etc/passwd", "/page/%2fetc%2fpasswd", "/page/....//app.py", "/page/store.js%00.py", "/page/.",
        "/page/%c0%ae%c0%ae/app.py", "/../../../../etc/passwd", "/page/store.js/../../app.py", "//etc/passwd",
        "/explore/inspections/..%2f..%2f/picture", "/explore/inspections/%2e%2e/export",
    ],
)  # fmt: skip
def test_no_path_leaves_the_folder_of_the_page(client, url, path):
    head = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"  # as it is: clients tidy paths up
    said = spoken(url, head.encode("latin-1"))
    status = int(said.split()[1])
    assert status in (400, 404, 405, 422), said[:200]
    assert b"import" not in said
    assert b"root:" not in said


def test_files_of_the_page_are_served_with_their_type_and_nothing_else_is(client):
    answer = client.get("/page/store.js")
    assert answer.headers["content-type"].startswith("text/javascript")
    assert answer.headers["x-content-type-options"] == "nosniff"
    for name in ("app.py", "__init__.py", "nothing.js", "%73tore.js%20"):
        refused(client.get(f"/page/{name}"), 404)


@pytest.mark.parametrize(
    "name", ["evil.example", "evil.example:80", "localhost.evil.example", "a b", "", "127.0.0.1.nip.io"]
)
def test_names_that_are_not_ours_are_refused(client, url, name):
    said = spoken(url, f"GET /v1/models HTTP/1.1\r\nHost: {name}\r\nConnection: close\r\n\r\n".encode())
    assert int(said.split()[1]) in (400, 421)
    assert b"fill-en" not in said


def test_two_hosts_or_none_are_refused(client, url):
    for hosts in ("", "Host: localhost\r\nHost: evil.example\r\n"):
        said = spoken(url, f"GET /v1/models HTTP/1.1\r\n{hosts}Connection: close\r\n\r\n".encode())
        assert int(said.split()[1]) in (400, 421)


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://localhost.evil.example"])
def test_pages_of_others_may_not_ask(client, origin):
    headers = {"Origin": origin, "Content-Type": "text/plain"}
    answer = client.post("/v1/fill", content='{"inputs": ["[MASK]"]}', headers=headers)
    refused(answer, 403)
    assert "access-control-allow-origin" not in answer.headers
    asked = {"Origin": origin, "Access-Control-Request-Method": "POST"}
    assert "access-control-allow-origin" not in client.options("/v1/fill", headers=asked).headers


def test_the_policy_of_the_page_allows_its_own_files_only(client):
    policy = client.get("/").headers["content-security-policy"]
    assert "default-src 'self'" in policy
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy


# -- bodies ------------------------------------------------------------------------------------------------------------


def test_bodies_that_are_too_large_are_refused_by_their_header_and_while_they_come(client, url):
    refused(client.post("/v1/fill", json={"inputs": ["a" * 30_000]}), 413)
    refused(client.post("/v1/classify", content=b"0" * 100_000, headers={"Content-Type": "image/png"}), 413)

    def endless():
        for _ in range(100):
            yield b" " * 1000

    refused(client.post("/v1/fill", content=endless(), headers={"Content-Type": "application/json"}), 413)
    head = "POST /v1/fill HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    for length in ("9" * 30, "-1", "1e9", "0x10", "1, 2"):
        said = spoken(url, f"{head}Content-Length: {length}\r\nConnection: close\r\n\r\n".encode(), 4)
        assert not said or int(said.split()[1]) in (400, 413), (length, said[:100])


@pytest.mark.parametrize(
    "body",
    [
        b"", b"{", b"[]", b"null", b'"text"', b"\xff\xfe\x00", b"{'inputs': 1}",
        b'{"inputs": NaN}', b'{"inputs": ["\xc3\x28"]}',
        b'{"inputs": ["[MASK]", 1]}', b'{"inputs": null}', b'{"inputs": {}}', b'{"inputs": [{}]}', b'{"inputs": [[]]}',
        b'{"inputs": ["[MASK]"], "options": {"top_k": 1e400}}',
        b'{"inputs": ["[MASK]"], "options": {"top_k": 9%s}}' % (b"9" * 400),
        b'{"inputs": ["[MASK]"], "options": {"top_k": -1}}', b'{"inputs": ["[MASK]"], "options": []}',
        b'{"inputs": ["[MASK]"], "x": 1}', b'{"inputs": [{"text": {"text": "[MASK]"}}]}',
        b"[" * 9000, b'{"a":' * 3000, b'{"inputs": ["\\ud83d [MASK]"]}',
        b'{"inputs": ["[MASK]"], "model": "../../etc/passwd"}', b'{"inputs": ["[MASK]"], "model": "\\u0000"}',
        b'{"inputs": []}', b'{"inputs": [""]}', b"0" * 5000, b'{"inputs": ["[MASK]"], "inputs": 3}',
    ],
    ids=lambda body: repr(body[:24]),
)  # fmt: skip
def test_malformed_json_is_told_so(client, body):
    answer = client.post("/v1/fill", content=body, headers={"Content-Type": "application/json"})
    if b'"top_k": 999' in body and answer.status_code == 200:  # as many words as there are
        return
    refused(answer, 400, 404, 415, 422)


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("multipart/form-data", b""),
        ("multipart/form-data; boundary=", b"--\r\n"),
        ("multipart/form-data; boundary=x", b""),
        ("multipart/form-data; boundary=x", b"--x\r\n\r\n"),
        ("multipart/form-data; boundary=x", b"--x\r\nContent-Disposition: form-data\r\n\r\nabc\r\n--x--\r\n"),
        ("multipart/form-data; boundary=x", b"--x\r\nContent-Disposition: form-data; name=file; filename=a\r\n\r\nabc"),
        ("multipart/form-data; boundary=x", b"--y--"),
        ("multipart/form-data; boundary=" + "x" * 5000, b"--x--"),
        (
            "multipart/form-data; boundary=x",
            b'--x\r\nContent-Disposition: form-data; name="model"\r\n\r\npets\r\n--x--\r\n',
        ),
        ("image/png", b""),
        ("image/png", b"\x89PNG\r\n\x1a\n"),
        ("image/svg+xml", b"<svg xmlns='http://www.w3.org/2000/svg'/>"),
        ("text/html", b"<p>"),
        ("application/x-www-form-urlencoded", b"file=abc"),
        ("\xff\xfe", b"abc"),
    ],
    ids=range(15),
)
def test_malformed_forms_and_files_are_told_so(client, kind, body):
    for path in ("/v1/classify", "/v1/transcribe", "/explore/inspections"):
        answer = client.post(path, content=body, headers={"Content-Type": kind.encode("latin-1")})
        refused(answer, 400, 413, 415, 422)


def test_a_form_of_many_parts_is_refused(client):
    parts = [("image", (f"{k}.png", b"x")) for k in range(50)]
    refused(client.post("/v1/classify", files=parts), 400, 413, 422)
    fields = {f"field{k}": "x" for k in range(500)}
    refused(client.post("/v1/classify", data=fields, files={"image": b"x"}), 400, 413, 422)


def test_the_name_of_a_file_is_only_a_name(client):
    answer = client.post("/v1/classify", files={"image": ("../../../etc/passwd", b"root:x:0:0")})
    refused(answer, 422)
    assert "passwd" not in answer.text


# -- bombs -------------------------------------------------------------------------------------------------------------


def png(width, height):
    """A picture of one colour: a few kilobytes, however large it is."""
    rows = zlib.compress(bytes(1), 9)
    if width * height <= 2**27:
        rows = zlib.compress(bytes((-(-width // 8) + 1) * height), 9)
    parts = ((b"IHDR", struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)), (b"IDAT", rows), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(d)) + n + d + struct.pack(">I", zlib.crc32(n + d)) for n, d in parts
    )


def bombs():
    yield "png, 100 million pixels", "image/png", png(10_000, 10_000)
    yield "png, 2^62 pixels", "image/png", png(2**31 - 1, 2**31 - 1)
    yield "gif, 4 billion pixels", "image/gif", b"GIF89a" + struct.pack("<HHBBB", 65535, 65535, 0, 0, 0) + b";"
    yield (
        "bmp",
        "image/bmp",
        b"BM" + struct.pack("<IHHIIiiHHIIiiII", 54, 0, 0, 54, 40, 2**30, 2**30, 1, 24, 0, 0, 0, 0, 0, 0),
    )
    text = zlib.compress(bytes(40_000_000), 9)
    chunk = b"zTXt" + b"Comment\x00\x00" + text
    bomb = struct.pack(">I", len(chunk) - 4) + chunk + struct.pack(">I", zlib.crc32(chunk))
    small = png(8, 8)
    yield "png with a comment of 40 MB", "image/png", small[:33] + bomb + small[33:]


@pytest.mark.parametrize(("kind", "content"), [(k, c) for _, k, c in bombs()], ids=[name for name, *_ in bombs()])
def test_pictures_that_unpack_to_far_more_than_they_weigh_are_not_unpacked(client, kind, content):
    assert len(content) < LIMITS["max_upload_bytes"]
    began = time.monotonic()
    answer = client.post("/v1/classify", content=content, headers={"Content-Type": kind})
    assert time.monotonic() - began < 5
    if answer.status_code != 200:
        refused(answer, 413, 422)
    else:
        assert "comment" in next(
            name for name, _, c in bombs() if c == content
        )  # its pixels are 64; what else it says is not read
    looked = client.post("/explore/inspections", data={"model": "pets"}, files={"file": ("a", content, kind)})
    clean(looked)
    assert looked.status_code in (200, 413, 415, 422)


@pytest.mark.parametrize("size", [(1, 60_000), (60_000, 1), (2, 2**20 + 1)])
def test_a_long_thin_picture_costs_no_more_than_another(client, size):
    began = time.monotonic()
    answer = client.post("/v1/classify", content=png(*size), headers={"Content-Type": "image/png"})
    assert time.monotonic() - began < 5
    if max(size) > 2**20:
        refused(answer, 413, 422)
    else:
        assert answer.status_code == 200, answer.text


def test_compressed_bodies_are_not_unpacked(client):
    import gzip

    packed = gzip.compress(b'{"inputs": ["' + b"a" * 10_000_000 + b'"]}')
    headers = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
    refused(client.post("/v1/fill", content=packed, headers=headers), 415)


def test_a_sound_that_says_it_is_hours_long_is_not_read(client):
    import numpy as np
    import soundfile

    buffer = io.BytesIO()
    soundfile.write(buffer, np.zeros(8000 * 600, dtype=np.int16), 8000, format="FLAC")  # ten silent minutes
    assert len(buffer.getvalue()) < LIMITS["max_upload_bytes"]
    refused(client.post("/v1/transcribe", content=buffer.getvalue(), headers={"Content-Type": "audio/flac"}), 413, 422)
    looked = client.post(
        "/explore/inspections", data={"model": "digits"}, files={"file": ("a.flac", buffer.getvalue())}
    )
    refused(looked, 413, 422)
    riff = struct.pack(
        "<4sI4s4sIHHIIHH4sI", b"RIFF", 2**32 - 1, b"WAVE", b"fmt ", 16, 1, 1, 8000, 16000, 2, 16, b"data", 2**32 - 1
    )
    refused(client.post("/v1/transcribe", content=riff, headers={"Content-Type": "audio/wav"}), 413, 422)


# -- slow and rude clients ---------------------------------------------------------------------------------------------


BEGUN = {
    "silent": b"",
    "first line": b"POST /v1/fill HT",
    "headers": b"POST /v1/fill HTTP/1.1\r\nHost: localhost\r\n",
    "body": b"POST /v1/fill HTTP/1.1\r\nHost: localhost\r\n"
    b"Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{",
}


def test_a_client_that_does_not_go_on_is_let_go(client, url):
    began = time.monotonic()
    for name, answer in all_spoken(url, BEGUN, wait=10 * PATIENCE).items():
        assert not answer or b" 408 " in answer.split(b"\r\n")[0], name
    assert time.monotonic() - began < 8 * PATIENCE


def test_headers_that_trickle_in_do_not_hold_a_connection(client, url):
    with socket.create_connection(address(url), timeout=10) as wire:
        began = time.monotonic()
        try:
            for letter in b"POST /v1/fill HTTP/1.1\r\nHost: localhost\r\nX-Slow: " + b"a" * 200:
                wire.sendall(bytes([letter]))
                time.sleep(0.05)
            ended = wire.recv(100) == b""
        except OSError:
            ended = True
        assert ended
        assert time.monotonic() - began < 8 * PATIENCE


def test_many_silent_connections_keep_nobody_out(client, url):
    wires = [socket.create_connection(address(url), timeout=5) for _ in range(150)]
    try:
        for wire in wires:
            wire.sendall(b"GET / HTTP/1.1\r\n")
        assert client.get("/health").status_code == 200
    finally:
        for wire in wires:
            wire.close()


NO_HTTP = {
    "zeros": b"\x00" * 100,
    "tls": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    "no path": b"GET\r\n\r\n",
    "version": b"GET / HTTP/9.9\r\n\r\n",
    "long header": b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 100_000 + b"\r\n\r\n",
    "long path": b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "two lengths": b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "bad chunk": b"POST /v1/fill HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\n",
    "bad header": b"GET / HTTP/1.1\r\nHost: localhost\r\nX: a\r\n b\r\nbad header\r\n\r\n",
}


def test_what_is_no_http_is_answered_or_dropped(client, url):
    for name, answer in all_spoken(url, NO_HTTP, wait=2).items():
        assert b"Traceback" not in answer, name
        assert not answer.startswith(b"HTTP/1.1 5"), name


def test_a_client_that_hangs_up_leaves_nothing_behind(client, url):
    body = json.dumps({"inputs": ["A [MASK] is here."] * 8}).encode()
    head = "POST /v1/fill HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    head += f"Content-Length: {len(body)}\r\n\r\n"
    for _ in range(20):
        with socket.create_connection(address(url), timeout=5) as wire:
            wire.sendall(head.encode() + body)
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        lines = dict(line.rsplit(" ", 1) for line in client.get("/metrics").text.splitlines() if line[0] != "#")
        if float(lines["regard_active_requests"]) <= 1 and float(lines["regard_buffered_bytes"]) == 0:
            return
        time.sleep(0.1)
    raise AssertionError("requests of clients that are gone are still held")


# -- words that are script ---------------------------------------------------------------------------------------------


def test_script_in_a_text_comes_back_as_json_and_never_as_a_page(client):
    answer = client.post("/v1/fill", json={"inputs": [f"{SCRIPT} [MASK]"]})
    assert answer.headers["content-type"].startswith("application/json")
    assert answer.headers["x-content-type-options"] == "nosniff"
    for path in (f"/{SCRIPT}", f"/page/{SCRIPT}", f"/explore/inspections/{SCRIPT}/export", f"/v1/models?x={SCRIPT}"):
        answer = client.get(path)
        assert answer.headers["content-type"].startswith("application/json")
        assert "<script" not in answer.text


def test_an_exported_inspection_holds_script_as_text_and_is_downloaded(client):
    words = "</script><script>alert(1)</script> [MASK]"
    about = client.post("/explore/inspections", json={"model": "fill-en", "inputs": {"text": words}})
    assert about.status_code == 200, about.text
    answer = client.get(f"/explore/inspections/{about.json()['id']}/export")
    assert answer.status_code == 200
    assert answer.headers["content-disposition"].startswith("attachment")
    assert answer.text.count("</script>") == 2
    assert "<script>alert" not in answer.text
    numbers = client.get(f"/explore/inspections/{about.json()['id']}/export", params={"format": "json"}).json()
    assert numbers["about"]["inputs"]["text"] == words
    refused(client.get(f"/explore/inspections/{about.json()['id']}/export", params={"format": "exe"}), 422)
    refused(client.get("/explore/inspections/nothing/export"), 404)


def test_where_a_model_comes_from_is_nobodys_business(client, folder):
    said = client.get("/v1/models").text + client.get("/openapi.json").text + client.get("/metrics").text
    assert str(folder.parent) not in said
    answer = client.post("/v1/fill", json={"inputs": ["[MASK]"], "model": str(folder)})
    refused(answer, 404)


# -- limits ------------------------------------------------------------------------------------------------------------


def test_more_than_can_wait_is_told_when_to_come_back():
    pool = ModelPool(["fill-en"], device="cpu", max_queue_size=1, max_batch_size=1)
    with running_server(make_app(pool, Settings(**LIMITS))) as url, httpx.Client(base_url=url, timeout=30) as client:
        pool.load()
        gate, began = threading.Event(), threading.Event()

        def hold(items):
            began.set()
            gate.wait(20)
            return items

        pool.batcher("fill-en").put("held", [1], hold)
        assert began.wait(10)
        pool.batcher("fill-en").put("waiting", [1], lambda items: items)
        answer = client.post("/v1/fill", json={"inputs": ["[MASK]"]})
        gate.set()
        refused(answer, 429)
        assert int(answer.headers["retry-after"]) >= 1
        for _ in range(100):
            if (again := client.post("/v1/fill", json={"inputs": ["[MASK]"]})).status_code == 200:
                break
            time.sleep(0.05)
        assert again.status_code == 200


def test_without_the_token_nothing_is_told():
    pool = ModelPool(["fill-en"], device="cpu")
    with (
        running_server(make_app(pool, Settings(token="right", explore=True))) as url,
        httpx.Client(base_url=url) as client,
    ):
        for headers in (
            {},
            {"Authorization": "Bearer wrong"},
            {"Authorization": "Basic right"},
            {"Cookie": "regard_token=right"},
        ):
            for path in (
                "/v1/models",
                "/",
                "/page/store.js",
                "/metrics",
                "/openapi.json",
                "/explore/models",
                "/nothing",
            ):
                answer = client.get(path, headers=headers)
                refused(answer, 401)
                assert "fill-en" not in answer.text
        assert client.get("/v1/models", headers={"Authorization": "Bearer right"}).status_code == 200
        kind = {"Content-Type": "application/json"}
        for _ in range(3):  # the answer reaches a client that is still sending
            refused(client.post("/v1/fill", content=b" " * 20_000_000, headers=kind), 401)

"""Real sockets: slow clients are broken off, quick ones are answered meanwhile, and the end is an orderly one."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import closing, suppress

import httpx
import pytest

from regard.core.errors import BadInput
from regard.serve.http import errors
from regard.serve.http.app import make_app
from regard.serve.http.model_pool import ModelPool
from regard.serve.http.server import listen, running_server, socket_url
from regard.serve.http.settings import Settings
from tests.deadline import read_all, read_line


@pytest.fixture(scope="module")
def models():
    found = ModelPool(["languages", "shakespeare"], wait=0.0)
    found.load()
    return found


@pytest.fixture(scope="module")
def service(models):
    """A service of little patience. Its models are closed with it."""
    with running_server(make_app(models, Settings(client_timeout=0.5, timeout=20.0))) as where:
        yield where


def port(where):
    return int(where.rpartition(":")[2])


def spoken(where, *parts, pause=0.0, wait=5.0):
    """Bytes sent in parts, and all that comes back until the other side hangs up."""
    with closing(socket.create_connection(("127.0.0.1", port(where)), timeout=wait)) as line:
        for part in parts:
            line.sendall(part)
            time.sleep(pause)
        found = b""
        while more := line.recv(65536):
            found += more
        return found


def test_a_service_answers_and_keeps_its_connections(service):
    with httpx.Client(base_url=service) as client:
        for _ in range(3):
            found = client.post("/v1/classify", json={"inputs": ["Two dogs."]}).json()
            assert found["outputs"][0]["label"] == "English"


def test_a_client_that_never_says_what_it_wants_is_broken_off(service):
    began = time.monotonic()
    with suppress(ConnectionError):
        assert spoken(service) == b""
    assert 0.3 < time.monotonic() - began < 4


def test_headers_that_trickle_in_are_not_waited_for(service):
    began = time.monotonic()
    with closing(socket.create_connection(("127.0.0.1", port(service)), timeout=5)) as line:
        line.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n")
        with suppress(OSError):  # broken pipe or reset, as it comes
            for n in range(200):
                line.sendall(b"X-%d: 1\r\n" % n)
                time.sleep(0.05)
    assert time.monotonic() - began < 4


def test_headers_that_trickle_in_after_a_first_request_are_not_waited_for_either(service):
    began = time.monotonic()
    first = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
    try:
        found = spoken(service, first, b"GET /health HTTP/1.1\r\n", pause=0.1)
    except ConnectionError:
        found = b"200"
    assert b"200" in found
    assert time.monotonic() - began < 4


def test_a_body_that_trickles_in_is_answered_with_408(service):
    found = spoken(service, b"POST /v1/classify HTTP/1.1\r\nHost: localhost\r\nContent-Length: 500\r\n\r\n{")
    assert found.startswith(b"HTTP/1.1 408")
    assert b'"type": "request_timeout"' in found


def test_slow_clients_do_not_keep_quick_ones_waiting(service):
    slow = [socket.create_connection(("127.0.0.1", port(service)), timeout=10) for _ in range(50)]
    try:
        for line in slow:
            line.sendall(b"POST /v1/classify HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n")
        began = time.monotonic()
        assert httpx.get(f"{service}/health").status_code == 200
        assert time.monotonic() - began < 2
    finally:
        for line in slow:
            line.close()


def test_what_is_no_http_is_said_to_be_none(service):
    for said in (
        b"GARBAGE\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        b"\x16\x03\x01\x00\xff" * 9 + b"\r\n\r\n",
    ):
        found = spoken(service, said)
        assert found.startswith((b"HTTP/1.1 400", b"HTTP/1.1 421")), found
        assert b'"error"' in found


def test_headers_without_end_are_refused(service):
    head = b"GET /health HTTP/1.1\r\nHost: localhost\r\n" + b"X: " + b"a" * 40_000
    assert spoken(service, head).startswith(b"HTTP/1.1 400")


def test_a_body_that_is_too_large_is_answered_while_it_is_still_sent(service):
    found = httpx.post(f"{service}/v1/classify", content=b"x" * 3_000_000, headers={"Content-Type": "application/json"})
    assert found.status_code == 413


def test_a_stream_comes_piece_by_piece(service):
    asked = {"inputs": ["ROMEO:"], "options": {"max_new_tokens": 40}, "stream": True}
    times = []
    with httpx.stream("POST", f"{service}/v1/generate", json=asked, timeout=30) as answer:
        for line in answer.iter_lines():
            if line:
                times.append(time.monotonic())
    assert len(times) > 20
    assert times[0] < times[-2]  # not all at once


def test_a_client_that_leaves_a_stream_ends_the_text(service, models):
    queue = models.batcher("shakespeare")
    asked = {"inputs": ["ROMEO:"], "options": {"max_new_tokens": 4000, "slide": True}, "stream": True}
    with httpx.stream("POST", f"{service}/v1/generate", json=asked, timeout=30) as answer:
        next(answer.iter_lines())
    began = time.monotonic()
    done = queue.put("after", [1], lambda items: items).future.result(5)
    assert done == [1]
    short = {"inputs": ["A"], "options": {"max_new_tokens": 2}}
    short = httpx.post(f"{service}/v1/generate", json=short, timeout=30)
    assert short.status_code == 200
    assert time.monotonic() - began < 10


def test_a_reader_that_does_not_read_is_broken_off():
    """An answer that is larger than all buffers between us, never read."""
    app = make_app(ModelPool(["languages"]), Settings(client_timeout=0.5))
    ended = threading.Event()

    async def flood(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        try:
            while True:
                await send({"type": "http.response.body", "body": b"x" * 1_000_000, "more_body": True})
                await asyncio.sleep(0)  # after the end sending waits for nothing
        finally:
            ended.set()

    app.mount("/flood", flood)
    with running_server(app) as where, closing(socket.socket()) as line:
        line.settimeout(10)
        line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        line.connect(("127.0.0.1", port(where)))
        line.sendall(b"GET /flood/ HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert ended.wait(10)
        assert httpx.get(f"{where}/health").status_code == 200


def test_a_port_that_is_taken_is_an_error_with_a_line():
    with (
        closing(listen("127.0.0.1", 0)) as one,
        pytest.raises(BadInput, match=r"Cannot listen at 127\.0\.0\.1:.*in use"),
    ):
        listen("127.0.0.1", port(socket_url(one)))


def test_the_command_line_prints_the_traceback_of_a_bug(capsys):
    import regard.cli as cli

    def fail():
        errors.to_response(RuntimeError("this is a bug"))
        return 0

    assert cli.run_with_error_handling(fail) == 0
    said = capsys.readouterr().err
    assert "unexpected error" in said
    assert "RuntimeError: this is a bug" in said


def test_told_to_stop_it_finishes_what_is_under_way_and_ends_with_status_0():
    code = "import sys; from regard.cli import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", code, "serve", "languages", "shakespeare", "--port", "0"]
    child = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"})
    try:
        while (said := read_line(child, child.stderr)).startswith("regard: loading "):
            pass
        assert said.startswith("regard: serving languages, shakespeare at http://127.0.0.1:")
        where = said.partition(" at ")[2].partition(" ")[0]
        assert read_line(child, child.stderr).startswith(f"regard: try curl {where}/v1/run/languages ")
        asked = {"inputs": ["ROMEO:"], "options": {"max_new_tokens": 60}, "stream": True}
        with httpx.stream("POST", f"{where}/v1/generate", json=asked, timeout=60) as answer:
            lines = answer.iter_lines()
            next(lines)
            child.send_signal(signal.SIGTERM)
            rest = [line for line in lines if line]
        assert json.loads(rest[-1][6:])["done"] is True  # to its end
        with pytest.raises(httpx.TransportError):
            httpx.get(f"{where}/health")
        assert child.wait(20) == 0
        assert read_all(child, child.stderr, 20) == "regard: stopped\n"
    finally:
        child.kill()
        child.wait(20)

"""docs/how/task.md: its file is the one of the story, and its commands and Python run in order."""

import json
import os
import shlex
import socket
import subprocess
import time
import urllib.request

import pytest

from tests.stories.command import Warm, arguments, environment
from tests.stories.own_task import FOLDER, imported

from .blocks import FENCE, ROOT, blocks

PAGE = ROOT / "docs" / "how" / "task.md"
PLUGIN = {"REGARD_PLUGINS": "toy_detector.py"}


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


@pytest.fixture
def warm(tmp_path_factory):
    commands = Warm(tmp_path_factory.mktemp("streams"))
    yield commands
    commands.close()


def test_page_shows_the_story_file():
    (block,) = [block for block in blocks(PAGE, "python") if block.mark == "file: toy_detector.py"]
    assert block.code == (FOLDER / "toy_detector.py").read_text(encoding="utf-8")


@pytest.mark.long  # tests/stories/test_own_task.py does the same with the same file, without starting two servers
def test_commands_and_python_run_from_top_to_bottom(tmp_path, monkeypatch, warm, unchecked):
    (tmp_path / "toy_detector.py").write_text((FOLDER / "toy_detector.py").read_text("utf-8"), "utf-8")
    monkeypatch.chdir(tmp_path)
    ports = {"8000": str(free_port()), "8001": str(free_port())}
    names, servers = {"__name__": "__main__"}, []
    try:
        with imported():
            for found in FENCE.finditer(PAGE.read_text(encoding="utf-8")):
                if found["language"] == "python" and (found["mark"] or "").startswith("after:"):
                    exec(compile(found["code"], str(PAGE), "exec"), names)
                for line in found["code"].splitlines() if found["language"] == "console" else ():
                    for shown, port in ports.items():
                        line = line.replace(shown, port)
                    execute(shlex.split(line.removeprefix("$ ")), tmp_path, warm, servers)
    finally:
        for server in servers:
            server.terminate()
            server.wait(30)
    assert (tmp_path / "boxes.png").read_bytes().startswith(b"\x89PNG")
    assert "<html" in (tmp_path / "page.html").read_text(encoding="utf-8")


def execute(words, folder, warm, servers):
    """Run one command of the page; a server is left running for the commands after it."""
    if words[0] == "export":
        assert words[1:] == [f"{name}={value}" for name, value in PLUGIN.items()]
    elif words[:2] in (["regard", "serve"], ["regard", "explore"]):
        servers.append(subprocess.Popen(arguments(*words[1:]), cwd=folder, env=environment(**PLUGIN)))
        wait_for(f"http://127.0.0.1:{words[words.index('--port') + 1]}/health")
    elif words[0] == "curl":
        done = subprocess.run(
            words, cwd=folder, capture_output=True, check=True, env={**os.environ, "no_proxy": "*"}, timeout=600
        )
        assert json.loads(done.stdout)["outputs"][0]["boxes"][0]["score"] > 0.5
    else:
        assert words[0] == "regard"
        done = warm(*words[1:], cwd=folder, **PLUGIN)
        assert done.status == 0, done.err


def wait_for(address, seconds=90):
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    end = time.monotonic() + seconds
    while True:
        try:
            with opener.open(address, timeout=5):
                return
        except OSError:
            assert time.monotonic() < end, f"no answer from {address}"
            time.sleep(0.2)

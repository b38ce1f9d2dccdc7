"""The pages of a service for people: they load nothing from elsewhere, and what they tell to paste works."""

import html
import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from regard.serve.http.app import make_app
from regard.serve.http.model_pool import ModelPool
from regard.serve.http.server import running_server
from regard.serve.http.settings import Settings
from tests.serve.conftest import asks

LINES = re.compile(r"<pre><code>(curl .*?)</code></pre>", re.DOTALL)
SOUND = Path(__file__).parents[3] / "docs" / "assets" / "digits.wav"
needs_curl = pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")


def curl_lines(page):
    return [html.unescape(line) for line in LINES.findall(page)]


@pytest.mark.parametrize("path", ["/", "/docs"])
def test_the_pages_answer_and_load_nothing_from_elsewhere(pool, path):
    answer = asks(pool).get(path)
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/html")
    assert "<script" not in answer.text
    assert "style=" not in answer.text  # the content policy would refuse it
    loaded = re.findall(r'(?:src|href)="([^"]*)"', answer.text)
    assert all(each.startswith("/") and not each.startswith("//") for each in loaded)
    assert "/docs.css" in loaded
    assert asks(pool).get("/docs.css").headers["content-type"].startswith("text/css")
    for name in pool.names():
        assert name in answer.text


def test_the_explorer_has_the_first_page_where_it_is_served(client):
    assert "Regard: the explorer" in client.get("/").text
    assert "/v1/run/en-de" in client.get("/docs").text


def test_options_are_explained_with_their_defaults_and_ranges(pool):
    page = asks(pool).get("/docs").text
    assert "<code>beam_size</code></td><td><code>4</code></td><td>1 to 256</td>" in page


def test_with_a_token_the_lines_send_it(pool):
    page = asks(pool, token="word").get("/docs", headers={"Authorization": "Bearer word"})
    assert page.status_code == 200
    assert all('-H "Authorization: Bearer $REGARD_TOKEN"' in line for line in curl_lines(page.text))
    assert asks(pool, token="word").get("/docs").status_code == 401


def test_a_model_of_another_library_is_described_once_it_is_loaded(pool, tmp_path):
    found = ModelPool(["mine=/nowhere/mine"])
    assert "once it is loaded" in asks(found).get("/docs").text
    found._models["mine"].predictor = pool.get("languages")
    assert "/v1/run/mine" in curl_lines(asks(found).get("/docs").text)[0]


@pytest.fixture(scope="module")
def service():
    """The address of a service with a pool of its own, which ends with it."""
    with running_server(make_app(ModelPool(["en-de", "digits", "stories"]), Settings())) as url:
        yield url


@needs_curl
def test_every_line_works_when_it_is_pasted(service, tmp_path):
    shutil.copy(SOUND, tmp_path / "recording.wav")
    page = subprocess.run(["curl", "-s", f"{service}/docs"], capture_output=True, text=True, check=True).stdout
    assert len(curl_lines(page)) == 3
    for line in curl_lines(page):
        assert service in line
        done = subprocess.run(["bash", "-c", f"{line} -s"], capture_output=True, text=True, cwd=tmp_path, check=True)
        assert json.loads(done.stdout)["outputs"], line


@needs_curl
def test_the_line_of_the_documentation_works_when_it_is_pasted(service):
    text = (Path(__file__).parents[3] / "docs" / "how" / "serve.md").read_text(encoding="utf-8")
    line, said = re.search(r"\$ (curl .*)\n```\n\n```text\n(.*)\n", text).groups()
    words = ["curl", "-s", *shlex.split(line.replace("http://127.0.0.1:8000", service))[1:]]
    found = json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout)
    (output,) = found["outputs"]
    assert f'"text":"{output["text"]}","score":{output["score"]:.3f}' in said

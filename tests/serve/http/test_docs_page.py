"""The page of a service: `/` and `/docs` answer, and its curl lines can be pasted."""

import html
import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from regard.serve.http.app import make_app
from regard.serve.http.docs_page import curl_line
from regard.serve.http.model_pool import ModelPool
from regard.serve.http.server import running_server
from regard.serve.http.settings import Settings
from regard.tasks.image.image_classification import ImageClassifier
from regard.tasks.text.extractive_qa import QuestionAnswerer

from ..conftest import HERE, asks

BROWSER = {"Accept": "text/html,application/xhtml+xml"}


def test_a_browser_gets_a_page_and_a_program_gets_json(pool):
    client = asks(pool)
    told = client.get("/").json()
    assert told["models"] == pool.names()
    assert client.get(told["docs"]).status_code == client.get(told["schema"]).status_code == 200
    page = client.get("/", headers=BROWSER)
    assert page.headers["content-type"].startswith("text/html")
    assert page.text == client.get("/docs").text
    for path in client.get("/openapi.json").json()["paths"]:
        assert html.escape(path) in page.text


def test_the_page_has_no_script_and_loads_nothing(client):
    page = client.get("/docs")  # beside the explorer
    assert "<script" not in page.text
    assert re.findall(r'(?:src|href)="(?!/)', page.text) == []
    policy = page.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert "unsafe" not in policy


def test_the_page_of_a_service_with_a_token_needs_it_and_its_lines_have_a_place_for_it(pool):
    client = TestClient(make_app(pool, Settings(token="secret")), base_url=HERE)
    assert client.get("/").status_code == client.get("/docs").status_code == 401
    page = client.get("/docs", headers={"Authorization": "Bearer secret"}).text
    assert "Authorization: Bearer TOKEN" in page
    assert "secret" not in page


@pytest.mark.skipif(not shutil.which("curl"), reason="needs curl")
def test_every_line_of_the_page_can_be_pasted():
    pool = ModelPool(["languages", "sounds-en", "digits"])
    pool.load()
    with running_server(make_app(pool, Settings())) as url:
        found = subprocess.run(["curl", "-s", f"{url}/docs"], capture_output=True, text=True, timeout=60).stdout
        lines = [html.unescape(line) for line in re.findall(r"<pre>(curl .*?)</pre>", found)]
        assert len(lines) == len(pool.names())
        for name, line in zip(pool.names(), lines, strict=True):
            if "@" in line:  # a file of the reader's
                line = line.replace("@recording.wav", "@docs/assets/digits.wav")
            said = subprocess.run(f"{line} -s", shell=True, capture_output=True, text=True, timeout=60)
            answer = json.loads(said.stdout)
            assert answer["model"] == name
            assert len(answer["outputs"]) == 1


def test_lines_for_files_and_for_several_inputs():
    assert shlex.split(curl_line("http://here", "photos", ImageClassifier)) == [
        *("curl", "http://here/v1/run/photos", "-F", "image=@photo.jpg")
    ]
    (item,) = json.loads(shlex.split(curl_line("http://here", "qa", QuestionAnswerer))[-1])["inputs"]
    assert set(item) == set(QuestionAnswerer.inputs)


@pytest.mark.skipif(not shutil.which("curl"), reason="needs curl")
def test_the_line_of_the_documentation_can_be_pasted():
    text = (Path(__file__).parents[3] / "docs" / "how" / "serve.md").read_text(encoding="utf-8")
    line, said = re.search(r"\$ (curl .*)\n```\n\n```text\n(.*)\n", text).groups()
    with running_server(make_app(ModelPool(["en-de", "languages"]), Settings())) as url:
        words = ["curl", "-s", *shlex.split(line.replace("http://127.0.0.1:8000", url))[1:]]
        answer = json.loads(subprocess.run(words, capture_output=True, text=True, timeout=60).stdout)
    (output,) = answer["outputs"]
    assert f'"text":"{output["text"]}","score":{output["score"]:.3f}' in said

"""``regard serve``: what it refuses before it serves anything."""

import logging
import socket
from contextlib import closing

from regard import cli


def test_a_model_that_is_not_there_is_named(capsys):
    assert cli.main(["serve", "en-xx", "--port", "0"]) == 1
    assert "no model is called 'en-xx'" in capsys.readouterr().err


def test_models_of_one_name_are_refused(capsys):
    assert cli.main(["serve", "en-de", "en-de"]) == 1
    assert "Two models are called 'en-de'" in capsys.readouterr().err


def test_a_port_that_is_taken_is_named(capsys):
    with closing(socket.socket()) as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert cli.main(["serve", "languages", "--port", str(port)]) == 1
    assert f"Cannot listen at 127.0.0.1:{port}" in capsys.readouterr().err


def test_without_a_model_all_that_ship_are_served_and_each_is_named_while_it_loads(capsys, monkeypatch):
    from regard.api import zoo
    from regard.serve.http import server
    from regard.serve.http.model_pool import ModelPool
    from regard.tasks import Translator

    monkeypatch.setattr(ModelPool, "get", lambda pool, name: object.__new__(Translator))  # nothing is loaded
    monkeypatch.setattr("regard.serve.http.prepare.describe_device", lambda predictor: "CPU")
    monkeypatch.setattr(server, "serve", lambda app, waiting: waiting.close())
    assert cli.main(["serve", "--port", "0"]) == 0
    said = capsys.readouterr().err
    assert said.startswith("regard: loading en-de (1 of ")
    for name in zoo():
        assert f"loading {name} (" in said
    assert "/docs" in said
    assert logging.getLogger("regard").level == logging.NOTSET  # quieter only while it serves

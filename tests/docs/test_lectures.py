"""docs/lectures.md: what it says to try can be typed, and answers with what it says to look at."""

import re
import shlex

import pytest
import typer.main

from regard.api import zoo
from regard.cli import _app

from .blocks import ROOT
from .test_pages import AVAILABLE
from .test_readme import desk, run  # noqa: F401

PAGE = ROOT / "docs" / "lectures.md"
SAID = {"fill": "bicycle", "near": "queen", "generate": "ROMEO:", "cost": "22 billion", "tokens": "##ably", "ask": "3"}
PANELS = "Six steps", "Mechanisms and masks", "All mechanisms", "Scores and aligners", "Positions"


def section():
    return PAGE.read_text("utf-8").split("## To try while reading")[1].split("\n## ")[0]


def commands():
    return re.findall(r"`(regard .+?)`", section())


def test_commands_to_try_parse_and_models_to_explore_ship():
    parser = typer.main.get_command(_app())
    assert len(commands()) > 15
    for command in commands():
        _, verb, *words = shlex.split(command)
        parser.get_command(typer.Context(parser), verb).make_context(verb, list(words))
        assert verb != "explore" or not words or set(words) <= set(zoo() or words), command


def test_panels_to_try_are_in_the_lab():
    named = re.findall(r"Lab, \*(.+?)\*", section())
    lab = (ROOT / "src" / "regard" / "serve" / "explorer" / "page" / "lab.js").read_text("utf-8")
    assert set(named) == set(PANELS)
    assert all(f'"{panel}"' in lab for panel in PANELS)


@pytest.mark.long
@pytest.mark.skipif(not zoo(), reason="no model ships with this copy")
@pytest.mark.parametrize("command", [each for each in commands() if not each.startswith("regard explore")])
def test_command_to_try_says_what_the_page_says(command, desk, capsys):  # noqa: F811
    if "photo.jpg" in command and not AVAILABLE["imagenet"]():
        pytest.skip("imagenet is not installed")
    printed = run(command, capsys)
    assert printed
    assert SAID.get(command.split()[1], "") in printed

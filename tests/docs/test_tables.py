"""The tables of the pages are what docs/make_tables.py makes, and building the site leaves them as they are."""

import importlib
from types import SimpleNamespace

import pytest

from .blocks import ROOT

DOCS = ROOT / "docs"


@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend(str(DOCS))
    return importlib.import_module("make_tables")


def test_pages_equal_script_output(script):
    for page in sorted(DOCS.rglob("*.md")):
        stale = page.read_text(encoding="utf-8") != script.build_page(page)
        assert not stale, f"the tables of {page.relative_to(ROOT)} are not edited by hand: python docs/make_tables.py"


def test_a_table_is_written_once_and_left_by_the_build(script, tmp_path, monkeypatch):
    hook = importlib.import_module("mkdocs_hook")
    monkeypatch.setattr(script, "HERE", tmp_path)
    monkeypatch.setattr(script, "expand_marker", lambda *marker: " ".join(marker))
    monkeypatch.setattr(hook, "expand_marker", lambda *_: "expanded")
    page = tmp_path / "how" / "page.md"
    page.parent.mkdir()
    page.write_text("<!-- table: a -->\n\n<!-- files: b -->\n\n<!-- plan: c -->\n\nold\n\n<!-- end -->\n", "utf-8")
    made = "<!-- table: a -->\n\ntable a ../\n\n<!-- end -->\n\n<!-- files: b -->\n\n"
    made += "<!-- plan: c -->\n\nplan c ../\n\n<!-- end -->\n"
    for _ in range(2):
        page.write_text(script.build_page(page), "utf-8")
        assert page.read_text("utf-8") == made
    built = hook.on_page_markdown(made, SimpleNamespace(file=SimpleNamespace(src_uri="how/page.md")))
    assert built == made.replace("<!-- files: b -->", "expanded")

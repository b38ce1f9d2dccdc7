"""An exported file in a real browser, from disk: its panes work, its words are inert, and it asks nobody."""

from __future__ import annotations

import json
from xml.etree import ElementTree

import numpy as np
import pytest

import regard
from regard.see.exported import page
from regard.serve.taking import take
from regard.tasks.look import look
from tests.see.taken import taken

from .conftest import PATIENCE, WIDE, Page


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("saved")


@pytest.fixture
def shown(driver, folder):
    """Write what was taken to a file, and open it from there."""
    found = Page(driver, "")
    found.size(*WIDE)
    driver.execute_cdp_cmd("Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(folder)})
    found.complaints()

    def show(given):
        file = folder / "page.html"
        file.write_text(page(given), "utf-8")
        driver.get("about:blank")
        driver.get(file.as_uri())
        found.drawn()
        return found

    return show


def said(shown):
    """All words of the page; halves of characters made whole, which WebDriver cannot carry."""
    return shown.run("return document.body.innerText.toWellFormed()")


def test_words_that_are_script_do_nothing_and_are_shown(shown):
    one = shown(taken())
    assert one.driver.title.endswith("what it looked at")
    assert "document.title='taken'" in said(one)
    # the data and the one that reads it; no word became a picture
    assert one.run("return [document.scripts.length, document.images.length]") == [2, 0]
    assert one.complaints() == []


def test_nothing_is_asked_for_and_the_policy_holds(shown):
    one = shown(taken())
    assert one.run("return performance.getEntriesByType('resource').map((entry) => entry.name)") == []
    stopped = one.driver.execute_async_script(
        "const done = arguments[0]; let held = 0;"
        "document.addEventListener('securitypolicyviolation', () => held++);"
        "const late = document.createElement('script'); late.textContent = 'window.ran = 1';"
        "document.body.append(late);"
        "fetch('http://127.0.0.1:9/').catch(() => setTimeout(() => done([held, window.ran ?? 0]), 200));"
    )
    assert stopped == [2, 0]
    one.complaints()


def test_pointing_at_a_token_shows_the_weights_that_were_kept(shown):
    given = take(look(regard.load("en-de"), {"text": "Two dogs are playing in the snow."}, name="en-de"))
    one = shown(given)
    chosen = one.one(".cell.chosen")
    name, head = chosen.get_attribute("data-map"), int(chosen.get_attribute("data-head"))
    token = one.all(".panel.seen .chip")[1]
    one.hover(token)
    one.until(lambda: "Hunde" in one.text(".list.look h3"), "the row of that token is told")
    weights = given.maps[name]["raw"]
    row = weights[head, 1] if head >= 0 else weights[:, 1].mean(0)
    assert abs(float(one.texts(".list.look .share")[0].split()[0]) - 100 * row.max()) <= 1.0  # a weight is one byte
    assert "Zwei Hunde" in said(one)
    assert one.complaints() == []


def test_every_head_can_be_chosen_with_the_keyboard(shown):
    one = shown(taken())
    one.run("document.querySelector('.cell.chosen').focus()")
    before = one.text("#tokens .pane-title")
    one.press("\ue014")  # the right arrow
    one.until(lambda: one.text("#tokens .pane-title") != before, "another head is chosen")


@pytest.mark.parametrize("kind", ["JSON", "PNG", "SVG"])
def test_the_chosen_map_can_be_saved(shown, folder, kind):
    one = shown(taken())
    for old in folder.glob("regard-*"):
        old.unlink()
    one.one(f"[data-export={kind}]").click()
    file = one.until(lambda: next(folder.glob(f"regard-*.{kind.lower()}"), None), "it is saved", PATIENCE)
    data = file.read_bytes()
    if kind == "JSON":
        told = json.loads(data)
        name = "encoder.blocks.1.mix"
        weights = taken().maps[name]["raw"]
        assert np.abs(np.array(told["maps"][name]) - weights).max() <= weights.max() / 255 + 1e-5
    elif kind == "PNG":
        assert data.startswith(b"\x89PNG")
        assert len(data) > 2000
    else:
        tree = ElementTree.fromstring(data)
        tags = {element.tag.rpartition("}")[2] for element in tree.iter()}
        assert tags == {"svg", "rect", "text"}  # no word became a tag
        assert len(list(tree.iter("{http://www.w3.org/2000/svg}rect"))) == 7 * 7 + 1


def test_a_page_of_traces_shows_words_lines_rollouts_and_what_is_missing(driver, folder):
    import torch

    from regard.core.trace import Trace
    from regard.see import page

    words = ["one", "two", "<b>three</b>"]
    weights = torch.tensor([[0.7, 0.2, 0.1], [0.1, 0.8, 0.1], [0.3, 0.3, 0.0]]).repeat(1, 2, 1, 1)
    traces = [Trace(f"blocks.{n}.mix", weights).label(words, words) for n in range(2)]
    file = folder / "traces.html"
    page(traces, file, "Three words", note="made by hand")
    one = Page(driver, "")
    one.size(*WIDE)
    driver.get(file.as_uri())
    one.drawn()
    assert one.text("#given").split("\n") == ["Three words", "made by hand"]
    assert not one.one("#answer").is_displayed()
    assert one.texts(".panel.look .chip") == words
    one.all(".panel.seen .chip")[2].click()
    one.until(lambda: "40 % is not among these tokens" in one.text(".told"), "it is said what is missing")
    assert not one.all(".lines")
    one.one("#lines").click()
    one.until(lambda: one.all(".lines path.look"), "lines are drawn")
    assert len(one.all(".lines path.look")) == 2
    (rollout,) = [each for each in one.all(".choice-one") if each.text == "Rollout" and each.is_enabled()]
    rollout.click()
    one.until(lambda: one.texts(".head-name") == ["mean", "max", "min"], "the ways to fuse heads are named")
    assert one.text("#tokens .pane-title").startswith("Rollout up to layer 1, mean of heads")
    assert one.complaints() == []

"""An exported file in a real browser, from disk: its panes work, its words are inert, and it asks nobody."""

from __future__ import annotations

import io
import json
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image

import regard
from regard.interpret.inspection import inspect
from regard.modalities.image import Preprocess
from regard.see.html_export import render_html
from regard.serve.explorer.snapshot import all_relevances, take_snapshot
from regard.tasks.image.image_classification import ImageClassifier
from tests.see.snapshots import cross_snapshot, make_snapshot

from .conftest import PATIENCE, PHONE, WIDE, Page


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
        file.write_text(render_html(given), "utf-8")
        driver.get("about:blank")
        driver.get(file.as_uri())
        found.drawn()
        return found

    return show


def said(shown):
    """All words of the page; halves of characters made whole, which WebDriver cannot carry."""
    return shown.run("return document.body.innerText.toWellFormed()")


def test_words_that_are_script_do_nothing_and_are_shown(shown):
    one = shown(make_snapshot())
    assert one.driver.title.endswith(": attention")
    assert "document.title='taken'" in said(one)
    # the data and the one that reads it; no word became a picture
    assert one.run("return [document.scripts.length, document.images.length]") == [2, 0]
    assert one.complaints() == []


def test_nothing_is_asked_for_and_the_policy_holds(shown):
    one = shown(make_snapshot())
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
    given = take_snapshot(inspect(regard.load("en-de"), {"text": "Two dogs are playing in the snow."}, name="en-de"))
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


def test_relevance_that_was_taken_is_shown_and_else_not_offered(shown):
    seen = inspect(regard.load("en-de"), {"text": "Two dogs are playing in the snow."}, name="en-de")
    found = all_relevances(seen)
    one = shown(take_snapshot(seen, relevance=found))
    one.one(".views-choice [data-value='relevance']").click()
    one.until(lambda: one.all(".panel.look .chip.lit"), "relevance is lit")
    one.hover(one.all(".panel.seen .chip")[1])
    one.until(lambda: "Hunde" in one.text(".list.look h3"), "what spoke for that word is told")
    best = one.run("return document.querySelector('.list.look li').innerText")
    assert seen.axes["source"].tokens[found[1].argmax()].strip("▁ ") in best
    assert one.complaints() == []
    assert not [
        each for each in shown(take_snapshot(seen)).all(".views-choice [data-value='relevance']") if each.is_enabled()
    ]


def test_every_head_can_be_chosen_with_the_keyboard(shown):
    one = shown(make_snapshot())
    one.run("document.querySelector('.cell.chosen').focus()")
    before = one.text("#tokens .pane-title")
    one.press("\ue014")  # the right arrow
    one.until(lambda: one.text("#tokens .pane-title") != before, "another head is chosen")


@pytest.mark.parametrize("kind", ["JSON", "PNG", "SVG"])
def test_the_chosen_map_can_be_saved(shown, folder, kind):
    data = saved(shown(make_snapshot()), folder, kind).read_bytes()
    if kind == "JSON":
        told = json.loads(data)
        name = "encoder.blocks.1.mix"
        weights = make_snapshot().maps[name]["raw"]
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
    traces = [Trace(f"blocks.{n}.mix", weights).with_labels(words, words) for n in range(2)]
    file = folder / "traces.html"
    page(traces, file, "Three words", note="made by hand")
    one = Page(driver, "")
    one.size(*WIDE)
    driver.get(file.as_uri())
    one.drawn()
    assert one.text("#inputs").split("\n") == ["Three words", "made by hand"]
    assert not one.one("#answer").is_displayed()
    assert one.texts(".panel.look .chip") == words
    one.all(".panel.seen .chip")[2].click()
    one.until(
        lambda: "the remaining 40 % is on none of these tokens" in one.text(".weight-lists"),
        "it is said what is missing",
    )
    assert not one.all(".lines")
    one.one("#lines").click()
    one.until(lambda: one.all(".lines path.look"), "lines are drawn")
    assert len(one.all(".lines path.look")) == 2
    (rollout,) = [each for each in one.all(".choice-one") if each.text == "Rollout" and each.is_enabled()]
    rollout.click()
    one.until(lambda: one.texts(".head-name") == ["mean", "max", "min"], "the ways to fuse heads are named")
    assert one.text("#tokens .pane-title").startswith("Rollout up to layer 1, mean of heads")
    assert one.complaints() == []


def saved(one, folder, kind):
    """What a button saves."""
    for old in folder.glob("regard-*"):
        old.unlink()
    one.one(f"[data-export={kind}]").click()

    def written():  # the browser makes an empty file first, to have the name
        return next((file for file in folder.glob(f"regard-*.{kind.lower()}") if file.stat().st_size), None)

    return one.until(written, "it is saved", PATIENCE)


def test_a_map_of_7_rows_and_13_columns_is_itself_wherever_it_is_drawn(shown, folder):
    given = cross_snapshot()
    weights = given.maps["decoder.blocks.0.cross"]["raw"]
    one = shown(given)
    one.one(".cell[data-head='1']").click()
    one.until(lambda: one.one(".large").get_attribute("data-drawn") == "fine", "the large map is drawn")
    script = """
    const canvas = document.querySelector(".large-map"), { width, height } = canvas;
    const { data } = canvas.getContext("2d").getImageData(0, 0, width, height);
    const place = (share, count) => Math.floor((share + 0.5) * count);
    return Array.from({ length: 7 }, (_, i) => Array.from({ length: 13 }, (_, j) => {
      const at = 4 * (place(i, height / 7) * width + place(j, width / 13));
      return 765 - data[at] - data[at + 1] - data[at + 2];
    }));
    """
    assert orders_alike(one.run(script), weights[1])
    assert one.texts(".column-names span") == [f"s{k}" for k in range(13)]
    assert one.texts(".row-names span") == [f"t{k}" for k in range(7)]

    tree = ElementTree.fromstring(saved(one, folder, "SVG").read_bytes())
    cells = list(tree.iter("{http://www.w3.org/2000/svg}rect"))[1:]
    across, down = (sorted({float(cell.get(axis)) for cell in cells}) for axis in "xy")
    assert (len(down), len(across)) == (7, 13)
    ink = np.zeros((7, 13))
    for cell in cells:
        colours = [int(part) for part in cell.get("fill")[4:-1].split()]
        ink[down.index(float(cell.get("y"))), across.index(float(cell.get("x")))] = 765 - sum(colours)
    assert orders_alike(ink, weights[1])

    one.hover(one.all(".panel.seen .chip")[6])
    one.until(lambda: "t6" in one.text(".list.look h3"), "the last row is told")
    assert one.texts(".list.look .word")[0] == f"s{weights[1, 6].argmax()}"
    one.hover(one.all(".panel.look .chip")[12])
    one.until(lambda: one.all(".list.seen") and "s12" in one.text(".list.seen h3"), "the last column is told")
    assert one.texts(".list.seen .word")[0] == f"t{weights[1, :, 12].argmax()}"


def orders_alike(ink, weights):
    """Whether what is darker is larger, for all cells that are not nearly the same."""
    ink, weights = np.ravel(ink), np.ravel(weights)
    larger = weights[:, None] > weights[None] * 1.2 + 0.02
    return bool(larger.sum() > 1000 and (ink[:, None] > ink[None])[larger].all())


@pytest.mark.parametrize("what", ["words that are script", "a long text", "7 x 13", "a photo"])
def test_an_exported_page_fits_a_phone(shown, what, tmp_path):
    one = shown(exported(what, tmp_path))
    one.size(*PHONE)
    one.run("window.scrollTo(0, document.body.scrollHeight)")
    assert one.run("return [document.documentElement.scrollWidth, visualViewport.width]") == [PHONE[0], PHONE[0]]
    outside = """
    const wide = document.documentElement.clientWidth, out = [];
    for (const each of document.querySelectorAll("body *")) {
      const box = each.getBoundingClientRect(), scrolls = each.closest(".grid-scroll, .chips, .answer, .sr");
      if (box.width && !scrolls && (box.right > wide + 1 || box.left < -1)) out.push(each.className || each.tagName);
    }
    return out;
    """
    assert one.run(outside) == []
    assert one.complaints() == []
    one.size(*WIDE)


def exported(what, folder):
    """Something to export."""
    if what == "words that are script":
        return make_snapshot()
    if what == "7 x 13":
        return cross_snapshot()
    if what == "a long text":
        return make_snapshot(300, 12, ("Donaudampfschifffahrtsgesellschaftskapitän", "an", "x"))
    from PIL import Image

    from .conftest import small_vit

    small_vit(folder / "vit")
    Image.new("RGB", (90, 60), (200, 40, 40)).save(folder / "red.png")
    return take_snapshot(
        inspect(regard.load(str(folder / "vit")), {"image": (folder / "red.png").read_bytes()}, name="vit")
    )


def test_stages_of_a_pyramid_are_told_apart(shown):
    model = regard.build("swin", size="tiny", num_classes=3)
    classifier = ImageClassifier(model, ["cat", "dog", "bird"], Preprocess(32))
    photo = io.BytesIO()
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (32, 32, 3), dtype=np.uint8)).save(photo, "png")
    one = shown(take_snapshot(inspect(classifier, {"image": photo.getvalue()}, name="swin")))
    names = one.texts("[aria-label='Which attention'] button")
    assert len(names) > 1
    assert len(set(names)) == len(names)

"""Taking a look away from the served page, and opening what was taken."""

from __future__ import annotations

import json

import pytest
from selenium.webdriver import ActionChains


@pytest.fixture
def saved(page, tmp_path):
    """Press a button of the export pane; the file that the browser saved."""
    how = {"behavior": "allow", "downloadPath": str(tmp_path)}
    page.driver.execute_cdp_cmd("Browser.setDownloadBehavior", how)

    def press(kind):
        page.until(lambda: page.one(f"[data-export={kind}]").is_enabled(), "there is something to save")
        page.one(f"[data-export={kind}]").click()
        whole = f"regard-*.{kind.lower()}"
        return page.until(lambda: next(iter(tmp_path.glob(whole)), None), f"{kind} is saved")

    return press


def test_an_inspection_is_exported_and_opened_from_disk_with_the_same_numbers(page, saved):
    page.open("en-de")
    page.read("A little girl <script>alert(1)</script> is climbing.")
    page.one(".panel.seen .chip").click()
    there = page.until(lambda: page.texts(".list.look .share"), "the row is told")
    heading = page.text("#tokens .pane-title")
    answer = page.text(".answer")
    file = saved("HTML")
    page.driver.get(file.as_uri())
    page.drawn()
    assert page.text("#tokens .pane-title") == heading
    assert page.text(".answer") == answer
    assert "<script>alert(1)</script>" in page.text("#inputs")
    assert page.run("return document.scripts.length") == 2
    page.one(".panel.seen .chip").click()
    here = page.until(lambda: page.texts(".list.look .share"), "the row is told")
    assert abs(float(here[0].split()[0]) - float(there[0].split()[0])) <= 1.0  # percent: a weight is one byte
    page.run("window.scrollTo(0, 0)")
    ActionChains(page.driver).move_by_offset(1, 1).perform()


def test_a_photo_goes_along_with_the_tokens_on_it(page, saved, tmp_path):
    import numpy as np
    from PIL import Image

    pixels = np.random.default_rng(0).integers(0, 256, (60, 80, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "photo.png")
    page.driver.get(f"{page.address}/?model=tiny-vit")
    page.one("#file").send_keys(str(tmp_path / "photo.png"))
    page.one("#read").click()
    page.drawn()
    file = saved("HTML")
    page.driver.get(file.as_uri())
    page.drawn()
    colours = "const c = document.querySelector('canvas.picture'); const d = c.getContext('2d')" + (
        ".getImageData(0, 0, c.width, c.height).data; return new Set(d).size"
    )
    assert page.until(lambda: page.run(colours) > 50, "the photo is drawn")


@pytest.mark.parametrize("kind", ["JSON", "PNG", "SVG"])
def test_numbers_and_pictures_are_saved(page, saved, kind):
    page.open("fill-en")
    data = saved(kind).read_bytes()
    if kind == "JSON":
        told = json.loads(data)
        assert set(told["maps"]) == {map["name"] for map in told["about"]["maps"]}
    else:
        assert data.startswith(b"\x89PNG" if kind == "PNG" else b"<svg")

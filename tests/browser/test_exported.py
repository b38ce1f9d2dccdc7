"""An exported file in a real browser, from disk: its panes work, its words are inert, and it asks nobody for anything."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import regard
from regard.serve.exported import page
from regard.serve.taking import take
from regard.tasks.look import look
from tests.serve.taken import taken

pytest.importorskip("selenium")
from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.support.ui import WebDriverWait

CHROMIUM, DRIVER = Path("/usr/bin/chromium"), Path("/usr/bin/chromedriver")
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not CHROMIUM.exists() or not DRIVER.exists(), reason="there is no Chromium here"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("saved")


@pytest.fixture(scope="module")
def driver(folder):
    options = Options()
    options.binary_location = str(CHROMIUM)
    for switch in ("--headless=new", "--no-sandbox", "--disable-gpu", "--window-size=1400,1000"):
        options.add_argument(switch)
    options.add_experimental_option("prefs", {"download.default_directory": str(folder)})
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    made = webdriver.Chrome(options=options, service=Service(str(DRIVER)))
    yield made
    made.quit()


def opened(driver, folder, given):
    file = folder / "page.html"
    file.write_text(page(given), "utf-8")
    driver.get(file.as_uri())
    WebDriverWait(driver, 20).until(lambda d: d.find_elements("css selector", ".cell.drawn"))
    return driver


def said(driver):
    """All words of the page; halves of characters made whole, which WebDriver cannot carry."""
    return driver.execute_script("return document.body.innerText.toWellFormed()")


def quiet(driver):
    return [entry["message"] for entry in driver.get_log("browser")]


def test_words_that_are_script_do_nothing_and_are_shown(driver, folder):
    opened(driver, folder, taken())
    assert driver.title.endswith("what it looked at")
    assert "document.title='taken'" in said(driver)
    scripts = driver.execute_script("return [document.scripts.length, document.images.length]")
    assert scripts == [2, 0]  # the data and the one that reads it; no word became a picture
    assert quiet(driver) == []


def test_nothing_is_asked_for_and_the_policy_holds(driver, folder):
    opened(driver, folder, taken())
    asked = "return performance.getEntriesByType('resource').map((entry) => entry.name)"
    assert driver.execute_script(asked) == []
    stopped = driver.execute_async_script(
        "const done = arguments[0]; let held = 0;"
        "document.addEventListener('securitypolicyviolation', () => held++);"
        "const late = document.createElement('script'); late.textContent = 'window.ran = 1'; document.body.append(late);"
        "fetch('http://127.0.0.1:9/').catch(() => setTimeout(() => done([held, window.ran ?? 0]), 200));"
    )
    assert stopped == [2, 0]
    quiet(driver)


def test_pointing_at_a_token_shows_the_weights_that_were_kept(driver, folder):
    given = take(look(regard.load("en-de"), {"text": "Two dogs are playing in the snow."}, name="en-de"))
    opened(driver, folder, given)
    name = driver.execute_script("return document.querySelector('.cell.chosen').dataset.map")
    head = int(driver.execute_script("return document.querySelector('.cell.chosen').dataset.head"))
    token = driver.find_elements("css selector", ".panel.seen .chip")[1]
    ActionChains(driver).move_to_element(token).perform()
    first = WebDriverWait(driver, 10).until(lambda d: d.find_elements("css selector", ".list.look .share"))[0].text
    assert first == f"{100 * float(given.maps[name]['raw'][head, 1].max()):.0f} %"
    assert "Zwei Hunde" in said(driver)
    assert quiet(driver) == []


def test_every_head_can_be_chosen_with_the_keyboard(driver, folder):
    opened(driver, folder, taken())
    driver.execute_script("document.querySelector('.cell.chosen').focus()")
    ActionChains(driver).send_keys("\ue014").perform()  # the right arrow
    heading = driver.find_element("css selector", "#tokens .pane-title").text
    assert "head 2" in heading


@pytest.mark.parametrize("kind", ["JSON", "PNG", "SVG"])
def test_the_chosen_map_can_be_saved(driver, folder, kind):
    opened(driver, folder, taken())
    for old in folder.glob("regard-*"):
        old.unlink()
    driver.find_element("css selector", f"[data-export={kind}]").click()
    suffix = kind.lower()
    file = WebDriverWait(driver, 10).until(lambda _: next(folder.glob(f"regard-*.{suffix}"), None))
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
        from xml.etree import ElementTree

        tree = ElementTree.fromstring(data)
        tags = {element.tag.rpartition("}")[2] for element in tree.iter()}
        assert tags == {"svg", "rect", "text"}  # no word became a tag
        assert len(list(tree.iter("{http://www.w3.org/2000/svg}rect"))) == 7 * 7 + 1

"""Stepping a search in a real Chromium: a beam, a sample, a GPT's text, a recording; by mouse and keys, on a phone."""

from pathlib import Path

import pytest
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select

import regard

from .conftest import PHONE

SOUND = Path(__file__).resolve().parents[2] / "docs" / "assets" / "digits.wav"
LINE = "Two dogs are running over the green grass."
SCRIPT = "<img src=x onerror=document.title='taken'> <script>document.title='taken'</script>"


def staged(page, model, text=None, how=None, **numbers):
    """The search view with a search."""
    page.driver.get("about:blank")
    page.driver.get(f"{page.address}/?model={model}#search")
    page.until(lambda: page.all("#search-model option"), "the models are there")
    if text is not None:
        page.until(lambda: page.all(".stage"), "the search that begins by itself")
    Select(page.one("#search-model")).select_by_value(model)
    if text is not None:
        page.until(lambda: _wrote(page.one("#search-text"), text), "the text stands there")
    if how is not None:
        page.one(f".search-ask [data-value='{how}']").click()
    for name, value in numbers.items():
        field = page.one(f".search-numbers [name='{name}']")
        field.clear()
        field.send_keys(str(value))
    if text is not None:
        before = page.all(".stage")
        page.one("#search-go").click()
        page.until(lambda: page.all(".stage") not in ([], before), "the stage is set")


def _wrote(field, text):
    """Write over what stands there: an example of the page may come in between."""
    field.clear()
    field.send_keys(text)
    return field.get_attribute("value") == text


def forward(page, steps=1):
    for _ in range(steps):
        page.one("[aria-label='Forward one step']").click()


def test_a_search_of_the_input_begins_by_itself(page):
    page.open("en-de")
    page.read(LINE)
    page.one("nav [href='#search']").click()
    page.until(lambda: page.all(".stage"), "a search")
    assert page.one("#search-text").get_attribute("value") == LINE
    assert "green" in page.texts("#search .heat thead th")
    page.one("nav [href='#attention']").click()
    stage = page.all(".stage")
    page.one("nav [href='#search']").click()
    assert page.all(".stage") == stage  # once
    page.one("nav [href='#attention']").click()
    page.read("A man is sleeping.")
    assert not page.all(".stage")  # nothing of the last text stands beside the new one
    page.one("nav [href='#search']").click()
    page.until(lambda: "sleeping" in page.texts("#search .heat thead th"), "a search of the new text")
    Select(page.one("#search-model")).select_by_value("shakespeare")
    assert not page.all("#search .heat thead th")
    page.until(lambda: page.all(".stage"), "a search by the other model")


def test_a_beam_is_stepped_to_the_translation_that_the_model_gives(page):
    staged(page, "en-de", LINE, beam_size=3)
    assert "Step 1 of" in page.text(".search-says")
    assert len(page.all(".node.kept:not(.root)")) == 3
    assert page.all(".node.pruned")
    forward(page)
    assert "Step 2 of" in page.text(".search-says")
    page.one("[aria-label='Back one step']").click()
    assert "Step 1 of" in page.text(".search-says")
    page.one(".search-board").send_keys(Keys.END)
    assert "Search ended:" in page.text(".search-says")
    wanted = regard.load("en-de").candidates([LINE], beam_size=3, num_candidates=3)[0]
    assert page.texts(".found li button") == [one.text for one in wanted]
    assert page.texts(".found .share") == [f"{one.score:.3f}" for one in wanted]
    strong = page.run("return [...document.querySelectorAll('.node.strong .word')].map(e => e.textContent)")
    assert strong[0] == "Zwei"
    assert strong[-1] == "(end)"


def test_what_was_pruned_says_why_and_each_beam_shows_where_it_looked(page):
    staged(page, "en-de", LINE)
    forward(page, 2)
    pruned = page.all(".node.pruned")[-1]
    page.run("arguments[0].dispatchEvent(new MouseEvent('click', {bubbles: true}))", pruned)
    assert "below the last of the 4 kept" in page.text(".offered > .why")
    rows = page.all(".heat tbody tr")
    assert len(rows) == 5  # four beams, and the one that was chosen
    assert page.texts(".heat thead th")[:3] == ["Two", "dogs", "are"]
    numbers = page.run(
        "return [...document.querySelectorAll('.heat tbody tr:first-child td[title]')].map(e => e.title)"
    )
    assert len(numbers) == len(page.all(".heat thead th"))
    Select(page.one(".attention select")).select_by_visible_text("decoder.blocks.2.cross")
    after = page.run("return [...document.querySelectorAll('.heat tbody tr:first-child td[title]')].map(e => e.title)")
    assert after != numbers


def test_keys_step_choose_and_play(page):
    staged(page, "en-de", LINE)
    board = page.one(".search-board")
    board.send_keys(Keys.ARROW_RIGHT, Keys.ARROW_RIGHT, Keys.ARROW_LEFT)
    assert "Step 2 of" in page.text(".search-says")
    before = page.one(".node.chosen").get_attribute("data-id")
    board.send_keys(Keys.ARROW_DOWN)
    assert page.one(".node.chosen").get_attribute("data-id") != before
    board.send_keys(Keys.HOME, " ")
    page.until(lambda: "Step 3 of" in page.text(".search-says"), "it plays")
    board.send_keys(" ")
    said = page.text(".search-says")
    assert page.text("[aria-label='Play or pause']") == "Play"
    assert said == page.text(".search-says")


def test_a_sample_shows_what_was_cut_and_where_the_number_fell(page):
    staged(page, "en-de", LINE, "sample", top_k=5, top_p=0.9, min_p=0.02, temperature=1.5, num_candidates=2)
    forward(page, 2)
    whys = page.texts(".offers .why")
    assert any("cut by top-" in why for why in whys)
    assert "kept" in whys
    mark, part = (page.one(f".{name}").get_attribute("style") for name in ("strip-mark", "strip-part"))
    numbers = [float(value.split("%")[0].split(":")[-1]) for value in (*mark.split(";")[:1], *part.split(";")[:2])]
    assert numbers[1] - 1e-3 <= numbers[0] <= numbers[1] + numbers[2] + 1e-3


def test_a_gpt_looks_back_at_its_own_text(page):
    staged(page, "shakespeare", "ROMEO:", "greedy", max_new_tokens=6)
    page.one(".search-board").send_keys(Keys.END)
    words = page.texts(".own-word")
    assert "".join(words).startswith("ROMEO:")
    assert len(words) == 6 + 6
    assert "limit of 6 tokens" in page.text(".search-says")


def test_a_recording_is_heard_frame_by_frame(page):
    staged(page, "digits")
    page.one("#search-file").send_keys(str(SOUND))
    page.one("#search-go").click()
    page.until(lambda: page.all(".lattice"), "the lattice is drawn")
    board = page.one(".search-board")
    board.send_keys(Keys.END)
    assert page.text(".prefixes .prefix") == "one four zero five five six"
    board.send_keys(Keys.HOME, Keys.ARROW_DOWN)
    assert "“one”" in page.text(".search-says")
    inked = page.run("""
    const canvas = document.querySelector(".lattice");
    const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
    return data.filter((value, k) => k % 4 === 3 && value > 0).length / (data.length / 4);
    """)
    assert inked > 0.05


def test_the_recording_that_came_with_the_page_is_heard(page):
    staged(page, "en-de")
    Select(page.one("#search-model")).select_by_value("digits")
    page.one(".search-entry .example").click()
    page.until(lambda: page.all(".lattice"), "the lattice is drawn")
    assert "one four zero five five six" in page.texts(".text-so-far")


def test_script_in_a_text_is_inert(page):
    staged(page, "en-de", SCRIPT, beam_size=2)
    page.one(".search-board").send_keys(Keys.END)
    assert page.driver.title == "Regard: the explorer"
    assert not page.all("#search img, #search script")


def test_what_is_refused_is_said(page):
    staged(page, "en-de")
    field = page.one("#search-text")
    field.clear()
    field.send_keys("word " * 150)
    page.one("#search-go").click()
    assert "shorten it" in page.until(lambda: page.text(".search-ask .refused"), "a refusal")
    assert not page.all(".stage")
    assert all("422" in complaint for complaint in page.complaints())  # the browser's own word for it


@pytest.mark.long
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_search_view_fits_a_phone(page, scheme):
    page.size(*PHONE)
    page.media(scheme)
    staged(page, "en-de", LINE)
    forward(page, 3)
    wide, room = page.run("return [document.documentElement.scrollWidth, innerWidth]")
    assert wide <= room
    assert page.one("[aria-label='Forward one step']").size["height"] >= 30

"""What a user does on the explorer's page: type, point, pin, compare, move by keys, in light, in dark, on a phone."""

import time

import numpy as np
import pytest
import torch
from selenium.webdriver.common.keys import Keys

from regard.attention.capture.map_store import MapStore, StoredMap
from regard.interpret.inspections.stored import StoredInspection

from .conftest import PHONE, WIDE


def weights(page, what, **wanted):
    """Exact numbers, asked for as the page asks."""
    script = """
    const [what, wanted, done] = arguments;
    fetch(`/explore/inspections/${document.documentElement.dataset.inspection}/${what}?${new URLSearchParams(wanted)}`)
      .then(r => r.arrayBuffer()).then(b => done(Array.from(new Float32Array(b))));
    """
    return np.array(page.driver.execute_async_script(script, what, wanted))


def darkest(page, selector):
    """Which token of a panel is coloured most, by how far its colour is from the paper's."""
    script = """
    return [...document.querySelectorAll(arguments[0])].map(e => {
      const [r, g, b] = getComputedStyle(e).backgroundColor.match(/[\\d.]+/g).map(Number);
      return e.classList.contains('lit') ? 765 - r - g - b : 0;
    });
    """
    return int(np.argmax(page.run(script, selector)))


def test_first_example_is_read_and_its_answer_shown(page):
    page.open("en-de")
    assert page.text(".answer") == "Zwei Hunde spielen im Schnee."
    assert page.texts(".panel.look .chip")[:3] == ["Two", "dogs", "are"]
    assert page.texts(".panel.seen .chip")[:2] == ["Zwei", "Hunde"]


def test_page_asks_nobody_but_its_own_server(page):
    page.open("en-de")
    asked = page.run("return performance.getEntriesByType('resource').map(e => e.name)")
    assert len(asked) > 10
    assert [name for name in asked if not name.startswith(page.address)] == []


def test_typed_sentence_is_read_and_shown_as_words(page):
    page.open("en-de")
    page.read("A man is riding a horse.")
    assert page.texts(".panel.look .chip")[:3] == ["A", "man", "is"]
    assert "Pferd" in page.text(".answer")


def test_pointing_at_a_token_lights_exactly_what_it_looks_at(page):
    page.open("en-de")
    name = "decoder.blocks.2.cross"
    page.one(f".cell[data-map='{name}'][data-head='3']").click()
    for query in (0, 1, 4):
        page.hover(page.all(".panel.seen .chip")[query])
        row = weights(page, "row", map=name, head=3, query=query, view="raw")
        page.until(lambda row=row: darkest(page, ".panel.look .chip") == row.argmax(), f"row {query} is lit")
        first = page.text(".weight-lists .list.look li:first-child .word")
        page.until(
            lambda q=query: page.all(".panel.seen .chip.marked")[0].get_attribute("data-index") == str(q), "mark"
        )
        assert first == page.texts(".panel.look .chip")[row.argmax()]


def test_pointing_at_a_key_lights_who_looks_at_it(page):
    page.open("en-de")
    name = "decoder.blocks.2.cross"
    page.one(f".cell[data-map='{name}'][data-head='3']").click()
    page.hover(page.all(".panel.look .chip")[1])
    column = weights(page, "column", map=name, head=3, key=1, view="raw")
    page.until(lambda: darkest(page, ".panel.seen .chip") == column.argmax(), "the column is lit")
    assert not page.all(".panel.look .chip.lit")


def test_token_of_self_attention_lights_its_row_and_its_column(page):
    page.open("fill-en")
    page.hover(page.all(".panel.look .chip")[3])
    page.until(lambda: page.all(".weight-lists .list.look") and page.all(".weight-lists .list.seen"), "both lists")
    assert page.all(".panel.look .chip.lit")
    assert page.all(".panel.seen .chip.lit")
    assert "attends to" in page.text(".weight-lists .list.look h3")
    assert "is attended to by" in page.text(".weight-lists .list.seen h3")


def test_click_pins_a_token_and_escape_lets_it_go(page):
    page.open("en-de")
    page.hover(page.all(".panel.seen .chip")[1])
    page.all(".panel.seen .chip")[1].click()
    page.hover(page.one(".brand"))
    page.until(lambda: page.all(".panel.seen .chip.pinned"), "it stays")
    assert page.one(".panel.seen .chip.pinned").get_attribute("data-index") == "1"
    assert page.all(".panel.look .chip.lit")
    page.press(Keys.ESCAPE)
    page.until(lambda: not page.all(".chip.lit"), "nothing is lit")
    assert "Point at a token" in page.text(".weight-lists")


def test_three_readings_stand_side_by_side_with_what_each_does_not_show(page):
    page.open("en-de")
    page.one("#compare").click()
    page.until(lambda: len(page.all(".below .panel")) == 3, "three panels")
    assert page.texts(".below .panel > h3") == ["Raw", "Without sink", "Value-weighted"]
    page.until(lambda: len(page.all(".weight-lists .list.look")) == 3, "three lists")
    assert len(page.all(".hides p")) == 3
    tops = [page.one(f".below .panel:nth-child({k})").rect["y"] for k in (1, 2, 3)]
    assert len(set(tops)) == 1


@pytest.mark.parametrize("view", ["rollout", "relevance"])
def test_views_through_all_layers_light_the_input(page, view):
    page.open("en-de")
    page.one(f".views-choice [data-value='{view}']").click()
    page.until(lambda: page.all(".panel.look .chip.lit"), f"{view} is lit")
    assert page.text(".middle .pane-title").startswith(view.capitalize())
    page.one(".cell[data-head='0']").click()
    page.until(lambda: page.text(".middle .pane-title").startswith("Layer"), "a head that is chosen is shown")


def test_arrows_move_over_tokens_and_enter_pins(page):
    page.open("en-de")
    stop = page.one(".panel.seen .chip[tabindex='0']")
    assert stop.get_attribute("aria-selected") == "true"  # Tab comes to the token that is pinned
    page.run("arguments[0].focus()", stop)
    page.press(Keys.HOME, Keys.ARROW_RIGHT, Keys.ARROW_RIGHT)
    focused = page.run("return document.activeElement.dataset.index")
    assert focused == "2"
    page.until(lambda: page.one(".panel.seen .chip.marked").get_attribute("data-index") == "2", "it is pointed at")
    page.press(Keys.ENTER)
    page.until(lambda: page.run("return document.activeElement.getAttribute('aria-selected')") == "true", "pinned")


def test_arrows_move_over_layers_and_heads(page):
    page.open("en-de")
    page.one(".cell[data-map='decoder.blocks.0.cross'][data-head='0']").click()
    page.press(Keys.ARROW_RIGHT, Keys.ARROW_DOWN)
    page.until(lambda: page.text(".middle .pane-title").startswith("Layer 1, head 1"), "layer 1, head 1")
    assert page.run("return document.activeElement.dataset.head") == "1"


def test_small_maps_lie_on_one_canvas_each_under_its_own_button(page):
    """A canvas of its own for every head would be a layer of its own: 25 ms a frame with 400 of them."""
    page.open("en-de")
    assert len(page.all(".grid canvas")) == 1
    script = """
    const [name, done] = arguments;
    const look = document.documentElement.dataset.inspection, wanted = new URLSearchParams({ map: name, size: 32 });
    const sheet = document.querySelector(".sheet"), from = sheet.getBoundingClientRect();
    const cells = [...document.querySelectorAll(`.cell[data-map="${name}"]`)].filter((cell) => cell.dataset.head >= 0);
    fetch(`/explore/inspections/${look}/sample?${wanted}`).then((r) => r.arrayBuffer()).then((b) => {
      const bytes = new Uint8Array(b);
      done(cells.map((cell) => {
        const box = cell.getBoundingClientRect(), ink = [], meant = [];
        for (let i = 4; i < 28; i++) for (let j = 4; j < 28; j++) {
          const x = box.left - from.left + ((j + 0.5) * box.width) / 32;
          const y = box.top - from.top + ((i + 0.5) * box.height) / 32;
          const [r, g, b] = sheet.getContext("2d").getImageData(Math.floor(x), Math.floor(y), 1, 1).data;
          ink.push(765 - r - g - b);
          meant.push(Math.sqrt(bytes[(cell.dataset.head * 32 + i) * 32 + j]));
        }
        return [ink, meant];
      }));
    });
    """
    found = page.driver.execute_async_script(script, "decoder.blocks.2.cross")
    assert len(found) == 8
    for head, (ink, _) in enumerate(found):
        alike = [np.corrcoef(ink, other)[0, 1] for _, other in found]
        assert np.argmax(alike) == head
        assert alike[head] > 0.9


def test_everything_that_can_be_pressed_is_reached_by_tab_and_has_a_name(page):
    page.open("en-de")
    nameless = page.run("""
    const kinds = 'button, a, input, select, textarea, [role=listbox], [role=grid], canvas[role]';
    return [...document.querySelectorAll(kinds)]
      .filter(e => e.offsetParent && !(e.getAttribute('aria-label') || e.textContent.trim() || e.labels?.length))
      .map(e => e.outerHTML.slice(0, 100));
    """)
    assert nameless == []
    seen = set()
    page.run("document.body.focus()")
    for _ in range(60):
        page.press(Keys.TAB)
        seen.add(page.run("const e = document.activeElement; return e.id || e.className.split(' ')[0]"))
    assert {"model", "text", "read", "theme", "compare", "choice-one", "chip", "cell", "example"} <= seen


def test_script_in_a_text_stays_text(page):
    page.open("en-de")
    page.read("<script>window.hacked = 1</script> <img src=x onerror='window.hacked = 2'> dogs")
    page.one("#compare").click()
    page.until(lambda: len(page.all(".below .panel")) == 3, "three panels")
    assert page.run("return window.hacked") is None
    assert not page.all("main script, main img")


def cleared(page):
    """Whether nothing of an answer is left on the page."""
    shown = ("#input .result", "#tokens .board", "#maps", "#comparison", "#export .save")
    return not page.look() and not any(each.is_displayed() for name in shown for each in page.all(name))


def test_after_an_error_the_previous_answer_is_cleared_and_the_next_one_is_shown(page):
    page.open("en-de")
    page.one("#text").clear()
    page.one("#read").click()
    page.until(lambda: page.one("#input .refused").text, "a sentence")
    assert cleared(page)
    assert page.text("#tokens .pane-title") == "No answer"
    page.read("A man is riding a horse.")
    assert page.texts(".panel.look .chip")[:3] == ["A", "man", "is"]
    assert not page.one("#input .refused").is_displayed()


def test_refusal_of_the_server_is_shown_as_its_sentence(page):
    page.open("fill-en")
    page.run("document.querySelector('#text').value = 'word '.repeat(5000); document.querySelector('#read').click()")
    sentence = page.until(lambda: page.one("#input .refused").text, "a sentence")
    assert "25,000 characters together" in sentence
    assert cleared(page)
    page.complaints()  # a browser writes a line for every 4xx


def test_colours_follow_the_system_until_the_switch_is_pressed(page):
    page.run("try { localStorage.clear() } catch {}")
    page.media("dark")
    page.open("en-de")
    paper = "return getComputedStyle(document.body).backgroundColor"
    dark = page.run(paper)
    page.one("#theme").click()
    light = page.run(paper)
    assert sum(int(x) for x in dark[4:-1].split(",")) < 120 < 600 < sum(int(x) for x in light[4:-1].split(","))
    page.open("en-de")
    assert page.run(paper) == light
    page.run("localStorage.clear()")


@pytest.mark.parametrize("model", ["en-de", "shakespeare", "tiny-vit", "digits"])
def test_phone_has_one_column_and_nothing_sticks_out(page, model):
    page.size(*PHONE)
    page.open(model)
    assert page.run("return document.documentElement.scrollWidth") <= PHONE[0]
    tops = [page.one(part).rect for part in ("#input", ".middle", ".right")]
    assert tops[0]["y"] < tops[1]["y"] < tops[2]["y"]
    assert {round(each["x"]) for each in tops} == {round(tops[0]["x"])}
    page.size(*WIDE)


def test_dropped_picture_is_read_and_patches_light_up(page, tmp_path):
    from PIL import Image

    Image.new("RGB", (90, 60), (200, 40, 40)).save(tmp_path / "red.png")
    page.open("tiny-vit")
    before = page.look()
    page.one("#file").send_keys(str(tmp_path / "red.png"))
    page.until(lambda: page.look() != before, "the picture is read")
    page.drawn()
    pixels = "const c = document.querySelector('.panel.look canvas'); return c.toDataURL()"
    plain = page.run(pixels)
    page.hover(page.one(".panel.look canvas"))
    page.until(lambda: page.run(pixels) != plain, "the picture changes")
    assert page.text(".weight-lists .list.look h3") == "row 4, col 4 attends to"  # the patch in the middle of 7 x 7


def test_recording_is_read_and_shown_as_a_spectrogram(page):
    page.open("digits")
    assert "one" in page.text(".answer")
    page.hover(page.one(".audio canvas"))
    page.until(lambda: page.all(".weight-lists .list.seen li"), "a frame belongs to a part of the answer")
    assert page.run("return document.querySelector('.audio canvas').width") > 300


def test_a_long_text_shows_its_small_maps_before_it_asks_for_a_column(page):
    """A column of a long text costs as much as many small maps."""
    store = MapStore()
    for layer in range(8):
        found = (torch.softmax(torch.randn(1, 1, 700, 700), -1),)
        store.add(StoredMap(name=f"decoder.blocks.{layer}.mix", kind="align", heads=1, recorded=found))

    class Slow(StoredInspection):
        def sample(self, name, size=32):
            time.sleep(0.25)
            return super().sample(name, size)

    page.open("fill-en")
    page.run("performance.clearResourceTimings()")
    page.show(Slow(store, {"text": [f"t{k}" for k in range(700)]}, name="long"))
    page.until(lambda: page.all(".weight-lists .list.seen"), "who looks at the token is told")
    asked = page.run("return performance.getEntriesByType('resource').map((e) => [e.name, e.startTime, e.responseEnd])")
    painted = [end for name, _, end in asked if "/sample?" in name]
    assert len(painted) == 8
    assert max(painted) <= min(start for name, start, _ in asked if "/column?" in name)


def test_a_new_inspection_forgets_the_last_one(page):
    page.open("shakespeare")
    page.read("To be, or not to be")
    assert page.texts(".panel.look .chip")[:2] == ["T", "o"]

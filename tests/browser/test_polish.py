"""What the page shows first, how it tells numbers, and that what is shown belongs together."""

import json
import math
import shlex
import shutil
import subprocess

import numpy as np
import pytest
import torch
from selenium.webdriver import ActionChains
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select

from regard.attention.capture.map_store import MapStore, StoredMap
from regard.interpret.inspection import NO_POSITION, Axis
from regard.interpret.inspections.stored import StoredInspection

from .conftest import PHONE, WIDE, without_tour


def inspection(page):
    """The inspection that is shown, in Python."""
    return page.inspections.get(page.look())


def choose_view(page, view):
    page.one(f".views-choice [data-value='{view}']").click()
    page.until(lambda: page.all(".panel.look .lit") or page.all(".panel.look canvas"), f"{view} is lit")


def percent(text):
    """The number before the first percent sign."""
    return float(text.partition(" %")[0].split()[-1])


# -- the large map -----------------------------------------------------------------------------------------------------


def largest(page):
    """The largest weight of the large map, as the page writes it, once it is drawn."""
    page.until(lambda: page.one(".large").get_attribute("data-drawn") == "fine", "the large map is drawn")
    return page.text(".large .zoom .hint")


@pytest.mark.parametrize("view", ["raw", "without_sink", "value"])
def test_the_large_map_follows_the_view_of_a_head(page, view):
    page.open("fill-en")
    page.one(".cell[data-map='encoder.blocks.4.mix'][data-head='2']").click()
    choose_view(page, view)
    seen = inspection(page)
    n = seen.shape("encoder.blocks.4.mix")[0]
    rows = np.stack([seen.row("encoder.blocks.4.mix", 2, query, view) for query in range(n)])
    unit = 1 if view == "value" else 100

    def told():
        line = largest(page).removeprefix("Largest: ").rstrip(".").split()[0]
        return float(line) == pytest.approx(unit * rows.max(), rel=0.05)

    page.until(told, f"the largest of {view}, {unit * rows.max():.3g}")


def test_the_large_map_of_relevance_has_a_row_for_each_answer(page):
    page.open("en-de")
    choose_view(page, "relevance")
    names = page.until(lambda: page.texts(".row-names span"), "the rows have names")
    largest(page)  # the service is done with the model, which may only be used by one thread at a time
    seen = inspection(page)
    assert names == [token.removeprefix("▁") for token in seen.targets]
    each = np.stack([seen.relevance(target) for target in range(len(names))])
    shares = each / each.sum(1, keepdims=True)
    page.until(lambda: percent(largest(page)) == pytest.approx(100 * shares.max(), rel=0.03), "the largest share")


def test_what_is_asked_for_a_map_is_not_asked_of_the_next_one(page):
    page.open("en-de")
    choose_view(page, "relevance")
    Select(page.one("#model")).select_by_value("fill-en")  # while lines of the map are under way
    page.drawn()  # a refused line would be in the browser's console
    page.until(lambda: largest(page).startswith("Largest"), "the other map")


def single_query(heads=2):
    """One query over 3 x 4 patches and a token without a place; the patch in row 2, column 3 is strongest."""
    weights = torch.full((1, heads, 1, 13), 0.05)
    weights[..., 1 + 6] = 0.4
    positions = [NO_POSITION, *({"box": [8 * x, 8 * y, 8, 8]} for y in range(3) for x in range(4))]
    tokens = ["[class]", *(f"{y + 1},{x + 1}" for y in range(3) for x in range(4))]
    store = MapStore()
    store.add(StoredMap(name="pool", kind="cross", heads=heads, recorded=(weights / weights.sum(-1, keepdim=True),)))
    sides = {
        "patches": Axis("patches", tokens, positions, [True] + [False] * 12),
        "answer": Axis("answer", ["answer"], [NO_POSITION], [True]),
    }
    return StoredInspection(store, sides, lambda held: ("answer", "patches"), name="one query")


def test_a_map_of_a_single_query_is_drawn_as_the_grid_of_patches(page):
    page.open("tiny-vit")
    page.show(single_query())
    largest(page)
    assert page.one(".frame").get_attribute("data-sheet") == "grid"
    assert page.texts(".row-names span") == ["1", "2", "3"]
    assert page.texts(".column-names span") == ["1", "2", "3", "4"]
    script = """
    const canvas = document.querySelector(arguments[0]), [rows, columns, left, top, w, h] = arguments[1];
    const ink = [];
    for (let i = 0; i < rows; i++) for (let j = 0; j < columns; j++) {
      const x = left + ((j + 0.5) * w) / columns, y = top + ((i + 0.5) * h) / rows;
      const [r, g, b] = canvas.getContext("2d").getImageData(Math.floor(x), Math.floor(y), 1, 1).data;
      ink.push(765 - r - g - b);
    }
    return ink;
    """
    width, height = page.run("const c = document.querySelector('.large-map'); return [c.width, c.height]")
    assert np.argmax(page.run(script, ".large-map", [3, 4, 0, 0, width, height])) == 6
    box = page.run("""
    const from = document.querySelector('.sheet').getBoundingClientRect();
    const cell = document.querySelector(".cell[data-head='1']").getBoundingClientRect();
    return [cell.left - from.left, cell.top - from.top, cell.width, cell.height];
    """)
    assert np.argmax(page.run(script, ".sheet", [3, 4, *box])) == 6  # the small map too
    page.hover(page.one(".large-map"), right=round(0.13 * width), down=0)  # row 2, column 3
    page.until(lambda: page.texts(".column-names .marked") == ["3"], "the patch under the pointer is marked")
    page.complaints()  # there is no picture of this inspection: the browser notes that


def test_the_large_map_says_what_its_rows_and_columns_are(page):
    page.open("en-de")
    assert page.text(".large .pane-title") == "Selected map"
    assert page.text(".large > .hint") == "Rows: queries (target). Columns: keys (source)."
    choose_view(page, "relevance")
    page.until(lambda: page.text(".large > .hint") == "A row per answer, a column per token of the input.", "answers")


def test_names_of_a_wide_map_do_not_overlap(page):
    page.open("fill-en")
    weights = torch.softmax(torch.randn(1, 1, 20, 64), -1)
    store = MapStore()
    store.add(StoredMap(name="decoder.cross", kind="cross", heads=1, recorded=(weights,)))
    sides = {"words": [f"word{n}" for n in range(20)], "cells": [f"cell{n}" for n in range(64)]}
    axes = {
        name: Axis(name, tokens, [NO_POSITION] * len(tokens), [False] * len(tokens)) for name, tokens in sides.items()
    }
    page.show(StoredInspection(store, axes, lambda held: ("words", "cells"), name="wide"))
    largest(page)
    assert len(page.texts(".row-names span")) == 20
    assert page.texts(".column-names span") == []  # there is no room for sixty-four
    tops = page.run("return [...document.querySelectorAll('.row-names span')].map(e => e.getBoundingClientRect().top)")
    assert min(np.diff(tops)) >= 11


# -- what is shown belongs together ------------------------------------------------------------------------------------


def test_another_model_begins_without_the_layer_the_head_and_the_view_of_the_last(page):
    page.open("fill-en")
    page.one(".cell[data-map='encoder.blocks.0.mix'][data-head='2']").click()
    choose_view(page, "without_sink")
    before = page.look()
    Select(page.one("#model")).select_by_value("languages")
    assert page.look() != before  # at once: nothing of the last model stands under the name of the new one
    page.drawn()
    # the last layer attends uniformly, so the page begins with the one before
    assert page.text("#tokens .pane-title") == "Layer 0, mean of headsencoder self-attention"
    assert page.one(".views-choice [aria-checked='true']").text == "Raw"


def test_the_address_names_the_model_so_that_reload_and_back_find_it(page):
    def shown():
        page.drawn()
        return page.one("#model").get_attribute("value"), page.driver.current_url.partition("?")[2]

    page.open("fill-en")
    Select(page.one("#model")).select_by_value("languages")
    assert shown() == ("languages", "model=languages")
    page.driver.refresh()
    assert shown() == ("languages", "model=languages")
    page.driver.back()
    page.until(lambda: page.one("#model").get_attribute("value") == "fill-en", "the model before is chosen")
    assert shown() == ("fill-en", "model=fill-en")


def test_an_inspection_that_the_server_has_dropped_is_made_again(page):
    page.open("fill-en")
    before = page.look()
    page.inspections._entries.clear()  # as after eight others, of another tab or another user
    chip = page.all(".panel.seen .chip")[2]
    page.hover(chip)
    page.until(lambda: page.look() not in (before, ""), "the input is run again")
    page.drawn()
    page.hover(page.all(".panel.seen .chip")[2])
    page.until(lambda: page.texts(".weight-lists h3 b")[:1] == ["man"], "the weights of the word are told")
    assert not page.one("#input .refused").is_displayed()
    page.complaints()  # the browser notes the request that was answered with 404


def test_models_are_grouped_by_task_and_what_the_chosen_one_does_is_said(page):
    page.open("en-de")
    groups = {each.get_attribute("label") for each in page.all("#model optgroup")}
    assert {"translation", "masked lm", "image classification"} <= groups
    assert page.text("#model-does") == "Translate English to German"


def test_bytes_of_one_character_are_numbered(page):
    page.open("en-de")
    page.read("Hola, me gusta el café.")
    assert page.text(".panel.look .chips").replace("\n", "").startswith("Hola, me gusta el café₁é₂.")


FIRST = """
const [axis, label, done] = arguments;
import(`${location.origin}/page/first_token.js`).then(({ firstToken }) => done(firstToken(axis, label)));
"""


def words(text, pieces, special=()):
    """An axis of pieces in a text."""
    positions, end = [], 0
    for piece in pieces:
        begin = text.index(piece, end)
        end = begin + len(piece)
        positions.append({"text": [begin, end]})
    special = [k in special for k in range(len(pieces))]
    return {"name": "text", "tokens": pieces, "positions": positions, "special": special, "text": text}


def test_the_first_token_is_one_that_tells_something(page):
    page.open("en-de")

    def first(axis, label=None):
        return axis["tokens"][page.driver.execute_async_script(FIRST, axis, label)]

    pronoun = "The animal did not cross the street because it was too tired."
    assert first(words(pronoun, pronoun.replace(".", " .").split())) == "it"
    assert first(words("It is the snow.", ["It", "is", "the", "snow", "."])) == "snow"  # nothing that it stands for
    assert first(words("in the unbelievable", ["in", "the", "un", "believ", "able"])) == "believ"  # its longest piece
    assert first(words("Hunde spielen im Schnee", ["Hunde", "spielen", "im", "Schnee"])) == "spielen"
    twice = "a dress on the floor and a bag on the floor"
    assert first(words(twice, twice.split())) == "bag"  # not the floor, which comes twice
    assert first(words("A [MASK] is it", ["A", "[MASK]", "is", "it"], special=(1,))) == "[MASK]"
    boxes = [{"box": [8 * x, 8 * y, 8, 8]} for y in range(3) for x in range(3)]
    grid = {"name": "p", "tokens": [str(k) for k in range(9)], "positions": boxes, "special": [False] * 9, "text": None}
    assert first(grid) == "4"  # the patch in the middle
    grid["tokens"].insert(0, "[class]"), grid["positions"].insert(0, NO_POSITION), grid["special"].insert(0, True)
    assert first(grid) == "[class]"
    found = ["1: shoe 2 %", "2: bag 3 %", "3: bag 88 %"]
    queries = grid | {"tokens": found, "positions": [NO_POSITION] * 3, "special": [True, True, False], "text": None}
    assert first(queries, "bag") == "3: bag 88 %"  # what was found, not what was passed over
    numbers = {
        "name": "n",
        "tokens": list("12345"),
        "positions": [NO_POSITION] * 5,
        "special": [False] * 5,
        "text": None,
    }
    assert first(numbers) == "4"


def test_the_first_label_of_masks_is_a_thing_rather_than_a_background(page):
    script = """
    const [output, done] = [arguments[0], arguments[arguments.length - 1]];
    import(`${location.origin}/page/first_token.js`).then(({ likeliest }) => done(likeliest(output)));
    """
    page.open("languages")
    wall = {"label": "wall", "score": 0.98, "counts": [0, 60, 40]}
    house = {"label": "house", "score": 0.91, "counts": [60, 20, 20]}
    assert page.driver.execute_async_script(script, {"kind": "masks", "masks": [wall, house]}) == "house"
    assert page.driver.execute_async_script(script, {"kind": "masks", "masks": [wall]}) == "wall"
    assert page.driver.execute_async_script(script, {"masks": [{"guesses": []}]}) is None  # the gaps of a text


def test_the_page_begins_with_that_token(page):
    page.open("fill-en")
    assert page.text(".weight-lists .list.look h3") == "[MASK] attends to"
    page.open("languages")
    page.read("The animal did not cross the street because it was too tired.")
    assert page.text(".weight-lists .list.look h3") == "it attends to"


# -- changes -----------------------------------------------------------------------------------------------------------


def test_a_right_click_switches_a_head_off_and_both_answers_stand_in_the_centre(page):
    page.open("en-de")
    name = "decoder.blocks.2.cross"
    assert not page.one("#comparison").is_displayed()
    cell = page.one(f".cell[data-map='{name}'][data-head='3']")
    ActionChains(page.driver).context_click(cell).perform()
    page.until(lambda: len(page.all("#comparison .pair .answer")) == 2, "both answers")
    left, right = (each.rect for each in page.all("#comparison .pair section"))
    assert left["y"] == right["y"]
    assert left["x"] < right["x"]
    assert page.one("#comparison").rect["x"] == page.one("#tokens").rect["x"]
    assert "off" in cell.get_attribute("class").split()
    assert "switched off" in cell.get_attribute("aria-label")
    assert page.texts("#comparison .changes span") == ["layer 2, cross-attention, head 3: switch off"]
    ActionChains(page.driver).context_click(cell).perform()
    page.until(lambda: not page.one("#comparison").is_displayed(), "it is on again")
    assert not page.all(".cell.off")


def test_a_long_press_switches_a_head_off(page):
    page.size(*PHONE)
    page.open("en-de")
    cell = page.one(".cell[data-map='decoder.blocks.1.cross'][data-head='2']")
    page.run("arguments[0].scrollIntoView({block: 'center'})", cell)
    place = page.run("const r = arguments[0].getBoundingClientRect(); return {x: r.x + 9, y: r.y + 9}", cell)
    touch = page.driver.execute_cdp_cmd
    touch("Emulation.setTouchEmulationEnabled", {"enabled": True})
    try:
        touch("Input.dispatchTouchEvent", {"type": "touchStart", "touchPoints": [place]})
        page.until(lambda: page.texts("#comparison .changes span"), "it is switched off while the finger stays")
        touch("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
    finally:
        touch("Emulation.setTouchEmulationEnabled", {"enabled": False})
    assert page.texts("#comparison .changes span") == ["layer 1, cross-attention, head 2: switch off"]


def test_a_key_switches_a_head_off(page):
    page.open("en-de")
    page.one(".cell[data-map='decoder.blocks.1.cross'][data-head='0']").click()
    page.press("x", Keys.ARROW_RIGHT, "x")
    said = ["layer 1, cross-attention, heads 0, 1: switch off"]
    page.until(lambda: page.texts("#comparison .changes span") == said, "two")
    assert len(page.all(".cell.off")) == 2
    page.one(".cell[data-map='decoder.blocks.1.cross'].mean").click()
    page.press("x")  # all of them, whose mean is crossed out too
    page.until(lambda: len(page.all(".cell.off")) == 9, "all heads and their mean")
    page.press("x")
    page.until(lambda: not page.all(".cell.off"), "all on again")


# -- a network of convolutions -----------------------------------------------------------------------------------------


def test_a_network_of_convolutions_shows_what_supports_each_label(page):
    page.open("tiny-cnn")
    seen = inspection(page)
    labels = seen.axes["labels"].tokens
    assert page.text("#tokens .pane-title") == "Grad-CAM"
    assert page.texts(".panel.seen .chip") == labels
    assert page.text(".panel.seen .chip.pinned") == page.text(".output .answer") == labels[0]
    assert page.texts("#maps .grid-host .choice-one") == ["Grad-CAM", "LayerCAM"]
    assert page.text("#maps .grid-host .pane-title") == "Maps"  # no layers, no heads
    assert not page.one("[data-needs='interventions']").is_displayed()  # and none to switch off
    assert not page.one(".views-choice").is_displayed()
    for name, tab in (("gradcam", 1), ("layercam", 2)):
        page.one(f"#maps .choice-one:nth-child({tab})").click()
        for label in (1, 2):
            page.one(f".panel.seen .chip[data-index='{label}']").click()
            largest(page)
            assert page.one(".frame").get_attribute("data-sheet") == "grid"
            cells = seen.row(name, 0, label)
            row, column = divmod(int(cells.argmax()), math.isqrt(len(cells)))
            heading = page.until(lambda: page.text(".weight-lists h3"), "the list")
            assert heading == f"{labels[label]} is supported by"
            first = ".weight-lists .list.look li:first-child .word"
            wanted = f"row {row + 1}, col {column + 1}"
            page.until(lambda first=first, wanted=wanted: page.text(first) == wanted, f"{wanted} is first")


def test_weights_that_may_exceed_one_are_no_shares(page):
    page.open("en-de")
    script = """
    const [map, done] = arguments;
    import(`${location.origin}/page/views.js`).then(({ view }) => done(view("raw", map).shares));
    """
    shares = lambda **map_: page.driver.execute_async_script(script, map_)  # noqa: E731
    assert not shares(kind="align", normalised=False)
    assert shares(kind="align", normalised=True)
    assert shares(kind="cross", normalised=False)  # deformable: shares, of which some are outside the picture


# -- pictures, sounds, lines -------------------------------------------------------------------------------------------


def test_a_dropped_picture_has_a_thumbnail(page, tmp_path):
    from PIL import Image

    Image.new("RGB", (90, 60), (200, 40, 40)).save(tmp_path / "red.png")
    page.open("tiny-vit")
    page.one("#file").send_keys(str(tmp_path / "red.png"))
    size = (
        "const i = document.querySelector('.drop .thumbnail'); return [i.naturalWidth, i.naturalHeight, i.offsetWidth]"
    )
    page.until(lambda: page.run(size) == [90, 60, 90], "the thumbnail is shown")


def test_weights_on_a_photo_are_told_relative_to_uniform_attention_or_in_percent(page):
    page.open("tiny-vit")
    first = ".weight-lists .list.look li:first-child .share"
    page.until(lambda: page.all(first) and page.text(first).endswith("×"), "multiples of uniform attention")
    times = float(page.text(first).split()[0])
    assert "× uniform" in page.text(".legend")
    page.one(".scales [data-value='share']").click()
    page.until(lambda: page.text(first).endswith("%"), "percent")
    tokens = 1 + 7 * 7
    assert percent(page.text(first)) * tokens / 100 == pytest.approx(times, abs=0.15)
    assert page.text(".legend").endswith("%")
    page.open("en-de")
    assert not page.one(".scales").is_displayed()  # words have a scale only


def test_a_recording_is_played_over_an_axis_of_seconds(page):
    page.open("digits")
    ticks = page.texts(".time-axis span")
    assert ticks[:2] == ["0 s", "0.5 s"]
    assert len(page.all(".time-axis")) == 1
    assert page.text(".weight-lists .list.look li .word").endswith(" s")
    canvas = "return document.querySelector('.panel.look canvas').toDataURL()"
    before = page.run(canvas)
    page.one("#play").click()
    page.until(lambda: page.run("return document.querySelector('.sound audio').currentTime") > 0, "it plays")
    page.until(lambda: page.run(canvas) != before, "the place is drawn")
    page.until(lambda: page.text("#play").endswith("Play"), "it has ended")
    page.until(lambda: page.run(canvas) == before, "the mark is gone")
    page.open("en-de")
    assert not page.one(".sound").is_displayed()


def test_words_of_a_recording_stand_above_their_place_in_it(page):
    page.open("digits")
    assert page.texts(".panel.seen .chip:not(.special)") == page.text(".answer").split()
    script = """
    const { inspection } = regard.store, canvas = document.querySelector('.panel.look canvas').getBoundingClientRect();
    return [...document.querySelectorAll('.panel.seen .chip:not(.special)')].map((chip) => {
      const [from, to] = inspection.axes.states.positions[chip.dataset.index].time, box = chip.getBoundingClientRect();
      return box.x + box.width / 2 - canvas.x - (from + to) / 2 / inspection.audio.seconds * canvas.width;
    });
    """
    page.until(lambda: max(map(abs, page.run(script))) < 20, "words are where they are heard")
    page.one("#maps .choice-one:nth-child(2)").click()
    page.until(lambda: page.text(".weight-lists h3") == "zero is likely at", "a label that is heard is first")


def test_a_line_by_hand_is_drawn_over_its_window(page):
    page.open("pen-digits")
    points = len(inspection(page).output["points"])
    page.until(lambda: page.run("return document.querySelector('.ink-sheet canvas').width") == points + 1, "the window")
    assert page.texts(".ink-names span") == ["3", "1", "4", "1", "5", "[end]"]
    canvas, ink = (
        page.one(".panel.seen canvas.picture"),
        "return document.querySelector('.panel.seen canvas').toDataURL()",
    )
    query, before = page.run("return regard.store.selection.query"), page.run(ink)
    page.run("arguments[0].focus()", canvas)
    page.press(Keys.ARROW_RIGHT, Keys.ENTER)
    page.until(lambda: page.run("return regard.store.selection.query") == query + 1, "arrows go along the line")
    assert f"point {query + 2}." in canvas.get_attribute("aria-label")
    page.all(".panel.look .chip")[2].click()
    page.until(lambda: page.text(".weight-lists h3") == "4 is attended to by", "a digit is pinned")
    assert page.run(ink) != before
    assert "%" not in page.text(".weight-lists")  # the weights of a window are no shares


def test_sentences_along_the_large_map_are_whole(page):
    page.open("stories")
    largest(page)
    assert page.texts(".column-names span") == inspection(page).axes["sentence"].tokens
    cut = """
    return [...document.querySelectorAll('.column-names span, .row-names span')]
      .filter((each) => each.scrollWidth > each.clientWidth || each.scrollHeight > each.clientHeight).length;
    """
    for width in (WIDE[0], 1024, PHONE[0]):
        page.size(width, 844)
        page.until(lambda: page.run(cut) == 0, f"whole at {width} pixels")


def test_a_token_and_its_map_are_seen_together_at_1024_pixels(page):
    page.size(1024, 768)
    page.open("en-de")
    left, right = page.one(".panel.seen").rect, page.one(".large .frame").rect
    assert left["x"] + left["width"] < right["x"]
    assert right["y"] + right["height"] < 844
    assert page.run("return document.documentElement.scrollWidth") == 1024


def test_all_heads_have_lines_in_colours_of_their_own(page):
    page.open("fill-en")
    assert not page.one("#all-heads").is_displayed()
    page.one("#lines").click()
    page.until(lambda: page.all(".lines path"), "lines of the mean")
    page.one("#all-heads").click()
    script = """
    return [...document.querySelectorAll('.lines path[data-head]')]
      .map(e => [e.dataset.head, getComputedStyle(e).stroke]);
    """
    found = page.until(lambda: page.run(script), "lines of the heads")
    heads = dict(found)
    assert len(heads) > 1
    assert len(set(heads.values())) == len(heads)
    assert page.texts(".head-colours span") == [f"head {k}" for k in range(4)]
    page.one("#all-heads").click()
    page.until(lambda: not page.run(script) and page.all(".lines path"), "lines of the mean again")


# -- units, formulas, requests -----------------------------------------------------------------------------------------


def test_numbers_have_units(page):
    page.open("en-de")
    assert page.texts(".output .fact")[0].split("\n")[1].endswith("nats/token")
    assert page.run("return getComputedStyle(document.querySelector('.panel.look h3'), '::after').content") == (
        '"numbers in %"'
    )
    assert largest(page).endswith("%.")
    choose_view(page, "value")
    page.until(lambda: page.text(".weight-lists .list.look .share").endswith(" norm"), "norms")
    assert page.until(lambda: largest(page).endswith(" norm."), "the largest norm")


@pytest.mark.parametrize("panel", ["gallery", "positions"])
def test_formulas_are_never_cut_off(page, panel):
    page.size(*PHONE)
    page.driver.get("about:blank")
    page.driver.get(f"{page.address}/#lab")
    page.one(".six-table")
    page.one(f".choice-one[data-value='{panel}']").click()
    page.until(lambda: page.all(".formula"), "formulas")
    script = "return [...document.querySelectorAll('.formula')].filter(e => e.scrollWidth > e.clientWidth).length"
    page.until(lambda: page.run(script) == 0, "all formulas fit")
    assert page.run("return document.documentElement.scrollWidth") <= PHONE[0]
    assert page.all(".formula.narrow")


def test_columns_of_a_formula_stand_below_one_another_where_there_is_room(page):
    page.driver.get("about:blank")
    page.driver.get(f"{page.address}/#lab")
    page.one(".six-table")
    page.one(".choice-one[data-value='mechanisms']").click()
    page.until(lambda: page.all(".formula .part"), "a formula")
    assert not page.all(".formula.narrow")
    page.size(*PHONE)
    page.until(lambda: page.all(".formula.narrow"), "there is none")
    page.size(*WIDE)
    page.until(lambda: not page.all(".formula.narrow"), "there is again")


def test_positions_without_a_map_say_so(page):
    page.driver.get("about:blank")
    page.driver.get(f"{page.address}/#lab")
    page.one(".six-table")
    page.one(".choice-one[data-value='positions']").click()
    page.until(lambda: page.all(".lab-position"), "positions")
    drawn = {
        each.get_attribute("aria-label"): bool(each.find_elements("css selector", "canvas"))
        for each in page.all(".lab-position")
    }
    assert [name for name, has_map in drawn.items() if not has_map] == ["none"]


@pytest.mark.skipif(not shutil.which("curl"), reason="needs curl")
def test_the_request_can_be_pasted_into_a_shell(page):
    page.open("en-de")
    page.read("It's a man's \"horse\".")
    page.one("#request summary").click()
    line = page.text("#request .curl")
    said = subprocess.run(f"{line} -s", shell=True, capture_output=True, text=True, timeout=60).stdout
    assert json.loads(said)["outputs"][0]["text"] == page.text(".answer")
    page.open("tiny-vit")
    page.run("document.querySelector('#request details').open = true")
    assert shlex.split(page.text("#request .curl"))[-2:] == ["-F", 'image=@"cat.jpg"']


def test_on_a_phone_the_maps_come_before_what_is_done_with_them(page):
    page.size(*PHONE)
    page.open("en-de")
    tops = [
        page.one(name).rect["y"] for name in ("#input", "#tokens", "#maps", "[data-needs='interventions']", "#export")
    ]
    assert tops == sorted(tops)


# -- what was typed ----------------------------------------------------------------------------------------------------


def test_a_reload_keeps_text_and_options_of_each_model(page):
    page.open("en-de")
    page.run("document.querySelector('.options').open = true")
    page.one("[name='beam_size']").send_keys("2")
    page.read("A cat sleeps.")
    page.open("fill-en")
    assert page.one("#text").get_attribute("value") == "A man is riding a [MASK] on the beach."
    page.open("en-de")
    assert page.one("#text").get_attribute("value") == "A cat sleeps."
    assert page.one(".options[open] [name='beam_size']").get_attribute("value") == "2"
    assert inspection(page).inputs == {"text": "A cat sleeps.", "beam_size": 2}


def test_a_file_that_cannot_be_read_is_named_by_what_it_is(page, tmp_path):
    (tmp_path / "none.png").write_bytes(b"")
    (tmp_path / "words.png").write_text("no picture")
    page.open("tiny-vit")
    for name, says in (("none.png", "none.png is empty."), ("words.png", "the file cannot be read as an image")):
        page.one("#file").send_keys(str(tmp_path / name))
        page.until(lambda says=says: page.text(".refused").startswith(says), says)
        assert not page.one(".result").is_displayed()
    page.complaints()  # the browser notes the refused request


def test_a_joiner_has_a_name(page):
    script = """
    const [text, done] = arguments;
    import(`${location.origin}/page/token_text.js`).then(({ visible }) => done(visible(text)));
    """
    page.open("languages")
    named = {"\u200d": "U+200D", "\ufe0f": "U+FE0F", "\n": "↵", "a\u200d": "a\u200d", "é": "é"}
    assert {text: page.driver.execute_async_script(script, text) for text in named} == named


# -- the tour ----------------------------------------------------------------------------------------------------------


def test_the_tour_has_three_steps_and_is_worked_by_keys(page):
    page.open("en-de")
    page.one("#tour").click()
    assert page.run("return document.activeElement.dataset.tour") == "next"
    titles = []
    for count in ("1 of 3", "2 of 3", "3 of 3"):
        assert page.text(".tour-buttons .hint") == count
        titles.append(page.text("#tour-title"))
        assert page.all(".tour-at")
        page.press(Keys.ARROW_RIGHT if count == "1 of 3" else Keys.ENTER)
    assert len(set(titles)) == 3
    assert not page.one(".tour-card").is_displayed()
    assert page.run("return document.activeElement.id") == "tour"
    page.press(Keys.ENTER)
    page.press(Keys.ARROW_RIGHT, Keys.ARROW_LEFT)
    assert page.text(".tour-buttons .hint") == "1 of 3"
    page.press(Keys.ESCAPE)
    assert not page.one(".tour-card").is_displayed()
    assert page.all(".chip.pinned")  # Esc ended the tour and nothing else


def test_the_tour_begins_once_and_is_remembered_without_a_cookie(page):
    page.open("en-de")
    page.driver.with_tour()
    try:
        page.run("localStorage.clear()")
        page.open("en-de")
        page.until(lambda: page.one(".tour-card").is_displayed(), "the tour begins")
        assert page.run("return document.activeElement === document.body")  # it takes no focus
        page.one("[data-tour='skip']").click()
        page.open("en-de")
        assert not page.one(".tour-card").is_displayed()
        assert page.run("return document.cookie") == ""
    finally:
        page.driver.with_tour = without_tour(page.driver)


@pytest.mark.parametrize("size", [(1400, 900), (1024, 768), PHONE])
def test_the_card_of_the_tour_is_within_the_window(page, size):
    page.size(*size)
    page.open("en-de")
    page.one("#tour").click()
    for _ in range(3):
        box = page.run("return document.querySelector('.tour-card').getBoundingClientRect().toJSON()")
        assert box["left"] >= 0
        assert box["top"] >= 60  # below the header
        assert box["right"] <= size[0]
        assert box["bottom"] <= size[1]
        page.one("[data-tour='next']").click()

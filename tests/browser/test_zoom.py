"""The large map, closer: by wheel, keys, buttons, dragging and two fingers; what is seen there are the weights."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from selenium.webdriver import ActionChains
from selenium.webdriver.common.actions.wheel_input import ScrollOrigin
from selenium.webdriver.common.keys import Keys

from regard.attention.capture.map_store import MapStore, StoredMap
from regard.interpret.inspections.stored import StoredInspection

from .conftest import PHONE, WIDE

N, M = 600, 900  # more than a tile to either side


@pytest.fixture(scope="module")
def weights():
    """Strong cells scattered evenly, and little else."""
    strong = (7 * np.arange(N)[:, None] + 5 * np.arange(M)) % 13 == 0
    w = np.where(strong, 1, 0.01).astype(np.float32)
    return w / w.sum(1, keepdims=True)


@pytest.fixture
def map_(page, weights):
    """A long look on the page; the large map, drawn."""
    page.open("fill-en")
    page.show(stored(weights))
    settled(page)
    return page.one(".large-map")


def stored(w):
    store = MapStore()
    store.add(StoredMap(name="decoder.cross", kind="align", heads=1, recorded=(torch.from_numpy(w)[None, None],)))
    sides = {"rows": [f"r{i}" for i in range(w.shape[0])], "columns": [f"c{j}" for j in range(w.shape[1])]}
    return StoredInspection(store, sides, lambda held: ("rows", "columns"), name="long")


def settled(page):
    """Wait until what is shown is there at its own resolution."""
    page.until(lambda: page.run("return document.querySelector('.large').dataset.drawn === 'fine'"), "the map is drawn")


def where(canvas):
    """What is shown: the first row and column, and how many of each; parts count."""
    return [float(number) for number in canvas.get_attribute("data-shown").split()]


def wheel(page, canvas, by, right=0, down=0):
    page.run("arguments[0].scrollIntoView({block: 'center'})", canvas)
    ActionChains(page.driver).scroll_from_origin(ScrollOrigin.from_element(canvas, right, down), 0, by).perform()


def inks(page, canvas):
    """How dark the middle of every cell is that is shown whole; and which rows and columns these are."""
    top, left, high, wide = where(canvas)
    rows, columns = (np.arange(np.ceil(a), np.floor(a + many), dtype=int) for a, many in ((top, high), (left, wide)))
    script = """
    const [canvas, across, down] = arguments, { width, height } = canvas;
    const { data } = canvas.getContext("2d").getImageData(0, 0, width, height);
    return down.map((y) => across.map((x) => {
      const at = 4 * (Math.floor(y * height) * width + Math.floor(x * width));
      return 765 - data[at] - data[at + 1] - data[at + 2];
    }));
    """
    across, down = (columns + 0.5 - left) / wide, (rows + 0.5 - top) / high
    return np.array(page.run(script, canvas, across.tolist(), down.tolist())), rows, columns


def test_what_is_seen_close_by_are_the_weights_of_those_rows_and_columns(page, map_, weights):
    for _ in range(5):
        page.one("[aria-label='Zoom in']").click()
    settled(page)
    ink, rows, columns = inks(page, map_)
    assert len(rows) > 12
    strong = weights[np.ix_(rows, columns)] > 1 / M
    assert 0 < strong.mean() < 0.1
    assert (ink[strong] > 500).all()
    assert (ink[~strong] < 100).all()


def test_wheel_goes_closer_to_what_is_under_it_and_back_again(page, map_):
    size = map_.size
    wheel(page, map_, -400, -size["width"] // 4, size["height"] // 4)
    top, left, high, wide = where(map_)
    assert 0.3 * M < wide < 0.6 * M
    assert left + 0.25 * wide == pytest.approx(0.25 * M, abs=6)  # a pixel is two or three cells
    assert top + 0.75 * high == pytest.approx(0.75 * N, abs=6)
    wheel(page, map_, 2000)
    assert where(map_) == [0, 0, N, M]


def test_wheel_that_goes_out_at_the_whole_map_belongs_to_the_page(page, map_):
    page.size(WIDE[0], 500)
    page.run("window.scrollTo(0, 0)")
    before = page.run("return scrollY")
    ActionChains(page.driver).scroll_from_origin(ScrollOrigin.from_element(map_), 0, 120).perform()
    page.until(lambda: page.run("return scrollY") > before, "the page scrolls")
    assert where(map_) == [0, 0, N, M]


def test_keys_zoom_and_move_and_zero_is_the_whole(page, map_):
    page.run("arguments[0].focus()", map_)
    page.press("+", "+", "+")
    top, left, high, wide = where(map_)
    assert wide == pytest.approx(M / 1.5**3)
    page.press(Keys.ARROW_RIGHT, Keys.ARROW_UP)
    assert where(map_) == pytest.approx([top - 0.2 * high, left + 0.2 * wide, high, wide])
    page.press("-")
    assert where(map_)[3] == pytest.approx(M / 1.5**2)
    page.press(*[Keys.ARROW_LEFT] * 9)
    assert where(map_)[1] == 0  # never beyond the map
    page.press("0")
    assert where(map_) == [0, 0, N, M]


def test_dragging_moves_and_does_not_pin(page, map_):
    page.run("arguments[0].focus()", map_)
    page.press("+", "+", "+", "+")
    top, left, _, wide = where(map_)
    page.run("arguments[0].scrollIntoView({block: 'center'})", map_)
    pinned = page.run("return regard.store.selection.key")
    ActionChains(page.driver, duration=20).click_and_hold(map_).move_by_offset(40, 0).move_by_offset(
        40, 0
    ).release().perform()
    moved = 80 * wide / map_.size["width"]
    assert where(map_)[:2] == pytest.approx([top, left - moved], rel=0.05)
    assert page.run("return regard.store.selection.key") == pinned
    ActionChains(page.driver).click(map_).perform()  # one that stays where it is pins what is there
    top, left, high, wide = where(map_)
    selection = page.run("return regard.store.selection")
    assert [selection["query"], selection["key"]] == pytest.approx([top + high / 2, left + wide / 2], abs=2)


def test_two_fingers_go_closer(page, map_):
    page.size(*PHONE)
    page.run("arguments[0].scrollIntoView({block: 'center'})", map_)
    box = page.run("const b = arguments[0].getBoundingClientRect(); return [b.x, b.y, b.width, b.height]", map_)
    x, y = box[0] + box[2] / 2, box[1] + box[3] / 2

    def touch(kind, *apart):
        points = [{"x": x + sign * d, "y": y, "id": k} for d in apart for k, sign in enumerate((-1, 1))]
        page.driver.execute_cdp_cmd("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})

    touch("touchStart", 20)
    for apart in (30, 45, 60):
        touch("touchMove", apart)
    touch("touchEnd")
    _, left, _, wide = where(map_)
    assert wide == pytest.approx(M / 3, rel=0.1)
    assert left + wide / 2 == pytest.approx(M / 2, rel=0.1)
    page.size(*WIDE)


def test_tokens_label_rows_and_columns_only_where_there_is_room(page, map_):
    assert page.texts(".row-names span, .column-names span") == []
    for _ in range(9):
        page.one("[aria-label='Zoom in']").click()
    top, left, high, wide = where(map_)
    rows = [f"r{i}" for i in range(int(top), int(np.ceil(top + high)))]
    columns = [f"c{j}" for j in range(int(left), int(np.ceil(left + wide)))]
    assert page.texts(".row-names span") == rows
    assert page.texts(".column-names span") == columns
    middle = "const b = arguments[0].getBoundingClientRect(); return b.top + b.height / 2"
    named = page.run(middle, page.one(f".row-names [data-index='{int(top) + 2}']"))
    frame = page.run("const b = arguments[0].getBoundingClientRect(); return [b.top, b.height]", map_)
    assert named == pytest.approx(frame[0] + frame[1] * (int(top) + 2.5 - top) / high, abs=1)


def test_another_head_keeps_the_zoom_and_another_inspection_resets_it(page):
    page.open("en-de")
    canvas = page.one(".large-map")
    page.one("[aria-label='Zoom in']").click()
    before = where(canvas)
    page.one(".cell[data-map='decoder.blocks.1.cross'][data-head='4']").click()
    assert where(canvas) == before
    page.read("A man is riding a horse.")
    top, left, high, wide = where(canvas)
    assert [top, left] == [0, 0]
    assert wide == page.run("return regard.store.map().m")
    assert high == page.run("return regard.store.map().n")


def test_the_chosen_small_map_is_scrolled_to_and_the_page_is_not(page):
    store = MapStore()
    for layer in range(40):
        found = (torch.full((1, 1, 5, 5), 0.2),)
        store.add(StoredMap(name=f"decoder.blocks.{layer}.mix", kind="align", heads=1, recorded=found))
    page.open("fill-en")
    page.show(StoredInspection(store, {"text": list("abcde")}, name="deep"))
    seen = """
    const box = document.querySelector(".grid-scroll").getBoundingClientRect();
    const cell = document.querySelector(".cell.chosen").getBoundingClientRect();
    return [cell.top >= box.top && cell.bottom <= box.bottom, scrollY];
    """
    assert page.run("return document.querySelector('.grid-scroll').scrollTop") > 100  # the last but one is chosen
    assert page.run(seen) == [True, 0]
    page.run("regard.store.select({ map: 'decoder.blocks.2.mix' })")
    assert page.run(seen) == [True, 0]

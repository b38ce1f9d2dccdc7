"""What a user does with a model that is changed, and in the lab, in a real browser."""

import pytest
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select

from .conftest import PHONE

INERT = "<img src=x onerror=document.title='broken'><script>document.title='broken'</script>"


def changes(page, model="en-de", chosen="decoder.blocks.2.cross", head=3):
    """The page with its pane of changes open and a head chosen."""
    page.open(model)
    page.one("#change-do")
    page.run("document.querySelector('#interventions').closest('details').open = true")
    page.one(f".cell[data-map='{chosen}'][data-head='{head}']").click()


def compared(page):
    """Wait for the two answers; the loss before and after."""
    page.until(lambda: page.all(".beside .pair") and not page.all(".beside.waiting"), "both answers are there")
    return float(page.text(".loss-before")), float(page.text(".loss-after"))


def click(page, element):
    page.run("arguments[0].scrollIntoView({block: 'center'})", element)
    element.click()


def test_a_head_is_switched_off_and_both_answers_stand_beside_one_another(page):
    changes(page)
    assert [one.get_attribute("aria-pressed") for one in page.all(".heads .head")].count("true") == 1
    click(page, page.one("#change-add"))
    before, after = compared(page)
    assert before > 0
    assert page.texts(".changes li span") == ["layer 2, cross-attention, head 3: switch off"]
    assert page.texts(".pair .answer")[0] == "Zwei Hunde spielen im Schnee."
    Select(page.one("#change-where")).select_by_index(1)
    for head in page.all(".heads .head[aria-pressed='false']"):
        click(page, head)
    click(page, page.one("#change-add"))
    page.until(lambda: len(page.all(".changes li")) == 2, "both changes are listed")
    page.until(
        lambda: float(page.text(".loss-after")) > after + 1, "without all cross-attention the loss is far higher"
    )
    assert page.texts(".pair .answer")[1] != page.texts(".pair .answer")[0]
    assert page.all("mark.new")


def test_the_changed_model_s_maps_are_shown_and_everything_can_be_undone(page):
    changes(page)
    click(page, page.one("#change-add"))
    compared(page)
    first = page.look()
    click(page, page.one("#change-show"))
    page.until(lambda: page.look() != first, "the changed look is shown")
    page.drawn()
    name = "decoder.blocks.2.cross"
    script = """
    const [head, done] = arguments;
    const wanted = new URLSearchParams({map: arguments[2] ?? "decoder.blocks.2.cross", head, query: 1, view: "raw"});
    fetch(`/explore/inspections/${document.documentElement.dataset.inspection}/row?${wanted}`)
      .then(r => r.arrayBuffer()).then(b => done(Array.from(new Float32Array(b))));
    """
    rows = [page.driver.execute_async_script(script, head) for head in (3, 4)]
    assert sum(rows[0]) == 0, name
    assert sum(rows[1]) == pytest.approx(1, abs=1e-4)
    assert len(page.all(".changes li")) == 1
    changed = page.look()
    click(page, page.one("#change-back"))
    page.until(lambda: page.look() != changed, "the input is read without changes")
    page.drawn()
    assert page.all(".changes li") == []
    assert sum(page.driver.execute_async_script(script, 3)) == pytest.approx(1, abs=1e-4)


def test_a_mask_is_drawn_by_mouse_and_by_keys(page):
    changes(page)
    Select(page.one("#change-do")).select_by_value("mask")
    canvas = page.one("#interventions canvas")
    click(page, page.one("#change-add"))
    assert "Draw at least one pair" in page.text("#interventions .refused")
    click(page, canvas)
    page.press(Keys.ARROW_LEFT, Keys.ENTER)
    click(page, page.one("#change-add"))
    compared(page)
    assert page.texts(".changes li span")[0].endswith("mask drawn pairs (2)")


def test_other_positions_change_the_whole_model(page):
    page.open("shakespeare")
    page.run("document.querySelector('#interventions').closest('details').open = true")
    Select(page.one("#change-do")).select_by_value("positions")
    click(page, page.one("#change-add"))
    before, after = compared(page)
    assert after > before + 0.5


def test_what_cannot_be_done_is_said_and_taken_back(page):
    changes(page)
    Select(page.one("#change-do")).select_by_value("identity")
    click(page, page.one("#change-add"))
    page.until(lambda: "another sequence" in page.text("#comparison .refused"), "why it cannot be done")
    assert page.all(".changes li") == []
    page.complaints()  # a browser writes a line for every 4xx


def test_pictures_can_be_changed_too(page):
    page.open("tiny-vit")
    page.run("document.querySelector('#interventions').closest('details').open = true")
    click(page, page.one("#change-add"))
    compared(page)
    assert len(page.all(".pair .shares")) == 2


# -- the lab -----------------------------------------------------------------------------------------------------------


def lab(page, room=None):
    page.driver.get("about:blank")
    page.driver.get(f"{page.address}/#lab")
    page.one(".six-table")
    if room:
        page.one(f".choice-one[data-value='{room}']").click()
        page.one(".lab-board canvas")


def cells(page, step):
    return page.texts(f".six-table tr[data-step='{step}'] td b")


def put(page, selector, value):
    field = page.one(selector)
    field.send_keys(Keys.CONTROL, "a")
    field.send_keys(value)


def test_thinking_machines_goes_112_14_088(page):
    lab(page)
    assert cells(page, 2) == ["112", "96"]
    assert cells(page, 3) == ["14", "12"]
    assert cells(page, 4) == ["0.88", "0.12"]
    assert page.text(".six-table tr[data-step='2'] small") == "8·10 + 4·4 + 4·4"


def test_a_changed_number_changes_all_that_follows(page):
    lab(page)
    put(page, "[data-cell='w_q-0-0']", "4")
    page.until(lambda: cells(page, 2) == ["102", "88"], "new scores")
    put(page, "#six-dk", "4")
    page.until(lambda: cells(page, 3) == ["51", "44"], "divided by two")
    page.all(".six-who button")[1].click()
    page.until(lambda: cells(page, 2) != ["102", "88"], "the other token's row")
    page.one("#six-add").click()
    page.until(lambda: len(cells(page, 2)) == 3, "three tokens")
    page.one("#six-reset").click()
    page.until(lambda: cells(page, 2) == ["112", "96"], "as in the lecture again")


def test_masks_and_matrices_are_drawn_on_ones_own_tokens(page):
    lab(page, "mechanisms")
    put(page, "#lab-tokens", "two dogs play")
    put(page, "#lab-mask", "causal")
    page.until(lambda: page.one(".lab-board").get_attribute("aria-busy") == "false", "both are answered")
    assert page.texts(".matrix-rows")[0].split() == ["two", "dogs", "play"]
    weights = page.all(".figures:not(.smalls) canvas")[2]
    page.hover(weights)  # its middle: dogs -> dogs
    page.until(lambda: "dogs → dogs" in page.texts(".matrix-status")[2], "the number of a cell")
    weights.send_keys(Keys.ARROW_RIGHT)
    page.until(lambda: ", masked" in page.texts(".matrix-status")[2], "the future")
    put(page, "#lab-mask", "cauusal")
    page.until(lambda: "did you mean 'causal'" in page.text("#lab .refused"), "a way to put it right")
    page.complaints()


def test_all_aligners_and_positions_of_the_tables_are_there(page):
    from regard.attention import ALIGNERS
    from regard.positions import POSITIONS

    lab(page, "aligners")
    page.one(".smalls[data-done]")
    assert [name.removesuffix(" ·") for name in page.texts(".lab-pick > span")] == list(ALIGNERS)
    page.all(".lab-pick")[8].click()
    page.until(lambda: "Gaussian-mixture" in page.text(".lab-formulas"), "the chosen one and its formula")
    page.one(".choice-one[data-value='positions']").click()
    page.until(lambda: len(page.all(".lab-position")) == len(POSITIONS), "all positions")


def test_script_in_tokens_is_inert(page):
    lab(page, "mechanisms")
    put(page, "#lab-tokens", INERT)
    page.until(lambda: any("onerror" in text for text in page.texts(".matrix-rows")), "shown as words")
    page.one(".choice-one[data-value='steps']").click()
    put(page, "[data-token='0']", "<b onclick=x>")
    page.until(lambda: "<b onclick=x>" in page.text(".six-follows"), "shown as words")
    assert page.run("return document.title") != "broken"
    assert page.run("return document.querySelectorAll('#lab img, #lab script').length") == 0


def test_the_gallery_has_a_card_for_every_mechanism_and_opens_it(page):
    from regard.attention import MECHANISMS

    lab(page, "gallery")
    page.until(lambda: len(page.all(".gallery-card")) == len(MECHANISMS), "a card for each")
    assert {card.get_attribute("id") for card in page.all(".gallery-card")} == {f"mechanism-{n}" for n in MECHANISMS}
    assert "O((N + M) D²)" in page.text("#mechanism-linear")
    click(page, page.one("#mechanism-linear button.gallery-name"))
    page.until(lambda: "re-bracket" in page.text(".lab-formulas"), "the mechanism by itself")
    assert page.one("#lab-mechanism").get_attribute("value") == "linear"


@pytest.mark.long
@pytest.mark.parametrize("room", ["steps", "mechanisms", "gallery", "aligners", "positions"])
def test_the_lab_fits_a_phone(page, room):
    page.size(*PHONE)
    lab(page, None if room == "steps" else room)
    assert page.run("return document.documentElement.scrollWidth") <= PHONE[0]

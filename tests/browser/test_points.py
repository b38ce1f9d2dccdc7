"""A point cloud on the explorer's page: it is turned by dragging and by arrows, points are pointed at and pinned."""

import pytest
import torch

import regard
from regard.modalities import PointPreprocess
from regard.tasks.points.point_classification import PointClassifier

from .conftest import WIDE, Page


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    from regard.serve.http import app, server
    from regard.serve.http.model_pool import ModelPool
    from regard.serve.http.settings import Settings

    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("models") / "points"
    model = regard.build("point_transformer", size="tiny", num_classes=3)
    regard.save(PointClassifier(model, ["cone", "cube", "disc"], PointPreprocess(60)), folder)
    pool = ModelPool([str(folder)], device="cpu")
    pool.load()
    with server.running_server(app.make_app(pool, Settings(explore=True))) as address:
        yield address


@pytest.fixture
def page(site, driver):
    found = Page(driver, site)
    found.size(*WIDE)
    found.media("light")
    found.open("points")  # its example is a torus
    yield found
    assert found.complaints() == []


def picture(page):
    return page.run("return document.querySelector('.panel.look canvas.points').toDataURL()")


def test_a_cloud_is_turned_and_a_point_is_pinned(page):
    from selenium.webdriver import ActionChains
    from selenium.webdriver.common.keys import Keys

    assert page.text(".output")  # the label
    canvas = page.one(".panel.look canvas.points")
    before = picture(page)
    page.run("arguments[0].focus()", canvas)
    page.press(Keys.ARROW_RIGHT, Keys.ARROW_UP)
    turned = page.until(lambda: picture(page) != before and picture(page), "arrows turn the cloud")
    page.run("arguments[0].scrollIntoView({block: 'center'})", canvas)
    drag = ActionChains(page.driver, duration=20).move_to_element_with_offset(canvas, -40, 0).click_and_hold()
    drag.move_by_offset(60, 20).release().perform()
    page.until(lambda: picture(page) != turned, "dragging turns the cloud")
    page.run("arguments[0].focus()", canvas)
    page.press("+", "+", Keys.ENTER)
    page.until(lambda: page.run("return regard.store.selection.query") is not None, "a point is pinned")
    number = page.run("return regard.store.selection.query") + 1
    assert f"point {number}" in canvas.get_attribute("aria-label")
    page.until(lambda: page.all(".weight-lists .list"), "its weights are listed")  # none, where a stage dropped it

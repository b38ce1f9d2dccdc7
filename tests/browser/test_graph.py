"""A graph on the explorer's page: its nodes are joined by edges, pointed at and pinned, by name. A place is typed."""

import pytest
import torch

import regard
from regard.modalities.graph_preprocess import GraphPreprocess
from regard.tasks.globe.place_classification import PlaceClassifier
from regard.tasks.graphs.graph_classification import GraphClassifier

from .conftest import WIDE, Page


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    from regard.serve.http import app, server
    from regard.serve.http.model_pool import ModelPool
    from regard.serve.http.settings import Settings

    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("models") / "graphs"
    places = PlaceClassifier(regard.build("siren", size="tiny", num_outputs=2), ["ocean", "land"])
    regard.save(places, folder.parent / "places")
    model = regard.build("graph_transformer", size="tiny", input_dim=1, num_outputs=2, position_dim=3, head="graph")
    regard.save(GraphClassifier(model, ["path", "ring"], GraphPreprocess(1, "laplacian", 3)), folder)
    pool = ModelPool([str(folder), str(folder.parent / "places")], device="cpu")
    pool.load()
    with server.running_server(app.make_app(pool, Settings(explore=True))) as address:
        yield address


@pytest.fixture
def page(site, driver):
    found = Page(driver, site)
    found.size(*WIDE)
    found.media("light")
    yield found
    assert found.complaints() == []


def test_a_node_is_pinned_and_what_it_attends_to_is_listed_by_name(page):
    from selenium.webdriver.common.keys import Keys

    page.open("graphs")  # its example is a molecule
    assert page.text(".output")  # the label
    canvas = page.one(".panel.look canvas.points")
    before = page.run("return arguments[0].toDataURL()", canvas)
    page.run("arguments[0].focus()", canvas)
    page.press("+", "+", Keys.ENTER)
    page.until(lambda: page.run("return regard.store.selection.query") is not None, "a node is pinned")
    pinned = page.run("return regard.store.selection.query")
    name = page.run("return regard.store.inspection.axes.nodes.tokens[arguments[0]]", pinned)
    assert f"node {name}" in canvas.get_attribute("aria-label")
    page.until(lambda: page.all(".weight-lists .list"), "its weights are listed")
    page.until(lambda: page.run("return arguments[0].toDataURL()", canvas) != before, "nodes are coloured")
    ends = page.run("return regard.store.inspection.axes.nodes.positions.map((each) => each.to.length)")
    assert sum(ends) == 2 * 15  # bonds of the molecule, in both directions
    page.run("arguments[0].focus()", canvas)
    turned = page.run("return arguments[0].toDataURL()", canvas)
    page.press(Keys.ARROW_RIGHT)
    page.until(lambda: page.run("return arguments[0].toDataURL()", canvas) != turned, "an arrow turns the graph")


def test_a_place_is_typed_as_a_text(page):
    page.driver.get(f"{page.address}/?model=places")
    page.until(lambda: "ocean" in page.text(".output"), "the first example is answered")
    assert page.one("#text").get_attribute("value") == PlaceClassifier.examples[0]

"""The explorer in a real Chromium: one server and one browser for all tests of this folder.

    def test_something(page):
        page.open("en-de")                      # a model; its first example is read and drawn
        page.hover(page.all(".panel.seen .chip")[2])

`page` waits for what it is asked for, and fails at the end of a test where the browser's console holds an error.
"""

from __future__ import annotations

import shutil
import time

import pytest

CHROMIUM, DRIVER = "/usr/bin/chromium", "/usr/bin/chromedriver"
WIDE, PHONE = (1400, 900), (390, 844)
PATIENCE = 40  # seconds: many tests share few cores


def pytest_collection_modifyitems(items):
    for item in items:
        if item.path.parent.name == "browser":
            item.add_marker(pytest.mark.browser)
            if not (shutil.which(CHROMIUM) and shutil.which(DRIVER)):
                item.add_marker(pytest.mark.skip(reason=f"needs {CHROMIUM} and {DRIVER}"))


@pytest.fixture(scope="session")
def served(tmp_path_factory):
    """A service with the explorer, its address and its looks: models that ship, a ViT and a CNN of random weights."""
    from regard.serve.http import app, server
    from regard.serve.http.model_pool import ModelPool
    from regard.serve.http.settings import Settings

    vit, cnn = (tmp_path_factory.mktemp("models") / name for name in ("tiny-vit", "tiny-cnn"))
    small_vit(vit)
    small_cnn(cnn)
    pool = ModelPool(
        [
            "en-de",
            "shakespeare",
            "fill-en",
            "languages",
            "digits",
            "pen-digits",
            "stories",
            "fashion",
            str(vit),
            str(cnn),
        ],
        device="cpu",
    )
    pool.load()
    made = app.make_app(pool, Settings(explore=True))
    with server.running_server(made) as address:
        yield address, made.state.inspections


def small_vit(folder):
    """A ViT of random weights, saved as a classifier of pictures: 7 x 7 patches and a class token."""
    import torch

    import regard
    from regard.modalities.image import Preprocess
    from regard.models.vit import Config, ViT
    from regard.tasks.image.image_classification import ImageClassifier

    torch.manual_seed(0)
    model = ViT(Config(num_classes=3, image_size=56, patch_size=8, width=24, heads=2, layers=2))
    regard.save(ImageClassifier(model, ["cat", "cup", "boat"], Preprocess(56)), folder)


def small_cnn(folder):
    """An EfficientNet-Lite of random weights, saved as a classifier of pictures."""
    import torch

    import regard
    from regard.modalities.image import Preprocess
    from regard.models.efficientnet_lite import SIZES
    from regard.tasks.image.image_classification import ImageClassifier

    torch.manual_seed(0)
    model = regard.build("efficientnet_lite", **SIZES["tiny"] | {"num_classes": 3, "image_size": 64})
    regard.save(ImageClassifier(model, ["cat", "cup", "boat"], Preprocess((64, 64))), folder)


@pytest.fixture(scope="session")
def driver():
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for word in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"):
        options.add_argument(word)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    made = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    made.set_script_timeout(PATIENCE)
    made.with_tour = without_tour(made)  # begins it again
    yield made
    made.quit()


def without_tour(driver):
    """Let the tour be seen already on every page to come; returns a function that ends this."""
    seen = "try { localStorage.setItem('regard-tour', 'seen') } catch {}"
    found = driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": seen})
    return lambda: driver.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", found)


@pytest.fixture
def page(served, driver):
    """The page, as wide as a desk, in light colours."""
    found = Page(driver, *served)
    found.size(*WIDE)
    found.media("light")
    yield found
    assert found.complaints() == []


def missing():
    """Panes of the page whose module is not there."""
    from importlib.resources import files

    panes = ("interventions.js", "export.js", "request.js", "search_view.js", "lab.js")
    return [pane for pane in panes if not files("regard.serve.explorer").joinpath("page", pane).is_file()]


class Page:
    """What a user does, and what they see."""

    def __init__(self, driver, address, looks=None):
        self.driver, self.address, self.inspections = driver, address, looks
        self.run("try { sessionStorage.clear() } catch {}")  # what the last test typed

    def open(self, model):
        """The page with a model, its first example read, its maps drawn."""
        self.driver.get("about:blank")
        self.driver.get(f"{self.address}/?model={model}")
        self.drawn()

    def show(self, look):
        """A look that was made here, on the page that is open."""
        self.inspections.add(look)
        self.run("regard.store.show(arguments[0])", look.about())
        self.drawn()

    def drawn(self):
        """Wait until the answer, the small maps and the lit tokens are there."""
        self.until(lambda: not self.one("html").get_attribute("class"), "reading ends")
        self.until(lambda: self.all(".cell") and not self.all(".cell:not(.drawn)"), "all small maps are drawn")

    def size(self, width, height):
        """As large as that, whatever the window is."""
        how = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", how)

    def media(self, scheme):
        """What the system likes: light or dark."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})

    def all(self, selector):
        """All elements of a selector."""
        return self.driver.find_elements("css selector", selector)

    def one(self, selector):
        """The first of them, waited for."""
        return self.until(lambda: next(iter(self.all(selector)), None), f"{selector} is there")

    def text(self, selector):
        """What stands in it."""
        return self.one(selector).text

    def texts(self, selector):
        """What stands in each."""
        return [each.text for each in self.all(selector)]

    def hover(self, element, right=0, down=0):
        """Point at an element, so many pixels from its middle."""
        from selenium.webdriver import ActionChains

        self.run("arguments[0].scrollIntoView({block: 'center'})", element)
        ActionChains(self.driver, duration=20).move_to_element_with_offset(element, right, down).perform()

    def press(self, *keys):
        """Keys, one after another."""
        from selenium.webdriver import ActionChains

        ActionChains(self.driver).send_keys(*keys).perform()

    def read(self, text):
        """Type a text, have it read, wait until it is shown."""
        field = self.one("#text")
        before = self.look()
        field.clear()
        field.send_keys(text)
        self.one("#read").click()
        self.until(lambda: self.look() != before, "another look is shown")
        self.drawn()

    def look(self):
        """The number of the look that is shown, as the server counts them."""
        return self.run("return document.documentElement.dataset.inspection")

    def run(self, script, *arguments):
        """JavaScript."""
        return self.driver.execute_script(script, *arguments)

    def until(self, seen, what, seconds=PATIENCE):
        """What `observe` gives as soon as that is something."""
        from selenium.common.exceptions import StaleElementReferenceException

        end = time.monotonic() + seconds
        while True:
            try:
                if found := seen():
                    return found
            except StaleElementReferenceException:
                pass
            assert time.monotonic() < end, f"waited {seconds} s and not seen: {what}"
            time.sleep(0.05)

    def complaints(self):
        """Errors in the browser's console since they were last asked for; panes that are not there are not wrong."""
        lines = [line["message"] for line in self.driver.get_log("browser") if line["level"] == "SEVERE"]
        return [line for line in lines if not any(f"/page/{pane}" in line for pane in missing())]

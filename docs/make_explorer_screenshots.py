"""Take the screenshots of docs/explorer.md into docs/assets/: the explorer in Chromium, with shipped models.

    python docs/make_explorer_screenshots.py

The image model is a small untrained ViT; its q and k weights are so large that its heads distinguish patches.
"""

from __future__ import annotations

import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

import regard
from regard.modalities.image import Preprocess
from regard.models.vit import Config, ViT
from regard.serve.http import app, server
from regard.serve.http.model_pool import ModelPool
from regard.serve.http.settings import Settings
from regard.tasks.image.image_classification import ImageClassifier

ASSETS = Path(__file__).resolve().parent / "assets"
CHROMIUM, DRIVER = "/usr/bin/chromium", "/usr/bin/chromedriver"
DESK, TALL, PHONE = (1400, 900), (1400, 1140), (390, 844)


def main() -> None:
    """Take all screenshots."""
    with TemporaryDirectory() as folder:
        save_untrained_vit(Path(folder) / "vit")
        pool = ModelPool(
            ["en-de", "shakespeare", "fill-en", "digits", "pen-digits", "minilm", f"vit={folder}/vit"], device="cpu"
        )
        pool.load()
        with server.running_server(app.make_app(pool, Settings(explore=True))) as address:
            browser = open_browser()
            take_screenshots(browser, address)
            browser.quit()


def save_untrained_vit(folder: Path) -> None:
    """Save a ViT of 14 x 14 patches with random weights."""
    torch.manual_seed(1)
    model = ViT(Config(num_classes=4, image_size=112, patch_size=8, width=48, heads=4, layers=4))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            factor = 9 if "qkv" in name else 3 if "stem" in name else 1
            if parameter.dim() > 1:
                parameter.mul_(factor)
    regard.save(ImageClassifier(model, ["cat", "dog", "cup", "boat"], Preprocess(112)), folder)


def take_screenshots(browser: Any, address: str) -> None:
    """Open pages, click, and save screenshots."""
    open_page(browser, address, "en-de", "light", DESK)
    click_on(browser, "#compare")
    save_picture(browser, "explorer-compare")
    open_page(browser, address, "en-de", "light", DESK)
    click_on(browser, ".example:nth-of-type(2)")
    time.sleep(3)
    switch_off(browser, ".cell.mean[data-map='decoder.blocks.0.cross']")
    save_picture(browser, "explorer-off")
    open_page(browser, address, "shakespeare", "light", TALL)
    click_on(browser, ".line:nth-child(3) .cell[data-head='1']")
    for _ in range(2):
        click_on(browser, "[aria-label='Zoom in']")
    save_picture(browser, "explorer-zoom")
    open_page(browser, address, "fill-en", "dark", DESK)
    click_on(browser, "[data-value=relevance]")
    save_picture(browser, "explorer-relevance")
    open_page(browser, address, "vit", "light", DESK)
    click_on(browser, ".cell[data-head='2']:last-child, .line:last-child .cell[data-head='2']")
    save_picture(browser, "explorer-picture")
    open_page(browser, address, "digits", "dark", DESK)
    save_picture(browser, "explorer-sound")
    open_page(browser, address, "pen-digits", "light", DESK)
    click_on(browser, ".panel.look .chip:nth-child(3)")
    save_picture(browser, "explorer-pen")
    open_page(browser, address, "minilm", "light", PHONE)
    browser.execute_script("document.querySelector('.middle').scrollIntoView(); window.scrollBy(0, -72)")
    save_picture(browser, "explorer-phone")


def open_page(browser: Any, address: str, model: str, scheme: str, size: tuple[int, int]) -> None:
    """Open the page with a model, in a window size and a colour scheme."""
    metrics = {"width": size[0], "height": size[1], "deviceScaleFactor": 1, "mobile": size == PHONE}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    browser.get("about:blank")
    browser.get(f"{address}/?model={model}")
    is_drawn = "return document.querySelector('.cell') && !document.querySelector('.cell:not(.drawn), html.busy')"
    while not browser.execute_script(is_drawn):
        time.sleep(0.1)


def click_on(browser: Any, selector: str) -> None:
    """Click an element."""
    browser.find_element("css selector", selector).click()


def switch_off(browser: Any, selector: str) -> None:
    """Switch the head under an element off, by a right click."""
    from selenium.webdriver import ActionChains

    ActionChains(browser).context_click(browser.find_element("css selector", selector)).perform()


def save_picture(browser: Any, name: str) -> None:
    """Save a screenshot once the page is still."""
    time.sleep(2)
    browser.save_screenshot(str(ASSETS / f"{name}.png"))
    print(ASSETS / f"{name}.png")


def open_browser() -> Any:
    """Start a headless browser."""
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for option in ("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"):
        options.add_argument(option)
    browser = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    tour_seen = "try { localStorage.setItem('regard-tour', 'seen') } catch {}"
    browser.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": tour_seen})
    return browser


if __name__ == "__main__":
    main()

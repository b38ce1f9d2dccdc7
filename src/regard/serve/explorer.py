"""The explorer over HTTP: the page, its files, and the routes that its panes ask.

Every module in ROUTES has ``routes(work, looks) -> APIRouter``; a pane with questions of its own adds its line here.
"""

from __future__ import annotations

import mimetypes
from importlib import import_module

from fastapi import FastAPI
from starlette.responses import Response

from regard.see.exported import PAGE
from regard.serve.errors import Wrong
from regard.serve.looks import Looks
from regard.serve.work import Work

ROUTES = (
    "regard.serve.looking",
    "regard.serve.theatre",
    "regard.serve.export",
    "regard.serve.interventions",
    "regard.serve.lab",
)  # fmt: skip

KINDS = {".js": "text/javascript", ".css": "text/css", ".html": "text/html", ".svg": "image/svg+xml"}


def add(app: FastAPI, work: Work) -> None:
    """The page and all that it asks for."""
    looks = Looks(work.settings.looks, work.settings.looked)
    app.state.looks = looks
    for module in ROUTES:
        app.include_router(import_module(module).routes(work, looks))

    @app.get("/", include_in_schema=False)
    async def page() -> Response:
        return file("index.html")

    @app.get("/page/{name}", include_in_schema=False)
    async def part(name: str) -> Response:
        return file(name)


def file(name: str) -> Response:
    """A file of the page. Its folder is flat, and only names that are in it are opened."""
    known = {entry.name: entry for entry in PAGE.iterdir() if entry.is_file()}
    ending = "." + name.rpartition(".")[2]
    if name not in known:
        raise Wrong(404, "there is no such file")
    kind = KINDS.get(ending) or mimetypes.guess_type(name)[0] or "application/octet-stream"
    return Response(known[name].read_bytes(), media_type=kind)

"""The explorer over HTTP: the page, its files, and the routes that its panes ask.

Every module in ROUTES has ``routes(jobs, inspections) -> APIRouter``; a pane with requests of its own adds its line.
"""

from __future__ import annotations

import mimetypes
from importlib import import_module

from fastapi import FastAPI
from starlette.responses import Response

from regard.see.html_export import PAGE
from regard.serve.explorer.cache import InspectionCache
from regard.serve.http.errors import ApiError
from regard.serve.http.jobs import Jobs

ROUTES = (
    "regard.serve.explorer.inspections",
    "regard.serve.explorer.search_trace",
    "regard.serve.explorer.export",
    "regard.serve.explorer.interventions",
    "regard.serve.explorer.lab",
)  # fmt: skip

MEDIA_TYPES = {".js": "text/javascript", ".css": "text/css", ".html": "text/html", ".svg": "image/svg+xml"}


def add_explorer(app: FastAPI, jobs: Jobs) -> None:
    """The page and all that it asks for."""
    inspections = InspectionCache(jobs.settings.max_inspections, jobs.settings.max_inspection_bytes)
    app.state.inspections = inspections
    for module in ROUTES:
        app.include_router(import_module(module).routes(jobs, inspections))

    @app.get("/", include_in_schema=False)
    async def page() -> Response:
        return page_file("index.html")

    @app.get("/page/{name}", include_in_schema=False)
    async def part(name: str) -> Response:
        return page_file(name)


def page_file(name: str) -> Response:
    """A file of the page. Its folder is flat, and only names that are in it are opened."""
    known = {entry.name: entry for entry in PAGE.iterdir() if entry.is_file()}
    ending = "." + name.rpartition(".")[2]
    if name not in known:
        raise ApiError(404, "there is no such file")
    kind = MEDIA_TYPES.get(ending) or mimetypes.guess_type(name)[0] or "application/octet-stream"
    return Response(known[name].read_bytes(), media_type=kind)

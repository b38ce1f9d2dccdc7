"""The page of a service: its models, a curl line for each that can be pasted, and all routes, from the OpenAPI schema.

GET /docs     the page, one HTML file without scripts
GET /         the same for a browser, a few lines of JSON for others; with the explorer, the explorer
"""

from __future__ import annotations

import base64
import hashlib
import json
import shlex
from typing import Any

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response

from regard.core.html import escape
from regard.serve.http.model_pool import ModelPool
from regard.serve.http.settings import Settings
from regard.tasks.predictor import Predictor

FILES = {
    "image": "photo.jpg",
    "audio": "recording.wav",
    "points": "points.ply",
    "graph": "graph.edges",
}  # placeholders, by kind of input
STYLE = """
:root { color-scheme: light dark; --soft: #5b616c; --rule: #e7e4de; --wash: #f3f1ec; --link: #2a66b8; }
@media (prefers-color-scheme: dark) { :root { --soft: #9ca2ad; --rule: #292d36; --wash: #1f232b; --link: #7db4f5; } }
body { max-width: 900px; margin: 0 auto; padding: 24px 18px 60px; font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 24px; } h2 { font-size: 18px; margin-top: 36px; } h3 { font-size: 15px; margin: 22px 0 6px; }
a { color: var(--link); }
p { margin: 4px 0; color: var(--soft); }
pre { margin: 6px 0; padding: 10px 12px; border-radius: 8px; background: var(--wash); font: 13px/1.5 ui-monospace,
  "DejaVu Sans Mono", monospace; white-space: pre-wrap; overflow-wrap: anywhere; }
details { border-top: 1px solid var(--rule); padding: 6px 0; } summary { cursor: pointer; overflow-wrap: anywhere; }
summary b { font: 600 13px ui-monospace, "DejaVu Sans Mono", monospace; }
"""
POLICY = (
    f"default-src 'none'; style-src 'sha256-{base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()}'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


def add_docs(app: FastAPI, pool: ModelPool, settings: Settings) -> None:
    """Add /docs, and / where the explorer is not there."""

    def page(request: Request) -> Response:
        content = docs_page(app, pool, str(request.base_url).rstrip("/"), settings.token is not None)
        return HTMLResponse(content, headers={"Content-Security-Policy": POLICY})

    @app.get("/docs", include_in_schema=False)
    async def docs(request: Request) -> Response:
        return page(request)

    if settings.explore:
        return

    @app.get("/", include_in_schema=False)
    async def root(request: Request) -> Response:
        if "text/html" in request.headers.get("accept", ""):
            return page(request)
        found = {"service": app.title, "version": app.version, "models": pool.names()}
        return JSONResponse(found | {"docs": "/docs", "schema": "/openapi.json", "run": "POST /v1/run/MODEL"})


def curl_line(address: str, name: str, cls: type[Predictor], with_token: bool = False) -> str:
    """Return a command for a shell that runs a model on its first example; a file stands for one of the reader's."""
    words = ["curl", f"{address}/v1/run/{name}"]
    if with_token:
        words += ["-H", "Authorization: Bearer TOKEN"]
    example = next(iter(cls.examples), "")
    if any(kind.media_types for kind in cls.inputs.values()):
        for field, kind in cls.inputs.items():
            words += ["-F", f"{field}=@{FILES.get(kind.kind, 'file')}" if kind.media_types else f"{field}=TEXT"]
    else:
        item = example or (dict.fromkeys(cls.inputs, "") if len(cls.inputs) > 1 else "")
        words += ["-H", "Content-Type: application/json", "-d", json.dumps({"inputs": [item]}, ensure_ascii=False)]
    return shlex.join(words)


def docs_page(app: FastAPI, pool: ModelPool, address: str, with_token: bool = False) -> str:
    """Return the page."""
    schema = app.openapi()
    parts = [f"<h1>{escape(app.title)} {escape(app.version)}</h1>", _links(address)]
    if with_token:
        parts.append("<p>Every request needs the token of this service: put it in place of TOKEN.</p>")
    parts.append("<h2>Models</h2>")
    for name in pool.names():
        if (cls := pool.predictor_class(name)) is None:
            cls = type(pool.get(name)) if pool.loaded else None
        parts.append(f"<h3>{escape(name)}</h3>")
        if cls is not None:
            reads = ", ".join(f"{field} ({kind.kind})" for field, kind in cls.inputs.items())
            parts.append(f"<p>{escape(reads)} → {escape(cls.outputs.kind.replace('_', ' '))}</p>")
            parts.append(f"<pre>{escape(curl_line(address, name, cls, with_token))}</pre>")
    parts.append("<h2>Requests</h2>")
    parts += [_operation(path, how, what) for path, ways in schema["paths"].items() for how, what in ways.items()]
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1"><style>{STYLE}'
    title = f"<title>{escape(app.title)}: the service</title>"
    return f'<!doctype html><html lang="en"><head>{head}</style>{title}</head><body>{"".join(parts)}</body></html>'


def _links(address: str) -> str:
    links = ("/v1/models", "/openapi.json", "/health", "/metrics")
    found = " · ".join(f'<a href="{link}">{link}</a>' for link in links)
    return f"<p>at {escape(address)}: {found}</p>"


def _operation(path: str, how: str, what: dict[str, Any]) -> str:
    """Return one route: what it does, and the schema of what it takes."""
    about = what.get("description") or what.get("summary") or ""
    taken = {kind: each["schema"] for kind, each in what.get("requestBody", {}).get("content", {}).items()}
    taken |= {each["name"]: each.get("schema", {}) for each in what.get("parameters", ())}
    schemas = "".join(
        f"<p>{escape(name)}</p><pre>{escape(json.dumps(each, indent=1, ensure_ascii=False))}</pre>"
        for name, each in taken.items()
    )
    return f"<details><summary><b>{how.upper()} {escape(path)}</b> {escape(about)}</summary>{schemas}</details>"

"""The pages of a service for people: ``/`` lists its models, ``/docs`` every route, each with a curl line to paste.

They are made from the declarations of the predictors, as /openapi.json is, and load nothing but one style sheet of the
same service.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

import regard
from regard.core.html import escape
from regard.serve.http.model_pool import ModelPool
from regard.serve.http.routes import VERBS
from regard.serve.http.settings import Settings
from regard.tasks.predictor import Predictor

STYLE = """\
:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif }
body { max-width: 60rem; margin: 2rem auto; padding: 0 1rem }
pre { overflow-x: auto; padding: .7rem 1rem; border-radius: .4rem; background: #8881 }
code, pre { font: 14px/1.5 ui-monospace, monospace }
table { border-collapse: collapse; width: 100% }
th, td { text-align: left; vertical-align: top; padding: .25rem .8rem .25rem 0; border-bottom: 1px solid #8883 }
h2 { margin-top: 2.2rem; overflow-wrap: anywhere }
.scroll { overflow-x: auto }
"""
FILES = {"image": ("image/png", "photo.png"), "audio": ("audio/wav", "recording.wav"), "points": ("", "points.json")}


def add_docs(app: FastAPI, pool: ModelPool, settings: Settings) -> None:
    """Add the pages; ``/`` is the explorer's where there is one."""

    @app.get("/docs", include_in_schema=False)
    async def docs(request: Request) -> Response:
        return HTMLResponse(_page("Regard: the routes of this service", _routes(pool, _base(request), settings)))

    @app.get("/docs.css", include_in_schema=False)
    async def style() -> Response:
        return Response(STYLE, media_type="text/css")

    if not settings.explore:

        @app.get("/", include_in_schema=False)
        async def index(request: Request) -> Response:
            return HTMLResponse(_page("Regard: models of this service", _models(pool, _base(request), settings)))


def curl_line(cls: type[Predictor], url: str, settings: Settings | None = None) -> str:
    """Return a curl command that asks a model of this class for one answer."""
    token = ' -H "Authorization: Bearer $REGARD_TOKEN"' if settings is not None and settings.token else ""
    kinds = [kind.kind for kind in cls.inputs.values()]
    if len(kinds) == 1 and FILES.get(kinds[0], ("",))[0]:
        media, file = FILES[kinds[0]]
        return f"curl {url}{token} -H 'Content-Type: {media}' --data-binary @{file}"
    if any(kind in FILES and FILES[kind][0] for kind in kinds):  # several fields, one of them a file
        parts = (
            f"-F {name}={f'@{FILES[kind][1]}' if kind in FILES else shlex.quote(_example_value(kind))}"
            for name, kind in zip(cls.inputs, kinds, strict=True)
        )
        return f"curl {url}{token} {' '.join(parts)}"
    example = cls.examples[0] if cls.examples else _example_item(cls)
    body = json.dumps({"inputs": [example]}, ensure_ascii=False)
    return f"curl {url}{token} -H 'Content-Type: application/json' -d {shlex.quote(body)}"


def _example_item(cls: type[Predictor]) -> Any:
    values = {name: _example_value(kind.kind) for name, kind in cls.inputs.items()}
    return values if len(values) > 1 else next(iter(values.values()))


def _example_value(kind: str) -> Any:
    """Return a value of a kind of input of which a class gives no example."""
    known = {
        "text": "What is this?",
        "number": 0,
        "points": [[0, 0, 0], [0, 0, 1], [0, 1, 0], [1, 0, 0], [1, 1, 1]],
        "graph": {"nodes": 3, "edges": [[0, 1], [1, 2]]},
    }
    return known.get(kind, "...")


# -- the pages ---------------------------------------------------------------------------------------------------------


def _models(pool: ModelPool, base: str, settings: Settings) -> Iterator[str]:
    yield "<h1>Models of this service</h1>"
    names = [(name, pool.known_class(name)) for name in pool.names()]
    yield _table(
        ("model", "reads", "answers"),
        ((_link(f"/docs#{name}", name), *_kinds(cls)) for name, cls in names),
    )
    yield f"<p>{_link('/docs', 'All routes')}, each with a curl line; {_link('/openapi.json', 'the schema')} for "
    yield f"programs; {_link('/v1/models', 'the models')} as OpenAI lists them; {_link('/metrics', 'metrics')}.</p>"
    first = next(((name, cls) for name, cls in names if cls is not None), None)
    if first is not None:
        yield f"<p>Ask {_code(first[0])}:</p>{_block(curl_line(first[1], f'{base}/v1/run/{first[0]}', settings))}"


def _routes(pool: ModelPool, base: str, settings: Settings) -> Iterator[str]:
    yield f"<h1>Routes</h1><p>{_link('/', 'Models')} &middot; {_link('/openapi.json', 'the schema for programs')}</p>"
    if settings.token:
        yield "<p>This service needs a token: set <code>REGARD_TOKEN</code> in your shell.</p>"
    known = {name: cls for name in pool.names() if (cls := pool.known_class(name)) is not None}
    for name in pool.names():
        yield f'<h2 id="{escape(name)}">POST /v1/run/{escape(name)}</h2>'
        cls = known.get(name)
        if cls is None:
            yield "<p>Read from a folder of another library; its schema is known once it is loaded.</p>"
            continue
        reads, answers = _kinds(cls)
        yield f"<p>Reads {reads}, answers {answers}.</p>{_block(curl_line(cls, f'{base}/v1/run/{name}', settings))}"
        options = cls.options_schema()["properties"]
        if options:
            yield "<p>Options:</p>"
            yield _table(("option", "default", "range", "what it does"), map(_option, options.items()))
    yield "<h2>POST /v1/VERB</h2><p>The first model that can, or the one that <code>model</code> names.</p>"
    verbs = ((verb, [name for name, cls in known.items() if what.runs(cls)]) for verb, what in VERBS.items())
    yield _table(
        ("route", "models"), ((_code(f"/v1/{verb}"), escape(", ".join(names))) for verb, names in verbs if names)
    )
    yield "<h2>For OpenAI's clients</h2><p><code>POST /v1/completions</code>, <code>GET /v1/models</code></p>"
    yield "<h2>The service</h2><p><code>GET /health</code>, <code>/ready</code>, <code>/metrics</code></p>"


def _option(named: tuple[str, Mapping[str, Any]]) -> tuple[str, str, str, str]:
    name, schema = named
    default = json.dumps(schema["default"]) if schema.get("default") is not None else ""
    low, high = (schema.get(key) for key in ("minimum", "maximum"))
    span = f"{'' if low is None else low} to {'' if high is None else high}" if (low, high) != (None, None) else ""
    if "enum" in schema:
        span = ", ".join(map(str, schema["enum"]))
    return _code(name), _code(default) if default else "", escape(span), escape(schema.get("description", ""))


def _kinds(cls: type[Predictor] | None) -> tuple[str, str]:
    if cls is None:
        return "", ""
    return escape(", ".join(f"{name}" for name in cls.inputs)), escape(cls.outputs.kind.replace("_", " "))


def _base(request: Request) -> str:
    """Return the address that the client used; the middleware has checked the host."""
    return f"{request.url.scheme}://{request.headers['host']}"


def _page(title: str, parts: Iterable[str]) -> str:
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{escape(title)}</title>'
    foot = f"<p><small>Regard {regard.__version__}. This page loads nothing from elsewhere.</small></p>"
    style = '<link rel="stylesheet" href="/docs.css">'
    return f'<!doctype html><html lang="en"><head>{head}{style}</head><body>{"".join(parts)}{foot}</body></html>'


def _table(columns: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    heading = "".join(f"<th>{column}</th>" for column in columns)
    lines = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    return f'<div class="scroll"><table><tr>{heading}</tr>{lines}</table></div>'


def _block(text: str) -> str:
    return f"<pre><code>{escape(text)}</code></pre>"


def _code(text: str) -> str:
    return f"<code>{escape(text)}</code>"


def _link(address: str, text: str) -> str:
    return f'<a href="{escape(address)}">{escape(text)}</a>'

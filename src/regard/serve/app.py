"""All routes of the service, in one app: ``make(Host(["en-de"]), Settings())``.

    GET  /health /ready /metrics /openapi.json /v1/models
    POST /v1/translate /v1/generate /v1/fill /v1/classify /v1/embed /v1/transcribe /v1/pronounce
    POST /v1/completions            as OpenAI's clients ask (serve.completions)
    GET  / /page/... /explore/...   with Settings(explore=True) (serve.explorer)

Every request passes serve.guard first; what goes wrong becomes JSON in serve.errors.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import PlainTextResponse, Response

import regard
from regard.serve import completions, errors, explorer, models
from regard.serve.guard import Guard
from regard.serve.host import Host
from regard.serve.metrics import memory
from regard.serve.settings import Settings
from regard.serve.shapes import ModelCard, Models, Status
from regard.serve.work import Work


def make(host: Host, settings: Settings | None = None) -> FastAPI:
    """The service over these models."""
    settings = settings or Settings()

    @asynccontextmanager
    async def life(_: FastAPI) -> AsyncIterator[None]:
        loading = asyncio.ensure_future(asyncio.to_thread(host.load))
        loading.add_done_callback(_loaded)
        yield
        loading.cancel()
        await asyncio.to_thread(host.close, settings.grace)

    app = FastAPI(
        title="Regard",
        summary="Models that attend, and what they attend to.",
        version=regard.__version__,
        docs_url=None,  # their pages come from elsewhere; nothing here does
        redoc_url=None,
        redirect_slashes=False,
        lifespan=life,
        responses=errors.RESPONSES,
    )
    app.state.host, app.state.settings = host, settings
    errors.install(app)
    _about(app, host)
    work = Work(host, settings)
    app.include_router(models.routes(work))
    app.include_router(completions.routes(work))
    if settings.explore:
        explorer.add(app, work)
    if settings.origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(settings.origins),
            allow_methods=["GET", "POST"],
            allow_headers=["Authorization", "Content-Type"],
        )
    app.add_middleware(Guard, host=host, settings=settings)  # the last that is added is the first that is passed
    host.metrics.gauge("regard_memory_bytes", "Memory of this process.", "", lambda: {"": memory()})
    return app


def _loaded(loading: asyncio.Future[None]) -> None:
    """Models that could not be loaded are said once; whoever asks for one hears it again."""
    if not loading.cancelled() and (error := loading.exception()) is not None:
        errors.log.error("a model could not be loaded: %s", error)


def _about(app: FastAPI, host: Host) -> None:
    """How it is, and what it has."""

    @app.get("/health", tags=["service"])
    async def health() -> Status:
        """It runs."""
        return Status(status="ok")

    @app.get("/ready", tags=["service"], response_model=Status)
    async def ready() -> Any:
        """It takes requests: all models are loaded, and it is not about to stop."""
        if host.closing:
            return errors.problem(503, "the service is about to stop", after=5)
        if not host.loaded:
            return errors.problem(503, "models are still being loaded", after=2)
        return Status(status="ready")

    @app.get("/metrics", tags=["service"], response_class=PlainTextResponse)
    async def metrics() -> Response:
        """Numbers for Prometheus."""
        return PlainTextResponse(host.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    @app.get("/v1/models", tags=["models"])
    async def known() -> Models:
        """The models of this service."""
        await asyncio.to_thread(host.load)
        return Models(data=[ModelCard(id=name, task=host.task(name)) for name in host.names()])

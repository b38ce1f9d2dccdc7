"""All routes of the service, in one app: ``make(ModelPool(["en-de"]), Settings())``.

    GET  /health /ready /metrics /openapi.json /v1/models
    POST /v1/translate /v1/generate /v1/fill /v1/classify /v1/embed /v1/transcribe /v1/pronounce
    POST /v1/run/NAME               any model, as its predictor declares (serve.http.run_routes)
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
from regard.serve.explorer.routes import add_explorer
from regard.serve.http import completions, errors, routes, run_routes
from regard.serve.http.jobs import Jobs
from regard.serve.http.metrics import memory
from regard.serve.http.middleware import SecurityMiddleware
from regard.serve.http.model_pool import ModelPool
from regard.serve.http.schemas import ModelCard, ModelList, Status
from regard.serve.http.settings import Settings


def make_app(pool: ModelPool, settings: Settings | None = None) -> FastAPI:
    """The service over these models."""
    settings = settings or Settings()

    @asynccontextmanager
    async def life(_: FastAPI) -> AsyncIterator[None]:
        loading = asyncio.ensure_future(asyncio.to_thread(pool.load))
        loading.add_done_callback(_log_load_error)
        yield
        loading.cancel()
        await asyncio.to_thread(pool.close, settings.shutdown_timeout)

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
    app.state.pool, app.state.settings = pool, settings
    errors.install_handlers(app)
    _add_service_routes(app, pool)
    jobs = Jobs(pool, settings)
    app.include_router(routes.routes(jobs))
    app.include_router(completions.routes(jobs))
    app.include_router(run_routes.routes(jobs))
    if settings.explore:
        add_explorer(app, jobs)
    if settings.cors_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(settings.cors_origins),
            allow_methods=["GET", "POST"],
            allow_headers=["Authorization", "Content-Type"],
        )
    app.add_middleware(
        SecurityMiddleware, pool=pool, settings=settings
    )  # the last that is added is the first that is passed
    pool.metrics.gauge("regard_memory_bytes", "Memory of this process.", "", lambda: {"": memory()})
    return app


def _log_load_error(loading: asyncio.Future[None]) -> None:
    """Models that could not be loaded are said once; whoever asks for one hears it again."""
    if not loading.cancelled() and (error := loading.exception()) is not None:
        errors.log.error("a model could not be loaded: %s", error)


def _add_service_routes(app: FastAPI, pool: ModelPool) -> None:
    """How it is, and what it has."""

    @app.get("/health", tags=["service"])
    async def health() -> Status:
        """It runs."""
        return Status(status="ok")

    @app.get("/ready", tags=["service"], response_model=Status)
    async def ready() -> Any:
        """It takes requests: all models are loaded, and it is not about to stop."""
        if pool.closing:
            return errors.error_response(503, "the service is about to stop", retry_after=5)
        if not pool.loaded:
            return errors.error_response(503, "models are still being loaded", retry_after=2)
        return Status(status="ready")

    @app.get("/metrics", tags=["service"], response_class=PlainTextResponse)
    async def metrics() -> Response:
        """Numbers for Prometheus."""
        return PlainTextResponse(pool.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    @app.get("/v1/models", tags=["models"])
    async def known() -> ModelList:
        """The models of this service."""
        await asyncio.to_thread(pool.load)
        return ModelList(data=[ModelCard(id=name, task=pool.task(name)) for name in pool.names()])

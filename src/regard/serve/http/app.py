"""The service as a FastAPI app with all its routes: ``make_app(ModelPool(["en-de"]), Settings())``.

    GET  /health /ready /metrics /openapi.json /v1/models
    GET  / /docs                    the page of the service (serve.http.docs_page)
    POST /v1/run/NAME               any model, as its predictor declares (serve.http.routes)
    POST /v1/VERB                   the same for the first model that can translate, generate, classify, ...
    POST /v1/completions            compatible with OpenAI's clients (serve.http.completions)
    GET  / /page/... /explore/...   with Settings(explore=True) (serve.explorer)

Requests pass serve.http.middleware first; errors become JSON in serve.http.errors.
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
from regard.serve.http import completions, errors, routes
from regard.serve.http.docs_page import add_docs
from regard.serve.http.jobs import Jobs
from regard.serve.http.metrics import memory
from regard.serve.http.middleware import SecurityMiddleware
from regard.serve.http.model_pool import ModelPool
from regard.serve.http.schemas import ModelCard, ModelList, Status
from regard.serve.http.settings import Settings


def make_app(pool: ModelPool, settings: Settings | None = None) -> FastAPI:
    """Return the service of some models."""
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
        docs_url=None,  # FastAPI's pages load scripts from other servers; ours is docs_page
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
    add_docs(app, pool, settings)
    if settings.explore:
        add_explorer(app, jobs)
    if settings.cors_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(settings.cors_origins),
            allow_methods=["GET", "POST"],
            allow_headers=["Authorization", "Content-Type"],
        )
    app.add_middleware(SecurityMiddleware, pool=pool, settings=settings)  # added last, so it runs first
    pool.metrics.gauge("regard_memory_bytes", "Memory of this process.", "", lambda: {"": memory()})
    return app


def _log_load_error(loading: asyncio.Future[None]) -> None:
    """Log why a model could not be loaded; a request to it gets the error again."""
    if not loading.cancelled() and (error := loading.exception()) is not None:
        errors.log.error("A model could not be loaded: %s", error)


def _add_service_routes(app: FastAPI, pool: ModelPool) -> None:
    """Add the routes on the service itself: health, readiness, metrics and the list of models."""

    @app.get("/health", tags=["service"])
    async def health() -> Status:
        """Whether the service runs."""
        return Status(status="ok")

    @app.get("/ready", tags=["service"], response_model=Status)
    async def ready() -> Any:
        """Whether the service takes requests: all models are loaded, and it is not stopping."""
        if pool.closing:
            return errors.error_response(503, "The service is stopping.", retry_after=5)
        if not pool.loaded:
            return errors.error_response(503, "Models are still being loaded.", retry_after=2)
        return Status(status="ready")

    @app.get("/metrics", tags=["service"], response_class=PlainTextResponse)
    async def metrics() -> Response:
        """Metrics for Prometheus."""
        return PlainTextResponse(pool.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    @app.get("/v1/models", tags=["models"])
    async def known() -> ModelList:
        """The models of this service."""
        await asyncio.to_thread(pool.load)
        return ModelList(data=[ModelCard(id=name, task=pool.task(name)) for name in pool.names()])

"""Export of an inspection, ``GET /explore/inspections/{id}/export``: one page that needs no server, or JSON."""

from __future__ import annotations

import asyncio
import json
import re
from contextlib import suppress
from typing import Annotated, Any, Literal

import numpy as np
from fastapi import APIRouter, Query
from starlette.responses import Response

from regard.interpret.inspection import Inspection
from regard.see.html_export import render_html, to_json
from regard.serve.explorer.cache import InspectionCache
from regard.serve.explorer.snapshot import all_relevances, take_snapshot
from regard.serve.http.batching import DeadlineExceeded, QueueFull
from regard.serve.http.jobs import Jobs

EXPORT_RESPONSES: dict[int | str, dict[str, Any]] = {
    200: {
        "content": {
            "text/html": {"schema": {"type": "string"}},
            "application/json": {"schema": {"type": "object"}},
        }
    }
}


def routes(jobs: Jobs, inspections: InspectionCache) -> APIRouter:
    """The one route."""
    router = APIRouter(prefix="/explore", tags=["explorer"])

    @router.get("/inspections/{id}/export", responses=EXPORT_RESPONSES, response_class=Response)
    async def export(id: str, format: Annotated[Literal["html", "json"], Query()] = "html") -> Response:
        """One HTML file that works from disk, or all weights as JSON; a browser saves it."""
        inspection = inspections.get(id)
        relevance = None
        if format == "html":
            with suppress(DeadlineExceeded, QueueFull):  # a file without it is better than none
                relevance = await jobs.pool.run(
                    inspection.model, lambda _: all_relevances(inspection), jobs.settings.timeout
                )
        content = await asyncio.to_thread(export_file, inspection, format, relevance)
        name = re.sub(r"[^A-Za-z0-9.-]+", "-", inspection.model)[:60] or "inspection"
        headers = {"Content-Disposition": f'attachment; filename="regard-{name}.{format}"'}
        kind = "text/html" if format == "html" else "application/json"
        return Response(content, headers=headers, media_type=kind)

    return router


def export_file(inspection: Inspection, format: str = "html", relevance: np.ndarray | None = None) -> bytes:
    """The file of an inspection."""
    snapshot = take_snapshot(inspection, relevance=relevance)
    if format == "html":
        return render_html(snapshot).encode("utf-8")
    return json.dumps(to_json(snapshot), separators=(",", ":")).encode("ascii")

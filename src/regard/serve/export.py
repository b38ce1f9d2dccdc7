"""A look to take away: ``GET /explore/looks/{id}/export``, as one page that needs no server, or as numbers."""

from __future__ import annotations

import asyncio
import json
import re
from contextlib import suppress
from typing import Annotated, Any, Literal

import numpy as np
from fastapi import APIRouter, Query
from starlette.responses import Response

from regard.see.exported import numbers, page
from regard.serve.batching import Busy, Late
from regard.serve.looks import Looks
from regard.serve.taking import relevances, take
from regard.serve.work import Work
from regard.tasks.look import Look

FILES: dict[int | str, dict[str, Any]] = {
    200: {
        "content": {
            "text/html": {"schema": {"type": "string"}},
            "application/json": {"schema": {"type": "object"}},
        }
    }
}


def routes(work: Work, looks: Looks) -> APIRouter:
    """The one route."""
    router = APIRouter(prefix="/explore", tags=["explorer"])

    @router.get("/looks/{id}/export", responses=FILES, response_class=Response)
    async def export(id: str, format: Annotated[Literal["html", "json"], Query()] = "html") -> Response:
        """One HTML file that works from disk, or all weights as JSON; a browser saves it."""
        look = looks.get(id)
        relevance = None
        if format == "html":
            with suppress(Late, Busy):  # a file without it is better than none
                relevance = await work.host.run(look.model, lambda _: relevances(look), work.settings.deadline)
        content = await asyncio.to_thread(exported, look, format, relevance)
        name = re.sub(r"[^A-Za-z0-9.-]+", "-", look.model)[:60] or "look"
        headers = {"Content-Disposition": f'attachment; filename="regard-{name}.{format}"'}
        kind = "text/html" if format == "html" else "application/json"
        return Response(content, headers=headers, media_type=kind)

    return router


def exported(look: Look, format: str = "html", relevance: np.ndarray | None = None) -> bytes:
    """The file of a look."""
    taken = take(look, relevance=relevance)
    if format == "html":
        return page(taken).encode("utf-8")
    return json.dumps(numbers(taken), separators=(",", ":")).encode("ascii")

"""The search view over HTTP: the trace of a search as JSON (interpret.search_trace).

    GET  /explore/search        the models that search, the methods of each, and the default settings
    POST /explore/search        {"model", "inputs": {"text"}, "search": {"method", "beam_size", ...}}; a recording comes
                                in a form, or from a stored inspection: {"model", "inspection": id, "search"}

The search runs on the model's own thread, so that no other request is captured in its maps.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import asdict
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Request
from pydantic import BaseModel, Field
from starlette.responses import Response

from regard.core.errors import BadInput
from regard.modalities.audio import Audio
from regard.modalities.base import Limits
from regard.serve.explorer.cache import InspectionCache
from regard.serve.http.errors import ApiError
from regard.serve.http.jobs import Jobs
from regard.serve.http.schemas import BaseRequest, parse_request
from regard.serve.http.uploads import media_type, read_file, read_json

MAX_AUDIO_SECONDS = 20.0  # of a recording that is followed


class SearchOptions(BaseRequest):
    """Settings of the search; a method ignores the settings that it does not have."""

    method: Literal["beam", "greedy", "diverse", "sample"] | None = None
    beam_size: Annotated[int, Field(ge=1, le=8)] = 4
    groups: Annotated[int, Field(ge=1, le=8)] = 2
    diversity: Annotated[float, Field(ge=0, le=20)] = 0.5
    length_penalty: Annotated[float, Field(ge=-2, le=4)] = 1.0
    num_candidates: Annotated[int, Field(ge=1, le=8)] = 1
    temperature: Annotated[float, Field(ge=0.05, le=10)] = 1.0
    top_k: Annotated[int, Field(ge=0, le=2**20)] = 0
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    min_p: Annotated[float, Field(ge=0, le=1)] = 0.0
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 0
    max_new_tokens: Annotated[int, Field(ge=1, le=128)] = 40
    prefix: Annotated[str, Field(max_length=200)] = ""


class SearchInput(BaseRequest):
    """The input of the search."""

    text: Annotated[str, Field(max_length=2000)] | None = None


class SearchTraceRequest(BaseRequest):
    """A search to trace."""

    model: Annotated[str, Field(min_length=1, max_length=200)]
    inputs: SearchInput = SearchInput()
    inspection: Annotated[str | None, Field(max_length=64, description="Use the inputs of this inspection.")] = None
    search: SearchOptions = SearchOptions()


class SearchingModel(BaseModel):
    """A model that searches."""

    name: str
    task: str
    input: str
    methods: list[str]


class SearchingModels(BaseModel):
    """All models that search, and the default settings."""

    models: list[SearchingModel]
    defaults: dict[str, Any]


def routes(jobs: Jobs, inspections: InspectionCache) -> APIRouter:
    """Return the routes of the search view."""
    from regard.interpret.search_trace import SearchTraceConfig, search_methods, trace_search

    router = APIRouter(prefix="/explore", tags=["explorer"])

    @router.get("/search")
    async def plays() -> SearchingModels:
        """The models that search, and the methods of each."""
        await asyncio.to_thread(jobs.pool.load)
        every = {name: jobs.pool.get(name) for name in jobs.pool.names()}
        models = [
            SearchingModel(
                name=name,
                task=jobs.pool.task(name),
                input="audio" if "audio" in getattr(one, "inputs", ()) else "text",
                methods=methods,
            )
            for name, one in every.items()
            if (methods := search_methods(one))
        ]
        return SearchingModels(models=models, defaults=asdict(SearchTraceConfig()))

    @router.post("/search", openapi_extra=_bodies(), response_model=dict[str, Any])
    async def played(request: Request) -> Response:
        """One search step by step: the candidates, kept or pruned and why, and the attention of the beams."""
        wanted, audio = await _parse_request(request)
        predictor = await asyncio.to_thread(jobs.pool.get, wanted.model)
        inputs = _inputs(wanted, inspections)
        audio = audio or inputs.get("audio")
        if audio is not None:
            if "audio" not in getattr(predictor, "inputs", ()):
                raise BadInput(f"{wanted.model} does not take audio")
            inputs["audio"] = await asyncio.to_thread(Audio.read, audio, Limits(seconds=MAX_AUDIO_SECONDS))
        search = wanted.search.model_dump(exclude_none=True)
        shown: bytes = await jobs.pool.run(
            wanted.model,
            lambda one: json.dumps(trace_search(one, inputs, **search), allow_nan=False).encode(),
            jobs.settings.timeout,
        )
        return Response(shown, media_type="application/json")

    return router


async def _parse_request(request: Request) -> tuple[SearchTraceRequest, bytes | None]:
    """Return the request, and the uploaded recording, if any."""
    if media_type(request) != "multipart/form-data":
        return parse_request(SearchTraceRequest, await read_json(request)), None
    content, fields = await read_file(request)
    values: dict[str, Any] = dict(fields)
    if "search" in values:
        try:
            values["search"] = json.loads(values["search"])
        except (ValueError, RecursionError):
            raise ApiError(400, "the field search is not JSON", "search") from None
    return parse_request(SearchTraceRequest, values), content


def _inputs(wanted: SearchTraceRequest, inspections: InspectionCache) -> dict[str, Any]:
    """Return the inputs of a request; they may be those of a stored inspection."""
    if wanted.inspection is not None:
        return {
            name: value
            for name, value in inspections.get(wanted.inspection).inputs.items()
            if name in ("text", "audio")
        }
    return wanted.inputs.model_dump(exclude_none=True)


def _bodies() -> dict[str, Any]:
    form = {
        "type": "object",
        "required": ["model", "file"],
        "properties": {
            "model": {"type": "string"},
            "search": {"type": "string", "description": "JSON"},
            "file": {"type": "string", "format": "binary"},
        },
    }
    schema = SearchTraceRequest.model_json_schema(ref_template="#/components/schemas/{model}")
    inner = schema.pop("$defs", {})
    plain = json.loads(json.dumps(schema))
    for name in ("inputs", "search"):
        plain["properties"][name] = inner["SearchInput" if name == "inputs" else "SearchOptions"]
    content = {"application/json": {"schema": plain}, "multipart/form-data": {"schema": form}}
    return {"requestBody": {"required": True, "content": content}}

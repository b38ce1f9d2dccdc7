"""Inspections over HTTP: run a model on an input, then ask for any part of any map. Numbers travel as bytes.

    POST /explore/inspections                                   tokens with positions, the output, the list of maps
    GET  /explore/inspections/{id}/sample | tile                uint8, 255 is the weight in the header X-Scale
    GET  /explore/inspections/{id}/row | column | rollout | relevance       float32, little endian
    GET  /explore/inspections/{id}/picture | spectrogram        PNG

Reading and relevance run in the model's queue, on its thread; files are decoded before, in a worker thread, and the
rest is computed from what the inspection stored.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from functools import cache
from typing import Annotated, Any, Literal

import numpy as np
from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from regard import catalogue
from regard.core.errors import BadInput, Unsupported
from regard.core.spec import check_untrusted
from regard.modalities.audio import Audio
from regard.modalities.base import Input
from regard.modalities.graph import Graph
from regard.modalities.image import Image
from regard.modalities.point_cloud import PointCloud
from regard.serve.explorer.cache import InspectionCache
from regard.serve.http.errors import ApiError
from regard.serve.http.jobs import Jobs
from regard.serve.http.schemas import parse_request
from regard.serve.http.uploads import media_type, read_file, read_json

FILE_KINDS: dict[str, type[Input]] = {  # that come as an upload
    "image": Image,
    "audio": Audio,
    "points": PointCloud,
    "graph": Graph,
}
MAX_NUMBER = 4096  # the largest that an option of a task may be

EXAMPLE_IMAGES = {  # that came with the page, by what is on them
    "ankle boot": {"title": "An ankle boot", "file": "boot.png"},
    "pullover": {"title": "A pullover", "file": "pullover.png"},
    "cat": {"title": "A cat", "file": "cat.jpg"},
}

EXAMPLES_OF_MODELS: dict[str, list[dict[str, str]]] = {  # that ship and know neither photos nor single clothes
    "scenes": [{"title": "Clothes in a room", "file": "clothes.png"}],
    "scene-segments": [{"title": "Clothes and emoji in a room", "file": "scene.png"}],
    "scene-captions": [{"title": "Three things in a room", "file": "things.png"}],
    "scene-questions": [
        {"title": question, "file": "questions.png", "question": question}
        for question in ("Which colour is the digit?", "How many red shoes are in the picture?")
    ],
}

Map = Annotated[str, Query(max_length=200)]
Head = Annotated[int, Query(ge=-1, le=4096)]
Number = Annotated[int, Query(ge=0, le=2**31)]
Size = Annotated[int, Query(ge=1, le=1024)]
Span = Annotated[str | None, Query(max_length=30, pattern=r"^[0-9]+:[0-9]+$")]
View = Annotated[Literal["raw", "without_sink", "value"], Query()]
BYTES: dict[int | str, dict[str, Any]] = {
    200: {"content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}}
}


class InspectionRequest(BaseModel):
    """A model, its inputs and options, and interventions."""

    model_config = ConfigDict(extra="forbid")

    model: Annotated[str, Field(min_length=1, max_length=200)]
    inputs: dict[str, Any] = {}
    interventions: Annotated[list[dict[str, Any]], Field(max_length=256)] = []


class ExplorableModel(BaseModel):
    """A model on the page: its inputs (name -> kind), options (name -> JSON schema), output, and examples.

    `description` says what a model that ships is for; "" for others. An example is a text, an object of texts by input,
    or {"title", "file"} with a file of the page.
    """

    name: str
    task: str
    description: str
    inputs: dict[str, str]
    output: str
    options: dict[str, Any]
    run_options: list[str]  # the options of POST /v1/run/NAME
    examples: list[str | dict[str, str]]
    needs_token: bool  # whether a request of a program must have the token of the service


def routes(jobs: Jobs, inspections: InspectionCache) -> APIRouter:
    """Return all routes of inspections."""
    router = APIRouter(prefix="/explore", tags=["explorer"])
    _add_read_route(router, jobs, inspections)
    _add_query_routes(router, jobs, inspections)
    return router


def _add_read_route(router: APIRouter, jobs: Jobs, inspections: InspectionCache) -> None:
    schema = InspectionRequest.model_json_schema()
    form = {
        "type": "object",
        "required": ["model", "file"],
        "properties": {
            "model": {"type": "string"},
            "inputs": {"type": "string", "description": "JSON"},
            "interventions": {"type": "string", "description": "JSON"},
            "file": {"type": "string", "format": "binary"},
        },
    }
    content = {"application/json": {"schema": schema}, "multipart/form-data": {"schema": form}}

    @router.get("/models")
    async def models() -> list[ExplorableModel]:
        """The models of the explorer."""
        await asyncio.to_thread(jobs.pool.load)
        return [one for name in jobs.pool.names() if (one := describe_explorable(jobs, name)) is not None]

    @router.post("/inspections", openapi_extra={"requestBody": {"required": True, "content": content}})
    async def read(request: Request) -> dict[str, Any]:
        """Run a model on an input; returns its tokens, its output and the list of maps."""
        from regard.interpret.inspection import inspect

        wanted = await _parse_request(request, jobs)
        await asyncio.to_thread(jobs.pool.get, wanted.model)
        made = await jobs.pool.run(
            wanted.model,
            lambda predictor: inspect(
                predictor,
                wanted.inputs,
                name=wanted.model,
                interventions=wanted.interventions,
                most=jobs.settings.max_inspection_bytes,
            ),
            jobs.settings.timeout,
        )
        inspections.add(made)
        about: dict[str, Any] = made.about()
        return about


def _add_query_routes(router: APIRouter, jobs: Jobs, inspections: InspectionCache) -> None:
    @router.get("/inspections/{id}/sample", responses=BYTES, response_class=Response)
    async def sample(id: str, map: Map, size: Annotated[int, Query(ge=1, le=256)] = 32) -> Response:
        """A thumbnail of every head; X-Scale: the largest weight of each."""
        pixels, scales = await asyncio.to_thread(inspections.get(id).sample, map, size)
        return _pixels(pixels, scales)

    @router.get("/inspections/{id}/tile", responses=BYTES, response_class=Response)
    async def tile(
        id: str,
        map: Map,
        head: Head = -1,
        rows: Span = None,
        columns: Span = None,
        size: Size = 256,
        view: View = "raw",
    ) -> Response:
        """Part of a map at a resolution; X-Shape: its rows and columns, X-Scale: the weight that 255 is."""
        inspection = inspections.get(id)
        whole = next((each for each in inspection.about()["maps"] if each["name"] == map), {"n": 1, "m": 1})
        down, across = _span(rows, whole["n"]), _span(columns, whole["m"])
        pixels, scale = await asyncio.to_thread(inspection.tile, map, head, down, across, size, view)
        return _pixels(pixels, scale)

    @router.get("/inspections/{id}/row", responses=BYTES, response_class=Response)
    async def row(id: str, map: Map, query: Number, head: Head = -1, view: View = "raw") -> Response:
        """The weights of one query; head -1: the mean of all."""
        return await _numbers(lambda: inspections.get(id).row(map, head, query, view))

    @router.get("/inspections/{id}/column", responses=BYTES, response_class=Response)
    async def column(id: str, map: Map, key: Number, head: Head = -1, view: View = "raw") -> Response:
        """The weights of one key."""
        return await _numbers(lambda: inspections.get(id).column(map, head, key, view))

    @router.get("/inspections/{id}/rollout", responses=BYTES, response_class=Response)
    async def rollout(id: str, query: Number) -> Response:
        """The share of each input cell in a token, through all layers."""
        return await _numbers(lambda: inspections.get(id).rollout(query))

    @router.get("/inspections/{id}/relevance", responses=BYTES, response_class=Response)
    async def relevance(id: str, target: Number) -> Response:
        """The relevance of each input cell for a target: attention x gradient."""
        inspection = inspections.get(id)
        found = await jobs.pool.run(inspection.model, lambda _: inspection.relevance(target), jobs.settings.timeout)
        return _floats(found)

    @router.get("/inspections/{id}/picture", responses=_png(), response_class=Response)
    async def shown(id: str) -> Response:
        """The picture that the model saw."""
        if (found := inspections.get(id).picture) is None:
            raise ApiError(404, "this inspection has no picture")
        return Response(found, media_type="image/png")

    @router.get("/inspections/{id}/spectrogram", responses=_png(), response_class=Response)
    async def spectrogram(id: str) -> Response:
        """The spectrogram of a recording."""
        if (found := inspections.get(id).audio) is None or found.get("spectrogram") is None:
            raise ApiError(404, "this inspection has no audio")
        return Response(found["spectrogram"], media_type="image/png")


def describe_explorable(jobs: Jobs, name: str) -> ExplorableModel | None:
    """Return a model as the explorer lists it; None where its predictor declares no inputs."""
    from regard.interpret.inspection import inspection_class

    predictor = jobs.pool.get(name)
    try:
        cls = inspection_class(type(predictor))
    except Unsupported:
        return None
    inputs, options = cls.fields(type(predictor))
    defaults = getattr(predictor, "option_defaults", {})
    options = {
        name: schema | ({"default": defaults[name]} if name in defaults else {}) for name, schema in options.items()
    }
    output = getattr(getattr(predictor, "outputs", None), "kind", "")
    examples: list[Any] = [each for each in getattr(predictor, "examples", ()) if isinstance(each, (str, dict))]
    if not examples and next(iter(inputs.values())) == "image":  # of what the model knows; else any photo
        labels = set(getattr(predictor, "labels", ()))
        known = [each for label, each in EXAMPLE_IMAGES.items() if label in labels]
        examples = [*EXAMPLES_OF_MODELS.get(name, known or [EXAMPLE_IMAGES["cat"]])]
    task = jobs.pool.task(name)
    return ExplorableModel(
        name=name,
        task=task,
        description=_shipped_uses().get(jobs.pool.source(name), ""),
        inputs=inputs,
        output=output,
        options=options,
        run_options=list(type(predictor).options_schema()["properties"]),
        examples=examples,
        needs_token=jobs.settings.token is not None,
    )


@cache
def _shipped_uses() -> dict[str, str]:
    """Return what each model that ships is for, by its name."""
    return {row["name"]: row["description"] for row in catalogue.list("zoo")}


async def _parse_request(request: Request, jobs: Jobs) -> InspectionRequest:
    """Return the request: JSON, or a form with an image or audio file."""
    content = None
    if media_type(request) != "multipart/form-data":
        values = await read_json(request)
    else:
        content, fields = await read_file(request)
        values = {name: _json(value, name) if name != "model" else value for name, value in fields.items()}
    wanted: InspectionRequest = parse_request(InspectionRequest, values)
    one = await asyncio.to_thread(describe_explorable, jobs, wanted.model)
    inputs = {} if one is None else one.inputs
    files = {name: FILE_KINDS[kind] for name, kind in inputs.items() if kind in FILE_KINDS}
    if content is not None and not files:
        raise BadInput(f"{wanted.model} takes {', '.join(inputs) or 'no inputs'}, not a file")
    await _check_limits(wanted, jobs)
    if content is not None:
        wanted.inputs[next(iter(files))] = content
    for name in files.keys() & wanted.inputs.keys():
        read = files[name].from_json
        try:
            wanted.inputs[name] = await asyncio.to_thread(read, wanted.inputs[name], jobs.settings.input_limits())
        except BadInput as error:
            raise BadInput(f"the file {error}" if files[name] is Image else str(error)) from None
    return wanted


async def _check_limits(wanted: InspectionRequest, jobs: Jobs) -> None:
    """No more text, no larger numbers and no larger parts than a service answers within its time."""
    for change in wanted.interventions:
        if isinstance(spec := change.get("spec"), str) and spec:
            check_untrusted(spec)
    texts = []
    for name, value in wanted.inputs.items():
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, str):
                texts.append(each)
                if not each.isprintable() and any("\ud800" <= c <= "\udfff" for c in each):
                    raise ApiError(422, f"{name} holds half a character", f"inputs.{name}")
            elif isinstance(each, (int, float)) and not -MAX_NUMBER <= each <= MAX_NUMBER:  # NaN is not either
                raise ApiError(422, f"{name} must lie between -{MAX_NUMBER} and {MAX_NUMBER}", f"inputs.{name}")
    await jobs.check_texts(wanted.model, texts)


def _json(value: str, name: str) -> Any:
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        raise ApiError(400, f"the field {name} is not JSON", name) from None


def _span(given: str | None, whole: int) -> tuple[int, int]:
    if given is None:
        return 0, whole
    begin, _, end = given.partition(":")
    return int(begin), int(end)


async def _numbers(make: Callable[[], np.ndarray]) -> Response:
    return _floats(await asyncio.to_thread(make))


def _floats(found: np.ndarray) -> Response:
    return Response(np.ascontiguousarray(found, dtype="<f4").tobytes(), media_type="application/octet-stream")


def _pixels(pixels: np.ndarray, scale: Any) -> Response:
    headers = {"X-Shape": json.dumps(list(pixels.shape)), "X-Scale": json.dumps(scale)}
    return Response(
        np.ascontiguousarray(pixels, dtype=np.uint8).tobytes(), headers=headers, media_type="application/octet-stream"
    )


def _png() -> dict[int | str, dict[str, Any]]:
    return {200: {"content": {"image/png": {"schema": {"type": "string", "format": "binary"}}}}}

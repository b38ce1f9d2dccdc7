"""Looks over HTTP: have a model read something, then ask about any part of any map. Numbers travel as bytes.

    POST /explore/looks                                   what was read: tokens, places, output, the list of maps
    GET  /explore/looks/{id}/sample | tile                uint8, 255 is the weight in the header X-Scale
    GET  /explore/looks/{id}/row | column | rollout | relevance       float32, little endian
    GET  /explore/looks/{id}/picture | spectrogram        PNG

Reading and relevance run on the model's own thread, in its queue; everything else is computed from what a look keeps.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Annotated, Any, Literal

import numpy as np
from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from regard.core.errors import BadInput
from regard.core.spec import resolve
from regard.serve.errors import Wrong
from regard.serve.files import body, files, media, picture
from regard.serve.looks import Looks
from regard.serve.models import parsed
from regard.serve.work import Work

NUMBER = 4096  # the largest that an option of a task may be

EXAMPLES: dict[str, list[str | dict[str, str]]] = {
    "translation": [
        "Two dogs are playing in the snow.",
        "A man in a blue shirt is standing on a ladder cleaning a window.",
        "The little girl who climbs into the wooden house is laughing.",
    ],
    "language": ["ROMEO:\nBut soft, what light", "To be, or not to be", "First Citizen:\nWe are"],
    "masked": ["A man is riding a [MASK] on the beach.", "Two [MASK] are playing in the [MASK]."],
    "classification": ["Two dogs are playing in the snow.", "Zwei Hunde spielen im Schnee.", "Deux chiens jouent."],
    "tagging": ["He reckons the current account deficit will narrow .", "Two dogs are playing in the snow ."],
    "span": [
        {"text": "Mary moved to the bathroom. John went to the hallway.", "question": "Where is Mary?"},
        {"text": "Daniel went back to the office. Sandra journeyed to the garden.", "question": "Where is Sandra?"},
    ],
    "text_to_text": [
        "translate English to German: Two dogs are playing in the snow.",
        "sst2 sentence: a stirring , funny film",
        "summarize: Two men walked along the beach for hours, and then it began to rain.",
    ],
    "pronunciation": ["xylophone", "knight", "thorough"],
    "handwriting": ["31415", "2026"],
}
PICTURES = {  # that came with the page, by what is on them
    "ankle boot": {"title": "An ankle boot", "file": "boot.png"},
    "pullover": {"title": "A pullover", "file": "pullover.png"},
    "cat": {"title": "A cat", "file": "cat.jpg"},
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


class Wanted(BaseModel):
    """What a model is to read, and what is changed in it meanwhile."""

    model_config = ConfigDict(extra="forbid")

    model: Annotated[str, Field(min_length=1, max_length=200)]
    given: dict[str, Any] = {}
    interventions: Annotated[list[dict[str, Any]], Field(max_length=256)] = []


class Explorable(BaseModel):
    """A model that can be looked into: what it reads, some examples of that, what else must be given, and what can."""

    name: str
    task: str
    input: str
    examples: list[str | dict[str, str]]
    needs: dict[str, str]
    options: dict[str, str]


def routes(work: Work, looks: Looks) -> APIRouter:
    """All of them."""
    router = APIRouter(prefix="/explore", tags=["explorer"])
    _reading(router, work, looks)
    _asking(router, work, looks)
    return router


def _reading(router: APIRouter, work: Work, looks: Looks) -> None:
    schema = Wanted.model_json_schema()
    form = {
        "type": "object",
        "required": ["model", "file"],
        "properties": {
            "model": {"type": "string"},
            "given": {"type": "string", "description": "JSON"},
            "interventions": {"type": "string", "description": "JSON"},
            "file": {"type": "string", "format": "binary"},
        },
    }
    content = {"application/json": {"schema": schema}, "multipart/form-data": {"schema": form}}

    @router.get("/models")
    async def models() -> list[Explorable]:
        """The models that can be looked into."""
        await asyncio.to_thread(work.host.load)
        return [one for name in work.host.names() if (one := explorable(work, name)) is not None]

    @router.post("/looks", openapi_extra={"requestBody": {"required": True, "content": content}})
    async def read(request: Request) -> dict[str, Any]:
        """Have a model read something; what it read, and the maps that can be asked for."""
        from regard.tasks.look import look

        wanted = await _wanted(request, work)
        await asyncio.to_thread(work.host.get, wanted.model)
        made = await work.host.run(
            wanted.model,
            lambda predictor: look(
                predictor,
                wanted.given,
                name=wanted.model,
                interventions=wanted.interventions,
                most=work.settings.looked,
            ),
            work.settings.deadline,
        )
        looks.add(made)
        about: dict[str, Any] = made.about()
        return about


def _asking(router: APIRouter, work: Work, looks: Looks) -> None:
    @router.get("/looks/{id}/sample", responses=BYTES, response_class=Response)
    async def sample(id: str, map: Map, size: Annotated[int, Query(ge=1, le=256)] = 32) -> Response:
        """A thumbnail of every head; X-Scale: the largest weight of each."""
        pixels, scales = await asyncio.to_thread(looks.get(id).sample, map, size)
        return _pixels(pixels, scales)

    @router.get("/looks/{id}/tile", responses=BYTES, response_class=Response)
    async def tile(
        id: str, map: Map, head: Head = -1, rows: Span = None, columns: Span = None, size: Size = 256
    ) -> Response:
        """Part of a map at a resolution; X-Shape: its rows and columns, X-Scale: the weight that 255 is."""
        look = looks.get(id)
        whole = next((each for each in look.about()["maps"] if each["name"] == map), {"n": 1, "m": 1})
        down, across = _span(rows, whole["n"]), _span(columns, whole["m"])
        pixels, scale = await asyncio.to_thread(look.tile, map, head, down, across, size)
        return _pixels(pixels, scale)

    @router.get("/looks/{id}/row", responses=BYTES, response_class=Response)
    async def row(id: str, map: Map, query: Number, head: Head = -1, view: View = "raw") -> Response:
        """What one query looks at; head -1: the mean of all."""
        return await _numbers(lambda: looks.get(id).row(map, head, query, view))

    @router.get("/looks/{id}/column", responses=BYTES, response_class=Response)
    async def column(id: str, map: Map, key: Number, head: Head = -1, view: View = "raw") -> Response:
        """Who looks at one key."""
        return await _numbers(lambda: looks.get(id).column(map, head, key, view))

    @router.get("/looks/{id}/rollout", responses=BYTES, response_class=Response)
    async def rollout(id: str, query: Number) -> Response:
        """How much of each input cell reaches a token through all layers."""
        return await _numbers(lambda: looks.get(id).rollout(query))

    @router.get("/looks/{id}/relevance", responses=BYTES, response_class=Response)
    async def relevance(id: str, target: Number) -> Response:
        """How much each input cell spoke for an answer, by gradients."""
        look = looks.get(id)
        found = await work.host.run(look.model, lambda _: look.relevance(target), work.settings.deadline)
        return _floats(found)

    @router.get("/looks/{id}/picture", responses=_png(), response_class=Response)
    async def shown(id: str) -> Response:
        """The picture that the model saw."""
        if (found := looks.get(id).picture) is None:
            raise Wrong(404, "this look has no picture")
        return Response(found, media_type="image/png")

    @router.get("/looks/{id}/spectrogram", responses=_png(), response_class=Response)
    async def spectrogram(id: str) -> Response:
        """The sound that the model heard, as a picture of its frames."""
        if (found := looks.get(id).sound) is None or found.get("spectrogram") is None:
            raise Wrong(404, "this look has no sound")
        return Response(found["spectrogram"], media_type="image/png")


def explorable(work: Work, name: str) -> Explorable | None:
    """A model as the explorer lists it; None where there is nothing to look at."""
    from regard.tasks.look import LOOKS

    task = work.host.task(name)
    if task not in LOOKS:
        return None
    cls: Any = resolve(LOOKS, task, "look")
    takes = cls.takes
    first, *rest = takes
    kinds = {option: _kind(takes[option]) for option in rest}
    needs = {option: kinds.pop(option) for option in cls.needs}
    examples = EXAMPLES.get(task, [])
    if first == "image":  # of what the model knows; else a photo as good as any
        labels = set(getattr(work.host.get(name), "labels", ()))
        examples = [each for label, each in PICTURES.items() if label in labels] or [PICTURES["cat"]]
    return Explorable(name=name, task=task, input=first, examples=examples, needs=needs, options=kinds)


async def _wanted(request: Request, work: Work) -> Wanted:
    """What is to be read: JSON; or a form with a file, which is then the picture or the sound."""
    if media(request) != "multipart/form-data":
        wanted: Wanted = parsed(Wanted, await body(request))
    else:
        (content, *more), fields = await files(request, ())
        if more:
            raise Wrong(422, "one file at a time can be looked at", "file")
        values = {name: _json(value, name) if name != "model" else value for name, value in fields.items()}
        wanted = parsed(Wanted, values)
        one = await asyncio.to_thread(explorable, work, wanted.model)
        kind = "image" if one is None else one.input
        if kind == "image":
            content = await asyncio.to_thread(picture, content, work.settings)
        elif kind != "sound":
            raise BadInput(f"{wanted.model} reads a {kind}, not a file")
        wanted.given[kind] = content
    _limited(wanted, work)
    return wanted


def _limited(wanted: Wanted, work: Work) -> None:
    """No more text and no larger numbers than a service answers within its time."""
    total = 0
    for name, value in wanted.given.items():
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, str):
                total += len(each)
                if not each.isprintable() and any("\ud800" <= c <= "\udfff" for c in each):
                    raise Wrong(422, f"{name} holds half a character", f"given.{name}")
            elif isinstance(each, (int, float)) and not -NUMBER <= each <= NUMBER:  # NaN is not either
                raise Wrong(422, f"{name} must lie between -{NUMBER} and {NUMBER}", f"given.{name}")
    if total > work.settings.characters:
        raise BadInput(f"{total:,} characters are more than the {work.settings.characters:,} of one request")


def _json(value: str, name: str) -> Any:
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        raise Wrong(400, f"the field {name} is not JSON", name) from None


def _span(given: str | None, whole: int) -> tuple[int, int]:
    if given is None:
        return 0, whole
    begin, _, end = given.partition(":")
    return int(begin), int(end)


def _kind(given: Any) -> str:
    kinds = given if isinstance(given, tuple) else (given,)
    return " or ".join({str: "text", int: "number", float: "number", list: "texts"}.get(k, k.__name__) for k in kinds)


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

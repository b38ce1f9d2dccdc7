"""The theatre over HTTP: a search as it ran, as JSON (tasks.theatre).

    GET  /explore/theatre        the models that search, the ways each of them can, and the settings by default
    POST /explore/theatre        {"model", "given": {"text"}, "search": {"how", "beams", ...}}; a sound comes in a form,
                                 or is that of a look that is kept: {"model", "look": id, "search"}

The search runs on the model's own thread, in its turn, so that nobody else's words go through the maps that it watches.
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
from regard.data import spoken
from regard.serve.errors import Wrong
from regard.serve.files import body, files, media
from regard.serve.looks import Looks
from regard.serve.models import parsed
from regard.serve.shapes import Asked
from regard.serve.work import Work

SECONDS = 20.0  # of a sound that is followed


class Searched(Asked):
    """How the search goes; what a way of searching does not use is left alone."""

    how: Literal["beam", "greedy", "diverse", "sample"] | None = None
    beams: Annotated[int, Field(ge=1, le=8)] = 4
    groups: Annotated[int, Field(ge=1, le=8)] = 2
    diversity: Annotated[float, Field(ge=0, le=20)] = 0.5
    length_penalty: Annotated[float, Field(ge=-2, le=4)] = 1.0
    samples: Annotated[int, Field(ge=1, le=8)] = 1
    temperature: Annotated[float, Field(ge=0.05, le=10)] = 1.0
    top_k: Annotated[int, Field(ge=0, le=2**20)] = 0
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    min_p: Annotated[float, Field(ge=0, le=1)] = 0.0
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 0
    tokens: Annotated[int, Field(ge=1, le=128)] = 40
    prefix: Annotated[str, Field(max_length=200)] = ""


class Given(Asked):
    """What is searched for."""

    text: Annotated[str, Field(max_length=2000)] | None = None


class Wanted(Asked):
    """A search to be played."""

    model: Annotated[str, Field(min_length=1, max_length=200)]
    given: Given = Given()
    look: Annotated[str | None, Field(max_length=64, description="Take what this look was given.")] = None
    search: Searched = Searched()


class Player(BaseModel):
    """A model that searches."""

    name: str
    task: str
    input: str
    ways: list[str]


class Plays(BaseModel):
    """What can be played."""

    models: list[Player]
    defaults: dict[str, Any]


def routes(work: Work, looks: Looks) -> APIRouter:
    """Both of them."""
    from regard.tasks.theatre import Staging, offers, play

    router = APIRouter(prefix="/explore", tags=["explorer"])

    @router.get("/theatre")
    async def plays() -> Plays:
        """The models that search for what they give, and how each of them can."""
        await asyncio.to_thread(work.host.load)
        every = {name: work.host.get(name) for name in work.host.names()}
        models = [
            Player(name=name, task=work.host.task(name), input="sound" if hasattr(one, "front") else "text", ways=ways)
            for name, one in every.items()
            if (ways := offers(one))
        ]
        return Plays(models=models, defaults=asdict(Staging()))

    @router.post("/theatre", openapi_extra=_bodies(), response_model=dict[str, Any])
    async def played(request: Request) -> Response:
        """One search, step by step: what was offered, kept, pruned and why, and where the beams looked."""
        wanted, sound = await _wanted(request)
        predictor = await asyncio.to_thread(work.host.get, wanted.model)
        given = _given(wanted, looks)
        sound = sound or given.get("sound")
        if isinstance(sound, bytes):
            front = getattr(predictor, "front", None)
            if front is None:
                raise BadInput(f"{wanted.model} does not read sounds")
            given["sound"] = await asyncio.to_thread(spoken.read, sound, front.rate, SECONDS)
        search = wanted.search.model_dump(exclude_none=True)
        shown: bytes = await work.host.run(
            wanted.model,
            lambda one: json.dumps(play(one, given, **search), allow_nan=False).encode(),
            work.settings.deadline,
        )
        return Response(shown, media_type="application/json")

    return router


async def _wanted(request: Request) -> tuple[Wanted, bytes | None]:
    """What is to be played, and the sound where one came with it."""
    if media(request) != "multipart/form-data":
        return parsed(Wanted, await body(request)), None
    (content, *more), fields = await files(request, ())
    if more:
        raise Wrong(422, "one sound at a time can be followed", "file")
    values: dict[str, Any] = dict(fields)
    if "search" in values:
        try:
            values["search"] = json.loads(values["search"])
        except (ValueError, RecursionError):
            raise Wrong(400, "the field search is not JSON", "search") from None
    return parsed(Wanted, values), content


def _given(wanted: Wanted, looks: Looks) -> dict[str, Any]:
    """What is searched for; a look may hold it."""
    if wanted.look is not None:
        return {name: value for name, value in looks.get(wanted.look).given.items() if name in ("text", "sound")}
    return wanted.given.model_dump(exclude_none=True)


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
    schema = Wanted.model_json_schema(ref_template="#/components/schemas/{model}")
    inner = schema.pop("$defs", {})
    plain = json.loads(json.dumps(schema))
    for name in ("given", "search"):
        plain["properties"][name] = inner["Given" if name == "given" else "Searched"]
    content = {"application/json": {"schema": plain}, "multipart/form-data": {"schema": form}}
    return {"requestBody": {"required": True, "content": content}}

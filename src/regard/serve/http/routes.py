"""The routes that run models, made from the declarations of their predictors.

    POST /v1/run/NAME     a model by its name
    POST /v1/VERB         the model that `model` names, or the first one for a verb (`VERBS`) whose inputs fit

All of them take inputs and options (serve.http.requests) and answer {"model": NAME, "outputs": [...]}, output n for
input n. Inputs that are unlike the training data of the model are named: "warnings": [{"input": 0, "message": "..."}].
With "stream": true the texts of a language model come as server-sent events: {"input": 0, "candidate": 0,
"text": "..."} for each piece, at the end {"done": true, "model": NAME, "outputs": [...]}.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, Response

from regard.core.errors import Unsupported
from regard.serve.http.jobs import Jobs, can_stream
from regard.serve.http.model_pool import ModelPool
from regard.serve.http.requests import FORM, RunRequest, make_options, media_types, read_items, read_request
from regard.serve.http.streaming import stream_response
from regard.tasks import task_name
from regard.tasks.predictor import Predictor


@dataclass(frozen=True)
class Verb:
    """A named route: the predictors that it runs, by output or, where outputs do not tell them apart, by task."""

    output: str = ""  # kind of output
    tasks: tuple[str, ...] = ()  # names in `tasks.PREDICTORS`
    choices: tuple[tuple[str, str], ...] = ()  # fields that choose among models, and the predictor's attribute of each

    def runs(self, cls: type[Predictor]) -> bool:
        """Return whether this route runs predictors of a class."""
        return cls.outputs.kind == self.output or task_name(cls) in self.tasks


VERBS = {
    "translate": Verb(tasks=("translation",), choices=(("source", "source"), ("to", "target"))),
    "generate": Verb(tasks=("language_modeling", "text_to_text")),
    "pronounce": Verb(tasks=("pronunciation",)),
    "classify": Verb("classes"),
    "tag": Verb("token_labels"),
    "answer": Verb("span"),
    "fill": Verb("mask_fills"),
    "embed": Verb("embedding"),
    "near": Verb("neighbors"),
    "transcribe": Verb("transcript"),
    "handwrite": Verb("strokes"),
    "detect": Verb("boxes"),
    "segment": Verb("masks"),
    "depth": Verb("depth"),
}
STREAM = {"type": "boolean", "default": False, "description": "send the text as server-sent events, piece by piece"}

Choose = Callable[[RunRequest], str]


def routes(jobs: Jobs) -> APIRouter:
    """Return all routes that run models; OpenAPI describes those whose declaration is known before loading."""
    router, pool = APIRouter(tags=["run"]), jobs.pool
    known = {name: cls for name in pool.names() if (cls := pool.predictor_class(name)) is not None}
    for name, cls in known.items():
        about = f"Run {name}: {', '.join(cls.inputs)} to {cls.outputs.kind}."
        _add(router, jobs, f"/v1/run/{name}", about, [cls], (), partial(_by_name, pool, name))
    for verb, what in VERBS.items():
        fields = ("model", *(field for field, _ in what.choices))
        classes = list(dict.fromkeys(cls for cls in known.values() if what.runs(cls)))
        about = f"Run the first model that can {verb}, or the one that `model` names."
        _add(router, jobs, f"/v1/{verb}", about, classes, fields, partial(_by_verb, pool, verb))

    @router.post("/v1/run/{name}", include_in_schema=False)
    async def run(request: Request, name: str) -> Response:
        return await _answer(request, jobs, (), partial(_by_name, pool, name))

    return router


def _add(
    router: APIRouter,
    jobs: Jobs,
    path: str,
    about: str,
    classes: list[type[Predictor]],
    fields: tuple[str, ...],
    choose: Choose,
) -> None:
    """Add a route for models of some classes; `fields` are those of its request besides inputs, options and stream."""

    async def answer(request: Request) -> Response:
        return await _answer(request, jobs, fields, choose)

    content: dict[str, Any] = {"application/json": {"schema": _any_of(cls.answer_schema() for cls in classes)}}
    if any(hasattr(cls, "streams") for cls in classes):
        content["text/event-stream"] = {}
    router.add_api_route(
        path,
        answer,
        methods=["POST"],
        name=path.removeprefix("/v1/").replace("/", "_"),
        summary=about,
        openapi_extra={"requestBody": {"required": True, "content": _request_content(classes, fields, jobs)}},
        responses={200: {"content": content}},
        response_class=JSONResponse,
        include_in_schema=bool(classes),
    )


async def _answer(request: Request, jobs: Jobs, fields: tuple[str, ...], choose: Choose) -> Response:
    """Read a request, run the chosen model on it and return its outputs."""
    asked = await read_request(request, (*fields, "stream"), jobs.settings)
    name = choose(asked) if jobs.pool.loaded else await asyncio.to_thread(choose, asked)
    predictor = jobs.pool.get(name)
    options = make_options(asked, predictor)
    items = await read_items(asked, type(predictor), jobs.settings)
    if asked.fields.get("stream"):
        return await _stream(jobs, name, predictor, items, options, await _warnings(predictor, items))
    outputs = _outputs(name, await jobs.run(name, items, options))  # first: a request beyond the limits ends here
    return JSONResponse(outputs | await _warnings(predictor, items))


def _outputs(name: str, outputs: Iterable[Any]) -> dict[str, Any]:
    return {"model": name, "outputs": [output.to_json() for output in outputs]}


async def _warnings(predictor: Predictor, items: list[Any]) -> dict[str, Any]:
    """Return what makes inputs unlike the training data of the model, as a field of the answer; nothing without any."""
    if not predictor.domains:
        return {}
    notes = await asyncio.to_thread(predictor.domain_notes, items)
    found = [{"input": number, "message": note} for number, note in enumerate(notes) if note]
    return {"warnings": found} if found else {}


def _stream(
    jobs: Jobs, name: str, predictor: Any, items: list[Any], options: Any, warnings: dict[str, Any]
) -> Awaitable[Response]:
    if not can_stream(predictor, options):
        why = "beam search has no text before its end; set beam_size to 1"
        raise Unsupported(f"{name} cannot stream: {why if hasattr(predictor, 'streams') else 'leave out stream'}.")
    return stream_response(
        lambda on_piece: jobs.stream(name, items, options, on_piece),
        lambda item, piece: {"input": item, "candidate": piece[0], "text": piece[1]},
        lambda found: [{"done": True, **_outputs(name, found), **warnings}],
    )


def _by_name(pool: ModelPool, name: str, _: RunRequest) -> str:
    """Return the name of a model after loading it."""
    pool.get(name)
    return name


def _by_verb(pool: ModelPool, verb: str, asked: RunRequest) -> str:
    """Return the name of the model that a request to a named route means."""
    wanted = [(name, value) for field, name in VERBS[verb].choices if (value := asked.fields.get(field))]

    def can(predictor: Predictor) -> bool:
        return VERBS[verb].runs(type(predictor)) and all(getattr(predictor, name) == value for name, value in wanted)

    what = " ".join([verb, *(value for _, value in wanted)])
    return pool.pick(asked.fields.get("model"), can, what, prefer=lambda each: asked.fits(type(each)))


# -- OpenAPI -----------------------------------------------------------------------------------------------------------


def _request_content(classes: list[type[Predictor]], fields: tuple[str, ...], jobs: Jobs) -> dict[str, Any]:
    """Return the media types that a route takes, with their schemas."""
    binary, text = {"type": "string", "format": "binary"}, {"type": "string", "maxLength": 200}
    content: dict[str, list[Any]] = {}
    for cls in classes:
        json_fields: dict[str, Any] = dict.fromkeys(fields, text)
        if hasattr(cls, "streams"):
            json_fields["stream"] = STREAM
        parts: dict[str, Any] = {
            name: {"type": "array", "items": binary, "minItems": 1} if kind.media_types else {"type": "string"}
            for name, kind in cls.inputs.items()
        }
        parts |= {**dict.fromkeys(fields, text), "options": {"type": "string", "description": "JSON"}}
        form = {"type": "object", "required": list(cls.inputs), "properties": parts}
        for kind in media_types(cls):
            is_json = kind == "application/json"
            schema = _request_schema(cls, json_fields, jobs) if is_json else form if kind == FORM else binary
            content.setdefault(kind, []).append(schema)
    return {kind: {"schema": _any_of(schemas)} for kind, schemas in content.items()}


def _request_schema(cls: type[Predictor], fields: dict[str, Any], jobs: Jobs) -> dict[str, Any]:
    """Return the declared schema of a request with the limits of the service and the fields of the route."""
    schema = cls.request_schema()
    properties: dict[str, Any] = schema["properties"]
    properties |= fields
    properties["inputs"]["maxItems"] = jobs.settings.max_items
    options = properties["options"]["properties"]
    for name in {"beam_size", "num_candidates"} & options.keys():
        options[name]["maximum"] = jobs.settings.max_beams
    return schema


def _any_of(schemas: Iterable[dict[str, Any]]) -> dict[str, Any]:
    found = list(schemas)
    different = [each for n, each in enumerate(found) if each not in found[:n]]
    return different[0] if len(different) == 1 else {"anyOf": different}

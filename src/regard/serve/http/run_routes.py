"""One route per model, made from its predictor's declaration: ``POST /v1/run/NAME``.

    application/json         {"inputs": [ITEM, ...], "options": {...}}; files are base64 strings
    multipart/form-data      one file part per item, named after the input field; other fields as text, options as JSON
    image/*, audio/*         the file itself, of a model with one such input

The answer is {"model": NAME, "outputs": [...]}, output n belonging to input n. Requests with equal options run
together, unless their outputs are sampled.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse

from regard.core.config import asdict_shallow
from regard.core.errors import BadInput, RegardError
from regard.decoding.generation_config import GenerationConfig
from regard.modalities.base import Limits
from regard.serve.http.errors import ApiError
from regard.serve.http.jobs import Jobs
from regard.serve.http.uploads import MAX_FILES, media_type, read_json
from regard.tasks.predictor import Predictor

MAX_ITEMS = 64  # of one request
MAX_BEAMS = 16  # hypotheses, or texts, of one item


def routes(jobs: Jobs) -> APIRouter:
    """Return a route for every model whose declaration is known before it is loaded."""
    from regard.api import predictor_class

    router = APIRouter(tags=["run"])
    for name in jobs.pool.names():
        cls = predictor_class(jobs.pool.source(name))
        if cls is not None:
            router.add_api_route(
                f"/v1/run/{name}",
                _handler(jobs, name, cls),
                methods=["POST"],
                name=f"run_{name}",
                summary=f"Run {name}: {', '.join(cls.inputs)} to {cls.outputs.kind}.",
                openapi_extra={"requestBody": {"required": True, "content": _content(cls)}},
                responses={200: {"content": {"application/json": {"schema": cls.answer_schema()}}}},
                response_class=JSONResponse,
            )
    return router


def _handler(jobs: Jobs, name: str, cls: type[Predictor]) -> Callable[[Request], Awaitable[JSONResponse]]:
    async def run(request: Request) -> JSONResponse:
        items, values = await _read(request, jobs, cls)
        options = cls.make_options(values)
        predictor = await asyncio.to_thread(jobs.pool.get, name)
        if isinstance(options, GenerationConfig):
            _limit_generation(jobs, predictor, items, options)
        key: Any = ("run", json.dumps(asdict_shallow(options), sort_keys=True, default=str))
        if getattr(options, "is_random", False):  # seeds go by the place in the batch: run it alone
            key = object()
        outputs = await jobs.ask(name, key, items, lambda some: predictor.predict(some, options))
        return JSONResponse({"model": name, "outputs": [output.to_json() for output in outputs]})

    return run


def _content(cls: type[Predictor]) -> dict[str, Any]:
    """Return the media types that a model's route takes, with their schemas."""
    content: dict[str, Any] = {"application/json": {"schema": cls.request_schema()}}
    uploads = {field: kind for field, kind in cls.inputs.items() if kind.media_types}
    if uploads:
        binary = {"type": "string", "format": "binary"}
        parts: dict[str, Any] = {
            field: {"type": "array", "items": binary, "minItems": 1} if field in uploads else {"type": "string"}
            for field in cls.inputs
        }
        parts["options"] = {"type": "string", "description": "JSON"}
        schema = {"type": "object", "required": list(cls.inputs), "properties": parts}
        content["multipart/form-data"] = {"schema": schema}
        if len(cls.inputs) == 1:
            (kind,) = uploads.values()
            content |= {f"{each}*" if each.endswith("/") else each: {"schema": binary} for each in kind.media_types}
    return content


async def _read(request: Request, jobs: Jobs, cls: type[Predictor]) -> tuple[list[Any], dict[str, Any]]:
    """Return the items and the options of a request; files are decoded away from the event loop."""
    settings = jobs.settings
    limits = Limits(settings.max_characters, settings.max_pixels, settings.max_audio_seconds)
    kind = media_type(request)
    if kind in ("", "application/json"):
        values = await read_json(request)
        if not isinstance(values, dict) or not isinstance(values.get("inputs"), list) or not values["inputs"]:
            raise ApiError(422, 'expected an object {"inputs": [...], "options": {...}}', "inputs")
        if other := values.keys() - {"inputs", "options"}:
            raise ApiError(422, f"unknown field '{min(other)}'; expected inputs and options", min(other)[:120])
        rows, options, read = values["inputs"], values.get("options", {}), cls.item_from_json
    elif kind == "multipart/form-data":
        rows, options = await _form(request, cls)
        read = cls.read_item
    else:
        rows, options, read = await _body(request, cls, kind), {}, cls.read_item
    if not isinstance(options, dict):
        raise ApiError(422, "options must be an object", "options")
    if len(rows) > MAX_ITEMS:
        raise ApiError(422, f"{len(rows)} inputs are more than the {MAX_ITEMS} of one request", "inputs")
    items = []
    for number, row in enumerate(rows, 1):
        try:
            items.append(await asyncio.to_thread(read, row, number, limits))
        except RegardError as error:
            raise ApiError(422, str(error), f"inputs.{number - 1}") from None
    _limit_characters(rows, limits.characters, [name for name, each in cls.inputs.items() if not each.media_types])
    return items, options


def _limit_characters(rows: list[Any], most: int, texts: list[str]) -> None:
    """Refuse a request whose texts together are too long."""
    each = [row.get(name, "") if isinstance(row, dict) else row for row in rows for name in texts]
    if (total := sum(len(text) for text in each if isinstance(text, str))) > most:
        raise BadInput(f"The texts of this request have {total:,} characters; the limit is {most:,}.")


def _limit_generation(jobs: Jobs, predictor: Any, items: list[Any], options: GenerationConfig) -> None:
    """Refuse a request that asks for more text, or a wider search, than a service computes in its time."""
    widest = max(options.beam_size, options.num_candidates)
    if widest > MAX_BEAMS:
        raise BadInput(f"beam_size and num_candidates must be at most {MAX_BEAMS} here, got {widest}.")
    jobs.check_texts([text for item in items for text in (item.values() if isinstance(item, dict) else [item])], widest)
    if options.max_new_tokens is not None:
        jobs.check_generated_tokens(len(items) * options.max_new_tokens * widest)
    if getattr(predictor, "continues", False):
        jobs.check_prompts(predictor.text.encode([str(item) for item in items]), options.slide)


async def _form(request: Request, cls: type[Predictor]) -> tuple[list[dict[str, Any]], Any]:
    """Return the items of a form: part n of every file field belongs to item n, other fields to all of them."""
    async with request.form(max_files=MAX_FILES, max_fields=16, max_part_size=64 * 1024) as form:
        files: dict[str, list[bytes]] = {}
        fields: dict[str, str] = {}
        for name, part in form.multi_items():
            if isinstance(part, str):
                fields[name] = part
            else:
                files.setdefault(name, []).append(await part.read())
    options: Any = {}
    if text := fields.pop("options", ""):
        try:
            options = json.loads(text)
        except (ValueError, RecursionError):
            raise ApiError(400, "the field options is not JSON", "options") from None
    sizes = {len(each) for each in files.values()}
    if len(sizes) != 1 or not all(content for each in files.values() for content in each):
        raise ApiError(422, "expected as many non-empty files of one field as of the others, at least one", "file")
    for name in (*files, *fields):
        if name not in cls.inputs:
            raise ApiError(422, f"unknown field '{name[:60]}'; expected {', '.join(cls.inputs)}", name[:120])
    return [{name: each[n] for name, each in files.items()} | fields for n in range(sizes.pop())], options


async def _body(request: Request, cls: type[Predictor], kind: str) -> list[dict[str, Any]]:
    """Return the single item of a request whose body is a file."""
    (field, taken), *more = cls.inputs.items()
    if more or not (kind.startswith(taken.media_types) if taken.media_types else False):
        known = ", ".join(_content(cls))
        raise ApiError(415, f"media type '{kind[:60]}' is not taken here; send {known}")
    content = await request.body()
    if not content:
        raise ApiError(422, "the body is empty", field)
    return [{field: content}]

"""Requests to run a model, read as its predictor declares.

    application/json         {"inputs": [ITEM, ...], "options": {...}}; files are base64 strings
    multipart/form-data      one file part per item, named after the input field; other fields as text, options as JSON
    image/*, audio/*         the file itself, for a model with one such input; other fields come in the query

A request is read in two steps: first what the body contains, so that a model can be chosen for it; then the items and
the options, by the declaration of that model's predictor. Files are decoded in a worker thread.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request

from regard.core.errors import RegardError
from regard.serve.http.errors import ApiError
from regard.serve.http.settings import Settings
from regard.serve.http.uploads import media_type, read_form, read_json
from regard.tasks.predictor import Predictor

FORM = "multipart/form-data"


@dataclass(frozen=True)
class RunRequest:
    """The contents of a request, before a predictor's declaration is applied."""

    kind: str  # media type: "" for JSON, FORM, or that of a file
    rows: list[Any]  # one per item: a JSON value, a dict of the parts of a form, or the bytes of a file
    options: dict[str, Any]
    fields: dict[str, Any]  # the other fields, such as model and stream

    def fits(self, predictor: type[Predictor]) -> bool:
        """Return whether the names and types of a predictor's inputs are those of the first item."""
        row, types = self.rows[0], list(predictor.inputs.values())
        if isinstance(row, dict):
            return row.keys() == predictor.inputs.keys()
        if self.kind:
            return len(types) == 1 and self.kind.startswith(types[0].media_types or ("/",))
        return len(types) == 1 and not types[0].media_types  # a string is a text rather than a base64 file


async def read_request(request: Request, fields: Collection[str], settings: Settings) -> RunRequest:
    """Return the contents of a request; `fields` are those that it may have besides inputs and options."""
    kind = media_type(request)
    if kind in ("", "application/json"):
        found = _json_request(await read_json(request), fields)
    elif kind == FORM:
        found = await _form_request(request, fields, settings)
    else:
        content = await request.body()
        if not content:
            raise ApiError(422, "The body is empty; expected a file.", "body")
        query: dict[str, Any] = dict(request.query_params)
        found = RunRequest(kind, [content], _parse_options(query.pop("options", "")), query)
    _check_fields(found.fields, fields)
    if len(found.rows) > settings.max_items:
        raise ApiError(422, f"The request has {len(found.rows)} inputs; the limit is {settings.max_items}.", "inputs")
    return found


async def read_items(asked: RunRequest, cls: type[Predictor], settings: Settings) -> list[Any]:
    """Return the items of a request as `predict` takes them; limits hold for all of them together."""
    limits, totals, items = settings.input_limits(), Counter[str](), []
    rows = asked.rows
    if isinstance(rows[0], bytes):
        if not asked.fits(cls):
            known = ", ".join(media_types(cls))
            raise ApiError(415, f"Media type '{asked.kind[:60]}' is not supported here; send {known}.")
        rows = [dict.fromkeys(cls.inputs, rows[0])]
    for number, row in enumerate(rows, 1):
        field = f"inputs.{number - 1}"
        try:
            item = await asyncio.to_thread(cls.item_from_json, row, number, limits)
        except (RegardError, OverflowError) as error:
            raise ApiError(422, str(error), field) from None
        for name, kind in cls.inputs.items():
            totals[kind.units] += kind.size(item[name] if len(cls.inputs) > 1 else item)  # type: ignore[assignment]
            most = getattr(limits, kind.units, None) if kind.units else None
            if most is not None and totals[kind.units] > most:
                has = f"The inputs of this request have {totals[kind.units]:,.10g} {kind.units} together"
                raise ApiError(422, f"{has}; the limit is {most:,.10g}.", field)
        items.append(item)
    return items


def make_options(asked: RunRequest, predictor: Predictor) -> Any:
    """Return the options of a request; an error names the option."""
    try:
        return predictor.fill_options(asked.options)
    except (RegardError, OverflowError) as error:
        message = str(error)
        named = [name for name in asked.options if re.search(rf"\b{re.escape(name)}\b", message)]
        field = f"options.{named[0]}" if named else "options"
        raise ApiError(422, message, field[:120]) from None


def media_types(cls: type[Predictor]) -> list[str]:
    """Return the media types that a predictor's requests may have."""
    uploads = [kind for kind in cls.inputs.values() if kind.media_types]
    files = uploads[0].media_types if uploads and len(cls.inputs) == 1 else ()
    return ["application/json", *([FORM] if uploads else []), *(f"{x}*" if x.endswith("/") else x for x in files)]


def _json_request(values: Any, fields: Collection[str]) -> RunRequest:
    if not isinstance(values, dict):
        raise ApiError(422, 'Expected an object {"inputs": [...], "options": {...}}.')
    inputs, options = values.pop("inputs", None), values.pop("options", {})
    if not isinstance(inputs, list) or not inputs:
        _check_fields(values, fields)  # more helpful where inputs has another name
        raise ApiError(422, "inputs must be a list with at least one item.", "inputs")
    return RunRequest("", inputs, _check_options(options), values)


async def _form_request(request: Request, fields: Collection[str], settings: Settings) -> RunRequest:
    """Part n of every file field belongs to item n, the text fields to all items."""
    files, texts = await read_form(request, settings.max_files)
    sizes = {len(each) for each in files.values()}
    if len(sizes) != 1 or not all(content for each in files.values() for content in each):
        raise ApiError(422, "Expected at least one file, none of them empty, and as many of every field.", "inputs")
    options, others = _parse_options(texts.pop("options", "")), {x: texts.pop(x) for x in fields if x in texts}
    rows = [{name: each[n] for name, each in files.items()} | texts for n in range(sizes.pop())]
    return RunRequest(FORM, rows, options, others)


def _parse_options(text: str) -> dict[str, Any]:
    if not text:
        return {}
    try:
        return _check_options(json.loads(text))
    except (ValueError, RecursionError):
        raise ApiError(400, "options is not valid JSON.", "options") from None


def _check_options(options: Any) -> dict[str, Any]:
    if not isinstance(options, dict):
        raise ApiError(422, "options must be an object.", "options")
    return options


def _check_fields(given: dict[str, Any], known: Collection[str]) -> None:
    """Refuse unknown fields, and values that are not strings (`stream`: true or false)."""
    for name, value in given.items():
        if name not in known:
            wanted = ", ".join(("inputs", "options", *known))
            raise ApiError(422, f"Unknown field '{name[:60]}'; expected {wanted}.", name[:120])
        if name == "stream" and not isinstance(value, bool):
            raise ApiError(422, "stream must be true or false.", name)
        if name != "stream" and value is not None and not (isinstance(value, str) and len(value) <= 200):
            raise ApiError(422, f"{name} must be a string of at most 200 characters.", name)

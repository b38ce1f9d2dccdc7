"""Completions as OpenAI's API defines them, so that existing clients work with a language model of this service.

    client = OpenAI(base_url="http://127.0.0.1:8000/v1", api_key="none")
    client.completions.create(model="shakespeare", prompt="ROMEO:", max_tokens=60, stream=True)

A field that would change the text and is not supported here (logprobs, penalties, suffix, best_of) is refused; other
fields that a client adds are ignored, as OpenAI's servers do.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field

from regard.core.errors import BadInput, Unsupported
from regard.modalities.text import Text
from regard.serve.http.jobs import Jobs
from regard.serve.http.streaming import stream_response

Prompt = Annotated[str, Field(min_length=1, max_length=20_000)]
Tokens = Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=1, max_length=8192)]
Stop = Annotated[str, Field(min_length=1, max_length=100)]


class StreamOptions(BaseModel):
    """What a stream ends with."""

    include_usage: bool = False


class CompletionRequest(BaseModel):
    """A request for completions, as OpenAI defines it; `top_k` and `min_p` in addition."""

    model_config = ConfigDict(extra="ignore", allow_inf_nan=False)

    model: Annotated[str | None, Field(max_length=200)] = None
    prompt: (
        Prompt
        | Annotated[list[Prompt], Field(min_length=1, max_length=64)]
        | Tokens
        | Annotated[list[Tokens], Field(min_length=1, max_length=64)]
    )
    max_tokens: int | None = 16
    temperature: float | None = 1.0
    top_p: float | None = 1.0
    top_k: int | None = 0
    min_p: float | None = 0.0
    n: int | None = 1
    best_of: int | None = None
    echo: bool | None = False
    stop: Stop | Annotated[list[Stop], Field(max_length=8)] | None = None
    seed: Annotated[int | None, Field(ge=-(2**63), lt=2**63)] = None
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    logprobs: int | None = None
    presence_penalty: float | None = 0.0
    frequency_penalty: float | None = 0.0
    logit_bias: dict[str, float] | None = None
    suffix: Annotated[str | None, Field(max_length=1000)] = None
    user: Annotated[str | None, Field(max_length=1000)] = None


class Choice(BaseModel):
    """One text."""

    text: str
    index: int
    logprobs: None = None
    finish_reason: str | None = None


class Usage(BaseModel):
    """Numbers of tokens."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class CompletionResponse(BaseModel):
    """The texts, those of a prompt one after another."""

    id: str
    object: str = "text_completion"
    created: int
    model: str
    choices: list[Choice]
    usage: Usage | None = None


def routes(jobs: Jobs) -> APIRouter:
    """Return the route for completions."""
    router = APIRouter(tags=["run"])

    @router.post(
        "/v1/completions",
        response_model=CompletionResponse,
        responses={200: {"content": {"text/event-stream": {}}}},
    )
    async def completions(asked: CompletionRequest) -> Any:
        """Continue prompts, in the format of OpenAI's completions."""
        pick = partial(jobs.pool.pick, asked.model, lambda each: hasattr(each, "streams"), "continue a text")
        name = pick() if jobs.pool.loaded else await asyncio.to_thread(pick)
        _check_unsupported(asked)
        predictor, many = jobs.pool.get(name), asked.n or 1
        prompts, options = _prompts(asked, predictor.text), predictor.fill_options(_options(asked))
        about: dict[str, Any] = {"id": f"cmpl-{secrets.token_hex(12)}", "created": int(time.time()), "model": name}

        def usage(found: list[Text]) -> Usage:
            read = sum(len(ids) for ids in predictor.text.encode(prompts))
            written = sum(len(one.tokens) for text in found for one in text.candidates)
            return Usage(prompt_tokens=read, completion_tokens=written, total_tokens=read + written)

        if not asked.stream:
            found = await jobs.run(name, prompts, options)
            choices = [
                Choice(text=(prompt if asked.echo else "") + one.text, index=n * many + k, finish_reason=_reason(one))
                for n, (prompt, text) in enumerate(zip(prompts, found, strict=True))
                for k, one in enumerate(text.candidates)
            ]
            return CompletionResponse(**about, choices=choices, usage=usage(found))

        begun: set[int] = set()

        def chunk(index: int, piece: str, reason: str | None = None) -> dict[str, Any]:
            if asked.echo and index not in begun:
                piece = prompts[index // many] + piece
            begun.add(index)
            choice = Choice(text=piece, index=index, finish_reason=reason)
            return CompletionResponse(**about, choices=[choice]).model_dump()

        def last_chunks(found: list[Text]) -> list[Any]:
            ends: list[Any] = [
                chunk(n * many + k, "", _reason(one))
                for n, text in enumerate(found)
                for k, one in enumerate(text.candidates)
            ]
            if asked.stream_options is not None and asked.stream_options.include_usage:
                ends.append(CompletionResponse(**about, choices=[], usage=usage(found)).model_dump())
            return [*ends, "[DONE]"]

        return await stream_response(
            lambda on_piece: jobs.stream(name, prompts, options, on_piece),
            lambda prompt, piece: chunk(prompt * many + piece[0], piece[1]),
            last_chunks,
        )

    return router


def _check_unsupported(asked: CompletionRequest) -> None:
    """Refuse fields that are not supported and would change the text."""
    other = {
        "logprobs": asked.logprobs,
        "presence_penalty": asked.presence_penalty,
        "frequency_penalty": asked.frequency_penalty,
        "logit_bias": asked.logit_bias,
        "suffix": asked.suffix,
        "best_of": None if asked.best_of == (asked.n or 1) else asked.best_of,
    }
    for name, value in other.items():
        if value is not None and value != 0 and value != {}:
            raise Unsupported(f"{name} is not supported here; leave it out.")


def _prompts(asked: CompletionRequest, text: Any) -> list[str]:
    """Return the prompts as texts, also where they are given as token ids."""
    given: Any = asked.prompt
    if isinstance(given, str):
        return [given]
    if isinstance(given[0], str):
        return list(given)
    rows = [given] if isinstance(given[0], int) else given
    if wrong := [token for row in rows for token in row if token >= text.size]:
        raise BadInput(f"Token id {wrong[0]} is out of range; the model's vocabulary has {text.size} tokens.")
    return list(text.decode(rows))


def _options(asked: CompletionRequest) -> dict[str, Any]:
    """Return the fields of a request as options of a language model, which check their ranges."""
    stop = [asked.stop] if isinstance(asked.stop, str) else asked.stop
    given = {
        "max_new_tokens": 16 if asked.max_tokens is None else asked.max_tokens,
        "temperature": asked.temperature,
        "top_p": asked.top_p,
        "top_k": asked.top_k,
        "min_p": asked.min_p,
        "num_candidates": asked.n,
        "stop": stop,
        "seed": secrets.randbits(31) if asked.seed is None else asked.seed % 2**32,
    }
    return {"slide": True} | {name: value for name, value in given.items() if value is not None}


def _reason(one: Any) -> str:
    return "length" if one.finish_reason == "length" else "stop"

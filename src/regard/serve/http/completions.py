"""Completions as OpenAI's clients ask for them, so that existing clients work with a language model of this service.

    client = OpenAI(base_url="http://127.0.0.1:8000/v1", api_key="none")
    client.completions.create(model="shakespeare", prompt="ROMEO:", max_tokens=60, stream=True)

A field that would change the text and is not offered here (logprobs, penalties, a suffix, best_of) is refused rather
than passed over; whatever else a client adds is ignored, as their other servers do.
"""

from __future__ import annotations

import secrets
import time
from typing import Annotated, Any

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field

from regard.core.errors import BadInput, Unsupported
from regard.serve.http.jobs import Jobs
from regard.serve.http.routes import continues_text, pick_model, stream_response
from regard.serve.http.schemas import ModelName, Text

Stop = Annotated[str, Field(min_length=1, max_length=100)]
Tokens = Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=1, max_length=8192)]


class StreamOptions(BaseModel):
    """What a stream ends with."""

    include_usage: bool = False


class CompletionRequest(BaseModel):
    """A request for completions, as OpenAI defines it."""

    model_config = ConfigDict(extra="ignore", allow_inf_nan=False)

    model: ModelName = None
    prompt: (
        Text
        | Annotated[list[Text], Field(min_length=1, max_length=64)]
        | Tokens
        | Annotated[list[Tokens], Field(min_length=1, max_length=64)]
    )
    max_tokens: Annotated[int | None, Field(ge=1, le=4096)] = 16
    temperature: Annotated[float | None, Field(ge=0, le=2)] = 1.0
    top_p: Annotated[float | None, Field(gt=0, le=1)] = 1.0
    top_k: Annotated[int | None, Field(ge=0, le=2**20, description="Not OpenAI's; 0: all.")] = 0
    min_p: Annotated[float | None, Field(ge=0, le=1, description="Not OpenAI's.")] = 0.0
    n: Annotated[int | None, Field(ge=1, le=16)] = 1
    best_of: Annotated[int | None, Field(ge=1, le=16)] = None
    echo: bool | None = False
    stop: Stop | Annotated[list[Stop], Field(max_length=8)] | None = None
    seed: Annotated[int | None, Field(ge=-(2**63), lt=2**63)] = None
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    logprobs: Annotated[int | None, Field(ge=0, le=5)] = None
    presence_penalty: Annotated[float | None, Field(ge=-2, le=2)] = 0.0
    frequency_penalty: Annotated[float | None, Field(ge=-2, le=2)] = 0.0
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
    """Tokens read and written."""

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
    """The one route."""
    router = APIRouter(tags=["models"])

    @router.post(
        "/v1/completions",
        response_model=CompletionResponse,
        responses={200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}}},
    )
    async def completions(asked: CompletionRequest) -> Any:
        """Write on from prompts, in the shapes of OpenAI's completions."""
        name = await pick_model(jobs, asked.model, continues_text, "write texts")
        _check_unsupported(asked)
        text, prompts = jobs.pool.get(name).text, _prompts(asked, jobs.pool.get(name).text)
        how, many = _generation_options(asked), asked.n or 1
        about: dict[str, Any] = {"id": f"cmpl-{secrets.token_hex(12)}", "created": int(time.time()), "model": name}

        def usage(found: list[Any]) -> Usage:
            read = sum(len(ids) for ids in text.encode(prompts))
            wrote = sum(len(one.tokens) for each in found for one in each)
            return Usage(prompt_tokens=read, completion_tokens=wrote, total_tokens=read + wrote)

        if not asked.stream:
            found = await jobs.generate(name, prompts, how)
            choices = [
                Choice(
                    text=(prompt if asked.echo else "") + one.text,
                    index=n * many + k,
                    finish_reason=_finish_reason(one),
                )
                for n, (prompt, each) in enumerate(zip(prompts, found, strict=True))
                for k, one in enumerate(each)
            ]
            return CompletionResponse(**about, choices=choices, usage=usage(found))

        begun: set[int] = set()

        def chunk(index: int, words: str, why: str | None = None) -> dict[str, Any]:
            if asked.echo and index not in begun:
                words = prompts[index // many] + words
            begun.add(index)
            return CompletionResponse(
                **about, choices=[Choice(text=words, index=index, finish_reason=why)]
            ).model_dump()

        def piece(prompt: int, news: Any) -> dict[str, Any]:
            return chunk(prompt * many + news[0], news[1])

        def last(found: list[Any]) -> list[Any]:
            ends: list[Any] = [
                chunk(n * many + k, "", _finish_reason(one))
                for n, each in enumerate(found)
                for k, one in enumerate(each)
            ]
            if asked.stream_options is not None and asked.stream_options.include_usage:
                ends.append(CompletionResponse(**about, choices=[], usage=usage(found)).model_dump())
            return [*ends, "[DONE]"]

        return await stream_response(lambda tell: jobs.generate(name, prompts, how, tell), piece, last)

    return router


def _check_unsupported(asked: CompletionRequest) -> None:
    """What is not offered and would change the text."""
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
            raise Unsupported(f"{name} is not offered here; leave it out")
    if (asked.n or 1) > 1 and asked.temperature == 0:
        raise BadInput("at temperature 0 there is one text for each prompt; leave out n, or raise the temperature")


def _prompts(asked: CompletionRequest, text: Any) -> list[str]:
    """The prompts as texts, be they given as texts or as tokens."""
    given: Any = asked.prompt
    if isinstance(given, str):
        return [given]
    if isinstance(given[0], str):
        return list(given)
    rows = [given] if isinstance(given[0], int) else given
    if wrong := [token for row in rows for token in row if token >= text.size]:
        raise BadInput(f"token {wrong[0]} is not among the {text.size} of this model")
    return list(text.decode(rows))


def _generation_options(asked: CompletionRequest) -> dict[str, Any]:
    stop = [asked.stop] if isinstance(asked.stop, str) else list(asked.stop or ())
    seed = secrets.randbits(31) if asked.seed is None else asked.seed % 2**32
    return {
        "max_new_tokens": 16 if asked.max_tokens is None else asked.max_tokens,
        "temperature": 1.0 if asked.temperature is None else asked.temperature,
        "top_p": 1.0 if asked.top_p is None else asked.top_p,
        "top_k": asked.top_k or 0,
        "min_p": asked.min_p or 0.0,
        "num_candidates": asked.n or 1,
        "stop": stop,
        "slide": True,
        "seed": seed,
    }


def _finish_reason(one: Any) -> str:
    return "length" if one.finish_reason == "length" else "stop"

"""The mechanism lab over HTTP: the parts, and what each does with given tokens.

    GET  /explore/lab      the tables: mechanisms, masks, positions, aligners with their formulas; the six steps
    POST /explore/lab      {"what": "mechanism" | "gallery" | "aligner" | "positions" | "six_steps", ...} -> matrices

Tokens have the vectors of the word model that ships where it knows them; others are drawn by their spelling.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import lru_cache
from typing import Annotated, Any, Literal

from fastapi import APIRouter
from pydantic import Field

from regard.core.errors import BadInput, RegardError
from regard.core.shapes import Tensor
from regard.serve.explorer.cache import InspectionCache
from regard.serve.http.jobs import Jobs
from regard.serve.http.schemas import BaseRequest

Token = Annotated[str, Field(min_length=1, max_length=100)]
Tokens = Annotated[list[Token], Field(min_length=1, max_length=64)]
Spec = Annotated[str, Field(min_length=1, max_length=200)]
Value = Annotated[float, Field(ge=-1e6, le=1e6, strict=False)]
Matrix = Annotated[list[Annotated[list[Value], Field(min_length=1, max_length=16)]], Field(min_length=1, max_length=16)]
Formula = Annotated[str, Field(max_length=500, description="causal & (window(2) | global(0))")]


class Experiment(BaseRequest):
    """A request of the lab: what to show, the tokens and the parts; for the six steps, the matrices."""

    what: Literal["mechanism", "gallery", "aligner", "positions", "six_steps"] = "mechanism"
    tokens: Tokens = Field(default=["Thinking", "Machines"])
    written: Annotated[Tokens | None, Field(description="What a decoder writes, for aligners; else the tokens.")] = None
    mechanism: Spec = "softmax"
    mask: Formula = "none"
    positions: Spec = "none"
    aligner: Spec = "additive"
    vectors: Literal["words", "drawn"] = "words"
    sharpness: Annotated[float, Field(gt=0, le=100, strict=False)] = 2.0
    heads: Annotated[int, Field(ge=1, le=8)] = 4
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 0
    x: Matrix | None = None
    w_q: Matrix | None = None
    w_k: Matrix | None = None
    w_v: Matrix | None = None
    d_k: Annotated[float | None, Field(ge=1, le=1e6, strict=False)] = None


def routes(jobs: Jobs, inspections: InspectionCache) -> APIRouter:
    """Return the routes of the lab."""
    router = APIRouter(prefix="/explore", tags=["explorer"])

    @router.get("/lab")
    async def there() -> dict[str, Any]:
        """The parts and their formulas."""
        from regard.interpret.playground import describe_parts

        return await asyncio.to_thread(describe_parts)

    @router.post("/lab")
    async def experiment(asked: Experiment) -> dict[str, Any]:
        """Matrices as lists of numbers: scores, weights, mask."""
        return await asyncio.to_thread(run_experiment, asked)

    return router


def run_experiment(asked: Experiment) -> dict[str, Any]:
    """One experiment."""
    from regard.interpret import playground

    if asked.what == "six_steps":
        return _six_steps(asked)
    if asked.what == "positions":
        return playground.position_matrix(asked.positions, len(asked.tokens), heads=asked.heads, seed=asked.seed)
    known = word_vectors() if asked.vectors == "words" else None
    if asked.what == "gallery":
        from regard.interpret.mechanism_gallery import mechanism_gallery, sentence_subject

        subjects = [sentence_subject(asked.tokens, known), sentence_subject(asked.tokens, known, causal=True)]
        return mechanism_gallery(subjects, asked.heads, asked.seed)
    if asked.what == "mechanism":
        x, learned = playground.token_vectors(asked.tokens, known, sharpness=asked.sharpness)
        parts = asked.mechanism, asked.mask, asked.positions
        return playground.self_attention(asked.tokens, x, *parts, asked.heads, asked.seed) | {"learned": learned}
    written = asked.written or asked.tokens
    every, learned = playground.token_vectors(
        [*written, *asked.tokens][: playground.MAX_TOKENS], known, sharpness=asked.sharpness
    )
    if len(written) + len(asked.tokens) > playground.MAX_TOKENS:
        raise BadInput(f"source and target have at most {playground.MAX_TOKENS} tokens together")
    s, h = every[: len(written)], every[len(written) :]
    found = playground.align(written, asked.tokens, s, h, asked.aligner, asked.seed)
    return found | {"learned": learned[len(written) :]}


def _six_steps(asked: Experiment) -> dict[str, Any]:
    from regard.interpret.mask_parser import parse_mask
    from regard.interpret.worked_example import THINKING_MACHINES, attention_steps

    given = {name: getattr(asked, name) for name in ("x", "w_q", "w_k", "w_v")}
    if all(value is None for value in given.values()):
        return attention_steps(**THINKING_MACHINES, mask=parse_mask(asked.mask, len(THINKING_MACHINES["tokens"])))
    if missing := [name for name, value in given.items() if value is None]:
        raise BadInput(f"the six steps need x, w_q, w_k and w_v; {', '.join(missing)} is missing")
    return attention_steps(asked.tokens, **given, d_k=asked.d_k, mask=parse_mask(asked.mask, len(asked.tokens)))


@lru_cache(maxsize=1)
def word_vectors() -> Callable[[str], Tensor | None] | None:
    """Return the vectors of the word model that ships with the package, by word; None where it was left out."""
    from regard import api

    if "words-en" not in api.zoo():
        return None
    words = api.load("words-en")

    def known(token: str) -> Tensor | None:
        for spelled in (token, token.lower()):
            try:
                found: Tensor = words.vectors([spelled])[0]
                return found
            except RegardError:
                continue
        return None

    return known

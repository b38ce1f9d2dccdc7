"""Runs predictors for the service: within its limits, in the queue of each model, together with other requests.

Requests of one model run together if their options are equal. A sampled text of a language model depends on its seed
and its place in the request only, so requests with different seeds run together as well; other sampled outputs depend
on their place in the batch, so such a request runs alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Sequence
from dataclasses import replace
from typing import Any

from regard.core.config import asdict_shallow
from regard.modalities.text import Text
from regard.serve.http.batching import ProgressCallback
from regard.serve.http.errors import ApiError
from regard.serve.http.model_pool import ModelPool
from regard.serve.http.settings import Settings

TOKENS_PER_ITEM = 256  # generated tokens that weigh as much as one item of a batch
TOKENS_PER_CHARACTER = 4  # at most: the bytes of a character; shorter texts need not be tokenized to be within a limit


class Jobs:
    """The models of a pool, used within the limits of a service."""

    def __init__(self, pool: ModelPool, settings: Settings) -> None:
        self.pool, self.settings = pool, settings

    async def run(self, name: str, items: Sequence[Any], options: Any) -> list[Any]:
        """Return the output of every item."""
        predictor = self.pool.get(name)
        if can_stream(predictor, options):  # takes turns with other texts, so that a long one does not block them
            return await self.stream(name, items, options)
        await self._check(predictor, items, options)
        key: Any = object() if getattr(options, "is_random", False) else repr(options)
        run = self.pool.batcher(name).ask
        return await run(key, items, lambda some: predictor.predict(some, options), self.settings.timeout)

    async def stream(
        self, name: str, prompts: Sequence[str], options: Any, on_piece: ProgressCallback | None = None
    ) -> list[Any]:
        """Return the text of every prompt; `on_piece` is called with (prompt, (candidate, piece)) while they grow."""
        predictor = self.pool.get(name)
        await self._check(predictor, prompts, options)
        ids = predictor.text.encode([str(prompt) for prompt in prompts])
        self._check_prompts(ids, options.slide)
        items = [(row, options.seed + number) for number, row in enumerate(ids)]
        shared = replace(options, seed=0)

        def run(rows: list[Any]) -> Any:
            tokens, seeds = [row for row, _ in rows], [seed for _, seed in rows]
            heard = on_piece is not None
            return _steps(predictor.streams(tokens, numbers=seeds, with_text=heard, **asdict_shallow(shared)))

        tokens = len(ids) * options.max_new_tokens * options.num_candidates + sum(map(len, ids))
        return await self.pool.batcher(name).ask(
            ("stream", on_piece is not None, repr(shared)),
            items,
            run,
            self.settings.timeout,
            on_progress=on_piece,
            weight=-(-tokens // TOKENS_PER_ITEM),
        )

    async def check_texts(self, name: str, texts: Sequence[str]) -> None:
        """Refuse texts with too many characters or tokens to be read at once: attention costs their square."""
        most, total = self.settings.max_characters, sum(map(len, texts))
        if total > most:
            raise ApiError(422, f"The texts have {total:,} characters together; the limit is {most:,}.")
        if total * TOKENS_PER_CHARACTER > (most := self.settings.max_prompt_tokens):
            tokens = await asyncio.to_thread(lambda: self.pool.get(name).count_tokens(texts))
            if tokens > most:
                raise ApiError(422, f"The texts have {tokens:,} tokens together; the limit is {most:,} here.", "inputs")

    async def _check(self, predictor: Any, items: Sequence[Any], options: Any) -> None:
        """Refuse a request that takes more computation than the service allows."""
        settings = self.settings
        for name in ("beam_size", "num_candidates"):
            if getattr(options, name, 1) > settings.max_beams:
                message = f"{name} must be at most {settings.max_beams} here, got {getattr(options, name)}."
                raise ApiError(422, message, f"options.{name}")
        beams = max(getattr(options, "beam_size", 1), getattr(options, "num_candidates", 1))
        new = len(items) * (getattr(options, "max_new_tokens", None) or 0) * beams
        if new > settings.max_generated_tokens:
            wanted = f"The request asks for {new:,} tokens (inputs x max_new_tokens x beams or candidates)"
            message = f"{wanted}; the limit is {settings.max_generated_tokens:,}."
            raise ApiError(422, message, "options.max_new_tokens")
        values = [value for item in items for value in (item.values() if isinstance(item, dict) else (item,))]
        texts = [value for value in values if isinstance(value, str)]
        if sum(map(len, texts)) * beams * TOKENS_PER_CHARACTER <= settings.max_tokens:
            return
        tokens = await asyncio.to_thread(predictor.count_tokens, texts)
        if tokens * beams > settings.max_tokens:
            has = f"The texts have {tokens:,} tokens, x {beams} beams or candidates = {tokens * beams:,}"
            message = f"{has}; the limit is {settings.max_tokens:,}. Send less text, or use fewer beams or candidates."
            raise ApiError(422, message, "inputs")

    def _check_prompts(self, ids: Sequence[Sequence[int]], slide: bool) -> None:
        most = self.settings.max_prompt_tokens
        for number, row in enumerate(ids, 1):
            if not row:
                message = f"Prompt {number} has no tokens; give at least one character."
                raise ApiError(422, message, f"inputs.{number - 1}")
            if len(row) > most and not slide:
                message = f"Prompt {number} has {len(row):,} tokens; the limit is {most:,} unless slide is set."
                raise ApiError(422, message, f"inputs.{number - 1}")


def can_stream(predictor: Any, options: Any) -> bool:
    """Return whether a predictor generates its outputs piece by piece with these options."""
    return hasattr(predictor, "streams") and options.beam_size == 1


def _steps(streams: Any) -> Generator[list[tuple[int, Any]], None, list[Text]]:
    """Yield the new pieces of each step as (item, (candidate, piece)); return the outputs."""
    while True:
        try:
            pieces = next(streams)
        except StopIteration as stop:
            return [Text.from_candidates(candidates) for candidates in stop.value]
        yield [(row, (candidate, piece)) for row, candidate, piece in pieces]

"""What is asked of each kind of model, as items that can run together with those of other requests.

Two requests run together where they ask the same model for the same thing in the same way; that is their key. A drawn
text has random numbers of its own: in a group it keeps those it would have alone, since every prompt goes by a number
made of its request's seed and its place in the request. Drawn translations have no such number, so they run alone.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any

from regard.core.errors import BadInput
from regard.serve.http.batching import ProgressCallback
from regard.serve.http.model_pool import ModelPool
from regard.serve.http.settings import Settings

FREE_BEAMS = 4  # up to which the limit of characters holds; beyond, what is searched grows with them
MAX_PROMPT_TOKENS = 4096  # tokens of a prompt that is read whole
TOKENS_PER_ITEM = 256  # written, that count as one item of a group


class Jobs:
    """The models of a host, asked within the limits of a service."""

    def __init__(self, pool: ModelPool, settings: Settings) -> None:
        self.pool, self.settings = pool, settings

    async def ask(self, name: str, way: Any, items: Sequence[Any], run: Any, **more: Any) -> list[Any]:
        """Items for a model, in its queue; `way`: what must be the same for requests to run together."""
        return await self.pool.batcher(name).ask(way, items, run, self.settings.timeout, **more)

    def check_texts(self, texts: Sequence[str], beam_size: int = FREE_BEAMS) -> list[str]:
        """The texts of a request, where they are not too much; with many beams less is."""
        most = self.settings.max_characters * FREE_BEAMS // max(FREE_BEAMS, beam_size)
        if (many := sum(map(len, texts))) > most:
            raise BadInput(f"{many:,} characters are more than the {most:,} of one request")
        return list(texts)

    def check_generated_tokens(self, number: int) -> None:
        """Refuse a request that asks for too many tokens: inputs times tokens times candidates or beams."""
        if number > self.settings.max_generated_tokens:
            raise BadInput(
                f"{number:,} tokens are more than the {self.settings.max_generated_tokens:,} of one request: "
                f"ask for fewer prompts, tokens, candidates or beams"
            )

    def check_prompts(self, ids: Sequence[Sequence[int]], slide: bool) -> None:
        """Refuse prompts without a token, and those that are too long to be read whole."""
        for number, row in enumerate(ids, 1):
            if not row:
                raise BadInput(f"prompt {number} holds nothing that this model reads")
            if len(row) > MAX_PROMPT_TOKENS and not slide:
                raise BadInput(
                    f"prompt {number} has {len(row):,} tokens; {MAX_PROMPT_TOKENS:,} are read, or the last with slide"
                )

    async def translate(self, name: str, texts: Sequence[str], search: dict[str, Any]) -> list[Any]:
        """The candidates of every text, best first."""
        translate = self.pool.get(name)
        lines = self.check_texts(texts, search["beam_size"])
        way: Any = object() if search.get("sample") else ("translate", _frozen(search))
        return await self.ask(name, way, lines, lambda lines: translate.candidates(lines, **search))

    async def generate(
        self, name: str, prompts: Sequence[str], how: dict[str, Any], on_progress: ProgressCallback | None = None
    ) -> list[Any]:
        """Generate the texts of every prompt; `tell` receives (prompt, (sample, piece)) as they are written."""
        write, asked = self.pool.get(name), {key: value for key, value in how.items() if key != "seed"}
        many = len(prompts) * how["max_new_tokens"] * max(how.get("num_candidates", 1), how.get("beam_size", 1))
        self.check_generated_tokens(many)
        ids = write.text.encode(self.check_texts(prompts))
        self.check_prompts(ids, bool(how.get("slide")))
        items = [(row, how.get("seed", 0) + number) for number, row in enumerate(ids)]
        streamed = on_progress is not None
        way = "generate", streamed, _frozen(asked)

        def run(rows: list[Any]) -> Any:
            prompts, numbers = [row for row, _ in rows], [number for _, number in rows]
            if asked.get("beam_size", 1) > 1:
                return write.write(prompts, numbers=numbers, **asked)
            return _news(write.streams(prompts, numbers=numbers, with_text=streamed, **asked))

        return await self.ask(
            name, way, items, run, on_progress=on_progress, weight=-(-(many + sum(map(len, ids))) // TOKENS_PER_ITEM)
        )

    async def answer(self, name: str, prompts: Sequence[str], how: dict[str, Any]) -> list[list[str]]:
        """The answers of a text-to-text model to every prompt, best first."""
        answer, lines = self.pool.get(name), self.check_texts(prompts, max(how["beam_size"], how["num_candidates"]))
        way: Any = object() if how.get("sample") else ("answer", _frozen(how))
        found = await self.ask(name, way, lines, lambda some: answer(some, **how))
        return [[candidate.text for candidate in each.candidates] for each in found]

    async def call(self, name: str, items: Sequence[Any], **how: Any) -> list[Any]:
        """What a model says of every item, where it is simply called with all of them."""
        predictor = self.pool.get(name)
        return await self.ask(name, ("call", _frozen(how)), items, lambda some: predictor(some, **how))

    async def classify_pairs(self, name: str, texts: Sequence[str], others: Sequence[str]) -> list[Any]:
        """What a classifier of pairs says of every pair."""
        classify = self.pool.get(name)
        pairs = list(zip(self.check_texts(texts), self.check_texts(others), strict=True))
        return await self.ask(name, "pairs", pairs, lambda some: classify(*map(list, zip(*some, strict=True))))


def _news(work: Any) -> Generator[list[tuple[int, Any]], None, list[Any]]:
    """What is new after each step, by item, as a group hands it on."""
    while True:
        try:
            news = next(work)
        except StopIteration as stop:
            return list(stop.value)
        yield [(row, (sample, piece)) for row, sample, piece in news]


def _frozen(how: dict[str, Any]) -> Any:
    return tuple(sorted((key, tuple(value) if isinstance(value, list) else value) for key, value in how.items()))

"""The routes that use models: what each takes, whom it asks, and what it answers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

from fastapi import APIRouter, Request
from pydantic import BaseModel, ValidationError
from starlette.responses import Response, StreamingResponse

from regard.core.errors import BadInput, Unsupported
from regard.serve import shapes
from regard.serve.errors import Wrong, fault
from regard.serve.files import body, files, media, picture
from regard.serve.shapes import listed
from regard.serve.work import Work

DRAWN = ("temperature", "top_k", "top_p", "min_p", "seed")  # what is about drawing
IMAGES, SOUNDS = ("image/",), ("audio/", "video/ogg")


def routes(work: Work) -> APIRouter:
    """All of them."""
    router = APIRouter(tags=["models"])
    _texts(router, work)
    _files(router, work)
    return router


def _texts(router: APIRouter, work: Work) -> None:
    from regard.tasks.embedder import Embedder
    from regard.tasks.filler import Filler, filled
    from regard.tasks.pronouncer import Pronouncer

    @router.post("/v1/translate")
    async def translate(asked: shapes.Translate) -> shapes.Translated:
        """Translate texts."""
        name = await picked(work, asked.model, _translates(asked), f"translate {asked.source or ''} {asked.to or ''}")
        search = asked.model_dump(exclude={"text", "model", "source", "to"})
        found = await work.translated(name, listed(asked.text), search)
        each = [[shapes.Candidate(text=c.text, score=c.score) for c in line] for line in found]
        return shapes.Translated(
            model=name,
            translations=[
                shapes.Translation(text=best.text, score=best.score, candidates=[best, *more] if more else [])
                for best, *more in each
            ],
        )

    @router.post(
        "/v1/generate",
        response_model=shapes.Generated,
        responses={200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}}},
    )
    async def generate(asked: shapes.Generate) -> Any:
        """Write on from prompts, or answer them; with `stream` as server-sent events, a piece of text at a time."""
        name = await picked(work, asked.model, writes, "write texts")
        prompts, how = listed(asked.prompt), asked.model_dump(exclude={"prompt", "model", "stream"})
        if not continues(work.host.get(name)):
            return shapes.Generated(model=name, texts=await _answers(work, name, prompts, asked))
        if not asked.stream:
            return shapes.Generated(model=name, texts=_told(await work.written(name, prompts, how)))
        if asked.beams > 1:
            raise Unsupported("with beams no text stands before the end; leave out stream or beams")

        def piece(prompt: int, news: Any) -> dict[str, Any]:
            return {"prompt": prompt, "sample": news[0], "text": news[1]}

        def last(found: list[Any]) -> list[dict[str, Any]]:
            return [{"done": True, "model": name, "texts": [each.model_dump() for each in _told(found)]}]

        return await streamed(lambda tell: work.written(name, prompts, how, tell), piece, last)

    @router.post("/v1/fill")
    async def fill(asked: shapes.Fill) -> shapes.Filled:
        """Words that may stand where a text has [MASK]."""
        name = await picked(work, asked.model, lambda p: isinstance(p, Filler), "fill in words")
        texts = work.checked(listed(asked.text))
        mark = work.host.get(name).hidden_by
        found = await work.called(name, texts, k=asked.k)
        return shapes.Filled(
            model=name,
            filled=[
                shapes.Filling(
                    text=filled(text, [guesses[0].word for guesses in masks], mark),
                    masks=[[shapes.Guess(word=g.word, probability=g.probability) for g in each] for each in masks],
                )
                for text, masks in zip(texts, found, strict=True)
            ],
        )

    @router.post("/v1/embed")
    async def embed(asked: shapes.Embed) -> shapes.Embedded:
        """A vector for each text."""
        name = await picked(work, asked.model, lambda p: isinstance(p, Embedder), "embed texts")
        long = "split" if asked.split else "refuse"
        found = await work.called(name, work.checked(listed(asked.text)), long=long)
        return shapes.Embedded(model=name, vectors=[vector.tolist() for vector in found])

    @router.post("/v1/pronounce")
    async def pronounce(asked: shapes.Pronounce) -> shapes.Pronounced:
        """How words sound."""
        name = await picked(work, asked.model, lambda p: isinstance(p, Pronouncer), "pronounce words")
        search = {"beams": asked.beams, "nbest": asked.nbest}
        found = await work.translated(name, listed(asked.word), search)
        return shapes.Pronounced(model=name, sounds=[[c.text for c in word] for word in found])


def _files(router: APIRouter, work: Work) -> None:
    from regard.data import spoken
    from regard.tasks.classifier import Classifier
    from regard.tasks.image_classifier import ImageClassifier
    from regard.tasks.transcriber import Sounds

    schema = shapes.Classify.model_json_schema(ref_template="#/components/schemas/{model}")
    content = {"application/json": {"schema": schema}, **shapes.of_files("image/*")}

    @router.post("/v1/classify", openapi_extra={"requestBody": {"required": True, "content": content}})
    async def classify(request: Request) -> shapes.Classified:
        """What texts or pictures are: JSON with texts; or pictures, as the body or in a form."""
        if media(request) in ("", "application/json"):
            asked: shapes.Classify = parsed(shapes.Classify, await body(request))
            name = await picked(work, asked.model, lambda p: isinstance(p, Classifier), "classify texts")
            found = await _labelled(work, name, asked)
        else:
            contents, fields = await files(request, IMAGES)
            name = await picked(work, fields.get("model"), lambda p: isinstance(p, ImageClassifier), "look at pictures")
            pictures = [await asyncio.to_thread(picture, x, work.settings, n) for n, x in enumerate(contents, 1)]
            found = await work.called(name, pictures)
        return shapes.Classified(
            model=name,
            classes=[
                shapes.Class(
                    label=one.label, probability=one.probability, probabilities=dict([*one.probabilities.items()][:10])
                )
                for one in found
            ],
        )

    sounds = {"requestBody": {"required": True, "content": shapes.of_files("audio/*")}}

    @router.post("/v1/transcribe", openapi_extra=sounds)
    async def transcribe(request: Request) -> shapes.Transcribed:
        """What is said in sounds: a .wav, .flac or .ogg, as the body or in a form."""
        contents, fields = await files(request, SOUNDS)
        name = await picked(work, fields.get("model"), lambda p: isinstance(p, Sounds), "transcribe sounds")
        hear = work.host.get(name)
        if hear.front is None:
            raise BadInput(f"{name} reads frames that were made elsewhere, not sounds")
        seconds = work.settings.seconds
        waves = [await asyncio.to_thread(spoken.read, one, hear.front.rate, seconds) for one in contents]
        found = await work.called(name, waves)
        return shapes.Transcribed(
            model=name,
            heard=[
                shapes.Heard(
                    text=one.text,
                    score=one.score,
                    words=[shapes.Word(word=w.word, start=w.start, end=w.end) for w in one.words],
                )
                for one in found
            ],
        )


# -- whom to ask -------------------------------------------------------------------------------------------------------


async def picked(work: Work, name: str | None, able: Callable[[Any], bool], does: str) -> str:
    """The model for this, loaded."""
    does = " ".join(does.split())
    if work.host.loaded:
        return work.host.pick(name, able, does)
    return await asyncio.to_thread(work.host.pick, name, able, does)


def writes(predictor: Any) -> bool:
    """Whether it takes prompts."""
    return hasattr(predictor, "continues")


def continues(predictor: Any) -> bool:
    """Whether it writes on from them, piece by piece."""
    return bool(getattr(predictor, "continues", False))


def _translates(asked: shapes.Translate) -> Callable[[Any], bool]:
    from regard.tasks.translator import Translator

    def able(predictor: Any) -> bool:
        if type(predictor) is not Translator:
            return False
        return asked.to in (None, predictor.target) and asked.source in (None, predictor.source)

    return able


async def _answers(work: Work, name: str, prompts: list[str], asked: shapes.Generate) -> list[shapes.Written]:
    """A text-to-text model's: whole, found by beams, or drawn where something about drawing is asked for."""
    plain = {"stream": False, "stop": [], "slide": False, "repetition_penalty": 1.0}
    if other := [option for option, none in plain.items() if getattr(asked, option) != none]:
        raise Unsupported(f"{name} answers prompts as a whole: leave out {', '.join(other)}")
    drawn = {option: getattr(asked, option) for option in DRAWN if option in asked.model_fields_set}
    how: dict[str, Any] = {"tokens": asked.tokens, "beams": asked.beams, "nbest": asked.samples}
    if drawn and drawn.get("temperature") != 0:
        if asked.beams > 1:
            raise BadInput(f"what is drawn is not searched for: leave out beams, or {', '.join(drawn)}")
        how |= drawn | {"sample": True}
    else:
        how["length_penalty"] = asked.length_penalty
    found = await work.answered(name, prompts, how)
    each = [(n, k, text) for n, texts in enumerate(found) for k, text in enumerate(texts)]
    sizes = [len(ids) for ids in work.host.get(name).text.encode([text for *_, text in each])]
    return [
        shapes.Written(prompt=n, sample=k, text=text, tokens=size, score=None, why="end")
        for (n, k, text), size in zip(each, sizes, strict=True)
    ]


async def _labelled(work: Work, name: str, asked: shapes.Classify) -> list[Any]:
    texts = listed(asked.text)
    if asked.other is None:
        return await work.called(name, work.checked(texts))
    others = listed(asked.other)
    if len(others) != len(texts):
        raise BadInput(f"{len(texts)} texts and {len(others)} others are not pairs")
    return await work.paired(name, texts, others)


def _told(found: list[Any]) -> list[shapes.Written]:
    return [
        shapes.Written(prompt=n, sample=k, text=one.text, tokens=len(one.tokens), score=one.score, why=one.why)
        for n, each in enumerate(found)
        for k, one in enumerate(each)
    ]


def parsed(kind: type[BaseModel], values: Any) -> Any:
    """A request of a kind, out of JSON."""
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise Wrong(422, f"{where}: {first['msg']}" if where else first["msg"], where[:120] or None) from None


# -- server-sent events ------------------------------------------------------------------------------------------------


async def streamed(
    work: Callable[[Callable[[int, Any], None]], Any],
    piece: Callable[[int, Any], dict[str, Any]],
    last: Callable[[list[Any]], list[Any]],
) -> Response:
    """An answer as it comes: events with pieces, then those of the end. What fails before the first piece is an error
    with a status; what fails later is the last event."""
    loop, news = asyncio.get_running_loop(), asyncio.Queue[Any]()

    def tell(item: int, what: Any) -> None:  # on the model's thread
        loop.call_soon_threadsafe(news.put_nowait, (item, what))

    async def whole() -> list[Any]:
        try:
            found: list[Any] = await work(tell)
            return found
        finally:
            news.put_nowait(None)

    job = asyncio.ensure_future(whole())
    try:
        first = await news.get()
        if first is None:
            await job  # which may be an error
    except BaseException:
        job.cancel()
        raise

    async def events() -> AsyncIterator[bytes]:
        try:
            one = first
            while one is not None:
                yield event(piece(*one))
                one = await news.get()
            try:
                found = await job
            except Exception as error:
                yield event(fault(error))
                return
            for each in last(found):
                yield event(each)
        finally:
            job.cancel()

    return StreamingResponse(events(), media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})


def event(value: Any) -> bytes:
    """One server-sent event: a value as JSON, or a word as it stands."""
    said = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return f"data: {said}\n\n".encode("utf-8", "replace")

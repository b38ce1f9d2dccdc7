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
from regard.serve.http import schemas
from regard.serve.http.errors import ApiError, error_body
from regard.serve.http.jobs import Jobs
from regard.serve.http.schemas import as_list
from regard.serve.http.uploads import check_image, media_type, read_files, read_json

SAMPLING_FIELDS = ("temperature", "top_k", "top_p", "min_p", "seed")  # what is about drawing
IMAGES, AUDIO = ("image/",), ("audio/", "video/ogg")


def routes(jobs: Jobs) -> APIRouter:
    """All of them."""
    router = APIRouter(tags=["models"])
    _texts(router, jobs)
    _files(router, jobs)
    return router


def _texts(router: APIRouter, jobs: Jobs) -> None:
    from regard.tasks.text.embedder import TextEmbedder
    from regard.tasks.text.masked_lm import FillMask
    from regard.tasks.text.pronunciation import Pronouncer

    @router.post("/v1/translate")
    async def translate(asked: schemas.TranslateRequest) -> schemas.TranslateResponse:
        """Translate texts."""
        name = await pick_model(
            jobs, asked.model, _translates(asked), f"translate {asked.source or ''} {asked.to or ''}"
        )
        search = asked.model_dump(exclude={"text", "model", "source", "to"})
        found = await jobs.translate(name, as_list(asked.text), search)
        each = [[schemas.Candidate(text=c.text, score=c.score) for c in line] for line in found]
        return schemas.TranslateResponse(
            model=name,
            translations=[
                schemas.Translation(text=best.text, score=best.score, candidates=[best, *more] if more else [])
                for best, *more in each
            ],
        )

    @router.post(
        "/v1/generate",
        response_model=schemas.GenerateResponse,
        responses={200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}}},
    )
    async def generate(asked: schemas.GenerateRequest) -> Any:
        """Write on from prompts, or answer them; with `stream` as server-sent events, a piece of text at a time."""
        name = await pick_model(jobs, asked.model, takes_prompts, "write texts")
        prompts, how = as_list(asked.prompt), asked.model_dump(exclude={"prompt", "model", "stream"})
        if not continues_text(jobs.pool.get(name)):
            return schemas.GenerateResponse(model=name, texts=await _answers(jobs, name, prompts, asked))
        if not asked.stream:
            return schemas.GenerateResponse(model=name, texts=_generated_texts(await jobs.generate(name, prompts, how)))
        if asked.beam_size > 1:
            raise Unsupported("with beams no text stands before the end; leave out stream or beam_size")

        def piece(prompt: int, news: Any) -> dict[str, Any]:
            return {"prompt": prompt, "sample": news[0], "text": news[1]}

        def last(found: list[Any]) -> list[dict[str, Any]]:
            return [{"done": True, "model": name, "texts": [each.model_dump() for each in _generated_texts(found)]}]

        return await stream_response(lambda tell: jobs.generate(name, prompts, how, tell), piece, last)

    @router.post("/v1/fill")
    async def fill(asked: schemas.FillRequest) -> schemas.FillResponse:
        """Words that may stand where a text has [MASK]."""
        name = await pick_model(jobs, asked.model, lambda p: isinstance(p, FillMask), "fill in words")
        texts = jobs.check_texts(as_list(asked.text))
        found = await jobs.call(name, texts, top_k=asked.top_k)
        return schemas.FillResponse(
            model=name,
            filled=[
                schemas.FilledText(
                    text=each.text,
                    masks=[
                        [schemas.FillCandidate(word=g.word, probability=g.probability) for g in mask]
                        for mask in each.masks
                    ],
                )
                for each in found
            ],
        )

    @router.post("/v1/embed")
    async def embed(asked: schemas.EmbedRequest) -> schemas.EmbedResponse:
        """A vector for each text."""
        name = await pick_model(jobs, asked.model, lambda p: isinstance(p, TextEmbedder), "embed texts")
        long = "split" if asked.split else "error"
        found = await jobs.call(name, jobs.check_texts(as_list(asked.text)), overflow=long)
        return schemas.EmbedResponse(model=name, vectors=[vector.tolist() for vector in found])

    @router.post("/v1/pronounce")
    async def pronounce(asked: schemas.PronounceRequest) -> schemas.PronounceResponse:
        """How words sound."""
        name = await pick_model(jobs, asked.model, lambda p: isinstance(p, Pronouncer), "pronounce words")
        search = {"beam_size": asked.beam_size, "num_candidates": asked.num_candidates}
        found = await jobs.translate(name, as_list(asked.word), search)
        return schemas.PronounceResponse(model=name, pronunciations=[[c.text for c in word] for word in found])


def _files(router: APIRouter, jobs: Jobs) -> None:
    from regard.modalities.audio import Audio
    from regard.modalities.base import Limits
    from regard.tasks.audio.speech_base import SpeechRecognizerBase
    from regard.tasks.image.image_classification import ImageClassifier
    from regard.tasks.text.classification import TextClassifier

    schema = schemas.ClassifyRequest.model_json_schema(ref_template="#/components/schemas/{model}")
    content = {"application/json": {"schema": schema}, **schemas.file_body_schema("image/*")}

    @router.post("/v1/classify", openapi_extra={"requestBody": {"required": True, "content": content}})
    async def classify(request: Request) -> schemas.ClassifyResponse:
        """What texts or pictures are: JSON with texts; or pictures, as the body or in a form."""
        if media_type(request) in ("", "application/json"):
            asked: schemas.ClassifyRequest = parse_request(schemas.ClassifyRequest, await read_json(request))
            name = await pick_model(jobs, asked.model, lambda p: isinstance(p, TextClassifier), "classify texts")
            found = await _classify_texts(jobs, name, asked)
        else:
            contents, fields = await read_files(request, IMAGES)
            name = await pick_model(
                jobs, fields.get("model"), lambda p: isinstance(p, ImageClassifier), "look at pictures"
            )
            pictures = [await asyncio.to_thread(check_image, x, jobs.settings, n) for n, x in enumerate(contents, 1)]
            found = await jobs.call(name, pictures)
        return schemas.ClassifyResponse(
            model=name,
            classes=[
                schemas.Classification(
                    label=one.label, probability=one.probability, probabilities=dict([*one.probabilities.items()][:10])
                )
                for one in found
            ],
        )

    sounds = {"requestBody": {"required": True, "content": schemas.file_body_schema("audio/*")}}

    @router.post("/v1/transcribe", openapi_extra=sounds)
    async def transcribe(request: Request) -> schemas.TranscribeResponse:
        """What is said in sounds: a .wav, .flac or .ogg, as the body or in a form."""
        contents, fields = await read_files(request, AUDIO)
        name = await pick_model(
            jobs, fields.get("model"), lambda p: isinstance(p, SpeechRecognizerBase), "transcribe sounds"
        )
        if jobs.pool.get(name).preprocess is None:
            raise BadInput(f"{name} reads frames that were made elsewhere, not sounds")
        limits = Limits(seconds=jobs.settings.max_audio_seconds)
        found = await jobs.call(name, [await asyncio.to_thread(Audio.read, one, limits) for one in contents])
        return schemas.TranscribeResponse(
            model=name,
            transcriptions=[
                schemas.Transcription(
                    text=one.text,
                    score=one.score,
                    words=[schemas.TimedWord(word=w.word, start=w.start, end=w.end) for w in one.words],
                )
                for one in found
            ],
        )


# -- whom to ask -------------------------------------------------------------------------------------------------------


async def pick_model(jobs: Jobs, name: str | None, able: Callable[[Any], bool], does: str) -> str:
    """The model for this, loaded."""
    does = " ".join(does.split())
    if jobs.pool.loaded:
        return jobs.pool.pick(name, able, does)
    return await asyncio.to_thread(jobs.pool.pick, name, able, does)


def takes_prompts(predictor: Any) -> bool:
    """Whether it takes prompts."""
    return hasattr(predictor, "continues")


def continues_text(predictor: Any) -> bool:
    """Whether it writes on from them, piece by piece."""
    return bool(getattr(predictor, "continues", False))


def _translates(asked: schemas.TranslateRequest) -> Callable[[Any], bool]:
    from regard.tasks.text.translation import Translator

    def able(predictor: Any) -> bool:
        if type(predictor) is not Translator:
            return False
        return asked.to in (None, predictor.target) and asked.source in (None, predictor.source)

    return able


async def _answers(
    jobs: Jobs, name: str, prompts: list[str], asked: schemas.GenerateRequest
) -> list[schemas.GeneratedText]:
    """A text-to-text model's: whole, found by beams, or drawn where something about drawing is asked for."""
    plain = {"stream": False, "stop": [], "slide": False, "repetition_penalty": 1.0}
    if other := [option for option, none in plain.items() if getattr(asked, option) != none]:
        raise Unsupported(f"{name} answers prompts as a whole: leave out {', '.join(other)}")
    drawn = {option: getattr(asked, option) for option in SAMPLING_FIELDS if option in asked.model_fields_set}
    how: dict[str, Any] = {
        "max_new_tokens": asked.max_new_tokens,
        "beam_size": asked.beam_size,
        "num_candidates": asked.num_candidates,
    }
    if drawn and drawn.get("temperature") != 0:
        if asked.beam_size > 1:
            raise BadInput(f"what is drawn is not searched for: leave out beam_size, or {', '.join(drawn)}")
        how |= drawn | {"sample": True}
    else:
        how["length_penalty"] = asked.length_penalty
    found = await jobs.answer(name, prompts, how)
    each = [(n, k, text) for n, texts in enumerate(found) for k, text in enumerate(texts)]
    sizes = [len(ids) for ids in jobs.pool.get(name).text.encode([text for *_, text in each])]
    return [
        schemas.GeneratedText(prompt=n, sample=k, text=text, tokens=size, score=None, finish_reason="end")
        for (n, k, text), size in zip(each, sizes, strict=True)
    ]


async def _classify_texts(jobs: Jobs, name: str, asked: schemas.ClassifyRequest) -> list[Any]:
    texts = as_list(asked.text)
    if asked.text_pair is None:
        return await jobs.call(name, jobs.check_texts(texts))
    others = as_list(asked.text_pair)
    if len(others) != len(texts):
        raise BadInput(f"{len(texts)} texts and {len(others)} others are not pairs")
    return await jobs.classify_pairs(name, texts, others)


def _generated_texts(found: list[Any]) -> list[schemas.GeneratedText]:
    return [
        schemas.GeneratedText(
            prompt=n, sample=k, text=one.text, tokens=len(one.tokens), score=one.score, finish_reason=one.finish_reason
        )
        for n, each in enumerate(found)
        for k, one in enumerate(each)
    ]


def parse_request(kind: type[BaseModel], values: Any) -> Any:
    """A request of a kind, out of JSON."""
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise ApiError(422, f"{where}: {first['msg']}" if where else first["msg"], where[:120] or None) from None


# -- server-sent events ------------------------------------------------------------------------------------------------


async def stream_response(
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
                yield sse_event(piece(*one))
                one = await news.get()
            try:
                found = await job
            except Exception as error:
                yield sse_event(error_body(error))
                return
            for each in last(found):
                yield sse_event(each)
        finally:
            job.cancel()

    return StreamingResponse(events(), media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})


def sse_event(value: Any) -> bytes:
    """One server-sent event: a value as JSON, or a word as it stands."""
    said = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return f"data: {said}\n\n".encode("utf-8", "replace")

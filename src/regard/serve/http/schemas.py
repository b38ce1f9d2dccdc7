"""What requests and answers look like: the fields, their ranges and what they mean, as OpenAPI shows them."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

Text = Annotated[str, Field(min_length=1, max_length=20_000)]
Texts = Annotated[
    Text | Annotated[list[Text], Field(min_length=1, max_length=64)], Field(description="One, or several.")
]
ModelName = Annotated[
    str | None, Field(max_length=200, description="A model of this service; else the first that can.")
]
BeamSize = Annotated[int, Field(ge=1, le=16, description="Hypotheses at a time; 1 is greedy.")]
Seed = Annotated[int, Field(ge=0, lt=2**32, description="The same seed draws the same.")]
Fraction = Annotated[float, Field(ge=0, le=1)]


class BaseRequest(BaseModel):
    """A request: no field that is not known, no number that is none."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


class TranslateRequest(BaseRequest):
    """Texts to translate, and how."""

    text: Texts
    model: ModelName = None
    source: Annotated[str | None, Field(max_length=20, description="The language of the texts, as en.")] = None
    to: Annotated[str | None, Field(max_length=20, description="The language wanted, as de.")] = None
    beam_size: BeamSize = 4
    num_candidates: Annotated[int, Field(ge=1, le=16, description="Translations of each text.")] = 1
    length_penalty: Annotated[float, Field(ge=-10, le=10)] = 1.0
    prefix: Annotated[str, Field(max_length=500, description="Every translation begins so.")] = ""
    must: Annotated[list[Annotated[str, Field(min_length=1, max_length=100)]], Field(max_length=8)] = []
    sample: Annotated[bool, Field(description="Draw instead of searching.")] = False
    temperature: Annotated[float, Field(gt=0, le=10)] = 1.0
    top_k: Annotated[int, Field(ge=0, le=2**20)] = 0
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    min_p: Fraction = 0.0
    seed: Seed = 0


class Candidate(BaseModel):
    """One translation of a text and its score."""

    text: str
    score: float


class Translation(Candidate):
    """The best translation of a text; with nbest above 1 also the others."""

    candidates: list[Candidate] = []


class TranslateResponse(BaseModel):
    """A translation for each text, in their order."""

    model: str
    translations: list[Translation]


class GenerateRequest(BaseRequest):
    """Prompts to write on from, and how."""

    prompt: Texts
    model: ModelName = None
    max_new_tokens: Annotated[int, Field(ge=1, le=4096, description="At most so many more.")] = 200
    temperature: Annotated[float, Field(ge=0, le=10, description="0 takes the likeliest.")] = 0.8
    top_k: Annotated[int, Field(ge=0, le=2**20)] = 0
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    min_p: Fraction = 0.0
    repetition_penalty: Annotated[float, Field(gt=0, le=10)] = 1.0
    stop: Annotated[list[Annotated[str, Field(min_length=1, max_length=100)]], Field(max_length=8)] = []
    num_candidates: Annotated[int, Field(ge=1, le=16)] = 1
    beam_size: Annotated[int, Field(ge=1, le=16)] = 1
    length_penalty: Annotated[float, Field(ge=-10, le=10)] = 1.0
    slide: Annotated[bool, Field(description="Let the oldest tokens go where a text outgrows the model.")] = False
    seed: Seed = 0
    stream: Annotated[bool, Field(description="Server-sent events, a piece at a time.")] = False


class GeneratedText(BaseModel):
    """What follows a prompt, and why it ends: end, stop or length."""

    prompt: int
    sample: int
    text: str
    tokens: int
    score: float | None
    finish_reason: str


class GenerateResponse(BaseModel):
    """All texts, those of a prompt one after another."""

    model: str
    texts: list[GeneratedText]


class FillRequest(BaseRequest):
    """Texts with masks in them."""

    text: Texts
    model: ModelName = None
    top_k: Annotated[int, Field(ge=1, le=100, description="Words for each mask.")] = 5


class FillCandidate(BaseModel):
    """A word that may stand at a mask."""

    word: str
    probability: float


class FilledText(BaseModel):
    """A text with its masks filled, and what may stand at each of them, likeliest first."""

    text: str
    masks: list[list[FillCandidate]]


class FillResponse(BaseModel):
    """One for each text."""

    model: str
    filled: list[FilledText]


class ClassifyRequest(BaseRequest):
    """Texts to tell apart."""

    text: Texts
    text_pair: Annotated[Texts | None, Field(description="The second texts, of a model for pairs.")] = None
    model: ModelName = None


class Classification(BaseModel):
    """The likeliest label, and the probability of each (the ten likeliest)."""

    label: str
    probability: float
    probabilities: dict[str, float]


class ClassifyResponse(BaseModel):
    """One for each text or picture."""

    model: str
    classes: list[Classification]


class EmbedRequest(BaseRequest):
    """Texts to embed."""

    text: Texts
    model: ModelName = None
    split: Annotated[bool, Field(description="Read a text that is too long in parts.")] = False


class EmbedResponse(BaseModel):
    """A vector for each text."""

    model: str
    vectors: list[list[float]]


class PronounceRequest(BaseRequest):
    """Words to pronounce."""

    word: Texts
    model: ModelName = None
    beam_size: BeamSize = 4
    num_candidates: Annotated[int, Field(ge=1, le=16)] = 1


class PronounceResponse(BaseModel):
    """Of each word its sounds, the best first."""

    model: str
    pronunciations: list[list[str]]


class TimedWord(BaseModel):
    """A word and when it is said."""

    word: str
    start: float
    end: float


class Transcription(BaseModel):
    """What is said in a sound."""

    text: str
    score: float
    words: list[TimedWord] = []


class TranscribeResponse(BaseModel):
    """One for each sound."""

    model: str
    transcriptions: list[Transcription]


class Status(BaseModel):
    """How the service is."""

    status: str


class ModelCard(BaseModel):
    """A model, as OpenAI's list has it, and what it is for."""

    id: str
    object: str = "model"
    created: int = 0
    owned_by: str = "regard"
    task: str


class ModelList(BaseModel):
    """The models of this service."""

    object: str = "list"
    data: list[ModelCard]


def as_list(one: str | list[str]) -> list[str]:
    """One or several as several."""
    return [one] if isinstance(one, str) else list(one)


def file_body_schema(media: str) -> dict[str, Any]:
    """How OpenAPI describes a body that is a file: as it is, or as the part "file" of a form."""
    binary = {"type": "string", "format": "binary"}
    form = {
        "type": "object",
        "required": ["file"],
        "properties": {"file": {"type": "array", "items": binary, "minItems": 1}, "model": {"type": "string"}},
    }
    return {media: {"schema": binary}, "multipart/form-data": {"schema": form}}

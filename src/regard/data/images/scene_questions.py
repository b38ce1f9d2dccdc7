"""Questions about composed scenes: pictures, questions and answers by rule, and the objects that a question concerns.

    count     How many red digits are there?                  0 to 4
    same      Are the bag and the shoe the same colour?       yes, no
    colour    What colour is the dress?                       one of six
    side      Is the bag left or right of the digit?          left, right

A scene has printed digits and pieces of clothing (Fashion-MNIST) in six named colours over a textured wall and floor
(data.images.composed_scenes). Every scene has one question of each kind. The answer is drawn first, every one of its
kind as likely, and the scene is composed to fit; the objects of a question are drawn without regard to the answer. So
the question alone tells nothing about the answer beyond its kind, and the picture alone does not tell what is asked.

`masks` of a batch are the visible pixels of the objects that a question concerns: those that are counted, the two that
are compared, the one whose colour is asked. They are known exactly, so attention maps can be compared with them
(interpret.faithfulness). To count what is not there concerns no object; its mask is empty.

A scene is computed from (seed, split, row). Its cut-outs in val and test come from images and fonts that are never
trained on.

After Johnson et al.: CLEVR: A Diagnostic Dataset for Compositional Language and Elementary Visual Reasoning. CVPR 2017.
arXiv:1612.06890
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import UInt8

from regard.core.config import field
from regard.core.shapes import Bool, Int, Tensor
from regard.core.validation import validate
from regard.data.base import Dataset, DatasetSplit, TensorBatch
from regard.data.images import composed_scenes
from regard.data.images.image_shards import MEAN, STD
from regard.tokens.question_forms import QuestionForms
from regard.tokens.story_words import StoryWords

KINDS = ("count", "same", "colour", "side")  # of questions, in the order in which a scene has them
THINGS = {  # name -> plural, source of its cut-outs, classes there
    "digit": ("digits", "digits", tuple(range(10))),
    "shirt": ("shirts", "fashion_mnist", (0, 2, 6)),
    "dress": ("dresses", "fashion_mnist", (3,)),
    "shoe": ("shoes", "fashion_mnist", (5, 7)),
    "boot": ("boots", "fashion_mnist", (9,)),
    "bag": ("bags", "fashion_mnist", (8,)),
}
ANY = "things"  # the plural of all of them
HUES = {"red": 0.0, "yellow": 0.155, "green": 0.35, "blue": 0.61, "purple": 0.79}
COLOURS = (*HUES, "white")
FORMS = {  # of each kind, all as likely; words in braces are slots
    "count": (
        "how many {colour} {things}",
        "how many {colour} {things} are there",
        "how many {colour} {things} are in the picture",
        "how many {colour} {things} do you see",
    ),
    "same": ("are the {thing} and the {thing} the same {word}", "do the {thing} and the {thing} have the same {word}"),
    "colour": ("what {word} is the {thing}", "which {word} is the {thing}"),
    "side": (
        "is the {thing} left or right of the {thing}",
        "is the {thing} to the left or to the right of the {thing}",
    ),
}
SLOTS = {
    "colour": (*COLOURS, ""),
    "things": (*(plural for plural, _, _ in THINGS.values()), ANY),
    "thing": (*THINGS,),
    "word": ("colour", "color"),
}
MAX_COUNT = 4
MIN_GAP = 0.08  # between the middles of two objects of which one is left of the other, as a share of the image's side
MIN_VISIBLE = 0.85  # share of an object's pixels
TRIALS = 40  # places tried for an object; after that the scene begins anew
MAX_CACHED_BYTES = 2**30  # scenes of a split that are kept in memory


class Question(NamedTuple):
    """A question about a scene, its answer, and the numbers of the objects that it concerns."""

    kind: str
    text: str
    answer: str
    objects: tuple[int, ...]


class QuestionScene(NamedTuple):
    """A scene: its pixels, the visible pixels of its objects, the name and colour of each, and the questions."""

    pixels: np.ndarray  # uint8, 3 Y X
    masks: np.ndarray  # M Y X
    things: list[tuple[str, str]]
    questions: list[Question]


@dataclass(frozen=True, eq=False)
class QuestionBatch(TensorBatch):
    """A batch of scenes, each with K questions."""

    pixels: UInt8[Tensor, "B C Y X"]
    questions: Int[Tensor, "B K T"]  # word ids, padded with 0
    answers: Int[Tensor, "B K"]
    kinds: Int[Tensor, "B K"]  # numbers in KINDS
    masks: Bool[Tensor, "B K Y X"]  # pixels of the objects that a question concerns


@dataclass(frozen=True)
class SceneQuestions(Dataset):
    """Settings of the dataset."""

    image_size: int = field(96, low=48)  # pixels per side
    batch_size: int = field(32, group="training")  # scenes per batch over all processes; each has four questions
    max_others: int = field(5, low=MAX_COUNT)  # objects of a scene besides two; at most
    min_side: float = field(0.21, above=0, high=0.3)  # of an object's square, as a share of the image's side
    max_side: float = field(0.29, above=0, high=0.3)
    train_examples: int = 20_000  # scenes
    eval_examples: int = 1000  # of val and of test
    seed: int = field(0, low=0, below=2**63)

    quick_settings = {"image_size": 48, "batch_size": 4, "train_examples": 8, "eval_examples": 4}  # noqa: RUF012

    mean, std = MEAN, STD
    kinds = KINDS

    def __post_init__(self) -> None:
        validate(self, "data.")

    def title(self) -> str:
        return "questions about composed scenes"

    def forms(self) -> QuestionForms:
        """Return the forms of questions."""
        return QuestionForms([form for forms in FORMS.values() for form in forms], SLOTS)

    def words(self) -> StoryWords:
        """Return all words of questions, and the answers."""
        answers = [*map(str, range(MAX_COUNT + 1)), "yes", "no", *COLOURS, "left", "right"]
        return StoryWords.of(self.forms().words(), answers)

    def load(self, split: str, words: StoryWords) -> SceneQuestionSplit:
        """Return a split with its questions as word ids."""
        return SceneQuestionSplit(self, self.split(split), words)


class SceneQuestionSplit(DatasetSplit[QuestionBatch]):
    """The scenes of one split; ``split[i]`` is the i-th of them with its questions as text."""

    def __init__(self, settings: SceneQuestions, part: str, words: StoryWords) -> None:
        self.settings, self.words, self.batch_size = settings, words, settings.batch_size
        self.part, self.composer = part, QuestionComposer(settings, part)
        self.answers = {answer: i for i, answer in enumerate(words.answers)}
        self.max_words = max(len(form.split()) for form in settings.forms().forms)
        self._cached: dict[int, QuestionScene] = {}

    def __len__(self) -> int:
        return self.settings.train_examples if self.part == "train" else self.settings.eval_examples

    def __getitem__(self, i: int) -> QuestionScene:
        if not 0 <= i < len(self):
            raise IndexError(i)
        if (found := self._cached.get(i)) is None:
            made = self.composer.compose(i)
            if 1.5 * made.pixels.nbytes * len(self) > MAX_CACHED_BYTES:  # with the masks, one bit for a pixel
                return made
            found = self._cached[i] = made._replace(masks=np.packbits(made.masks, axis=-1))
        return found._replace(masks=np.unpackbits(found.masks, axis=-1, count=found.pixels.shape[2]).view(bool))

    def collate(self, rows: Int[Tensor, " B"]) -> QuestionBatch:
        scenes = [self[i] for i in rows.tolist()]
        questions = [question for scene in scenes for question in scene.questions]
        ids = self.words.encode(question.text for question in questions)
        ids = torch.nn.functional.pad(ids, (0, self.max_words - ids.shape[1]))
        masks = [scene.masks[list(question.objects)].any(0) for scene in scenes for question in scene.questions]
        shape = len(scenes), len(KINDS)
        return QuestionBatch(
            torch.from_numpy(np.stack([scene.pixels for scene in scenes])),
            ids.view(*shape, -1),
            torch.tensor([self.answers[question.answer] for question in questions]).view(shape),
            torch.tensor([KINDS.index(question.kind) for question in questions]).view(shape),
            torch.from_numpy(np.stack(masks)).view(*shape, *scenes[0].pixels.shape[1:]),
        )

    def count(self, batch: QuestionBatch) -> int:
        return batch.answers.numel()

    def contents(self) -> Iterable[Tensor | np.ndarray]:
        yield np.frombuffer(f"{self.part} {self.settings} {self.words}".encode(), np.uint8)


class QuestionComposer:
    """Composes the scenes of one split."""

    def __init__(self, settings: SceneQuestions, part: str) -> None:
        self.settings = settings
        sources = {source: composed_scenes.load_cutouts(source, part) for _, source, _ in THINGS.values()}
        self.cutouts = {
            name: np.concatenate([sources[source][c] for c in classes])
            for name, (_, source, classes) in THINGS.items()
        }  # fmt: skip
        digest = blake2b(f"{settings.seed}/{part}/questions".encode(), digest_size=7).digest()
        self.key = int.from_bytes(digest, "big")

    def compose(self, i: int) -> QuestionScene:
        """Return scene i with a question of each kind."""
        rng = np.random.default_rng((self.key, i))
        while True:
            things, asked = plan_scene(rng, self.settings.max_others)
            if (drawn := self._draw(things, rng)) is None:
                continue
            pixels, masks, middles = drawn
            gap = middles[asked.pair[0]] - middles[asked.pair[1]]
            if abs(gap) >= MIN_GAP * self.settings.image_size and ("left" if gap < 0 else "right") == asked.side:
                return QuestionScene(pixels, masks, things, list(write_questions(things, asked, rng)))

    def _draw(
        self, things: list[tuple[str, str]], rng: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray, list[float]] | None:
        """Return pixels, masks and the column of each object's middle; None where the objects found no place."""
        side = self.settings.image_size
        canvas, _ = composed_scenes.make_background(rng, side)
        masks = np.zeros((len(things), side, side), bool)
        total, middles = np.zeros(len(things)), []
        for n in rng.permutation(len(things)):
            name, colour = things[n]
            picture = self.cutouts[name][int(rng.integers(len(self.cutouts[name])))]
            if name != "digit" and rng.random() < 0.5:
                picture = picture[:, ::-1]
            size = round(side * float(rng.uniform(self.settings.min_side, self.settings.max_side)))
            picture = composed_scenes.paint(picture, named_colour(colour, rng))
            cut = composed_scenes.turn_cutout(picture, size, float(rng.uniform(-15, 15)))
            pixels = (cut[..., 3] >= 0.5).sum()
            for _ in range(TRIALS):
                alpha = composed_scenes.place_cutout(cut, side, rng)
                mask = alpha[3] >= 0.5
                visible = masks & ~mask
                if mask.sum() >= MIN_VISIBLE * pixels and (visible.sum((1, 2)) >= MIN_VISIBLE * total).all():
                    break
            else:
                return None
            canvas += alpha[3] * (alpha[:3] - canvas)
            masks, masks[n], total[n] = visible, mask, pixels
        columns = np.arange(side)
        middles = [float((mask.sum(0) * columns).sum() / mask.sum()) for mask in masks]
        return canvas.clip(0, 255).round().astype(np.uint8), masks, middles


class Plan(NamedTuple):
    """What is asked about a scene, before its objects have places."""

    colour: str  # that is counted; "": any
    thing: str  # that is counted; "": any
    pair: tuple[int, int]  # objects whose colours and places are compared
    shown: int  # the object whose colour is asked
    side: str  # where the first of the pair is


def plan_scene(rng: np.random.Generator, max_others: int) -> tuple[list[tuple[str, str]], Plan]:
    """Draw the answers, and (name, colour) of objects that fit them."""
    names = [str(name) for name in rng.permutation(list(THINGS))]
    first, second, *others = names  # the first two occur once, so that "the bag" is clear
    is_same, wanted = bool(rng.integers(2)), int(rng.integers(MAX_COUNT + 1))
    counts_colour, counts_thing = [(True, True), (True, True), (False, True), (True, False)][rng.integers(4)]
    thing, colour = others[0] if counts_thing else "", _pick(COLOURS, rng) if counts_colour else ""
    while True:
        one = _pick(COLOURS, rng)
        two = one if is_same else _pick([each for each in COLOURS if each != one], rng)
        things = [(first, one), (second, two)]
        # Objects that are counted, then others, of which every second one shares the colour or the name.
        things += [(thing or _pick(others, rng), colour or _pick(COLOURS, rng)) for _ in range(wanted)]
        for _ in range(rng.integers(max_others - wanted + 1)):
            similar = rng.random() < 0.5
            name = thing if thing and similar else _pick(others, rng)
            things.append((name, colour if colour and similar and name != thing else _pick(COLOURS, rng)))
        if len(count_objects(things, colour, thing)) == wanted:
            pair = (0, 1) if rng.integers(2) else (1, 0)
            return things, Plan(colour, thing, pair, int(rng.integers(2)), _pick(("left", "right"), rng))


def write_questions(things: list[tuple[str, str]], asked: Plan, rng: np.random.Generator) -> Iterator[Question]:
    """Yield a question of each kind, with the answer that the objects give."""
    word, (one, two) = _pick(SLOTS["word"], rng), asked.pair
    pair = {"word": word, "thing": [things[one][0], things[two][0]]}
    counted = count_objects(things, asked.colour, asked.thing)
    plural = THINGS[asked.thing][0] if asked.thing else ANY
    same = "yes" if things[one][1] == things[two][1] else "no"
    name, colour = things[asked.shown]
    yield Question("count", _write("count", rng, colour=asked.colour, things=plural), str(len(counted)), counted)
    yield Question("same", _write("same", rng, **pair), same, asked.pair)
    yield Question("colour", _write("colour", rng, word=word, thing=name), colour, (asked.shown,))
    yield Question("side", _write("side", rng, **pair), asked.side, asked.pair)


def count_objects(things: list[tuple[str, str]], colour: str, thing: str) -> tuple[int, ...]:
    """Return the numbers of the objects of a colour and a name; "": of any."""
    return tuple(n for n, (name, has) in enumerate(things) if colour in ("", has) and thing in ("", name))


def named_colour(name: str, rng: np.random.Generator) -> np.ndarray:
    """Return a colour of this name, RGB from 0 to 255; no two are alike."""
    from colorsys import hsv_to_rgb

    if name == "white":
        return 255 * np.array(hsv_to_rgb(rng.random(), rng.uniform(0, 0.05), rng.uniform(0.92, 1)), np.float32)
    hue = (HUES[name] + rng.uniform(-0.02, 0.02)) % 1
    return 255 * np.array(hsv_to_rgb(hue, rng.uniform(0.75, 1), rng.uniform(0.8, 1)), np.float32)


def _write(kind: str, rng: np.random.Generator, **slots: Any) -> str:
    """Return a question of a kind as people write it; a slot that occurs twice has a list."""
    text = _pick(FORMS[kind], rng)
    for name, value in slots.items():
        for each in value if isinstance(value, list) else [value]:
            text = text.replace(f"{{{name}}}", each, 1)
    text = " ".join(text.split())
    return f"{text[0].upper()}{text[1:]}?"


def _pick(values: Any, rng: np.random.Generator) -> Any:
    return values[int(rng.integers(len(values)))]

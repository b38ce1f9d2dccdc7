"""Questions about composed scenes: pictures, questions and answers by rule, and the objects that a question concerns.

    count     How many red digits are there?                  0 to 4
    same      Are the bag and the shoe the same colour?       yes, no
    colour    What colour is the dress?                       one of six
    side      Is the bag left or right of the digit?          left, right

A scene has printed digits and pieces of clothing (Fashion-MNIST) in six named colours over a textured wall and floor
(data.images.named_things). Every scene has one question of each kind. The answer is drawn first, every one of its kind
as likely, and the scene is composed to fit; the objects of a question are drawn without regard to the answer. So the
question alone tells nothing about the answer beyond its kind, and the picture alone does not tell what is asked.

A training scene has `question_sets` of a question of each kind. All but the first are drawn for the scene as it is,
again with every answer that it allows as likely. An update asks `sets_per_update` of them, taken by chance, about a
scene that is mirrored every second time (`flip`; left and right change places). Validation and testing ask the first.

`masks` of a scene are the visible pixels of its objects, `Question.objects` says which of them a question concerns:
those that are counted, the two that are compared, the one whose colour is asked (`question_masks`). They are known
exactly, so attention maps can be compared with them. To count what is not there concerns no object; its mask is empty.

A scene is computed from (seed, split, row), with `store` once for all runs (data.stored_rows). Its cut-outs in val and
test come from images and fonts that are never trained on.

After Johnson et al.: CLEVR: A Diagnostic Dataset for Compositional Language and Elementary Visual Reasoning. CVPR 2017.
arXiv:1612.06890
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import UInt8

from regard.core.config import field
from regard.core.errors import BadInput
from regard.core.shapes import Bool, Int, Tensor
from regard.core.validation import validate
from regard.data.base import Dataset, DatasetSplit, TensorBatch
from regard.data.batching import OffsetBatches, RowBatches, mix_seed
from regard.data.images.image_shards import MEAN, STD
from regard.data.images.named_things import COLOURS, THINGS, DrawnThings, draw_things, load_things
from regard.data.stored_rows import stored_rows
from regard.tokens.question_forms import QuestionForms
from regard.tokens.story_words import StoryWords

KINDS = ("count", "same", "colour", "side")  # of questions, in the order in which a scene has them
ANY = "things"  # the plural of all of them
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
    labels: UInt8[Tensor, "B 2 Y X"]  # of every pixel: 0 or 1 + the number of a name; 0 or 1 + that of a colour


@dataclass(frozen=True)
class SceneQuestions(Dataset):
    """Settings of the dataset."""

    image_size: int = field(96, low=48)  # pixels per side
    batch_size: int = field(32, group="training")  # scenes per batch over all processes
    max_others: int = field(5, low=MAX_COUNT)  # objects of a scene besides two; at most
    min_side: float = field(0.21, above=0, high=0.3)  # of an object's square, as a share of the image's side
    max_side: float = field(0.29, above=0, high=0.3)
    question_sets: int = 4  # of a training scene; each has a question of every kind
    sets_per_update: int = 2  # that are asked when a training scene occurs
    flip: bool = True  # mirror every second scene in training
    train_examples: int = 20_000  # scenes
    eval_examples: int = 1000  # of val and of test
    seed: int = field(0, low=0, below=2**63)
    store: bool = field(False, help="compose training scenes first, on all cores, and keep them in the cache folder")

    quick_settings = {"store": False, "image_size": 48, "batch_size": 4, "train_examples": 8, "eval_examples": 4}  # noqa: RUF012

    mean, std = MEAN, STD
    kinds = KINDS
    label_sizes = (1 + len(THINGS), 1 + len(COLOURS))

    def __post_init__(self) -> None:
        validate(self, "data.")
        if self.sets_per_update > self.question_sets:
            raise BadInput(
                f"data.sets_per_update={self.sets_per_update} must be at most data.question_sets={self.question_sets}"
            )

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


class StoredScene(NamedTuple):
    """What a batch needs of a scene: pixels, and the word ids and answers of its questions."""

    pixels: np.ndarray  # uint8, 3 Y X
    questions: np.ndarray  # S 4 T
    answers: np.ndarray  # S 4
    shown: np.ndarray  # uint8, Y X: 0, or 1 + the number of a name and a colour


class SceneQuestionSplit(DatasetSplit[QuestionBatch]):
    """The scenes of one split; ``split[i]`` is the i-th of them with its questions as text."""

    def __init__(self, settings: SceneQuestions, part: str, words: StoryWords) -> None:
        self.settings, self.words, self.batch_size = settings, words, settings.batch_size
        self.part = part
        self.composer = QuestionComposer(settings, part, settings.question_sets if part == "train" else 1)
        self.answers = {answer: i for i, answer in enumerate(words.answers)}
        self.max_words = max(len(form.split()) for form in settings.forms().forms)
        self._mirrored = np.arange(len(words.answers))  # the answer about a mirrored scene
        left, right = self.answers["left"], self.answers["right"]
        self._mirrored[[left, right]] = right, left
        self._cached: dict[int, StoredScene] = {}
        self._rows: list[np.ndarray] | None = None
        if settings.store and part == "train":
            own = replace(settings, store=False, batch_size=1, sets_per_update=1, flip=False)
            self._rows = stored_rows("questions", len(self), make_questions, own, part, words)

    def __len__(self) -> int:
        return self.settings.train_examples if self.part == "train" else self.settings.eval_examples

    def __getitem__(self, i: int) -> QuestionScene:
        if not 0 <= i < len(self):
            raise IndexError(i)
        return self.composer.compose(i)

    def order(self, seed: int, epoch: int) -> OffsetBatches:
        batches = RowBatches(len(self), self.batch_size, mix_seed(seed, epoch))
        return OffsetBatches(batches, epoch * len(self))

    def training_batch(self, rows: Int[Tensor, " B"], seed: int) -> QuestionBatch:
        """Return scenes, some of them mirrored, with questions taken by chance: as (seed, row) says."""
        scenes, sets = [], []
        for row in rows.tolist():
            rng = np.random.default_rng((seed, row))
            scene, is_flipped = self._stored(row % len(self)), self.settings.flip and rng.random() < 0.5
            if is_flipped:
                pixels, questions, answers, shown = scene
                scene = StoredScene(pixels[..., ::-1], questions, self._mirrored[answers], shown[:, ::-1])
            scenes.append(scene)
            sets.append(rng.choice(len(scene.answers), self.settings.sets_per_update, replace=False))
        return self._batch(scenes, sets)

    def collate(self, rows: Int[Tensor, " B"]) -> QuestionBatch:
        return self._batch([self._stored(i) for i in rows.tolist()], [np.zeros(1, np.int64)] * len(rows))

    def question_masks(self, rows: Int[Tensor, " B"]) -> Bool[Tensor, "B K Y X"]:
        """Return the visible pixels of the objects that the questions of `collate` concern."""
        found = []
        for scene in (self[i] for i in rows.tolist()):
            concerned = [list(question.objects) for question in scene.questions[: len(KINDS)]]
            found.append(np.stack([scene.masks[objects].any(0) for objects in concerned]))
        return torch.from_numpy(np.stack(found))

    def count(self, batch: QuestionBatch) -> int:
        return batch.answers.numel()

    def contents(self) -> Iterable[Tensor | np.ndarray]:
        settings = replace(self.settings, store=False)
        yield np.frombuffer(f"{self.part} {settings} {self.words}".encode(), np.uint8)

    def _stored(self, i: int) -> StoredScene:
        if self._rows is not None:
            return StoredScene(*(array[i] for array in self._rows))
        if (found := self._cached.get(i)) is None:
            found = self.make(i)
            if sum(x.nbytes for x in found) * len(self) <= MAX_CACHED_BYTES:
                self._cached[i] = found
        return found

    def make(self, i: int) -> StoredScene:
        """Compose scene i and encode its questions."""
        scene = self[i]
        ids = self.words.encode(question.text for question in scene.questions)
        ids = torch.nn.functional.pad(ids, (0, self.max_words - ids.shape[1]))
        answers = np.array([self.answers[question.answer] for question in scene.questions])
        shape = -1, len(KINDS)
        numbers = [[*THINGS].index(name) * len(COLOURS) + COLOURS.index(colour) for name, colour in scene.things]
        shown = (scene.masks * (1 + np.array(numbers, np.uint8))[:, None, None]).max(0)  # masks do not overlap
        padded = ids.numpy().astype(np.int16).reshape(*shape, self.max_words)
        return StoredScene(scene.pixels, padded, answers.reshape(shape), shown.astype(np.uint8))

    def _batch(self, scenes: list[StoredScene], sets: list[np.ndarray]) -> QuestionBatch:
        questions = np.stack([scene.questions[asked] for scene, asked in zip(scenes, sets, strict=True)])
        answers = np.stack([scene.answers[asked] for scene, asked in zip(scenes, sets, strict=True)])
        kinds = np.broadcast_to(np.arange(len(KINDS)), answers.shape)
        shown = np.stack([scene.shown for scene in scenes])
        names, colours = np.divmod(np.maximum(shown, 1) - 1, len(COLOURS))
        labels = np.where(shown[:, None] > 0, 1 + np.stack([names, colours], 1), 0)
        return QuestionBatch(
            torch.from_numpy(np.stack([scene.pixels for scene in scenes])),
            torch.from_numpy(questions.astype(np.int64)).flatten(1, 2),
            torch.from_numpy(answers.astype(np.int64)).flatten(1, 2),
            torch.from_numpy(kinds.copy()).flatten(1, 2),
            torch.from_numpy(labels.astype(np.uint8)),
        )


def make_questions(settings: SceneQuestions, part: str, words: StoryWords) -> Callable[[int], StoredScene]:
    """Return what makes the scenes of a split, by number."""
    return SceneQuestionSplit(settings, part, words).make


class QuestionComposer:
    """Composes the scenes of one split, each with `sets` questions of every kind."""

    def __init__(self, settings: SceneQuestions, part: str, sets: int = 1) -> None:
        self.settings, self.sets, self.cutouts = settings, sets, load_things(part)
        digest = blake2b(f"{settings.seed}/{part}/questions".encode(), digest_size=7).digest()
        self.key = int.from_bytes(digest, "big")

    def compose(self, i: int) -> QuestionScene:
        """Return scene i with its questions, set after set."""
        rng, side = np.random.default_rng((self.key, i)), self.settings.image_size
        sizes = self.settings.min_side, self.settings.max_side
        while True:
            things, asked = plan_scene(rng, self.settings.max_others)
            if (drawn := draw_things(things, self.cutouts, side, sizes, rng)) is None:
                continue
            columns = drawn.middles()[:, 1]
            gap = columns[asked.pair[0]] - columns[asked.pair[1]]
            if abs(gap) >= MIN_GAP * side and ("left" if gap < 0 else "right") == asked.side:
                break
        questions = list(write_questions(things, asked, rng))
        again = np.random.default_rng((self.key, i, 1))  # so that the first set does not depend on how many follow
        for _ in range(self.sets - 1):
            questions += write_questions(things, plan_questions(things, drawn, again), again)
        return QuestionScene(drawn.pixels, drawn.masks, things, questions)


class Plan(NamedTuple):
    """What is asked about a scene, before its objects have places."""

    colour: str  # that is counted; "": any
    thing: str  # that is counted; "": any
    pair: tuple[int, int]  # objects whose places are compared
    shown: int  # the object whose colour is asked
    side: str  # where the first of the pair is
    alike: tuple[int, int]  # objects whose colours are compared


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
            return things, Plan(colour, thing, pair, int(rng.integers(2)), _pick(("left", "right"), rng), pair)


def plan_questions(things: list[tuple[str, str]], drawn: DrawnThings, rng: np.random.Generator) -> Plan:
    """Draw what is asked about a scene as it is: every answer that it allows is as likely, and then every question."""
    counts = dict[int, list[tuple[str, str]]]()
    for colour in ("", *COLOURS):
        for thing in ("", *THINGS):
            if (many := len(count_objects(things, colour, thing))) <= MAX_COUNT:
                counts.setdefault(many, []).append((colour, thing))
    colour, thing = _pick(_pick([counts[many] for many in sorted(counts)], rng), rng)
    names = [name for name, _ in things]
    once = [n for n, name in enumerate(names) if names.count(name) == 1]  # so that "the bag" is clear
    pairs, columns = [(n, m) for n in once for m in once if n != m], drawn.middles()[:, 1]
    same = [[p for p in pairs if (things[p[0]][1] == things[p[1]][1]) is alike] for alike in (True, False)]
    gap = MIN_GAP * drawn.pixels.shape[2]
    apart = [[p for p in pairs if sign * (columns[p[1]] - columns[p[0]]) >= gap] for sign in (1, -1)]
    side = int(rng.integers(2))
    return Plan(
        colour,
        thing,
        _pick(apart[side], rng),
        _pick(once, rng),
        ("left", "right")[side],
        _pick(_pick([found for found in same if found], rng), rng),
    )


def write_questions(things: list[tuple[str, str]], asked: Plan, rng: np.random.Generator) -> Iterator[Question]:
    """Yield a question of each kind, with the answer that the objects give."""
    word = _pick(SLOTS["word"], rng)
    alike, pair = ([things[n][0] for n in two] for two in (asked.alike, asked.pair))
    counted = count_objects(things, asked.colour, asked.thing)
    plural = THINGS[asked.thing][0] if asked.thing else ANY
    same = "yes" if things[asked.alike[0]][1] == things[asked.alike[1]][1] else "no"
    name, colour = things[asked.shown]
    yield Question("count", _write("count", rng, colour=asked.colour, things=plural), str(len(counted)), counted)
    yield Question("same", _write("same", rng, word=word, thing=alike), same, asked.alike)
    yield Question("colour", _write("colour", rng, word=word, thing=name), colour, (asked.shown,))
    yield Question("side", _write("side", rng, thing=pair), asked.side, asked.pair)


def count_objects(things: list[tuple[str, str]], colour: str, thing: str) -> tuple[int, ...]:
    """Return the numbers of the objects of a colour and a name; "": of any."""
    return tuple(n for n, (name, has) in enumerate(things) if colour in ("", has) and thing in ("", name))


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

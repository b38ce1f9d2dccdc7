"""Calibrate what the shipped models say about inputs that are unlike their training data, and write it beside them.

    python scripts/calibrate_domain.py                      every model that has an entry in MODELS
    python scripts/calibrate_domain.py en-de fashion        only these
    python scripts/calibrate_domain.py --compare            domain scores beside others; writes nothing

For each model: the domain (regard.modalities.domain) is fitted to training data, its threshold is set on a part of the
validation data, and the share of inputs that are noted is measured on the test data (false alarms) and on foreign data.
domain.safetensors, its hash in config.json and a row of the card are written. Data that are not there are left out,
and named. Other languages come from the translated messages of Django, if it is installed (pip install django): whole
messages of three words or more, without placeholders.
"""

from __future__ import annotations

import gettext
import io
import json
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

import regard
from regard.core.errors import BadInput
from regard.data import data_dir
from regard.data.images.composed_scenes import Scenes
from regard.data.images.image_dataset import ImageDataset
from regard.data.images.scene_captions import CaptionComposer, SceneCaptions
from regard.data.images.scene_questions import QuestionComposer, SceneQuestions
from regard.data.text.corpora import get_corpus, tatoeba_sentences
from regard.data.text.pair_augment import NAMES, SURNAMES
from regard.data.text.parallel_corpus import ParallelCorpus
from regard.data.text.text_file import TextFile
from regard.modalities.domain import Domain
from regard.modalities.image_domain import ImageDomain
from regard.modalities.word_domain import WordDomain
from regard.weights.folder import CARD, add_domains

ZOO = Path(regard.__file__).parent / "zoo"
ENGLISH = "short everyday English sentences"
LANGUAGES = {"es": "Spanish", "it": "Italian", "nl": "Dutch", "pt": "Portuguese", "pl": "Polish", "sv": "Swedish"}
TRAIN_IMAGES, HELD_OUT_IMAGES, FOREIGN_IMAGES = 4000, 1000, 300


@dataclass(frozen=True)
class Calibration:
    """What is needed to calibrate one model; the parts are read when they are needed."""

    kind: str  # "text" or "image"
    about: str
    train: Callable[[], list[list[Any]]]  # groups of training inputs
    val: Callable[[], list[Any]]
    test: Callable[[], list[Any]]
    foreign: tuple[str, ...]  # names in FOREIGN
    ignored: tuple[str, ...] = ()


# -- texts -------------------------------------------------------------------------------------------------------------


@cache
def _tatoeba(target: str, side: int, part: str) -> list[str]:
    return ParallelCorpus("tatoeba", target=target).read(part)[side]


def _translated(target: str) -> list[str]:
    """Return what the translators were trained on: sentences, phrases, and names, each at least twice."""
    return ParallelCorpus("tatoeba", target=target, phrases=2).read("train")[0] + [*NAMES, *SURNAMES] * 2


def _sentences(part: str, language: str) -> list[str]:
    return list(tatoeba_sentences(data_dir.find_dataset("tatoeba"), part, language))


@cache
def _plays(part: str) -> list[str]:
    text = TextFile("tinyshakespeare").read("train" if part == "train" else "val")
    lines = [line for line in text.split("\n") if line.strip()]
    return lines if part == "train" else lines[0::2] if part == "val" else lines[1::2]


@cache
def _messages(language: str) -> list[str]:
    spec = find_spec("django")
    if spec is None or spec.origin is None:
        raise BadInput("Django is not installed")
    found: set[str] = set()
    for file in Path(spec.origin).parent.rglob(f"locale/{language}/LC_MESSAGES/*.mo"):
        with file.open("rb") as stream:
            known: dict[Any, str] = gettext.GNUTranslations(stream)._catalog  # type: ignore[attr-defined]
        found |= {
            text
            for source, text in known.items()
            if isinstance(source, str) and text != source and len(text.split()) >= 3 and not re.search(r"[%{<\n]", text)
        }
    return sorted(found)


def _sentences_of(name: str) -> list[str]:
    return [sentence for document in get_corpus(name).read("test") for sentence in document]


# -- pictures ----------------------------------------------------------------------------------------------------------


def _known_images(name: str, part: str, many: int, first: int = 0) -> list[Image.Image]:
    found = ImageDataset(name).load(part).pixels[first : first + many].permute(0, 2, 3, 1).numpy()
    return [Image.fromarray(each[..., 0] if each.shape[2] == 1 else each).convert("RGB") for each in found]


def _flickr() -> list[Image.Image]:
    from zipfile import ZipFile

    with ZipFile(next(data_dir.find_dataset("flickr8k").glob("*.zip"))) as archive:
        names = sorted(archive.namelist())[:FOREIGN_IMAGES]
        return [Image.open(io.BytesIO(archive.read(name))).convert("RGB") for name in names]


def _photographs() -> list[Image.Image]:
    return [Image.open(file).convert("RGB") for file in sorted(data_dir.find_dataset("photos").glob("*.jpg"))]


def _composed(part: str, many: int) -> list[Image.Image]:
    settings = {"image_size": 64, "max_objects": 3, "min_side": 0.3, "max_side": 0.55, "eval_examples": many}
    source = Scenes(**settings, train_examples=many).source(part)  # type: ignore[arg-type]
    return [_picture(source[row].pixels) for row in range(many)]


def _segmented(part: str, many: int) -> list[Image.Image]:
    settings = {"image_size": 96, "max_objects": 4, "min_side": 0.25, "max_side": 0.5, "eval_examples": many}
    source = Scenes(**settings, objects=("fashion_mnist", "emoji"), train_examples=many).source(part)  # type: ignore[arg-type]
    return [_picture(source[row].pixels) for row in range(many)]


def _asked(part: str, many: int) -> list[Image.Image]:
    source = QuestionComposer(SceneQuestions(image_size=64), part)
    return [_picture(source.compose(row).pixels) for row in range(many)]


def _captioned(part: str, many: int) -> list[Image.Image]:
    source = CaptionComposer(SceneCaptions(), part)
    return [_picture(source[row].pixels) for row in range(many)]


def _noise() -> list[Image.Image]:
    rng = np.random.default_rng(1)
    return [Image.fromarray(rng.integers(0, 256, (64, 64, 3), dtype=np.uint8)) for _ in range(FOREIGN_IMAGES)]


def _plain() -> list[Image.Image]:
    colours = np.random.default_rng(1).integers(0, 256, (FOREIGN_IMAGES, 3))
    return [Image.new("RGB", (64, 64), tuple(map(int, colour))) for colour in colours]


def _picture(pixels: Any) -> Image.Image:
    return Image.fromarray(np.ascontiguousarray(np.asarray(pixels).transpose(1, 2, 0)))


FOREIGN: dict[str, Callable[[], list[Any]]] = {
    "French": lambda: _tatoeba("fr", 1, "test"),
    "German": lambda: _tatoeba("de", 1, "test"),
    "Czech": lambda: ParallelCorpus("multi30k", target="cs").read("test_2016_flickr")[1],
    **{name: (lambda code=code: _messages(code)) for code, name in LANGUAGES.items()},  # type: ignore[misc]
    "everyday English": lambda: _tatoeba("de", 0, "test"),
    "English captions of photos": lambda: ParallelCorpus("multi30k").read("test_2016_flickr")[0],
    "English news": lambda: _sentences_of("bbc"),
    "digits": lambda: _known_images("mnist", "test", FOREIGN_IMAGES),
    "CIFAR-10": lambda: _known_images("cifar10_jpeg", "test", FOREIGN_IMAGES),
    "photos of Flickr8k": _flickr,
    "12 other photos": _photographs,
    "noise": _noise,
    "plain colours": _plain,
    "clothes on white": lambda: [
        Image.eval(each, lambda v: 255 - v) for each in _known_images("fashion_mnist", "test", FOREIGN_IMAGES)
    ],
    "single clothes": lambda: _known_images("fashion_mnist", "test", FOREIGN_IMAGES),
    "scenes": lambda: _composed("test", FOREIGN_IMAGES),
    "scene-captions": lambda: _captioned("test", FOREIGN_IMAGES),
}
OTHER_LANGUAGES = ("French", "German", "Czech", *LANGUAGES.values())
OTHER_ENGLISH = ("English captions of photos", "English news")
PICTURES = ("digits", "CIFAR-10", "photos of Flickr8k", "12 other photos", "noise", "plain colours")


def _english(target: str, train: Callable[[str], list[str]]) -> Calibration:
    return Calibration(
        "text",
        ENGLISH,
        lambda: [train(target)],
        lambda: _tatoeba(target, 0, "val"),
        lambda: _tatoeba(target, 0, "test"),
        (*OTHER_LANGUAGES, *OTHER_ENGLISH),
    )


MODELS = {
    "en-de": _english("de", _translated),
    "en-fr": _english("fr", _translated),
    "gru-additive": _english("de", lambda target: _tatoeba(target, 0, "train")),
    "fill-en": Calibration(
        "text",
        ENGLISH,
        lambda: [_sentences("train", "en")],
        lambda: _sentences("val", "en"),
        lambda: _sentences("test", "en"),
        (*OTHER_LANGUAGES, *OTHER_ENGLISH),
        ("[MASK]",),
    ),
    "languages": Calibration(
        "text",
        "short sentences in English, French and German",
        lambda: [_sentences("train", language) for language in ("en", "fr", "de")],
        lambda: [text for language in ("en", "fr", "de") for text in _sentences("val", language)],
        lambda: [text for language in ("en", "fr", "de") for text in _sentences("test", language)],
        ("Czech", *LANGUAGES.values(), *OTHER_ENGLISH),
    ),
    "shakespeare": Calibration(
        "text",
        "Shakespeare's plays",
        lambda: [_plays("train")],
        lambda: _plays("val"),
        lambda: _plays("test"),
        (*OTHER_LANGUAGES, "everyday English"),
    ),
    "fashion": Calibration(
        "image",
        "light pieces of clothing, one alone and upright on black",
        lambda: [_known_images("fashion_mnist", "train", TRAIN_IMAGES)],
        lambda: _known_images("fashion_mnist", "val", HELD_OUT_IMAGES),
        lambda: _known_images("fashion_mnist", "test", HELD_OUT_IMAGES),
        (*PICTURES, "clothes on white"),
    ),
    "scenes": Calibration(
        "image",
        "composed scenes of clothes on plain walls and floors",
        lambda: [_composed("train", TRAIN_IMAGES)],
        lambda: _composed("val", HELD_OUT_IMAGES),
        lambda: _composed("test", HELD_OUT_IMAGES),
        (*PICTURES, "single clothes", "scene-captions"),
    ),
    "scene-captions": Calibration(
        "image",
        "composed scenes of coloured digits and clothes",
        lambda: [_captioned("train", TRAIN_IMAGES)],
        lambda: _captioned("val", HELD_OUT_IMAGES),
        lambda: _captioned("test", HELD_OUT_IMAGES),
        (*PICTURES, "single clothes", "scenes"),
    ),
    "scene-questions": Calibration(
        "image",
        "composed scenes of coloured digits and clothes",
        lambda: [_asked("train", TRAIN_IMAGES)],
        lambda: _asked("val", HELD_OUT_IMAGES),
        lambda: _asked("test", HELD_OUT_IMAGES),
        (*PICTURES, "single clothes", "scenes"),
    ),
    "scene-segments": Calibration(
        "image",
        "composed scenes of clothes and emoji on plain walls and floors",
        lambda: [_segmented("train", TRAIN_IMAGES)],
        lambda: _segmented("val", HELD_OUT_IMAGES),
        lambda: _segmented("test", HELD_OUT_IMAGES),
        (*PICTURES, "single clothes", "scene-captions"),
    ),
}


def calibrate(name: str) -> None:
    """Fit the domain of a model, measure it, and write it beside the model with a row of the card."""
    what, predictor = MODELS[name], regard.load(ZOO / name)
    (field,) = (name for name, kind in predictor.inputs.items() if kind.kind == what.kind)
    if what.kind == "text":
        made: Domain = WordDomain.fit(what.about, what.train(), what.val(), what.ignored)
        seen = made
    else:
        view = predictor.preprocess.view
        made = ImageDomain.fit(what.about, map(view, what.train()[0]), map(view, what.val()))
        seen = made.seen_through(predictor.preprocess)
    alarms = _share(seen, what.test())
    print(f"{name}: {made.about}; false alarms {alarms:.1%} of the test data")
    found = {}
    for each in what.foreign:
        try:
            found[each] = _share(seen, FOREIGN[each]())
        except BadInput as error:
            print(f"  {each}: not measured ({error})")
        else:
            print(f"  {each}: noted {found[each]:.1%}")
    add_domains(ZOO / name, {field: made})
    told = ", ".join(f"{each} {_percent(share)}" for each, share in found.items())
    measured = f"false alarms: {100 * alarms:.1f} % of the test data; noted of {told}"
    row = f"| notes inputs unlike its data | {measured}: `python scripts/calibrate_domain.py {name}` |"
    card = ZOO / name / CARD
    lines = [line for line in card.read_text("utf-8").split("\n") if not line.startswith("| notes inputs unlike")]
    last = max(n for n, line in enumerate(lines[: lines.index("## What it can and cannot do")]) if line.startswith("|"))
    card.write_text("\n".join([*lines[: last + 1], row, *lines[last + 1 :]]), encoding="utf-8", newline="\n")
    size = (ZOO / name / "domain.safetensors").stat().st_size
    print(f"  {size / 1024:.1f} KiB; threshold {made.threshold:.2f}")


def _share(domain: Domain, values: Sequence[Any]) -> float:
    return sum(bool(domain.describe(value)) for value in values) / len(values)


def _percent(share: float) -> str:
    """Return a share in whole percents; 100 and 0 only where it is all or none."""
    return f"{min(99, max(1, round(100 * share))) if 0 < share < 1 else round(100 * share)} %"


# -- other scores, for comparison --------------------------------------------------------------------------------------


def compare() -> None:
    """Print the shares of false alarms and of foreign inputs that other scores note, at the same calibration."""
    train, val, test = _tatoeba("de", 0, "train"), _tatoeba("de", 0, "val"), _tatoeba("de", 0, "test")
    words = WordDomain.fit(ENGLISH, [train], val)
    scores: dict[str, Callable[[str], float]] = {"words": words.surprise}
    scores |= {f"{n}-grams of characters": _ngram_surprise(train, n) for n in (2, 3, 4)}
    _report("en-de", scores, val, test, {name: FOREIGN[name] for name in (*OTHER_LANGUAGES, *OTHER_ENGLISH)})
    predictor, what = regard.load("fashion"), MODELS["fashion"]
    pictures = what.train()[0]
    domain = ImageDomain.fit("", map(predictor.preprocess.view, pictures), [pictures[0]])
    image_scores = {
        "colours and layout": domain.seen_through(predictor.preprocess).surprise,
        **_logit_scores(predictor, pictures),
    }
    _report("fashion", image_scores, what.val(), what.test(), {name: FOREIGN[name] for name in what.foreign})


def _report(title: str, scores: Any, val: Any, test: Any, foreign: Any) -> None:
    found: dict[str, list[Any]] = {}
    for name, make in foreign.items():
        try:
            found[name] = make()
        except BadInput as error:
            print(f"{name}: not measured ({error})")
    for name, score in scores.items():
        threshold = float(np.quantile([score(each) for each in val], 0.99, method="higher"))
        rates = {"false alarms": test, **found}
        told = (f"{k} {100 * np.mean([score(each) > threshold for each in v]):.1f}" for k, v in rates.items())
        print(f"{title}, {name}, % noted: {', '.join(told)}")


def _ngram_surprise(texts: Sequence[str], n: int) -> Callable[[str], float]:
    """Return the mean surprise of a character after the n - 1 before it, in standard deviations of a text's length."""
    from collections import Counter

    def grams(text: str) -> Iterator[str]:
        line = f" {text.lower()} "
        return (line[k : k + n] for k in range(len(line) - n + 1))

    joint = Counter(gram for text in texts for gram in grams(text))
    before = Counter[str]()
    for gram, count in joint.items():
        before[gram[:-1]] += count
    known = {gram: -np.log(count / before[gram[:-1]]) for gram, count in joint.items() if count > 2}
    some = [np.mean([known.get(g, 8.0) for g in grams(text)] or [0]) for text in texts[:5000]]
    middle = float(np.mean(some))
    return lambda text: (float(np.mean([known.get(g, 8.0) for g in grams(text)] or [0])) - middle) * len(text) ** 0.5


def _logit_scores(predictor: Any, pictures: Sequence[Any]) -> dict[str, Callable[[Any], float]]:
    """Return the scores that read the model: maximum probability, energy, and the distance of its last features."""
    import torch

    heads = [module for module in predictor.model.modules() if isinstance(module, torch.nn.Linear)]
    kept: list[Any] = []
    heads[-1].register_forward_pre_hook(lambda _, inputs: kept.append(inputs[0]))

    def run(picture: Any) -> tuple[Any, Any]:
        kept.clear()
        with torch.no_grad():
            logits = predictor.model(predictor.preprocess(picture))[0].double()
        return logits, kept[0][0].double()

    rows = [run(picture) for picture in pictures[:2000]]
    labels = np.array([int(logits.argmax()) for logits, _ in rows])
    points = np.stack([feature.numpy() for _, feature in rows])
    means = np.stack([points[labels == k].mean(0) for k in sorted(set(labels))])
    spread = points - means[np.searchsorted(sorted(set(labels)), labels)]
    inverse = np.linalg.inv(spread.T @ spread / len(spread) + 1e-3 * np.eye(points.shape[1]))

    def distance(picture: Any) -> float:
        away = run(picture)[1].numpy() - means
        return float(np.einsum("ci,ij,cj->c", away, inverse, away).min())

    return {
        "maximum probability": lambda picture: -float(run(picture)[0].softmax(0).max()),
        "energy": lambda picture: -float(run(picture)[0].logsumexp(0)),
        "distance of features": distance,
    }


def main() -> None:
    """Calibrate the models that are named, or all."""
    names = sys.argv[1:]
    if names == ["--compare"]:
        compare()
        return
    for name in names or MODELS:
        calibrate(name)
    print(json.dumps({"zoo MiB": round(sum(f.stat().st_size for f in ZOO.rglob("*") if f.is_file()) / 2**20, 2)}))


if __name__ == "__main__":
    main()

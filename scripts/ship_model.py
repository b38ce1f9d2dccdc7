"""Put the model of a run into the zoo, with a card made from its scores, and store what it answers.

    python scripts/ship_model.py runs/vqa-1 scene-questions --command "regard train vqa_scenes train.seed=1" \
        [--machine "one H200"] [--date 2026-11-19]

The run folder holds model/, recipe.json, result.json and evaluation.json (``regard eval RUN --output
RUN/evaluation.json``). What a card says beside the scores is in `CARDS`. The answers go to
tests/stories/shipped_answers.json, which a test compares with those of the shipped model.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import regard
from regard.core.errors import BadInput
from regard.metrics.base import Metric, describe_metrics

ROOT = Path(__file__).resolve().parents[1]
ZOO, STORED = ROOT / "src/regard/zoo", ROOT / "tests/stories/shipped_answers.json"
MAX_BYTES = 3 * 2**20  # of each pair of models that one issue asks for
PAIRS = ({"scenes", "scene-segments"}, {"scene-captions", "scene-questions"})


class Card(NamedTuple):
    """What a card says beside the scores."""

    title: str
    does: str  # in `regard list zoo`
    model: str
    use: str
    data: str
    licence: str
    limits: str


EMOJI = "MIT, © 2017 Zalando SE, https://tech.zalando.com (Fashion-MNIST); Apache-2.0, Google (Noto Emoji)"
CLOTHES = (
    "t-shirt, trouser, pullover, dress, coat, sandal, shirt, sneaker, bag and ankle boot as Fashion-MNIST shows them"
)
COMPOSED = (
    "scenes of 96 x 96 pixels composed from a seed: one to four pieces of Fashion-MNIST and emoji over a wall and a "
    "floor; 20,000 to train on, 500 for validation, 500 for testing, with clothes never trained on (of each emoji "
    "there is one picture)"
)
CARDS = {
    "scenes": Card(
        "clothes and emoji in composed scenes",
        "find and box clothes and emoji in composed scenes",
        "Deformable DETR with anchor boxes (twelve queries, grids of three strides of a small ResNet, two encoder and "
        "three decoder layers of width 64",
        "`regard detect scene.png --draw boxes.png`",
        COMPOSED,
        EMOJI,
        f"It knows {CLOTHES}, in any colour, and ten emoji (apple, banana, ball, cat, car, flower, guitar, house, key, "
        "star), a quarter to half of the image wide, at most four of them. Wall and floor are names of the data that "
        "it was never shown as objects. Of a photo of real clothes, or of anything else, what it says means nothing: "
        "it is a small example, not a detector for photos.",
    ),
    "scene-segments": Card(
        "every pixel of composed scenes",
        "say what every pixel of a composed scene shows: clothes, emoji, wall or floor",
        "Segmenter (a few convolutions, four layers of a ViT of width 96 on tokens of stride 8, one decoder layer "
        "with a token for each class",
        "`regard segment scene.png --draw segments.png`",
        COMPOSED,
        EMOJI,
        f"It knows {CLOTHES}, ten emoji (apple, banana, ball, cat, car, flower, guitar, house, key, star), wall and "
        "floor. It gives one of these names to every pixel of any photo, and of photos of other things that means "
        "nothing: it is a small example.",
    ),
    "scene-questions": Card(
        "questions about composed scenes",
        "answer questions about composed scenes: how many, what colour, same or not, left or right",
        "A Transformer whose question tokens attend to the patches of the picture (a few convolutions, 8 x 8 places",
        '`regard ask scene.png "How many red digits?" --see looked.png`',
        "40,000 scenes of 64 x 64 pixels composed from a seed, two to seven printed digits and pieces of clothing in "
        "six colours on a wall and a floor, with questions and answers by rule; 1,000 scenes with four questions each "
        "to validate and to test, with cut-outs and fonts never trained on",
        "MIT, © 2017 Zalando SE, https://tech.zalando.com (Fashion-MNIST); digits in fonts of matplotlib",
        "It answers four kinds of questions: how many (0 to 4), the same colour or not, what colour, left or right "
        "of; about digits, shirts, dresses, shoes, boots and bags in red, yellow, green, blue, purple and white. To "
        "any other question it says that it did not learn it. Of a photo of real things, what it says means nothing.",
    ),
    "stories": Card(
        "questions about short stories",
        "answer questions about short stories",
        "MemN2N (three hops, width 50, adjacent tying, softmax over all 50 slots of the memory; 172 words, 56 answers",
        '`regard answer "Mary took the milk. Mary went to the kitchen." "Where is the milk?"`',
        "bAbI tasks 1 to 20, English, 1,000 training questions each (Weston et al. 2015, arXiv:1502.05698); 17,985 "
        "questions to train on, 2,015 of held-out stories for validation",
        "CC BY 3.0; attribution: Facebook, 2015",
        "Stories in the words of bAbI: people who move, take, drop and give things, sizes, positions and directions. "
        "Other words are named and read as unknown, and the answer is then a guess. It answers with one of 56 words or "
        "lists that it has seen as answers, with high confidence also where it is wrong. Paths (task 19) are not "
        "solved, positions (17) and three facts (3) hardly.",
    ),
}


def main(arguments: list[str] | None = None) -> None:
    """Ship the model of a run."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("name", choices=CARDS)
    parser.add_argument("--command", required=True)
    parser.add_argument("--machine", default="one H200")
    parser.add_argument("--date", default=datetime.now(UTC).date().isoformat())
    ship(**vars(parser.parse_args(arguments)))


def ship(run: Path, name: str, command: str, machine: str, date: str, zoo: Path = ZOO, stored: Path = STORED) -> None:
    """Copy the model, write its card and store its answers."""
    result, evaluation = (json.loads((run / f"{x}.json").read_text("utf-8")) for x in ("result", "evaluation"))
    folder = zoo / name
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(run / "model", folder)
    card = write_card(CARDS[name], name, result, evaluation, command, machine, date, folder)
    (folder / "README.md").write_text(card, encoding="utf-8")
    answers = json.loads(stored.read_text("utf-8"))
    answers[name] = ANSWERS[name](regard.load(str(folder)))
    stored.write_text(json.dumps(answers, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    for pair in PAIRS:
        size = sum(file.stat().st_size for each in pair for file in (zoo / each).glob("*"))
        print(f"{' and '.join(sorted(pair))}: {size / 2**20:.2f} MiB")
        if size > MAX_BYTES:
            raise BadInput(f"{' and '.join(sorted(pair))} have {size / 2**20:.2f} MiB; at most 3 ship")


def write_card(
    card: Card, name: str, result: dict[str, Any], evaluation: dict[str, Any], command: str, machine: str, date: str,
    folder: Path,
) -> str:  # fmt: skip
    """Return the card of a model: what it is, its data, how it was trained, its scores, what it cannot do."""
    metrics = [Metric(**each) for each in evaluation["metrics"]]
    size = (folder / "model.safetensors").stat().st_size / 2**20
    storage = json.loads((folder / "config.json").read_text("utf-8"))["storage"]
    validation = describe_metrics(metrics, whole(result["validation"][result["final_weights"]]))
    tests = [describe_metrics(metrics, whole(each)) for part, each in evaluation["results"].items() if part == "test"]
    minutes = (result["seconds"] + result.get("eval_seconds", 0)) / 60
    return f"""# {name}: {card.title}

{card.model}, {result["parameters"]:,} parameters, stored in {storage}: {size:.1f} MiB), trained from scratch.
{card.use}

| | |
|---|---|
| does | {card.does} |
| data | {card.data} |
| licence of the data | {card.licence} |
| licence of this model | Apache-2.0, with the notice above |
| command | `{command}` |
| trained | {result["steps"]:,} updates, {minutes:.0f} minutes on {machine}, seed {result["seed"]}, {date}; final \
weights: {result["final_weights"]} |
| validation split | {validation} |
| test split | {"; ".join(tests)}; one seed |
{story_rows(evaluation["results"].get("test", {}))}
## What it can and cannot do

{card.limits}
"""


def whole(found: dict[str, Any]) -> dict[str, Any]:
    """Return the scores without those of single tasks of bAbI, and of hops, which have rows of their own."""
    return {key: value for key, value in found.items() if not re.match(r"accuracy_\d|facts_", key)}


def story_rows(found: dict[str, Any]) -> str:
    """Return rows with the accuracy of each of bAbI's tasks, and the facts found at each hop."""
    tasks = sorted(int(key.removeprefix("accuracy_")) for key in found if key.startswith("accuracy_"))
    hops = [f"{100 * found[key]:.0f}" for key in sorted(found) if re.fullmatch(r"facts_hop\d+", key)]
    if not tasks or not hops:
        return ""
    shares = ", ".join(f"{100 * found[f'accuracy_{task}']:.0f}" for task in tasks)
    return f"""| accuracy by task, {tasks[0]} to {tasks[-1]} | {shares} % |
| facts found | the most-read sentence is a supporting one for {", ".join(hops)} % of the test questions, hop by hop |
"""


# -- what the stories compare ------------------------------------------------------------------------------------------


def coat_and_shoe() -> Any:
    """Return the picture of tests/stories/test_shipped_models.py."""
    sys.path.insert(0, str(ROOT))
    from tests.stories.test_shipped_models import coat_and_shoe as picture

    return picture()


def boxes(detect: Any) -> Any:
    """Return the three surest boxes."""
    found = detect(coat_and_shoe(), min_score=0.0).boxes[:3]
    return [[each.label, each.score, [each.left, each.top, each.right, each.bottom]] for each in found]


def segments(segment: Any) -> Any:
    """Return label, pixels and score of every segment."""
    return [[each.label, int(each.pixels.sum()), each.score] for each in segment(coat_and_shoe()).masks]


def answers(ask: Any) -> Any:
    """Return the answers to four questions, with their probabilities."""
    questions = (
        "How many shoes are there?", "Are the shirt and the shoe the same colour?", "What colour is the shirt?",
        "Is the shirt left or right of the shoe?",
    )  # fmt: skip
    found = [ask(coat_and_shoe(), each) for each in questions]
    return [[question, each.label, each.probability] for question, each in zip(questions, found, strict=True)]


def story_answers(answer: Any) -> Any:
    """Return the answers to the questions of tests/stories/test_shipped_models.py, with their probabilities."""
    asked = {
        "Where is the milk?": "Mary took the milk. Mary went to the kitchen. John went to the garden.",
        "Where is John?": "Mary moved to the bathroom. John went to the hallway.",
    }
    found = [answer(story, question) for question, story in asked.items()]
    return [[each.label, each.probability] for each in found]


ANSWERS: dict[str, Callable[[Any], Any]] = {
    "scenes": boxes,
    "scene-segments": segments,
    "scene-questions": answers,
    "stories": story_answers,
}

if __name__ == "__main__":
    main()

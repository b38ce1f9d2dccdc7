"""Write docs/how/person-words.md and its picture: which words a captioner uses for men and women, and where it looks.

    python docs/make_person_words.py RUN [--limit N] [--split test]

RUN is the folder of a captioner that attends, trained on Flickr8k. The study is interpret/person_words.py. Photographs
are shown small, three of each kind; they are for research.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import regard
from regard.interpret.person_words import SAID, PersonWord, confusion, study, word_group
from regard.training.recipe import load_saved_recipe

HERE = Path(__file__).resolve().parent
PICTURE = "person-words.png"
SHOWN = 3  # photographs of each kind


def photographs(data: Any, split: str, limit: int | None) -> tuple[list[bytes], list[list[str]]]:
    """Return the photographs of a split, as files, and their captions."""
    files, rows = data.files(), data.part(split)[:limit]
    return [files.read(row.image) for row in rows], [row.captions for row in rows]


def page(found: Sequence[PersonWord], trained_on: Sequence[str], about: str) -> str:
    """Return the page."""
    table, groups = confusion(found), [word_group(each) for each in trained_on]
    counts = {said: groups.count(said) for said in SAID}
    lines = [
        f"| {row} | {sum(table[row].values())} | " + " | ".join(str(table[row][said]) for said in SAID) + " |"
        for row in table
    ]
    wrong = {row: table[row][other] for row, other in (("man", "woman"), ("woman", "man"))}
    total = {row: max(1, sum(table[row].values())) for row in table}
    looks = [each for each in found if each.odds is not None]
    evidence = [_evidence(name, [x for x in looks if keep(x)]) for name, keep in KINDS.items()]
    said = {row: sum(table[x][row] for x in table) for row in ("man", "woman")}
    return f"""# Words for people: what a captioner says and where it looks

<!-- made by docs/make_person_words.py -->

{about}

People who describe a stranger's photograph guess, and a captioner learns their guesses with everything that goes with
them. The lectures ask whether it looks at the person at all. `interpret/person_words.py` counts and measures it.

Of {len(trained_on):,} training captions {counts["man"]:,} have a word for men, {counts["woman"]:,} one for women,
{counts["both"]:,} both, {counts["neutral"]:,} only a neutral one: {ratio(counts["man"], counts["woman"])} for men to
one for women.

## Which words

{len(found)} photographs are described as a man, or as a woman, by at least three of their five captions and by none as
the other:

| described as | photographs | {" | ".join(SAID)} |
|---|---|{"---|" * len(SAID)}
{chr(10).join(lines)}

A man is called a woman in {wrong["man"]} of {total["man"]} ({100 * wrong["man"] / total["man"]:.1f} %), a woman a
man in {wrong["woman"]} of {total["woman"]} ({100 * wrong["woman"] / total["woman"]:.1f} %). Among these photographs
there are {ratio(total["man"], total["woman"])} men to one woman; the captioner writes
{ratio(said["man"], said["woman"])}.

## Where it looks

Log odds of a word for a woman against one for a man (natural logarithm, at the place of the word, means over the
photographs): with the whole photograph; with the fifth blurred that it attended most at that word; with all but that
fifth blurred.

| photographs | number | whole | attended fifth blurred | only that fifth left |
|---|---|---|---|---|
{chr(10).join(evidence)}

Where a row hardly changes when the attended fifth is blurred, the word did not come from there. Only the fifth left
says how much of the decision it carries alone; a blurred photograph is also unlike all that the model has seen, which
moves all rows.

![Photographs with what was attended at the word, right and wrong](../assets/{PICTURE})

Above: words that agree with the descriptions; below: words that do not, the surest first. The bright parts were
attended at the word.

The words are what annotators wrote. They say how people are described, not who they are.

Hendricks et al.: Women also Snowboard. ECCV 2018. arXiv:1803.09797.
"""


def ratio(many: int, few: int) -> str:
    """Return how many of one kind come on one of the other."""
    return f"{many / max(1, few):.2f}"


KINDS = {
    "man, said so": lambda x: x.described == "man" and x.said == "man",
    "woman, said so": lambda x: x.described == "woman" and x.said == "woman",
    "man, called a woman": lambda x: x.described == "man" and x.said == "woman",
    "woman, called a man": lambda x: x.described == "woman" and x.said == "man",
}


def _evidence(name: str, found: Sequence[PersonWord]) -> str:
    if not found:
        return f"| {name} | 0 | | | |"
    means = np.mean([each.odds for each in found], 0)
    return f"| {name} | {len(found)} | " + " | ".join(f"{mean:+.2f}" for mean in means) + " |"


def draw(found: Sequence[PersonWord], file: Path) -> None:
    """Draw three photographs of each kind with what was attended at the word."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    looks = [each for each in found if each.map is not None and each.odds is not None]
    right = [each for each in looks if each.said == each.described]
    rows = [
        [x for x in right if x.described == "man"][:SHOWN] + [x for x in right if x.described == "woman"][:SHOWN],
        sorted((x for x in looks if x.is_wrong), key=lambda x: -abs(x.odds[0]))[: 2 * SHOWN],  # type: ignore[index]
    ]
    figure, axes = plt.subplots(2, 2 * SHOWN, figsize=(13, 5.4), constrained_layout=True, squeeze=False)
    for some, own in zip(rows, axes, strict=True):
        for axis in own:
            axis.axis("off")
        for each, axis in zip(some, own, strict=False):
            assert each.map is not None
            axis.imshow(each.map.picture)
            bright = each.map.weights / each.map.weights.max()
            axis.imshow(np.zeros_like(bright), cmap="gray", alpha=0.75 * (1 - bright), vmin=0, vmax=1)
            axis.set_title(f"{each.word}\\n(described as a {each.described})", fontsize=8)
    figure.savefig(file, dpi=80)
    plt.close(figure)


def main() -> None:
    """Write the page of one run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--split", default="test")
    parser.add_argument("--limit", type=int)
    arguments = parser.parse_args()
    recipe = load_saved_recipe(arguments.run)
    photos, references = photographs(recipe.data, arguments.split, arguments.limit)
    found = study(regard.load(arguments.run), photos, references)
    result = json.loads((arguments.run / "result.json").read_text("utf-8"))
    about = (
        f"Captions of the {len(photos):,} {arguments.split} photographs of Flickr8k by `{recipe.name}` (seed "
        f"{result['seed']}, {result['steps']:,} updates; encoder: an EfficientNet trained on ImageNet), beam search."
    )
    trained_on = [caption for row in recipe.data.part("train") for caption in row.captions]
    draw(found, HERE / "assets" / PICTURE)
    (HERE / "how" / "person-words.md").write_text(page(found, trained_on, about), encoding="utf-8")


if __name__ == "__main__":
    main()

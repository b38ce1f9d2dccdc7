"""``make demo``: a few sentences translated by what ships with the package, and a picture of what the model looked at.

Also the first thing to try when something is wrong with an installation: it uses tokens, model, search, capture and
pictures, writes into ``demo/``, and needs no network.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path

SENTENCES = (
    "Two dogs are playing in the snow.",
    "I would like a cup of coffee, please.",
    "Where did you learn to speak French?",
    "She has been living in this city for ten years.",
    "If it rains tomorrow, we will stay at home.",
)
INSPECTED = 0


def demo(folder: Path = Path("demo"), models: Sequence[str] | None = None) -> int:
    """Translate, draw, and say where the drawings are."""
    from regard import catalogue
    from regard.cli.load_translator import describe_device, load_prepared_translator
    from regard.cli.see import draw
    from regard.core.errors import BadInput
    from regard.interpret.figures.token_maps import TokenMapsFigure
    from regard.interpret.inspection import inspect
    from regard.see import text_map

    names = catalogue.translators() if models is None else models
    if not names:
        raise BadInput("no translator ships with this copy of the package; train one: regard train transformer_tatoeba")
    found = [load_prepared_translator(name, None, None) for name in names]
    began = time.monotonic()
    written = [translator(SENTENCES) for translator in found]
    seconds = time.monotonic() - began
    print()
    width = max(map(len, names))
    for number, sentence in enumerate(SENTENCES):
        print(f"  {'':{width}}  {sentence}")
        for name, lines in zip(names, written, strict=True):
            print(f"  {name:{width}}  {lines[number]}")
        print()
    print(f"  {len(found) * len(SENTENCES)} translations in {seconds:.1f} s ({describe_device(found[0])}, beam 4)\n")

    inspection = inspect(found[0], {"text": SENTENCES[INSPECTED]}, name=names[0])
    figure = TokenMapsFigure(inspection)
    print(f"What each word of the translation attends to (mean of the heads of {figure.selected[0].name}):\n")
    print(text_map(figure.selected[0], width=100), end="\n\n")
    folder.mkdir(parents=True, exist_ok=True)
    files = [folder.resolve() / name for name in ("attention.png", "attention.html")]
    lines = draw(figure, files)
    print("The same as a picture, and all layers and heads as a page to explore (open it in a browser):\n")
    print(*(f"  {line}" for line in lines), sep="\n", end="\n\n")
    if why := _why_eager():
        print(f"torch.compile is not to be had here ({why}); everything works without it, in eager mode.\n")
    print('Next: regard translate "Good morning." --to de        regard --help')
    return 0


def _why_eager() -> str | None:
    import torch

    from regard.training.device import eager_reason

    return eager_reason(True, torch.device("cuda" if torch.cuda.is_available() else "cpu"))


if __name__ == "__main__":
    from regard.cli import run_with_error_handling

    sys.exit(run_with_error_handling(demo))

"""Train on one's own data within some minutes: look at the data, choose everything else, say what was chosen.

    images           a folder of images for each class                      images.py
    labelled-texts   a table of texts and labels, or a folder per label     labelled_texts.py
    pairs            a table or two files of sentence pairs                 pairs.py
    text             text files                                             text.py
    audio            recordings with labels (folders) or transcripts        audio.py

    plan = make_plan("images", "photos", minutes=5)
    print(plan)                                         six lines
    train(plan.recipe, "runs/photos")                   an ordinary recipe, through the ordinary loop

Each file says what a kind of data starts from, how large a model fits, and how it is kept from overfitting (`Draft`).
plan.py does what is the same for all: it times some updates of each candidate, largest first, and sets steps, schedule
and evaluations so that the run ends in time. The recipe is stored with the run: `regard train RUN/recipe.json` repeats
it.
"""

from __future__ import annotations

import time
from pathlib import Path

from regard.core.errors import BadInput
from regard.core.spec import Registry, resolve
from regard.training.loggers.progress import say_if_slow
from regard.training.own_data.plan import Plan, complete, without_warnings

KINDS: Registry = {
    "images": ("regard.training.own_data.images", "draft"),
    "labelled-texts": ("regard.training.own_data.labelled_texts", "draft"),
    "pairs": ("regard.training.own_data.pairs", "draft"),
    "text": ("regard.training.own_data.text", "draft"),
    "audio": ("regard.training.own_data.audio", "draft"),
}


def make_plan(
    kind: str,
    path: str | Path,
    minutes: float = 5.0,
    device: str = "auto",
    quick: bool = False,
    seed: int = 1,
    source: str | None = None,
    began: float | None = None,
) -> Plan:
    """Return the plan of a run on the data at `path`.

    `source` is what to start from instead of what would be chosen ("none": from scratch); with `quick` the run has
    a few updates, to see that everything works. The minutes begin now, or at `began` (of time.monotonic).
    """
    began = time.monotonic() if began is None else began
    place = Path(path).expanduser()
    if not place.exists():
        raise BadInput(f"there is no file or folder {place}; give the data: regard train {kind} PATH")
    with without_warnings():
        with say_if_slow("looking at the data ...", 1.0):
            draft = resolve(KINDS, kind, "kind of data")(place.resolve(), quick, source)
        return complete(draft, kind, place, minutes, device, quick, seed, began)

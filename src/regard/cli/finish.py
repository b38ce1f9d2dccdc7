"""``regard finish``: end a run as it is, so that its model can be used."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def finish(run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run.")]) -> int:
    """End a run as it is: measure its weights on validation and save the best as its model.

    For a run that was killed, or stopped and will not be resumed. Ctrl-C saves a model by itself, without measuring it.

    \b
      regard finish runs/photos
    """
    from regard.cli import INTERRUPTED
    from regard.training import finish as end

    if end(run)["stop_reason"] == "interrupted":
        return INTERRUPTED
    print(run / "model")
    return 0

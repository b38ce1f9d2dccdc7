"""The folder of a run: one process at a time trains into it, and a run goes on only with the recipe it began with."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from regard.core.errors import BadInput
from regard.training.checkpoint.manifest import read_manifest
from regard.training.parallel.distributed import DistributedContext
from regard.training.recipe import Recipe, changed_settings, from_json, load_saved_recipe

LOCK_FILE = ".lock"  # locked by the process that trains


@contextmanager
def locked_folder(out: Path, world: DistributedContext) -> Iterator[None]:
    """Lock the folder of a run, so that no other process trains into it; the lock ends with the process.

    The folder is created if needed, and removed again if the run fails before it writes anything.
    """
    fresh = _make_folder(out)
    try:
        import fcntl
    except ImportError:  # not a POSIX system
        yield
        return
    if not world.is_main_process:
        yield
        return
    try:
        file = open(out / LOCK_FILE, "w")  # noqa: SIM115
    except OSError as error:
        raise BadInput(f"cannot write in {out}: {(error.strerror or str(error)).lower()}") from None
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BadInput(f"another process is training into {out} right now") from None
        except OSError:  # a file system without locks
            pass
        try:
            yield
        except BaseException:
            if fresh:
                _remove_folder(out)
            raise


def _make_folder(out: Path) -> bool:
    """Create the folder of a run; return whether it is new."""
    fresh = not out.exists()
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(f"cannot create the folder {out}: {error.strerror}") from None
    return fresh


def _remove_folder(out: Path) -> None:
    """Remove the folder of a run that wrote nothing; the caller holds its lock."""
    with suppress(OSError):  # another process may have written there just now
        if {entry.name for entry in out.iterdir()} <= {LOCK_FILE}:
            (out / LOCK_FILE).unlink(missing_ok=True)
            out.rmdir()


def read_recipe(out: Path, checkpoint: Path, say: Callable[[str], None] | None) -> Recipe:
    """Return the recipe of a run. Where recipe.json was edited since the checkpoint was saved, a changed training
    setting is reported, and any other change is an error."""
    saved, sealed = load_saved_recipe(out), read_manifest(checkpoint).get("recipe")
    if sealed is not None:  # an older version wrote none
        found = changed_settings(from_json(sealed, checkpoint), saved)
        if fixed := _format_changes(found, train=False):
            raise BadInput(f"{out / 'recipe.json'} was edited after {checkpoint.name}: {fixed}; undo the change")
        if say is not None and (free := _format_changes(found, train=True)):
            say(f"{out / 'recipe.json'} was changed after {checkpoint.name}: {free}")
    return saved


def check_unchanged(old: Recipe, new: Recipe) -> None:
    """Raise if model, task or data changed; the training settings of a run may change."""
    if changes := _format_changes(changed_settings(old, new), train=False):
        raise BadInput(f"the run was started with another recipe: {changes}; undo the change, or use another folder")


def _format_changes(found: Mapping[str, tuple[Any, Any]], train: bool) -> str:
    """Return the changed training settings in words, or the other changes."""
    own = {key: pair for key, pair in found.items() if key.startswith("train.") == train}
    return "; ".join(f"{key} was {a!r}, is {b!r}" for key, (a, b) in own.items())

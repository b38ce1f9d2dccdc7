"""The translator of a name, a folder or a pair of languages."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from regard.cli.prepare import describe_device, load_predictor_as, prepare_predictor
from regard.core.errors import BadInput, RegardError

if TYPE_CHECKING:
    from regard.tasks.text.translation import Translator

__all__ = ["describe_device", "load_prepared_translator", "load_translator"]


def load_prepared_translator(
    model: str | None, source: str | None, target: str | None, device: str = "auto", int8: bool = False
) -> Translator:
    """Return the translator of a name, a folder (a saved model or a run) or a pair of languages, ready to run."""
    return prepare_predictor(load_translator(model, source, target), device, int8)


def load_translator(model: str | None, source: str | None, target: str | None) -> Translator:
    """Return the same as it was loaded: slower, and gradients go through it."""
    check_language(model, target)
    name = f"{source or 'en'}-{target}" if model is None else model
    found = _loaded(name, is_pair=model is None)
    for wanted, has, option in ((source, found.source, "--from"), (target, found.target, "--to")):
        if wanted is not None and wanted != has:
            raise BadInput(f"{name} translates {found.source} to {found.target}; {option} {wanted} needs another model")
    return found


def check_language(model: str | None, target: str | None) -> None:
    """Refuse a translation of which neither the model nor the language is given."""
    from regard.catalogue import translators

    if model is None and target is None:
        languages = sorted({name[3:] for name in translators() if re.fullmatch("en-[a-z]{2}", name)}) or ["de"]
        known = " or ".join(f"--to {language}" for language in languages)
        raise RegardError(f"say which language to translate to: {known} (or which model: --model FOLDER)")


def _loaded(name: str, is_pair: bool) -> Translator:
    from regard.catalogue import translators
    from regard.tasks.text.translation import Translator

    if is_pair and name not in translators():
        known = ", ".join(translators()) or "none"
        raise BadInput(f"no translator {name} comes with regard (there is: {known}); give your own: --model FOLDER")
    return load_predictor_as(Translator, name, "not a translator")

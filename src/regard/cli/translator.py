"""Which translator is meant, loaded and ready on the best device there is, in float32.

Never bfloat16: it gains nothing here, and on some CPUs it ends the process.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from regard.core.errors import BadInput, RegardError, Unsupported

if TYPE_CHECKING:
    from regard.tasks.translator import Translator


def chosen(
    model: str | None, source: str | None, target: str | None, device: str = "auto", int8: bool = False
) -> Translator:
    """The translator of a name, of a folder (a saved model or a whole run), or of a pair of languages."""
    if model is None and target is None:
        raise RegardError("say which language to translate to: --to de (or which model: --model FOLDER)")
    name = f"{source or 'en'}-{target}" if model is None else model
    found = _loaded(name, is_pair=model is None)
    for asked, has, option in ((source, found.source, "--from"), (target, found.target, "--to")):
        if asked is not None and asked != has:
            raise BadInput(f"{name} translates {found.source} to {found.target}; {option} {asked} needs another model")
    return _ready(found, device, int8)


def _loaded(name: str, is_pair: bool) -> Translator:
    import regard
    from regard.catalogue import translators
    from regard.tasks.translator import Translator

    folder = Path(name)
    if is_pair and name not in translators():
        known = ", ".join(translators()) or "none"
        raise BadInput(f"no translator {name} comes with regard (there is: {known}); give your own: --model FOLDER")
    if not (folder / "config.json").is_file() and (folder / "model" / "config.json").is_file():
        name = str(folder / "model")  # a run keeps its model there
    found = regard.load(name)
    if not isinstance(found, Translator):
        raise BadInput(f"{name} is a {type(found).__name__}, not a translator")
    return found


def _ready(translator: Translator, device: str, int8: bool) -> Translator:
    from regard.core.machine import choose_threads
    from regard.tasks.serving import prepare, quantise
    from regard.training.device import chosen_device

    place = chosen_device(device)
    translator.model.to(place).float().eval()
    if place.type == "cpu":
        choose_threads()
        (quantise if int8 else prepare)(translator.model)
    elif int8:
        raise Unsupported(f"int8 is for CPUs; leave out --int8, or add --device cpu (here: {place})")
    return translator


def machine(translator: Translator) -> str:
    """Where and how it computes, in a few words."""
    import torch

    from regard.tasks.serving import form

    device, how = next(translator.model.parameters()).device, form(translator.model)
    if device.type == "cuda":
        return f"{torch.cuda.get_device_name(device)}, {how}"
    threads = torch.get_num_threads()
    return f"{device.type.upper()}, {how}, {threads} thread{'s' if threads > 1 else ''}"

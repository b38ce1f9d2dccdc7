"""``regard see`` for a model without a view of its own: run it, and draw its output over the picture, or print it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from regard.core.errors import BadInput


def has_own_view(model: str) -> bool:
    """Return whether `regard see` draws what a model attends to; else its output is drawn."""
    from regard.api import predictor_class
    from regard.interpret.inspection import INSPECTIONS
    from regard.tasks import task_name

    cls = predictor_class(model)
    return cls is None or hasattr(cls, "attention") or task_name(cls) in INSPECTIONS


def see_output(word: str, model: str, options: Mapping[str, object], files: Sequence[Path]) -> int:
    """Run a model on one input, print its output and draw it; `options` are those of other models, to be refused."""
    from regard.cli import html_page, print_status
    from regard.cli.prepare import load_predictor, prepare_predictor
    from regard.see.outputs import can_draw, draw_output
    from regard.serve.http.model_pool import parse_model_argument

    if given := [option for option, value in options.items() if value is not None]:
        raise BadInput(f"{model} has no such view: leave out {', '.join(given)}.")
    found = load_predictor(model)
    (field, kind), *more = found.inputs.items()
    if more:
        fields = " ".join(name.upper() for name in found.inputs)
        raise BadInput(f"{model} takes {', '.join(found.inputs)}; use regard run {model} {fields} --out FILE.")
    source, *others = kind.sources([word])
    if others:
        raise BadInput(f"{word} has {1 + len(others)} files; give one.")
    predictor = prepare_predictor(found, "cpu", gradients=True)
    item = predictor.read_item({field: source.value})
    (output,) = predictor.predict([item], predictor.make_options({}))
    print(output, end="\n\n")
    for file in files:
        if html_page.is_page(file):
            value: Any = Path(word).read_bytes() if kind.media_types else word
            name = parse_model_argument(model)[0]
            html_page.write_page(file, name, predictor, {field: value}, f"{name}: {Path(word).name}")
        elif can_draw(output) and hasattr(item, "convert"):
            draw_output(item, output, Path(word).name, file)
        else:
            print_status(f"there is no drawing of {type(output).__name__}; its output is printed")
            continue
        print(f"drawn: {file}")
    return 0

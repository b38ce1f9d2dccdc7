"""``regard ask``: the answer to a question about a picture."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from regard.cli.options import Device, Json, print_domain_note
from regard.cli.photos import Model


def ask(
    picture: Annotated[Path, typer.Argument(metavar="PICTURE", help="An image file.", show_default=False)],
    question: Annotated[str, typer.Argument(metavar="QUESTION", help="The question about it.", show_default=False)],
    model: Model = None,
    k: Annotated[int, typer.Option("-k", "--top-k", min=1, metavar="N", help="Answers to print.")] = 1,
    see: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Draw what each word looked at: .png, .svg, or .html for a page."),
    ] = None,
    as_json: Json = False,
    device: Device = "auto",
) -> int:
    """Answer a question about a picture.

    The answer is one of those that the model was trained on, printed with its probability. A question of a form that it
    was not taught gets an answer that says so, and stderr says what it was taught.

    The model that ships (scene-questions) knows composed scenes of digits and clothes, such as
    docs/assets/scene-questions.png.

    \b
      regard ask docs/assets/scene-questions.png "How many red digits?"
      regard ask scene.png "Is there a boot?" --see map.png
      regard ask scene.png "Is the bag left or right of the shoe?"
      regard ask scene.png "What colour is the dress?" --model runs/vqa -k 3
    """
    import json

    from regard.cli import print_status
    from regard.cli.output_files import check_output_files
    from regard.cli.photos import default_photo_model
    from regard.cli.prepare import load_predictor, prepare_predictor
    from regard.cli.see import draw
    from regard.core.errors import BadInput, with_article
    from regard.interpret.figures import make_figure
    from regard.interpret.inspection import inspect
    from regard.modalities.classes import Classes
    from regard.tasks.image.visual_question_answering import NOT_LEARNED, VisualQuestionAnswerer

    if see is not None:
        check_output_files([see])
    model = default_photo_model("ask", Classes, asks=True) if model is None else model
    found = load_predictor(model)
    if not isinstance(found, VisualQuestionAnswerer):
        raise BadInput(
            f"{model} is {with_article(type(found).__name__)}; regard ask needs a model of questions about pictures."
        )
    prepare_predictor(found, device)
    item = found.read_item({"image": picture, "question": question})
    (note,) = found.domain_notes([item])
    print_domain_note(note)
    if see is None:
        (answer,) = found.predict([item], found.fill_options({}))
    else:
        inspection = inspect(found, item, name=model)
        answer = inspection.prediction  # type: ignore[attr-defined]
        if answer.label == NOT_LEARNED:
            print_status(f"not drawn: {see}; the model does not look at a picture for a question that it never learned")
        else:
            for line in draw(make_figure(inspection, source=picture.name), [see]):
                print_status(line)
    answer = answer.top(k)
    if as_json:
        print(json.dumps(answer.to_json() | ({"warning": note} if note else {}), ensure_ascii=False))
    else:
        for label, probability in answer.probabilities.items():
            print(f"{label}\t{probability:.4f}")
    return 0

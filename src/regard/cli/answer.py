"""``regard answer``: the answer to a question about a story or a text."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.options import Device, Json

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DEFAULT = "stories"


def answer(
    text: Annotated[str, typer.Argument(metavar="TEXT", help="The story, one sentence after the other; - is stdin.")],
    question: Annotated[str, typer.Argument(metavar="QUESTION", help="The question about it.")],
    model: Annotated[
        str, typer.Option(metavar="NAME", help="A model by name (regard list zoo), or a folder.")
    ] = DEFAULT,
    k: Annotated[int, typer.Option("-k", "--top-k", min=1, metavar="N", help="Answers to print.")] = 1,
    see: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a picture (.png, .svg) of what was read.")
    ] = None,
    as_json: Json = False,
    device: Device = "auto",
) -> int:
    """Answer a question about a story.

    A memory network reads the sentences in several hops and chooses one of the answers that it was trained on, printed
    with its probability. A model of extractive question answering prints the words of the text that answer. The picture
    shows which sentences were read at every hop, or the attention of the last layer.

    \b
      regard answer "Mary left. John went to the garden." "Where is John?"
      regard answer - "Where is the milk?" --see hops.png < story.txt
    """
    import json
    import sys

    from regard import see as pictures
    from regard.cli import print_status
    from regard.cli.lines import check_no_file
    from regard.cli.output_files import check_output_files, describe_write
    from regard.cli.prepare import load_predictor, prepare_predictor
    from regard.core.errors import BadInput, with_article
    from regard.tasks.memory.stories import StoryAnswerer
    from regard.tasks.text.extractive_qa import QuestionAnswerer

    check_no_file(text, how="; - reads it from stdin: regard answer - QUESTION < {}")
    check_output_files([see] if see else (), page=False)
    found: Any = load_predictor(model)
    if not isinstance(found, (StoryAnswerer, QuestionAnswerer)):
        raise BadInput(f"{model} is {with_article(type(found).__name__)}, which does not answer questions")
    prepare_predictor(found, device)
    story = sys.stdin.read() if text == "-" else text
    figure: Figure | None = None
    if isinstance(found, StoryAnswerer):
        reading = found.read_story(story, question)
        output: Any = reading.answer.top(k)
        if see:
            title = f"{question.strip()} {reading.answer.label}"
            figure = pictures.story_hops(reading.sentences, reading.weights, title)
    else:
        output = found(story, question)
        if see:
            figure = pictures.heads(found.attention(story, question)[-1], f"{question.strip()} {output}")
    if as_json:
        print(json.dumps(output.to_json(), ensure_ascii=False))
    elif isinstance(found, StoryAnswerer):
        for label, probability in output.probabilities.items():
            print(f"{label}\t{probability:.4f}")
    else:
        print(output)
    if see and figure is not None:
        line = describe_write(see)
        pictures.save(figure, see)
        print_status(line)
    return 0

"""``regard handwrite``: texts in, pictures of handwriting out; some models take no text.

One picture has all lines, every sample of every text below the other. A line whose end was not reached is drawn as far
as it came and named on stderr; the exit status is then 1.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from regard.cli.options import Device, Seed
from regard.decoding.generation_config import SAMPLING


def handwrite(
    text: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TEXT...", help="Texts to write (digits for the model that ships); some models take none."
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="FILE",
            help="The picture: .png or .svg.",
            show_default="handwriting.png, or handwriting-2.png if that exists",
        ),
    ] = None,
    model: Annotated[
        str, typer.Option(metavar="NAME", help="A handwriting model by name (regard list zoo), a folder, or a run.")
    ] = "pen-digits",
    num_samples: Annotated[
        int,
        typer.Option(
            "--num-samples", "-n", min=1, max=64, metavar="N", help="Samples of each text.", rich_help_panel=SAMPLING
        ),
    ] = 1,
    bias: Annotated[
        float | None,
        typer.Option(
            min=0.0,
            max=20.0,
            metavar="X",
            help="0 is as varied as the data, 2 is neat.",
            show_default="2; without a text 0.5",
            rich_help_panel=SAMPLING,
        ),
    ] = None,
    seed: Seed = None,
    points: Annotated[
        int, typer.Option(min=1, max=5000, metavar="N", help="Pen points to write, for a model without texts.")
    ] = 300,
    window: Annotated[
        bool, typer.Option("--window", help="Also draw the attention: the character at every point of the pen.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Also print the strokes, one line of JSON for each.")] = False,
    device: Device = "auto",
) -> int:
    """Write texts by hand: draw the strokes that a model samples.

    The model that ships writes digits. The same seed gives the same line, whatever else is written with it.

    \b
      regard handwrite 31415
      regard handwrite 2718 1618 -n 3 --bias 0.5 --seed 7 -o digits.svg
      regard handwrite 31415 --window -o window.png
      regard handwrite --model runs/omniglot --points 400 -n 5 -o letters.png
    """
    from regard import see
    from regard.cli import FAILED, print_status
    from regard.cli.output_files import check_output_files, describe_write, free_name
    from regard.cli.prepare import load_predictor_as, prepare_predictor
    from regard.core.errors import BadInput
    from regard.tasks.strokes.handwriting import HandwritingSynthesizer

    out = free_name(Path("handwriting.png")) if out is None else out
    check_output_files([out], page=False)
    done = describe_write(out)
    write = prepare_predictor(
        load_predictor_as(HandwritingSynthesizer, model, "which does not write by hand; see regard list zoo"), device
    )
    if window and not write.letters:
        raise BadInput("this model takes no text, so there is no window to draw; leave out --window")
    if write.letters or text:
        lines = write.samples(text or [], num_samples, bias=bias, seed=seed or 0)
    else:
        lines = write.sample_unconditional(points, num_samples=num_samples, bias=bias, seed=seed or 0)
    drawn = [line.points.numpy() for line in lines]
    windows = [line.window.numpy() for line in lines] if window else None
    see.strokes(drawn, [line.text for line in lines], windows, out)
    for number, line in enumerate(lines if as_json else (), 1):
        print(json.dumps({"number": number, "input": line.text, **line.to_json()}, ensure_ascii=False))
    if not as_json:
        print(done)
    cut = [line.text for line in lines if not line.finished]
    for each in cut:
        print_status(f"'{each}' is cut off: its end was not reached; try another --seed or a higher --bias")
    return FAILED if cut else 0

"""Options that several verbs have, each with one meaning and one line of help."""

from __future__ import annotations

from typing import Annotated

import typer

SAMPLING, SEARCH = "Drawing at random", "Searching"  # panels of the help

Device = Annotated[
    str, typer.Option(metavar="DEVICE", help="cpu, cuda, cuda:1, ...; auto: the GPU where there is one.")
]
Int8 = Annotated[
    bool, typer.Option("--int8", help="Weights and products in 8 bits: faster on a CPU, nearly the same text.")
]
Seed = Annotated[
    int | None,
    typer.Option(
        min=0,
        max=2**32 - 1,  # a number is made of it for each line, and must fit in 64 bits
        metavar="N",
        help="The same seed draws the same.",
        show_default="0",
        rich_help_panel=SAMPLING,
    ),
]
TopK = Annotated[
    int | None,
    typer.Option(min=1, metavar="N", help="Draw from the k likeliest tokens only.", rich_help_panel=SAMPLING),
]
MinP = Annotated[
    float | None,
    typer.Option(
        min=0.0,
        max=1.0,
        metavar="X",
        help="Draw from tokens at least so likely as this share of the likeliest.",
        rich_help_panel=SAMPLING,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="A line of JSON for each answer.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Say on stderr how fast it went and on what.")]

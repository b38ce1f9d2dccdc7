"""``regard search``: the lines of a file that mean most nearly what was asked for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from regard.cli.options import Device, Json
from regard.core.errors import BadInput


def search(
    query: Annotated[str, typer.Argument(metavar="QUERY", help="What to look for, in your own words.")],
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Text file; every line is an item to find.")],
    k: Annotated[int, typer.Option("-k", "--top-k", min=1, metavar="N", help="Lines to print.")] = 5,
    model: Annotated[
        str, typer.Option(metavar="NAME", help="minilm, or the folder of an embedder or of sentence-transformers.")
    ] = "minilm",
    as_json: Json = False,
    device: Device = "auto",
) -> int:
    """Find the lines of a file that are nearest in meaning to a query.

    Each is printed as cosine similarity to the query, line number and text, separated by tabs. Blank lines are skipped;
    long lines and a long query are read in parts. A line that is not UTF-8 is named on stderr and makes the exit
    status 1.

    \b
      regard search "someone is resting" sentences.txt
      regard search "how to return a parcel" help.txt -k 3
    """
    from regard.cli import FAILED, lines, print_status
    from regard.cli.embed import load_embedder
    from regard.tasks.text.embedder import nearest_vectors

    if not query.strip():
        raise BadInput("the query is empty; say what to look for")
    (asked,) = lines.lines_from_arguments([" ".join(query.split())])
    if asked[0].problem:
        raise BadInput(f"the query {asked[0].problem.split(':')[0]}")
    found, bad = list[lines.Line](), 0
    for window in lines.read_batches(lines.open_lines(file)):
        for line in window:
            if line.problem:
                print_status(f"line {line.number} {line.problem}")
                bad += 1
            if line.text.strip():
                found.append(line)
    if not found:
        raise BadInput(f"there is no text in {file}")
    embedder = load_embedder(model, device)
    vectors = embedder([line.text for line in found], overflow="split")
    scores, which = nearest_vectors(embedder([asked[0].text], overflow="split"), vectors, k)
    for score, at in zip(scores[0].tolist(), which[0].tolist(), strict=True):
        number, said = found[at].number, found[at].text.strip()
        if as_json:
            print(json.dumps({"cosine": round(score, 6), "number": number, "text": said}, ensure_ascii=False))
        else:
            print(f"{score:.4f}\t{number}\t{said}")
    return FAILED if bad else 0

"""``regard near``: the words whose vectors are nearest to a word's, or what completes an analogy."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.options import Json
from regard.core.errors import RegardError

if TYPE_CHECKING:
    from regard.modalities.neighbors import WordNeighbor
    from regard.tasks.text.word2vec import NearestWords


def near(
    words: Annotated[
        list[str] | None, typer.Argument(metavar="WORD...", help="Words to find the neighbours of.")
    ] = None,
    model: Annotated[
        str, typer.Option(metavar="NAME", help="Word vectors by name (regard list zoo), or a folder.")
    ] = "words-en",
    k: Annotated[int, typer.Option("-k", "--top-k", min=1, metavar="N", help="Neighbours of each.")] = 10,
    analogy: Annotated[
        tuple[str, str, str] | None, typer.Option(metavar="A B C", help="What is to C as B is to A?")
    ] = None,
    picture: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Also draw the words and their neighbours in a plane: .png or .svg."),
    ] = None,
    as_json: Json = False,
) -> int:
    """The nearest neighbours of words, by the cosine between their vectors.

    A word that is not known is named on stderr with what is spelled like it (JSON: as "error"), and makes the exit
    status 1.

    \b
      regard near dog
      regard near three happy -k 5
      regard near --analogy man woman king
    """
    if not words and analogy is None:
        raise typer.BadParameter("give one or more words, or --analogy A B C")
    from regard.cli import FAILED, print_status
    from regard.cli.see import check_output_files

    check_output_files([picture] if picture is not None else (), page=False)
    vectors, bad = _load_vectors(model), 0
    drawn: dict[str, list[str]] = {}
    for word in words or ():
        try:
            found = vectors.nearest(word, k)
        except RegardError as error:
            print_status(str(error))
            if as_json:
                print(json.dumps({"query": word, "error": str(error)}, ensure_ascii=False))
            bad += 1
            continue
        drawn[word] = [word, *(each.word for each in found)]
        _print(word, found, as_json)
    if analogy is not None:
        a, b, c = analogy
        found = vectors.analogy(a, b, c, k)
        drawn[f"{b} - {a} + {c}"] = [a, b, c, *(each.word for each in found)]
        _print(f"{c} is to ? as {a} is to {b}", found, as_json)
    if picture is not None and drawn:
        _draw(vectors, drawn, picture)
        (print_status if as_json else print)(f"drawn: {picture}")  # no line but JSON among lines of JSON
    return FAILED if bad else 0


def _load_vectors(name: str) -> NearestWords:
    from regard.cli.prepare import load_predictor_as
    from regard.tasks.text.word2vec import NearestWords

    return load_predictor_as(NearestWords, name, "not word vectors; regard list zoo names what there is")


def _print(title: str, found: list[WordNeighbor], as_json: bool) -> None:
    if as_json:
        print(json.dumps({"query": title, "neighbours": [each._asdict() for each in found]}, ensure_ascii=False))
        return
    wide = max((len(each.word) for each in found), default=0)
    print(title)
    for each in found:
        print(f"  {each.word:{wide}}  {each.cosine:.3f}")


def _draw(vectors: NearestWords, drawn: dict[str, list[str]], file: Path) -> None:
    from regard import see

    names = [word for words in drawn.values() for word in words]
    groups = [title for title, words in drawn.items() for _ in words]
    see.pca(vectors.vectors(names).numpy(), names, groups, file)

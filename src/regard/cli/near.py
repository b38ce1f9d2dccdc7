"""``regard near``: the words whose vectors are nearest to a word's, or what completes an analogy."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.options import Json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from regard.cli.batch_runner import Item
    from regard.modalities.neighbors import Neighbors


def near(
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="WORD...", help="Words to find the neighbours of, or a sum: king - man + woman."),
    ] = None,
    model: Annotated[
        str, typer.Option(metavar="NAME", help="Word vectors by name (regard list zoo), or a folder.")
    ] = "words-en",
    k: Annotated[int, typer.Option("-k", "--top-k", min=1, metavar="N", help="Neighbours of each word.")] = 10,
    analogy: Annotated[
        tuple[str, str, str] | None, typer.Option(metavar="A B C", help="What is to C as B is to A?")
    ] = None,
    picture: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Also draw the words and their neighbours in a plane: .png or .svg."),
    ] = None,
    as_json: Json = False,
) -> int:
    """Print the nearest neighbours of words, by the cosine between their vectors.

    Words with + and - between them are added and subtracted. Such a sum is usually nearest to one of its own words:
    they are left out, and a line says how near they are.

    An unknown word is named on stderr with words that are spelled like it, and makes the exit status 1.

    \b
      regard near dog
      regard near three happy -k 5
      regard near king - man + woman
      regard near --analogy man woman king
    """
    if not words and analogy is None:
        raise typer.BadParameter("give one or more words, or --analogy A B C")
    from regard import see
    from regard.cli import print_status
    from regard.cli.batch_runner import BatchRunner
    from regard.cli.output_files import check_output_files, describe_write
    from regard.cli.prepare import load_predictor_as
    from regard.tasks.text.word2vec import NearestWords

    check_output_files([picture] if picture is not None else (), page=False)
    vectors = load_predictor_as(NearestWords, model, "not word vectors; see regard list zoo")

    def predict(asked: list[Any], numbers: Sequence[int]) -> list[Neighbors]:
        return vectors.predict(asked, vectors.make_options({"top_k": k}))

    asked = join_sums(words or ()) + (["{1} - {0} + {2}".format(*analogy)] if analogy is not None else [])
    runner = BatchRunner(predict, "look up")
    results = runner.results([_item(number, each) for number, each in enumerate(asked, 1)])
    for result in results:
        if as_json:
            print(result.to_json())
        elif result.output is not None:
            _print(result.output)
    outputs = [each.output for each in results if each.output]
    found = {each.word: [n.word for n in (*(each.given or (each,)), *each.neighbors)] for each in outputs}
    if picture is not None and found:
        names = [word for group in found.values() for word in group]
        line = describe_write(picture)
        groups = [label for label, group in found.items() for _ in group]
        see.pca(vectors.vectors(names).numpy(), names, groups, picture)
        (print_status if as_json else print)(line)  # only JSON on stdout with --json
    return runner.finish()


def join_sums(words: Sequence[str]) -> list[str]:
    """Join words that have + or - between them: ["dog", "king", "-", "man"] is ["dog", "king - man"]."""
    found = list[str]()
    waiting = False
    for word in words:
        is_sign = word in ("+", "-")
        if is_sign and (waiting or not found):
            raise typer.BadParameter(f"give a word on either side of '{word}': king - man + woman")
        if is_sign or waiting:
            found[-1] += f" {word}"
        else:
            found.append(word)
        waiting = is_sign
    if waiting:
        raise typer.BadParameter(f"give a word after '{words[-1]}': king - man + woman")
    return found


def _item(number: int, asked: str) -> Item:
    from regard.cli.batch_runner import Item

    return Item(number, f"'{asked}'", asked, lambda: asked)


def _print(found: Neighbors) -> None:
    wide = max((len(each.word) for each in found.neighbors), default=0)
    print(found.word)
    for each in found.neighbors:
        print(f"  {each.word:{wide}}  {each.cosine:.3f}")
    if found.given:
        print(f"  (left out: {', '.join(f'{each.word} {each.cosine:.3f}' for each in found.given)})")

"""``regard advise``: which attention mechanism for a length, from measurements."""

from __future__ import annotations

from typing import Annotated

import typer


def advise(
    length: Annotated[int, typer.Option(metavar="N", min=1, help="Tokens of a sequence.")],
    causal: Annotated[bool, typer.Option("--causal", help="A token sees only those before it.")] = False,
    device: Annotated[
        str, typer.Option("--device", metavar="DEVICE", help="cpu or cuda: where it was measured.")
    ] = "cpu",
    accuracy: Annotated[
        float | None,
        typer.Option(
            metavar="SHARE",
            help="Keep at least this share of dense attention's scores on the long-range tasks: 0.95.",
            show_default="any",
        ),
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Show all mechanisms, not the best ten.")] = False,
) -> int:
    """Advise which attention mechanism to use for a length, and why, with the measured numbers.

    Only what was measured counts: where no measurement fits, it says so.

    \b
      regard advise --length 8192
      regard advise --length 4096 --causal --accuracy 0.95
      regard advise --length 16384 --causal --device cuda
    """
    from regard.catalogue import format_table
    from regard.cost.advise import advise as find_advice
    from regard.cost.measurements import DENSE

    found = find_advice(length, causal, device, accuracy)
    best, mode = found.best, "causal" if causal else "bidirectional"
    dense = next(each for each in found.candidates if each.name == DENSE)
    if best.name == DENSE:
        print(f"{DENSE}: dense attention is the fastest measured at {length:,} tokens, {mode}.")
    else:
        score = "" if best.score is None else f", with {100 * best.score:.0f} % of its scores"
        print(f"{best.name}: {best.speedup:.1f} times as fast as dense attention at {length:,} tokens, {mode}{score}.")
    rows = [
        {
            "name": each.name,
            "ms": f"{1000 * each.seconds:.3g}",
            "times faster": f"{each.speedup:.2f}",
            "MiB": f"{each.memory / 2**20:.0f}",
            "scores": "-" if each.score is None else f"{100 * each.score:.0f} %",
        }
        for each in (found.candidates if every else found.candidates[:10])
    ]
    if not every and dense not in found.candidates[:10]:
        rows.append({"name": DENSE, "ms": f"{1000 * dense.seconds:.3g}", "times faster": "1.00",
                     "MiB": f"{dense.memory / 2**20:.0f}", "scores": "100 %"})  # fmt: skip
    print(f"\n{format_table(rows)}\n\nForward and backward, {found.source}.")
    if not any(each.score is not None for each in found.candidates if each.name != DENSE):
        print("No scores were measured, so this says nothing about quality.")
    else:
        print("Scores: share of dense attention's, over the tasks both were trained on (docs/variants.md).")
    for name, why in found.left_out.items() if every else ():
        print(f"left out: {name} ({why})")
    return 0

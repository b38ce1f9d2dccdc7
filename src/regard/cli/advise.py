"""``regard advise``: which attention mechanism for a length, from measurements."""

from __future__ import annotations

from typing import Annotated

import typer

GOOD = 0.9  # share of dense attention's scores


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
    from regard.core.terminal_text import terminal_width, wrap
    from regard.cost.advise import advise as find_advice
    from regard.cost.measurements import DENSE

    width = terminal_width()

    def say(sentence: str) -> None:
        print(*([sentence] if width is None else wrap(sentence, width)), sep="\n")

    found = find_advice(length, causal, device.lower(), accuracy)
    best, mode = found.best, "causal" if causal else "bidirectional"
    dense = next(each for each in found.candidates if each.name == DENSE)
    if best.name == DENSE:
        say(f"{DENSE}: dense attention is the fastest measured at {length:,} tokens, {mode}.")
    else:
        score = "how good it is was not measured" if best.score is None else f"{100 * best.score:.0f} % of its scores"
        say(f"{best.name}: {best.speedup:.1f} times as fast as dense attention at {length:,} tokens, {mode}; {score}.")
        good = next((each for each in found.candidates if each.name == DENSE or (each.score or 0) >= GOOD), dense)
        if good.name == DENSE:
            say(f"Nothing that is faster was measured to keep {100 * GOOD:.0f} % of its scores.")
        elif good is not best:
            why = f"the fastest of those that keep {100 * GOOD:.0f} % of its scores"
            say(f"{good.name}: {why}, {good.speedup:.1f} times.")
    shown = found.candidates if every else found.candidates[:10]
    rows = [
        {
            "name": each.name,
            "ms": f"{1000 * each.seconds:.3g}",
            "times faster": f"{each.speedup:.2f}",
            "MiB": f"{each.memory / 2**20:.0f}",
            "scores": "-" if each.score is None else f"{100 * each.score:.0f} %",
        }
        for each in (shown if dense in shown else (*shown, dense))
    ]
    print(f"\n{format_table(rows)}\n")
    say(f"Forward and backward, {found.source}.")
    if found.lengths != (length,):
        say(f"Between what was measured at {' and '.join(f'{n:,}' for n in found.lengths)} tokens.")
    if found.is_busy:
        say("Other programs kept that machine busy, so the times are rough.")
    tasks = sorted({task for each in found.candidates if each.name != DENSE for task in each.tasks})
    if not tasks:
        say(f"No scores of {'decoders' if causal else 'encoders'} were measured, so this says nothing about quality.")
    else:
        say(f"Scores: share of dense attention's, on {', '.join(tasks)} (docs/variants.md says what these are).")
    for name, why in found.left_out.items() if every else ():
        say(f"left out: {name} ({why})")
    return 0

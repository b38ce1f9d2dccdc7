"""Train or evaluate from a shell, where the ``regard`` command is not installed (on a borrowed GPU machine, say).

python -m regard.training RECIPE [key=value ...] --out FOLDER [--quick]
python -m regard.training --resume --out FOLDER [key=value ...]
torchrun --nproc-per-node 8 --max-restarts 3 -m regard.training RECIPE --resume --out FOLDER [key=value ...]
python -m regard.training --evaluate --out FOLDER [--split test_2016 ...] [--weights best] [--beam-size 5]
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
from pathlib import Path

from regard.core.errors import RegardError
from regard.core.files import atomic_write
from regard.training import evaluate, train
from regard.training.recipe import list_recipes, recipe_card


def main(words: list[str] | None = None) -> int:
    """Parse the command line, run it, and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m regard.training", description=__doc__.split("\n", 1)[0])
    parser.add_argument("words", nargs="*", metavar="RECIPE | key=value", help="a recipe, then settings")
    parser.add_argument("--out", type=Path, help="the folder of the run")
    parser.add_argument("--resume", action="store_true", help="resume the run in that folder")
    parser.add_argument("--quick", action="store_true", help="shrink the recipe to seconds")
    parser.add_argument("--list", action="store_true", help="list the recipes")
    parser.add_argument("--evaluate", action="store_true", help="evaluate the run in that folder instead")
    parser.add_argument("--split", action="append", help="a split to evaluate on (default: the test splits)")
    parser.add_argument("--weights", default="final", help="final, best, last, ema, average or a checkpoint's name")
    parser.add_argument("--beam-size", type=int, help="beam size (default: the recipe's)")
    args = parser.parse_intermixed_args(words)
    try:
        return _run(args)
    except RegardError as error:
        who = f"process {os.environ['RANK']}: " if "RANK" in os.environ else ""
        print(f"error: {who}{error}", file=sys.stderr)
        return 1


def _run(args: argparse.Namespace) -> int:
    if args.list:
        for name in list_recipes():
            print(f"{name:30} {recipe_card(name).splitlines()[0]}")
        return 0
    names = [word for word in args.words if "=" not in word]
    settings = [word for word in args.words if "=" in word]
    if args.out is None or len(names) > 1 or (not names and not args.resume and not args.evaluate):
        raise RegardError("give RECIPE key=value ... --out FOLDER (--list shows the recipes, --help all options)")
    if args.evaluate:
        search = {} if args.beam_size is None else {"beam_size": args.beam_size}
        found = evaluate(args.out, args.split, weights=args.weights, **search)
        text = json.dumps(found, indent=2, ensure_ascii=False)
        atomic_write((text + "\n").encode(), args.out / "evaluation.json")
        print(text)
        return 0
    command = f"python -m regard.training --resume --out {shlex.quote(str(args.out))}"
    result = train(names[0] if names else None, args.out, args.resume, settings, args.quick, command)
    if result["stop_reason"] == "interrupted":
        return 130
    if os.environ.get("RANK", "0") == "0":  # of the processes that torchrun started, only the first prints
        print(json.dumps(result, indent=2, ensure_ascii=False))
    return 0


if __name__ == "__main__":
    sys.exit(main())

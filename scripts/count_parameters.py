"""Count the parameters of every size of every model, on the meta device, into src/regard/models/parameters.json.

    python scripts/count_parameters.py

The file lets `regard list models|recipes` and `regard show MODEL` answer without torch: "model:size:vocab" -> number,
where models without a vocabulary stand under the assumed one, and "recipe:name" -> number for the recipes whose
vocabulary is known before the data are read.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch

from regard import catalogue
from regard.core.errors import RegardError
from regard.core.skip_init import skip_init
from regard.models import MODELS
from regard.training.recipe import build, list_recipes, load_recipe

FILE = Path(catalogue.__file__).parent / "models" / "parameters.json"


def count_all() -> dict[str, int]:
    """Return the numbers that the cards of all models show."""
    sizes = {
        f"{name}:{size}:{vocab or catalogue.VOCABULARY}": catalogue.count_parameters(name, size, vocab)
        for name in MODELS
        for size, vocab in catalogue.counted_sizes(name)
    }
    recipes = {f"recipe:{name}": count_recipe(name) for name in list_recipes()}
    return sizes | {key: count for key, count in recipes.items() if count}


def count_recipe(name: str) -> int:
    """Return the parameters of a recipe's model; 0 where the data decide on its vocabulary or its labels."""
    model = load_recipe(name).model
    try:
        with torch.device("meta"), skip_init():
            return sum(parameter.numel() for parameter in build(model).parameters())
    except (RegardError, RuntimeError, ValueError, ZeroDivisionError) as error:
        print(f"{name}: {error}", file=sys.stderr)
        return 0


def main() -> int:
    """Write the file."""
    counts = count_all()
    lines = ",\n".join(f'  "{key}": {value}' for key, value in sorted(counts.items()))
    FILE.write_text(f"{{\n{lines}\n}}\n", "utf-8")
    print(f"{len(counts)} numbers in {FILE}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

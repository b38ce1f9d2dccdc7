"""Write the stubs, `_exports.pyi`, of all packages that export their classes lazily, so that type checkers see them."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import regard
from regard.core.lazy_exports import EXPORTS, stub


def stubs() -> dict[Path, str]:
    """Return every stub, by its file."""
    packages = (import_module(f"regard.{name}") for name in regard._SUBPACKAGES)
    return {
        Path(str(package.__file__)).with_name("_exports.pyi"): stub(package.__name__)
        for package in packages
        if package.__name__ in EXPORTS
    }


if __name__ == "__main__":
    for path, text in stubs().items():
        path.write_text(text)

"""Write the tables that are read in the clone into their pages. A test compares the pages with what this script makes.

    python docs/make_tables.py       write the tables of all pages

A table stands between its marker (``<!-- datasets: sources -->``) and ``<!-- end -->``. The functions of mkdocs_hook.py
make it; the build of the site leaves it as it is. Markers of other kinds are expanded in the site alone.
"""

from __future__ import annotations

import re
from pathlib import Path

from mkdocs_hook import MARK, expand_marker

HERE = Path(__file__).resolve().parent
WRITTEN = ("table", "datasets", "variants", "positions", "benchmark", "plan", "picture")


def build_page(page: Path) -> str:
    """Return the text of a page with its tables as they are now."""
    up = "../" * (len(page.relative_to(HERE).parts) - 1)

    def write(found: re.Match[str]) -> str:
        kind, what = found[1], found[2]
        if kind not in WRITTEN:
            return found[0]
        return f"<!-- {kind}: {what} -->\n\n{expand_marker(kind, what, up)}\n\n<!-- end -->"

    return MARK.sub(write, page.read_text(encoding="utf-8"))


def main() -> None:
    """Write every page whose tables have changed, and name it."""
    for page in sorted(HERE.rglob("*.md")):
        made = build_page(page)
        if made != page.read_text(encoding="utf-8"):
            page.write_text(made, encoding="utf-8")
            print(page.relative_to(HERE.parent))


if __name__ == "__main__":
    main()

"""Fenced blocks of Markdown pages, and the mark in the line before them: ``<!-- needs: zoo -->``.

needs: zoo          run only where that is installed (zoo, timm, transformers, sacremoses, onnx)
not run: why        shown, not run
file: quiet.py      a module to import, not a program
after: quiet.py     run only by the test that has written that file
"""

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"(?:^<!-- (?P<mark>[^\n]*?) -->\n)?^```(?P<language>\w*)[^\n]*\n(?P<code>.*?)^```$", re.M | re.S)


@dataclass(frozen=True)
class Block:
    page: Path
    line: int
    language: str
    mark: str
    code: str

    def __str__(self):
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def name(page):
    return str(page.relative_to(ROOT))


def blocks(page, language):
    """Return the blocks of one language, in order."""
    text = page.read_text(encoding="utf-8")
    return [
        Block(page, text.count("\n", 0, found.start("code")) + 1, found["language"], found["mark"] or "", found["code"])
        for found in FENCE.finditer(text)
        if found["language"] == language
    ]


def commands(page):
    """Return every command of the console blocks, without its prompt."""
    return [
        (f"{block}", line.removeprefix("$ "))
        for block in blocks(page, "console")
        for line in block.code.splitlines()
        if line.startswith("$ ")
    ]

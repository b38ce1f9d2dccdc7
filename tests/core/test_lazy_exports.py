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


@pytest.mark.parametrize("package", PACKAGES)
def test_every_exported_name_can_be_imported(package):
    code = (
        f"import regard.{package} as package, inspect\n"
        "names = [n for n in dir(package) if not n.startswith('_') and n not in vars(package)]\n"
        "for name in names:\n"
        "    assert not inspect.ismodule(getattr(package, name)), name\n"
        "print(*names)"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert set(found) >= EXPECTED[package]
    modules = {path.stem for path in Path(regard.__file__).parent.joinpath(package).glob("*.py")}
    assert not set(found) & modules, "importing a module would replace the name"


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_without_use_loads_none_of_its_parts(package):
    code = f"import sys, regard.{package}; print(*(n for n in sys.modules if n.startswith('regard.{package}.')))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert all(
        name in ("regard.attention.aligners", "regard.attention.mechanisms", "regard.attention.mixers")
        for name in found
    )


@pytest.mark.parametrize("package", PACKAGES)
def test_an_unknown_name_is_an_attribute_error(package):
    with pytest.raises(AttributeError, match=f"'regard.{package}' has no attribute 'Nonsense'"):
        import_module(f"regard.{package}").Nonsense  # noqa: B018


def test_a_class_registered_later_is_exported_too(monkeypatch):
    monkeypatch.setitem(regard.models.MODELS, "mine", ("tests.models.published_attention", "PublishedAttention"))
    assert inspect.isclass(regard.models.PublishedAttention)
    assert "PublishedAttention" in dir(regard.models)

"""The baselines of benchmarks/own_data.py are what they say."""

import importlib.util

import numpy as np
import pytest

from tests.docs.blocks import ROOT

sacrebleu = pytest.importorskip("sacrebleu")
pytest.importorskip("sklearn")


@pytest.fixture
def benchmark(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    spec = importlib.util.spec_from_file_location("own_data_benchmark", ROOT / "benchmarks" / "own_data.py")
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(__import__("sys").modules, spec.name, module)
    spec.loader.exec_module(module)
    return module


def test_kneser_ney_gives_probabilities_and_knows_its_text(benchmark):
    text = b"abracadabra, alakazam, sim sala bim. " * 20
    model = benchmark.KneserNey(text, 5)
    for history in (b"abra", b"zzzz", b"", b" sim"):
        total = sum(model.probability(history, bytes([byte])) for byte in range(256))
        assert total == pytest.approx(1)
    assert model.bits_per_byte(text) < 0.5 < 3 < model.bits_per_byte(bytes(range(256)))


def test_chrf_between_all_texts_is_that_of_sacrebleu(benchmark):
    texts = ["a black dog runs over the grass", "two men are talking in a street"]
    known = ["the dog runs over grass", "three men talk in the streets of a town", "a woman sings"]
    found = benchmark.chrf_table(texts, known)
    expected = [[sacrebleu.sentence_chrf(one, [text]).score for one in known] for text in texts]
    assert np.allclose(100 * found, expected, atol=0.01)


def test_pooled_pixels_are_means_of_squares(benchmark):
    image = np.arange(4 * 4 * 3, dtype=float).reshape(4, 4, 3)
    found = benchmark.pool_pixels([image], 2)
    assert found.shape == (1, 12)
    assert np.allclose(found[0, :3], image[:2, :2].mean((0, 1)))

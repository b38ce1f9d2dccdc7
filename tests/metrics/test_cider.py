"""CIDEr-D against a second implementation that follows the paper's code, and its exact properties."""

from collections import defaultdict

import numpy as np
import pytest

from regard.core.errors import BadInput
from regard.metrics.cider import cider

REFERENCES = [
    ["a dog runs over the grass", "the brown dog runs", "a dog is running in a field"],
    ["two children play in the snow", "kids in the snow", "two kids play with a red sled in the snow today"],
    ["a man in a red shirt", "the man wears a shirt"],
]
OUTPUTS = ["a dog runs in the grass", "two two two kids play", "word"]


def loops(outputs, references, orders=4, sigma=6.0):
    """CIDEr-D as the paper's code computes it: one dictionary a caption, loops over orders and references."""

    def counts(text):
        words, found = text.split(), defaultdict(int)
        for n in range(1, orders + 1):
            for i in range(len(words) - n + 1):
                found[tuple(words[i : i + n])] += 1
        return found

    frequency = defaultdict(float)
    for several in references:
        for gram in {gram for each in several for gram in counts(each)}:
            frequency[gram] += 1

    def vector(text):
        vec, norm, length = [defaultdict(float) for _ in range(orders)], np.zeros(orders), 0
        for gram, count in counts(text).items():
            n = len(gram) - 1
            vec[n][gram] = count * (np.log(float(len(references))) - np.log(max(1.0, frequency[gram])))
            norm[n] += vec[n][gram] ** 2
            if n == 1:
                length += count
        return vec, np.sqrt(norm), length

    scores = []
    for output, several in zip(outputs, references, strict=True):
        hypothesis, norm, length = vector(output)
        total = np.zeros(orders)
        for each in several:
            reference, other, size = vector(each)
            value = np.zeros(orders)
            for n in range(orders):
                for gram in hypothesis[n]:
                    value[n] += min(hypothesis[n][gram], reference[n][gram]) * reference[n][gram]
                if norm[n] and other[n]:
                    value[n] /= norm[n] * other[n]
                value[n] *= np.e ** (-((length - size) ** 2) / (2 * sigma**2))
            total += value
        scores.append(total.mean() / len(several) * 10)
    return scores


def test_equal_to_the_loops_of_the_papers_code():
    assert cider(OUTPUTS, REFERENCES) == pytest.approx(loops(OUTPUTS, REFERENCES), rel=1e-12)
    rng = np.random.default_rng(0)
    words = [f"w{k}" for k in range(12)]
    text = lambda: " ".join(rng.choice(words, rng.integers(1, 12)))  # noqa: E731
    outputs, references = [text() for _ in range(20)], [[text() for _ in range(5)] for _ in range(20)]
    assert cider(outputs, references) == pytest.approx(loops(outputs, references), rel=1e-12)


def test_equal_to_pycocoevalcap():
    scorer = pytest.importorskip("pycocoevalcap.cider.cider", reason="pip install pycocoevalcap").Cider()
    numbered = range(len(OUTPUTS))
    mean, each = scorer.compute_score({n: REFERENCES[n] for n in numbered}, {n: [OUTPUTS[n]] for n in numbered})
    found = cider(OUTPUTS, REFERENCES)
    assert found == pytest.approx(list(each), rel=1e-9)
    assert sum(found) / len(found) == pytest.approx(mean, rel=1e-9)


def test_a_reference_scores_ten_and_unrelated_words_zero():
    alone = [[several[0]] for several in REFERENCES]
    assert cider([several[0] for several in alone], alone) == pytest.approx([10.0] * 3)
    assert cider(["word", "word", "word"], REFERENCES) == [0.0] * 3
    assert cider(["", "", ""], REFERENCES) == [0.0] * 3


def test_the_order_of_references_and_of_pictures_does_not_matter():
    found = cider(OUTPUTS, [several[::-1] for several in REFERENCES])
    assert found == pytest.approx(cider(OUTPUTS, REFERENCES))
    assert cider(OUTPUTS[::-1], REFERENCES[::-1])[::-1] == pytest.approx(found)


def test_what_cannot_be_scored_is_one_clear_line():
    for outputs, references in ((["a"], []), ([], []), (["a"], [[]])):
        with pytest.raises(BadInput):
            cider(outputs, references)

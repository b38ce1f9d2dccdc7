"""Projection of vectors to their first two principal components."""

import numpy as np
import pytest

from regard import see
from regard.core.errors import BadInput
from regard.see.pca import principal_components


def test_projection_keeps_most_variance_and_reports_it():
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(20, 5)) * [1, 9, 0.1, 5, 0.1]
    places, shown = principal_components(vectors)
    units = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    values = np.linalg.eigvalsh(np.cov(units.T))[::-1]
    assert shown == pytest.approx(values[:2].sum() / values.sum())
    np.testing.assert_allclose(places.var(0, ddof=1), values[:2])
    np.testing.assert_allclose(principal_components(vectors * 3)[0], places)


def test_named_vectors_are_drawn(tmp_path):
    vectors = np.random.default_rng(1).normal(size=(4, 6))
    see.pca(vectors, ["dog", "cat", "été", "\n"], ["a", "a", "b", "b"], tmp_path / "words.png")
    assert (tmp_path / "words.png").stat().st_size > 2000
    with pytest.raises(BadInput, match="one name each"):
        see.pca(vectors, ["dog"])

"""The shape checks of the tests are on, in every test anew, until it has used them up."""

import jaxtyping
import pytest
import torch

from regard.attention.masked_softmax import masked_softmax
from tests import shape_checks


@pytest.mark.parametrize("again", [1, 2])
def test_wrong_shapes_raise_in_the_first_calls_of_every_test(again):
    with pytest.raises(jaxtyping.TypeCheckError, match="allowed"):
        masked_softmax(torch.zeros(2, 3), torch.ones(2, 4, dtype=torch.bool))
    for _ in range(shape_checks.CHECKS):
        masked_softmax(torch.zeros(2, 3), torch.ones(2, 1, dtype=torch.bool))
    with pytest.raises(RuntimeError, match="size"):  # torch's own error: unchecked by now
        masked_softmax(torch.zeros(2, 3), torch.ones(2, 4, dtype=torch.bool))

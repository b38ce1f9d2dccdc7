"""The head of a model that writes: the same product, turned round where that is faster."""

import torch
from torch import nn

from regard.blocks.autoregressive import AutoregressiveModel, transposed_linear


def test_turned_round_is_the_same_product() -> None:
    head = nn.Linear(24, 37, bias=False)
    for shape in [(1, 1), (3, 2), (5, 1)]:
        x = torch.randn(*shape, 24)
        found = transposed_linear(head, x)
        assert found.shape == (*shape, 37)
        assert found.is_contiguous()
        torch.testing.assert_close(found, head(x))


def test_a_head_that_is_watched_is_called() -> None:
    class Tiny(AutoregressiveModel):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(8, 37, bias=False)

    seen: list[int] = []
    model = Tiny()
    model.head.register_forward_hook(lambda *_: seen.append(1))
    model.logits(torch.randn(2, 1, 8))
    assert seen

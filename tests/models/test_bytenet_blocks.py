"""ByteNet's residual blocks: the same step by step, the multiplicative unit as in the paper."""

import pytest
import torch
from torch import nn

from regard.core.errors import UnknownName
from regard.core.spec import build_part
from regard.models.bytenet import CONVOLUTIONS

pytestmark = pytest.mark.usefixtures("double")


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_a_block_steps_as_it_reads_and_padding_is_not_heard(name):
    block = build_part(CONVOLUTIONS, name, "convolution", width=10, kernel=3, dilation=4, causal=True).eval()
    x = torch.randn(3, 20, 10)
    whole = block(x)
    ring = block.conv.empty_ring(x)
    for time in range(20):
        out, ring = block.step(x[:, time : time + 1], ring, torch.tensor(time))
        torch.testing.assert_close(out, whole[:, time : time + 1])
    around = build_part(CONVOLUTIONS, name, "convolution", width=10, kernel=3, dilation=2, causal=False).eval()
    lengths = torch.tensor([20, 5, 1])
    real = torch.arange(20) < lengths[:, None]
    found = around(torch.where(real[..., None], x, 7.0), real)
    for row, length in enumerate(lengths.tolist()):
        torch.testing.assert_close(found[row : row + 1, :length], around(x[row : row + 1, :length]))


def test_the_multiplicative_unit_is_the_papers():
    block = build_part(CONVOLUTIONS, "multiplicative", "convolution", width=8, kernel=3, dilation=2, causal=True).eval()
    x = torch.randn(2, 9, 8)
    h = block.down(torch.relu(block.norm(x)))
    parts = block.conv(h).split(4, -1)
    weight, bias = block.conv_norm.weight.split(4), block.conv_norm.bias.split(4)
    g1, g2, g3, u = (nn.functional.layer_norm(p, (4,), w, b) for p, w, b in zip(parts, weight, bias, strict=True))
    unit = g1.sigmoid() * torch.tanh(g2.sigmoid() * h + g3.sigmoid() * u.tanh())
    torch.testing.assert_close(block(x), x + block.up(unit))


def test_an_unknown_block_offers_the_nearest():
    with pytest.raises(UnknownName, match="did you mean 'relu'"):
        build_part(CONVOLUTIONS, "rely", "convolution", width=8, kernel=3, dilation=2, causal=True)

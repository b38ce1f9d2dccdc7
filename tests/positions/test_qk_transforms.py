from __future__ import annotations

import pytest
import torch

from regard.core.errors import BadInput, Unsupported
from regard.positions.qk_transforms.rotary import RotaryPositions

LAYOUTS = ["halves", "interleaved"]


@pytest.mark.parametrize("base", [10000.0, 500000.0])
def test_halves_equal_llama(base):
    llama = pytest.importorskip("transformers.models.llama.modeling_llama")
    config = llama.LlamaConfig(
        hidden_size=64, num_attention_heads=4, head_dim=16, rope_parameters={"rope_type": "default", "rope_theta": base}
    )
    torch.manual_seed(0)
    q, k = torch.randn(2, 2, 4, 37, 16)
    index = torch.stack([torch.arange(37), torch.arange(100, 137)])
    cos, sin = llama.LlamaRotaryEmbedding(config)(q, index)
    peer = llama.apply_rotary_pos_emb(q, k, cos, sin)
    part = RotaryPositions(16, base=base)
    for ours, their in zip((part.transform(q, index), part.transform(k, index)), peer, strict=True):
        torch.testing.assert_close(ours, their, rtol=0, atol=2e-5)  # they round the angle itself to float32


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shift", [1, 1000, 10_000_000])
def test_scores_depend_on_the_distance_only(layout, shift):
    torch.manual_seed(0)
    q, k = torch.randn(2, 1, 2, 12, 8)
    part, index = RotaryPositions(8, layout=layout), torch.arange(12)[None]
    near = part.transform(q, index) @ part.transform(k, index).mT
    far = part.transform(q, index + shift) @ part.transform(k, index + shift).mT
    torch.testing.assert_close(near, far, rtol=0, atol=1e-5)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_rotation_preserves_norms_and_index_zero(layout):
    x = torch.randn(2, 3, 5, 8)
    part = RotaryPositions(8, layout=layout)
    torch.testing.assert_close(part.transform(x, torch.arange(5)[None]).norm(dim=-1), x.norm(dim=-1))
    assert torch.equal(part.transform(x, torch.zeros(1, 5, dtype=torch.long)), x)


def test_layouts_are_one_rotation_of_reordered_features():
    x = torch.randn(1, 2, 5, 8)
    index = torch.arange(5)[None]
    order = torch.arange(8).view(4, 2).mT.flatten()  # 0 2 4 6 1 3 5 7
    interleaved = RotaryPositions(8, layout="interleaved").transform(x, index)[..., order]
    torch.testing.assert_close(RotaryPositions(8).transform(x[..., order], index), interleaved)


def test_interleaved_is_a_complex_product():
    x = torch.randn(1, 2, 5, 8, dtype=torch.float64)
    index = torch.arange(5)[None] + 3
    angle = index[0, :, None] * 10000.0 ** (-torch.arange(0, 8, 2, dtype=torch.float64) / 8)
    want = torch.view_as_complex(x.unflatten(-1, (4, 2))) * torch.polar(torch.ones_like(angle), angle)
    ours = RotaryPositions(8, layout="interleaved").transform(x, index)
    torch.testing.assert_close(ours, torch.view_as_real(want).flatten(-2))


def test_half_precision_is_rotated_in_float32():
    x = torch.randn(1, 1, 3, 8).half()
    index = torch.tensor([[4001, 60_000, 5]])
    part = RotaryPositions(8)
    assert part.transform(x, index).dtype == torch.float16
    assert torch.equal(part.transform(x, index), part.transform(x.float(), index).half())


def test_gradient_is_the_inverse_rotation():
    x = torch.randn(1, 1, 4, 6, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: RotaryPositions(6).transform(x, torch.arange(4)[None]), x)


def test_odd_head_and_unknown_layout_raise():
    with pytest.raises(Unsupported, match="even head width, got 7"):
        RotaryPositions(7)
    with pytest.raises(BadInput, match="interleaved"):
        RotaryPositions(8, layout="interleave")

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.attention.mask import (
    CausalMask,
    ChunkMask,
    DenseMask,
    GlobalMask,
    Mask,
    PaddingMask,
    SegmentMask,
    WindowMask,
)
from regard.models.vit import Config as ViTConfig
from regard.models.vit import ViT


def by_hand(mask, b, n, m):
    """The mask as Python sees it: one index at a time."""
    return [[[bool(mask.allow(torch.tensor(i), torch.tensor(j), torch.tensor(k))) for k in range(m)]
             for j in range(m - n, m)] for i in range(b)]  # fmt: skip


MASKS = {
    "causal": CausalMask(),
    "keys": PaddingMask(torch.tensor([3, 0, 7])),
    "window": WindowMask(2),
    "chunks": ChunkMask(3),
    "a chunk and the one before": ChunkMask(2, 1),
    "global": GlobalMask([0, 4]),
    "same": SegmentMask(torch.tensor([[0, 0, 1, 1, 1, 2, 2]] * 3)),
    "causal & keys": CausalMask() & PaddingMask(torch.tensor([3, 1, 7])),
    "causal & (window | global)": CausalMask() & (WindowMask(2) | GlobalMask([0])),
    "keys & keys": PaddingMask(torch.tensor([3, 1, 7])) & PaddingMask(torch.tensor([2, 5, 6])),
}


@pytest.mark.parametrize("name", MASKS)
@pytest.mark.parametrize(("n", "m"), [(7, 7), (3, 7), (1, 7)])
def test_dense_is_the_formula_read_everywhere(name, n, m):
    mask = MASKS[name]
    dense = mask.dense(3, n, m).expand(3, 1, n, m)[:, 0]
    assert dense.tolist() == by_hand(mask, 3, n, m)


@pytest.mark.parametrize("name", MASKS)
def test_rows_are_picked_before_anything_is_computed(name):
    mask = MASKS[name]
    assert torch.equal(mask.dense(3, 7, 7, rows=slice(2, 5)), mask.dense(3, 7, 7)[:, :, 2:5])
    assert torch.equal(mask.dense(3, 7, 7, rows=[6, 0]), mask.dense(3, 7, 7)[:, :, [6, 0]])


@given(st.integers(1, 9), st.integers(1, 9), st.integers(1, 4))
@settings(max_examples=30, deadline=None)
def test_and_or_are_conjunction_and_disjunction(n, more, width):
    m = n + more
    a, b = CausalMask(), WindowMask(width)
    assert torch.equal((a & b).dense(1, n, m), a.dense(1, n, m) & b.dense(1, n, m))
    assert torch.equal((a | b).dense(1, n, m), a.dense(1, n, m) | b.dense(1, n, m))


def test_sdpa_uses_is_causal_only_where_it_means_the_same():
    device, dtype = torch.device("cpu"), torch.float32
    assert CausalMask().sdpa(2, 5, 5, dtype, device) == {"is_causal": True}
    assert "attn_mask" in CausalMask().sdpa(2, 3, 5, dtype, device)
    assert "attn_mask" in (CausalMask() & PaddingMask(torch.tensor([5, 5]))).sdpa(2, 5, 5, dtype, device)


def test_the_shorter_of_two_paddings_counts():
    both = MASKS["keys & keys"].padding
    assert both.lengths.tolist() == [2, 1, 6]
    assert CausalMask().padding is None


def test_a_table_is_read_back():
    allowed = torch.rand(2, 3, 5) > 0.5
    assert torch.equal(DenseMask(allowed).dense(2, 3, 5)[:, 0], allowed)
    assert DenseMask(allowed).dense(2, 3, 5, rows=slice(1, 2)).tolist() == allowed[:, None, 1:2].tolist()


def test_a_mask_draws_itself():
    assert CausalMask().to_text(3) == "█··\n██·\n███"
    assert "CausalMask() &amp; PaddingMask([2])" in (CausalMask() & PaddingMask(torch.tensor([2])))._repr_html_()
    assert PaddingMask(torch.tensor([1, 2])).to_text(2, batch=1) == "██\n██"


def test_a_mask_without_a_formula_says_so():
    with pytest.raises(NotImplementedError):
        Mask().dense(1, 2, 2)


def test_the_layers_of_a_pass_share_what_is_made_of_a_mask_and_passes_do_not():
    dtype, device = torch.float32, torch.device("cpu")
    lengths = torch.tensor([3, 5])
    kept = PaddingMask(lengths)
    first = kept.for_pass()
    made = first.sdpa(2, 5, 5, dtype, device)["attn_mask"]
    assert first.sdpa(2, 5, 5, dtype, device)["attn_mask"] is made
    lengths.copy_(torch.tensor([5, 1]))
    for mask in (kept, kept.for_pass()):
        found = mask.sdpa(2, 5, 5, dtype, device)["attn_mask"]
        allowed = found == 0 if found.is_floating_point() else found
        assert torch.equal(allowed, kept.dense(2, 5, 5))


def test_a_kept_mask_serves_inference_and_training_in_turn():
    """A tensor that inference made cannot be saved for a gradient."""
    mask = PaddingMask(torch.tensor([3, 5]))
    stack = ViT(ViTConfig(num_classes=2, image_size=8, patch_size=4, width=8, heads=2, layers=2, ffn=16)).eval().encoder
    x = torch.randn(2, 5, 8, requires_grad=True)
    with torch.inference_mode():
        wanted = stack(x, mask)
    found = stack(x, mask)
    found.sum().backward()
    torch.testing.assert_close(found.detach(), wanted.clone())
    mask.lengths.fill_(2)
    assert not torch.allclose(stack(x, mask), found)

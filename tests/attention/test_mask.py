import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.attention.mask import Causal, Global, Keys, Mask, Same, Table, Window


def by_hand(mask, b, n, m):
    """The mask as Python sees it: one index at a time."""
    return [[[bool(mask.allow(torch.tensor(i), torch.tensor(j), torch.tensor(k))) for k in range(m)]
             for j in range(m - n, m)] for i in range(b)]  # fmt: skip


MASKS = {
    "causal": Causal(),
    "keys": Keys(torch.tensor([3, 0, 7])),
    "window": Window(2),
    "global": Global([0, 4]),
    "same": Same(torch.tensor([[0, 0, 1, 1, 1, 2, 2]] * 3)),
    "causal & keys": Causal() & Keys(torch.tensor([3, 1, 7])),
    "causal & (window | global)": Causal() & (Window(2) | Global([0])),
    "keys & keys": Keys(torch.tensor([3, 1, 7])) & Keys(torch.tensor([2, 5, 6])),
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
    a, b = Causal(), Window(width)
    assert torch.equal((a & b).dense(1, n, m), a.dense(1, n, m) & b.dense(1, n, m))
    assert torch.equal((a | b).dense(1, n, m), a.dense(1, n, m) | b.dense(1, n, m))


def test_sdpa_uses_is_causal_only_where_it_means_the_same():
    device, dtype = torch.device("cpu"), torch.float32
    assert Causal().sdpa(2, 5, 5, dtype, device) == {"is_causal": True}
    assert "attn_mask" in Causal().sdpa(2, 3, 5, dtype, device)
    assert "attn_mask" in (Causal() & Keys(torch.tensor([5, 5]))).sdpa(2, 5, 5, dtype, device)


def test_the_shorter_of_two_paddings_counts():
    both = MASKS["keys & keys"].keys
    assert both.lengths.tolist() == [2, 1, 6]
    assert Causal().keys is None


def test_a_table_is_read_back():
    allowed = torch.rand(2, 3, 5) > 0.5
    assert torch.equal(Table(allowed).dense(2, 3, 5)[:, 0], allowed)
    assert Table(allowed).dense(2, 3, 5, rows=slice(1, 2)).tolist() == allowed[:, None, 1:2].tolist()


def test_a_mask_draws_itself():
    assert Causal().draw(3) == "█··\n██·\n███"
    assert "Causal() &amp; Keys([2])" in (Causal() & Keys(torch.tensor([2])))._repr_html_()
    assert Keys(torch.tensor([1, 2])).draw(2, batch=1) == "██\n██"


def test_a_mask_without_a_formula_says_so():
    with pytest.raises(NotImplementedError):
        Mask().dense(1, 2, 2)

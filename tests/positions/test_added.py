from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from regard.core.errors import BadInput, RegardError
from regard.positions.added.learned import LearnedPositions
from regard.positions.added.sinusoidal import SinusoidalPositions


def line(n):
    return torch.arange(n)[None]


@pytest.mark.parametrize("width", [16, 17, 512])
def test_halves_equal_marian(width):
    marian = pytest.importorskip("transformers.models.marian.modeling_marian")
    peer = marian.MarianSinusoidalPositionalEmbedding(600, width).create_weight()
    ours = SinusoidalPositions(width, layout="halves").vectors(line(600))[0]
    torch.testing.assert_close(ours, peer, rtol=0, atol=1e-7)


@pytest.mark.parametrize("width", [6, 7])
def test_interleaved_is_the_formula_of_the_paper(width):
    p = SinusoidalPositions(width).vectors(line(50), torch.float64)[0]
    for n in (0, 1, 49):
        for c in range(width):
            angle = torch.tensor(n / 10000 ** (2 * (c // 2) / width), dtype=torch.float64)
            torch.testing.assert_close(p[n, c], angle.cos() if c % 2 else angle.sin())


def test_layouts_hold_the_same_numbers():
    a = SinusoidalPositions(10).vectors(line(20))
    b = SinusoidalPositions(10, layout="halves").vectors(line(20))
    assert torch.equal(torch.cat([a[..., 0::2], a[..., 1::2]], -1), b)


def test_far_index_keeps_its_digits():
    far = torch.tensor([[10_000_019]])
    p = SinusoidalPositions(8).vectors(far)[0, 0, 0]
    torch.testing.assert_close(p.double(), far[0, 0].double().sin(), rtol=0, atol=1e-7)


def test_shift_is_one_linear_map_everywhere():
    p = SinusoidalPositions(16).vectors(line(60), torch.float64)[0]
    shift = torch.linalg.lstsq(p[:20], p[7:27]).solution
    torch.testing.assert_close(p[20:50] @ shift, p[27:57], rtol=0, atol=1e-5)  # the fit is ill-conditioned


@pytest.mark.parametrize("part", [SinusoidalPositions(16), LearnedPositions(16, 32)])
def test_added_keeps_the_dtype_of_the_tokens(part):
    for dtype in (torch.float16, torch.float32, torch.float64):
        x = torch.zeros(2, 5, 16, dtype=dtype)
        assert part(x, line(5)).dtype == dtype


def test_learned_is_a_lookup_with_gradient():
    part = LearnedPositions(4, 10)
    x = torch.randn(2, 3, 4)
    index = torch.tensor([[1, 1, 9], [0, 2, 4]])
    torch.testing.assert_close(part(x, index), x + F.embedding(index, part.table.weight))
    part(x, index).sum().backward()
    assert part.table.weight.grad[:, 0].tolist() == [1, 2, 1, 0, 1, 0, 0, 0, 0, 1]


@pytest.mark.parametrize("index", [line(11), torch.tensor([[10]]), torch.tensor([[-1, 0]])])
def test_learned_raises_for_an_index_without_a_row(index):
    with pytest.raises(RegardError, match="position") as output:
        LearnedPositions(4, 10)(torch.zeros(1, index.shape[1], 4), index)
    assert "\n" not in str(output.value)


def test_learned_checks_the_length_where_values_cannot_be_read():
    part = LearnedPositions(4, 10).to("meta")
    with pytest.raises(BadInput, match="11 positions are needed but 10"):
        part(torch.zeros(1, 11, 4, device="meta"), torch.zeros(1, 11, dtype=torch.long, device="meta"))


def test_unknown_layout_suggests_the_nearest():
    with pytest.raises(BadInput, match="did you mean 'halves'"):
        SinusoidalPositions(8, layout="halve")

"""Laws over the table of addressing rules: adding a rule adds its tests. Each walks several steps, with the state."""

import pytest
import torch

from regard.attention.addressing import ADDRESSING
from regard.attention.addressing.allocation import allocate
from regard.attention.addressing.base import Addressing
from regard.attention.addressing.sharpening import sharpen
from regard.blocks.decoder_state import gather_beams
from regard.core.errors import BadInput
from regard.core.spec import build_part

EVERY = list(ADDRESSING)
WORD = 5


@pytest.fixture(autouse=True)
def _double(double):
    pass


def rule(name):
    return build_part(ADDRESSING, name, "addressing")


def address(*shape):
    return torch.rand(*shape).pow(3).add(1e-3).log().softmax(-1)


def walk(made, raw, memory, first, writes):
    """The addresses of every step, and the last state; raw T *B H P, writes T *B N."""
    weights, state, seen = first, made.start(first), []
    for own, write in zip(raw, writes, strict=True):
        before = weights
        weights, state = made(own, memory, first, before, state)
        seen.append(weights)
        weights = weights.expand_as(first)
        state = made.after_write(state, write)
    return torch.stack(seen), state


def parts(name, batch=(3,), heads=2, cells=7, steps=4, scale=1.0):
    made = rule(name)
    raw = scale * torch.randn(steps, *batch, heads, made.raw_width(WORD))
    writes = address(steps, *batch, cells) * torch.rand(steps, *batch, 1)
    return made, raw, torch.randn(*batch, cells, WORD), address(*batch, heads, cells), writes


@pytest.mark.parametrize("name", EVERY)
def test_addresses_are_weights(name):
    for cells in (1, 2, 7):
        made, *given = parts(name, cells=cells)
        assert isinstance(made, Addressing)
        seen, _ = walk(made, *given)
        assert seen.shape[-1] == cells
        assert (seen >= 0).all()
        total = seen.sum(-1)
        assert (total <= 1 + 1e-9).all()
        if made.normalised:
            torch.testing.assert_close(total, torch.ones_like(total))


@pytest.mark.parametrize("name", EVERY)
def test_extreme_outputs_of_a_controller_give_finite_addresses_and_gradients(name):
    for scale, dtype in ((0.0, torch.float32), (1e4, torch.float32), (1e4, torch.float64)):
        made, *given = parts(name, scale=scale)
        raw, memory, first, writes = (x.to(dtype).requires_grad_() for x in given)
        with torch.no_grad():
            first[..., 1:] = 0  # most weights of an address may be exactly zero
            first[..., 0] = 1
            memory[..., -2:, :] = 0
        seen, _ = walk(made, raw, memory, first, writes)
        assert seen.isfinite().all()
        (seen * torch.randn_like(seen)).sum().backward()
        for x in (raw, memory, first, writes):
            assert x.grad is None or x.grad.isfinite().all()


@pytest.mark.parametrize("name", EVERY)
def test_rows_of_a_batch_are_independent_and_beams_are_reordered(name):
    made, raw, memory, first, writes = parts(name, batch=(2, 3))
    seen, state = walk(made, raw, memory, first, writes)
    alone, _ = walk(made, raw[:, 1, 2], memory[1, 2], first[1, 2], writes[:, 1, 2])
    torch.testing.assert_close(seen[:, 1, 2], alone)
    beams = torch.tensor([[2, 0, 0], [1, 1, 2]])
    chosen = gather_beams(state, None, beams)
    row = torch.arange(2)[:, None]
    again, _ = made(raw[0][row, beams], memory[row, beams], first[row, beams], first[row, beams], chosen)
    whole, _ = made(raw[0], memory, first, first, state)
    torch.testing.assert_close(again, whole[row, beams])


@pytest.mark.parametrize("name", EVERY)
def test_gradients_are_those_of_finite_differences(name):
    made, *given = parts(name, batch=(2,), cells=4, steps=2)
    given = [x.requires_grad_() for x in given]
    assert torch.autograd.gradcheck(lambda *given: walk(made, *given)[0], given)


def test_content_finds_the_cell_of_its_key_whatever_its_length():
    memory = torch.randn(2, 6, WORD)
    raw = torch.cat([3.7 * memory[:, 4:5], torch.full((2, 1, 1), 200.0)], -1)
    found, _ = rule("content")(raw, memory, *[address(2, 1, 6)] * 2)
    assert (found[..., 4] > 0.999).all()


def test_an_open_mask_is_content_addressing_and_a_closed_place_is_ignored():
    memory, key, strength = torch.randn(2, 6, WORD), torch.randn(2, 3, WORD), torch.randn(2, 3, 1)
    masked, content, first = rule("masked_content"), rule("content"), address(2, 3, 6)
    wide = torch.full_like(key, 40.0)
    found, _ = masked(torch.cat([key, wide, strength], -1), memory, first, first)
    torch.testing.assert_close(found, content(torch.cat([key, strength], -1), memory, first, first)[0])
    wide[..., 2] = -1e4
    found, _ = masked(torch.cat([key, wide, strength], -1), memory, first, first)
    noisy = memory.clone()
    noisy[..., 2] += 10 * torch.randn(2, 6)
    torch.testing.assert_close(masked(torch.cat([key, wide, strength], -1), noisy, first, first)[0], found)


def test_a_shift_moves_and_conserves_mass():
    first, memory = address(2, 3, 6), torch.randn(2, 6, WORD)
    for most in (1, 2, 6):
        shift = rule(f"shift({most})")
        raw = torch.randn(2, 3, 2 * most + 1)
        moved, _ = shift(raw, memory, first, first)
        expected = sum(p[..., None] * first.roll(s, -1) for s, p in enumerate(raw.softmax(-1).unbind(-1), -most))
        torch.testing.assert_close(moved, expected)
        torch.testing.assert_close(moved.sum(-1), first.sum(-1))
    with pytest.raises(BadInput, match="cannot be shifted by 7"):
        rule("shift(7)")(torch.zeros(2, 3, 15), memory, first, first)


def test_sharpening_is_the_power_and_never_divides_by_zero():
    weights, power = address(3, 8), 1 + 5 * torch.rand(3, 1)
    torch.testing.assert_close(sharpen(weights, power), weights**power / (weights**power).sum(-1, keepdim=True))
    flat = torch.full((1, 128), 1 / 128, dtype=torch.float32)
    assert torch.equal(sharpen(flat, torch.full((1, 1), 1e4)), flat)  # (1/128)^1e4 underflows
    for gamma in (0.0, 1.0, 1e4):
        w = torch.tensor([[0.0, 0.0, 1e-30, 1.0]], dtype=torch.float32, requires_grad=True)
        g = torch.full((1, 1), gamma, requires_grad=True, dtype=torch.float32)
        (sharpen(w, g) * torch.tensor([1.0, -2.0, 3.0, 4.0], dtype=torch.float32)).sum().backward()
        assert w.grad.isfinite().all()
        assert g.grad.isfinite().all()


def test_top_k_keeps_the_largest_weights():
    first, memory = address(2, 3, 6), torch.randn(2, 6, WORD)
    kept, _ = rule("top_k(2)")(first[..., :0], memory, first, first)
    assert ((kept > 0).sum(-1) == 2).all()
    largest = first.topk(2, -1)
    torch.testing.assert_close(kept.gather(-1, largest.indices), largest.values / largest.values.sum(-1, keepdim=True))
    torch.testing.assert_close(rule("top_k(9)")(first[..., :0], memory, first, first)[0], first)


def test_allocation_is_the_published_formula_and_sums_to_at_most_one():
    usage = torch.rand(5, 7)
    usage[0, 3] = 0  # a free cell takes all
    found = allocate(usage)
    for u, a in zip(usage.tolist(), found.tolist(), strict=True):
        order, left, expected = sorted(range(7), key=lambda n: u[n]), 1.0, [0.0] * 7
        for n in order:
            expected[n] = (1 - u[n]) * left
            left *= u[n]
        torch.testing.assert_close(a, expected)
    assert (found.sum(-1) <= 1 + 1e-12).all()
    assert found[0, 3] == 1
    assert allocate(torch.ones(1, 4)).sum() == 0


def test_allocation_has_the_gradient_of_its_formula():
    usage = torch.rand(4, 7)
    usage[0, 3], usage[1, 2], usage[2] = 0, 1e-9, 0  # unused, hardly used, none used
    out = torch.randn(4, 7)
    gradients = []
    for formula in (allocate, plain_allocation):
        given = usage.clone().requires_grad_()
        gradients.append(torch.autograd.grad((formula(given) * out).sum(), given)[0])
    torch.testing.assert_close(*gradients)


def plain_allocation(usage):
    used, order = usage.sort(dim=-1, stable=True)
    before = torch.cat([torch.ones_like(used[:, :1]), used[:, :-1]], 1).cumprod(1)
    return torch.zeros_like(usage).scatter(1, order, (1 - used) * before)


def test_links_stay_in_bounds_and_follow_the_order_of_writing():
    links = rule("temporal_links")
    state = links.start(address(2, 1, 6))
    for _ in range(30):
        state = links.after_write(state, address(2, 6) * torch.rand(2, 1))
        made = state[0]
        assert ((made >= 0) & (made <= 1)).all()
        assert (made.diagonal(dim1=-2, dim2=-1) == 0).all()
        assert (made.sum(-1) <= 1 + 1e-12).all()
        assert (made.sum(-2) <= 1 + 1e-12).all()
    state = links.start(address(2, 1, 6))
    order = [4, 1, 5, 0]
    for n in order:
        state = links.after_write(state, torch.eye(6)[n].expand(2, 6))
    at, content = torch.eye(6)[1].expand(2, 1, 6), torch.full((2, 1, 6), 1 / 6)
    for mode, expected in ((0, 4), (2, 5)):  # the cell written before cell 1, and after it
        raw = torch.full((2, 1, 3), -1e3)
        raw[..., mode] = 1e3
        found, _ = links(raw, torch.randn(2, 6, WORD), content, at, state)
        torch.testing.assert_close(found, torch.eye(6)[expected].expand(2, 1, 6))

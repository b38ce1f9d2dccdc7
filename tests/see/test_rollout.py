from __future__ import annotations

import pytest
import torch
from alignments import ENGLISH, GERMAN, cross, own

from regard.core.errors import BadInput
from regard.core.trace import Geometry, Slots, Trace
from regard.see import cross_rollout, max_of_heads, mean_of_heads, min_of_heads, rollout, rollout_per_layer

FUSES = [mean_of_heads, max_of_heads, min_of_heads]


def encoder(layers: int = 3) -> list[Trace]:
    return [own("encoder", k, ENGLISH) for k in range(layers)]


@pytest.mark.parametrize("fuse", FUSES)
@pytest.mark.parametrize("residual", [0.0, 0.3, 0.5, 1.0])
def test_rows_sum_to_one(fuse, residual):
    out = rollout(encoder(), fuse, residual).weights
    assert out.shape == (1, 1, len(ENGLISH), len(ENGLISH))
    torch.testing.assert_close(out.sum(-1), torch.ones_like(out.sum(-1)))


@pytest.mark.parametrize("fuse", FUSES)
def test_identity_layers_give_the_identity(fuse):
    eye = torch.eye(5).expand(2, 3, 5, 5)
    torch.testing.assert_close(rollout([eye, eye], fuse).weights[:, 0], torch.eye(5).expand(2, 5, 5))


def test_equals_the_product_written_out():
    layers = encoder()
    expected = torch.eye(len(ENGLISH))
    for trace in layers:
        step = 0.5 * torch.eye(len(ENGLISH)) + 0.5 * trace.weights[0].mean(0)
        expected = (step / step.sum(-1, keepdim=True)) @ expected
    torch.testing.assert_close(rollout(layers).weights[0, 0], expected)


def test_rollouts_are_the_rollouts_of_the_prefixes():
    layers = encoder()
    for k, each in enumerate(rollout_per_layer(layers), start=1):
        torch.testing.assert_close(each.weights, rollout(layers[:k]).weights)


def test_layers_are_given_first_to_last():
    a, b = torch.rand(1, 1, 4, 4).softmax(-1), torch.rand(1, 1, 4, 4).softmax(-1)
    torch.testing.assert_close(rollout([a, b], residual=0.0).weights, b @ a)


def test_residual_one_is_the_identity_and_zero_is_attention_alone():
    layer = encoder(1)
    torch.testing.assert_close(rollout(layer, residual=1.0).weights[0, 0], torch.eye(len(ENGLISH)))
    torch.testing.assert_close(rollout(layer, residual=0.0).weights[0, 0], layer[0].weights[0].mean(0))


def test_max_and_min_fuse_as_named():
    w = torch.rand(2, 3, 4, 5)
    assert torch.equal(max_of_heads(w), w.max(1).values)
    assert torch.equal(min_of_heads(w), w.min(1).values)


def test_fully_masked_row_keeps_its_residual():
    w = torch.rand(1, 2, 4, 4).softmax(-1)
    w[:, :, 2] = 0
    out = rollout([w]).weights[0, 0]
    torch.testing.assert_close(out[2], torch.eye(4)[2])
    assert rollout([w], residual=0.0).weights[0, 0, 2].abs().sum() == 0


def test_cross_rollout_is_cross_times_the_encoder_rollout():
    below = rollout(encoder())
    out = cross_rollout(cross(), below)
    torch.testing.assert_close(out.weights[0, 0], cross().weights[0].mean(0) @ below.weights[0, 0])
    torch.testing.assert_close(out.weights.sum(-1), torch.ones(1, 1, len(GERMAN)))
    assert (out.kind, out.rows, out.columns) == ("cross", GERMAN, ENGLISH)


def test_windows_take_part_through_their_geometry():
    # Two windows of two cells each: the operator is block diagonal on four cells.
    cells = torch.tensor([[[[0], [1]], [[2], [3]]]])
    slots = Slots(cells, (4,))
    w = torch.rand(2, 1, 2, 2).softmax(-1)  # BG H N M
    trace = Trace("blocks.0.mix", w, geometry=Geometry(slots, slots))
    whole = torch.block_diag(w[0, 0], w[1, 0])
    torch.testing.assert_close(rollout([trace]).weights[0, 0], 0.5 * torch.eye(4) + 0.5 * whole)


def test_pooled_residual_path_is_pooled():
    # Two queries pool four cells in pairs: the residual path is the pooling, not an identity.
    pairs = torch.tensor([[[[0, 1], [2, 3]]]])
    keys = torch.arange(4).view(1, 1, 4, 1)
    queries = torch.arange(2).view(1, 1, 2, 1)
    geometry = Geometry(Slots(queries, (2,)), Slots(keys, (4,)), skip=Slots(pairs, (4,)))
    w = torch.rand(1, 1, 2, 4).softmax(-1)
    pool = torch.tensor([[0.5, 0.5, 0, 0], [0, 0, 0.5, 0.5]])
    out = rollout([Trace("blocks.0.mix", w, geometry=geometry)]).weights[0, 0]
    torch.testing.assert_close(out, 0.5 * pool + 0.5 * w[0, 0])


def test_approximate_layers_make_an_approximate_rollout():
    exact, rough = torch.eye(3)[None, None], Trace("pooled", torch.eye(3)[None, None], exact=False)
    assert rollout([exact]).exact
    assert not rollout([exact, rough]).exact


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: rollout([]), "at least one"),
        (lambda: rollout([torch.rand(1, 1, 3, 4)]), "needs self-attention"),
        (lambda: rollout([torch.eye(3), torch.eye(4)]), "has 3 rows"),
        (lambda: rollout([torch.eye(3)], residual=1.5), "must be 0 to 1, got 1.5"),
        (lambda: rollout([torch.rand(3)]), "axes"),
        (lambda: rollout([Trace("x", torch.eye(3)[None, None], queries=(0, 1, 2))]), "only some rows"),
        (lambda: cross_rollout(torch.rand(1, 1, 2, 3), torch.eye(4)), "same input"),
    ],
)
def test_invalid_input_raises_a_one_line_error(call, message):
    with pytest.raises(BadInput, match=message) as error:
        call()
    assert "\n" not in str(error.value)


def test_dtype_is_at_least_float32():
    assert rollout([torch.eye(3, dtype=torch.float64)]).weights.dtype == torch.float64
    assert rollout([torch.eye(3, dtype=torch.float16)]).weights.dtype == torch.float32

"""Laws over the table of mechanisms: adding a mechanism adds its tests."""

import pytest
import torch

from regard.attention.mask import CausalMask, PaddingMask, WindowMask
from regard.attention.mechanisms import MECHANISMS
from regard.core.layer_state import PassState
from regard.core.positions import TensorBias
from regard.core.spec import build_part

EVERY = list(MECHANISMS)
SIZES = [(13, 13), (5, 13), (1, 9)]  # not powers of two, N != M, one query


def parts(n, m, heads=4, kv_heads=4, batch=3, width=6):
    q = torch.randn(batch, heads, n, width, requires_grad=True)
    k = torch.randn(batch, kv_heads, m, width, requires_grad=True)
    v = torch.randn(batch, kv_heads, m, width + 1, requires_grad=True)
    return q, k, v


SIZES_OF_PLACE = {"width": 24, "heads": 4, "kv_heads": 4, "head_dim": 6, "length": 16, "causal": False}


def attention(name):
    return build_part(MECHANISMS, name, "attention", **SIZES_OF_PLACE)


def first_layer():
    return PassState().layer(0)


def second_layer(attend, n, m, kv_heads):
    """The state of a layer above one that has run: what that one published is there to be read."""
    pass_state = PassState()
    attend(*parts(n, m, kv_heads=kv_heads), layer_state=pass_state.layer(0))
    return pass_state.layer(1)


def masks(mechanism, m):
    offered, lengths = mechanism.traits.masks, torch.tensor([m, m // 2, 1])
    yield None
    if offered & {"any", "causal"}:
        yield CausalMask()
    if offered & {"any", "padding"}:
        yield PaddingMask(lengths)
    if "any" in offered or {"causal", "padding"} <= offered:
        yield CausalMask() & PaddingMask(lengths)
    if "any" in offered:
        yield WindowMask(3)


@pytest.fixture(autouse=True)
def _double(double):
    pass


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize(("n", "m"), SIZES)
@pytest.mark.parametrize("kv_heads", [4, 2, 1])
def test_weights_at_v_equals_forward(name, n, m, kv_heads):
    attend = attention(name).eval()
    q, k, v = parts(n, m, kv_heads=kv_heads)
    for mask in masks(attend, m):
        for bias in (None, TensorBias(torch.randn(1, 4, n, m))) if attend.traits.bias else (None,):
            layer_state = second_layer(attend, n, m, kv_heads)
            weights = attend.weights(q, k, mask, bias, layer_state=layer_state)
            assert weights.shape == (3, 4, n, m)
            expected = weights @ v.repeat_interleave(4 // kv_heads, 1)
            found = attend(q, k, v, mask, bias, layer_state=layer_state)
            torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)
            if attend.traits.normalised:
                seen = torch.ones(3, 1, n, 1) if mask is None else mask.dense(3, n, m).any(-1, keepdim=True)
                torch.testing.assert_close(weights.sum(-1, keepdim=True), seen.to(weights).expand(3, 4, n, 1))


@pytest.mark.parametrize("name", EVERY)
def test_an_empty_batch_is_attended_to_as_any_other(name):
    attend = attention(name).eval()
    q, k, v = parts(5, 9, kv_heads=2, batch=0)
    assert attend(q, k, v, layer_state=first_layer()).shape == (0, 4, 5, 7)
    assert attend.weights(q, k, layer_state=first_layer()).shape == (0, 4, 5, 9)


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("kv_heads", [4, 2, 1])
def test_independent_heads_can_be_computed_alone(name, kv_heads):
    attend = attention(name).eval()
    if not attend.traits.headwise:
        return
    q, k, _ = parts(5, 13, kv_heads=kv_heads)
    each = 4 // kv_heads
    for mask in masks(attend, 13):
        whole = attend.weights(q, k, mask, layer_state=first_layer())
        for head in range(4):
            alone = attend.weights(q[:, [head]], k[:, [head // each]], mask, layer_state=first_layer())
            torch.testing.assert_close(alone, whole[:, [head]], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", EVERY)
def test_requested_rows_equal_those_of_the_full_bias(name):
    attend = attention(name).eval()
    q, k, _ = parts(13, 13)
    for mask in masks(attend, 13):
        whole = attend.weights(q, k, mask, layer_state=first_layer())
        torch.testing.assert_close(
            attend.weights(q, k, mask, queries=slice(2, 7), layer_state=first_layer()), whole[:, :, 2:7]
        )
        torch.testing.assert_close(
            attend.weights(q, k, mask, queries=[12, 0], layer_state=first_layer()), whole[:, :, [12, 0]]
        )


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("training", [False, True])
def test_masked_key_has_no_influence(name, training):
    attend = attention(name).train(training)
    if not attend.traits.masks & {"any", "padding"}:
        pytest.skip("honours no padding")
    q, k, v = parts(9, 9)
    mask = PaddingMask(torch.tensor([9, 4, 1]))
    out = attend(q, k, v, mask, layer_state=first_layer())
    hidden = torch.arange(9)[None] >= torch.tensor([9, 4, 1])[:, None]
    loud = torch.where(hidden[:, None, :, None], 1e3 * torch.randn(3, 1, 9, 1), 0.0)
    torch.testing.assert_close(attend(q, k + loud, v + loud, mask, layer_state=first_layer()), out, rtol=0, atol=0)
    out.square().sum().backward()
    assert (k.grad * hidden[:, None, :, None]).abs().max() == 0
    assert (v.grad * hidden[:, None, :, None]).abs().max() == 0


@pytest.mark.parametrize("name", EVERY)
def test_a_row_that_sees_nothing_gives_zeros_and_no_nan(name):
    attend = attention(name)
    if not attend.traits.masks & {"any", "padding"}:
        pytest.skip("honours no padding")
    q, k, v = parts(5, 5)
    out = attend(q, k, v, PaddingMask(torch.tensor([5, 0, 2])), layer_state=first_layer())
    assert out[1].abs().max() == 0
    out.square().sum().backward()
    assert all(torch.isfinite(x.grad).all() for x in (q, k, v))
    assert q.grad[1].abs().max() == 0


@pytest.mark.parametrize("name", EVERY)
def test_causality_is_what_the_traits_claim(name):
    attend = attention(name).eval()
    if attend.traits.causality == "none":
        pytest.skip("claims none")
    q, k, v = parts(9, 9)
    out = attend(q, k, v, CausalMask(), layer_state=first_layer())
    out[:, :, 4].square().sum().backward()
    assert v.grad[:, :, 5:].abs().max() == 0
    if attend.traits.causality == "strict":
        assert k.grad[:, :, 5:].abs().max() == 0
        prefix = attend(q[:, :, :5], k[:, :, :5], v[:, :, :5], CausalMask(), layer_state=first_layer())
        torch.testing.assert_close(prefix, out[:, :, :5])


@pytest.mark.parametrize("name", EVERY)
def test_a_batch_equals_its_singles(name):
    attend = attention(name).eval()
    if not attend.traits.masks & {"any", "padding"}:
        pytest.skip("honours no padding")
    q, k, v = parts(11, 11)
    lengths = torch.tensor([11, 6, 3])
    out = attend(q, k, v, PaddingMask(lengths), layer_state=first_layer())
    for row, length in enumerate(lengths.tolist()):
        single = attend(
            q[row : row + 1], k[row : row + 1, :, :length], v[row : row + 1, :, :length], layer_state=first_layer()
        )
        torch.testing.assert_close(out[row : row + 1], single)


@pytest.mark.parametrize("name", EVERY)
def test_compiles_without_a_graph_break(name, unchecked):
    attend = attention(name).eval()
    q, k, v = parts(8, 8)
    for mask in (None, CausalMask()):
        run = torch.compile(
            lambda q, k, v, mask=mask: attend(q, k, v, mask, layer_state=first_layer()),
            backend="aot_eager",
            fullgraph=True,
        )
        torch.testing.assert_close(run(q, k, v), attend(q, k, v, mask, layer_state=first_layer()))

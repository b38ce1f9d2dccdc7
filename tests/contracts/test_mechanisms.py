"""Contracts over the table of mechanisms: adding a mechanism adds its tests."""

import pytest
import torch

from regard.attention.mask import CausalMask, PaddingMask, WindowMask
from regard.attention.mechanisms import MECHANISMS
from regard.attention.mechanisms.softmax import SoftmaxAttention
from regard.core.errors import Unsupported
from regard.core.layer_state import PassState
from regard.core.positions import TensorBias
from regard.core.spec import Spec, build_part, resolve
from tests.long_params import rest_is_long


def traits(name):
    return resolve(MECHANISMS, name, "attention").traits


EVERY = list(MECHANISMS)
PADDED = [name for name in EVERY if traits(name).masks & {"any", "padding"}]
SIZES_OF_PLACE = {"width": 24, "heads": 4, "kv_heads": 4, "head_dim": 6, "length": 16, "causal": False}
# Arguments with which 13 tokens are many: more than a chunk, a window or the selected ones.
SMALL = {
    "window": "window=4, global_tokens=1",
    "longformer": "window=4",
    "etc": "radius=2, global_tokens=2, segment=3, max_distance=2",
    "bigbird": "block=1, random_blocks=1",
    "sparse_strided": "stride=3",
    "sparse_fixed": "stride=4, summary=1",
    "image_local_1d": "query_block=3, memory=2",
    "image_local_2d": "query_block=(2, 2), memory=(1, 1), columns=5",
    "axial": "columns=5",
    "clustered": "clusters=3",
    "improved_clustered": "clusters=3, top_k=4",
    "csalr": "landmarks=4",
    "delta": "chunk=4",
    "gated_rfa": "chunk=4",
    "linear": "chunk=4",
    "linformer": "rank=4",
    "local_blocks": "block=4",
    "low_rank_local": "rank=3, window=4",
    "nystrom": "landmarks=4, conv=3",
    "poolingformer": "window=2, far=4",
    "adaptive_span": "span=4, ramp=2",
    "informer": "factor=1",
    "sinkhorn": "block=3",
    "sortcut": "block=3",
    "routing": "clusters=3, window=5",
    "reformer": "chunk=4, buckets=4, rounds=2",
    "per_head": "parts=('gaussian', 'softmax', 'window(window=4)')",
}
# Mechanisms that equal softmax attention for no arguments of their own, and why; the others name such arguments.
WITHOUT_LIMIT = {
    "softmax": "it is softmax attention",
    "linear": "another kernel",
    "routing": "queries and keys are normalised (tests/attention/test_routing.py)",
    "reformer": "no token attends to itself, and keys are normalised (tests/attention/test_reformer.py)",
    "performer": "random features, equal in the mean only",
    "rfa": "random features of unit vectors",
    "gated_rfa": "random features of unit vectors",
    "dpfp": "another kernel",
    "delta": "another rule of writing",
    "low_rank_local": "equal for full rank, or for a wide band (tests/attention/test_low_rank.py)",
    "linformer": "equal for identity matrices (tests/attention/test_low_rank.py)",
    "camtl": "equal where the bias of the task is zero (tests/attention/test_priors.py)",
    "disagreement": "it is softmax attention",
    "pattern_guidance": "it is softmax attention",
    "hard_coded_gaussian": "its weights do not depend on the tokens",
    "synthesizer_dense": "tokens are not compared",
    "synthesizer_factorised_dense": "tokens are not compared",
    "synthesizer_random": "its weights do not depend on the tokens",
    "synthesizer_factorised_random": "its weights do not depend on the tokens",
    "talking_heads": "equal where both matrices are the identity (tests/attention/test_heads.py)",
    "realformer": "equal in the first layer only (tests/attention/test_realformer.py)",
}


def parts(n, m, heads=4, kv_heads=4, batch=3, width=6):
    q = torch.randn(batch, heads, n, width, requires_grad=True)
    k = torch.randn(batch, kv_heads, m, width, requires_grad=True)
    v = torch.randn(batch, kv_heads, m, width + 1, requires_grad=True)
    return q, k, v


def sizes(name):
    """Numbers of queries and keys: not powers of two, N != M, one query."""
    return [(13, 13), (1, 1)] if traits(name).square else [(13, 13), (5, 13), (1, 9)]


def attention(spec, **place):
    asked = Spec.parse(spec)
    small = Spec.parse(f"{asked.name}({SMALL.get(asked.name, '')})")
    spec = str(Spec(asked.name, {**small.kwargs, **asked.kwargs}))
    return build_part(MECHANISMS, spec, "attention", **SIZES_OF_PLACE | place)


def first_layer():
    return PassState().layer(0)


def second_layer(attend, n, m, kv_heads, mask):
    """The state of a layer above one that has run with the same mask: what that one published is there to be read."""
    pass_state = PassState()
    attend(*parts(n, m, kv_heads=kv_heads), mask, layer_state=pass_state.layer(0))
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


def for_mask(name, mask):
    """The mechanism, built for a causal place where the mask is causal."""
    return attention(name, causal=mask is not None and "causal" in mask.kinds).eval()


@pytest.fixture(autouse=True)
def _double(double):
    pass


@pytest.mark.parametrize("name", EVERY)
def test_weights_at_v_equals_forward(name):
    for n, m in sizes(name):
        for kv_heads in (4, 2, 1):
            q, k, v = parts(n, m, kv_heads=kv_heads)
            for mask in masks(attention(name), m):
                attend = for_mask(name, mask)
                layer_state = second_layer(attend, n, m, kv_heads, mask)
                for bias in (None, TensorBias(torch.randn(1, 4, n, m))) if attend.traits.bias else (None,):
                    weights = attend.weights(q, k, mask, bias, layer_state=layer_state)
                    assert weights.shape == (3, 4, n, m)
                    expected = weights @ v.repeat_interleave(4 // kv_heads, 1)
                    found = attend(q, k, v, mask, bias, layer_state=layer_state)
                    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)
                    if mask is not None:
                        assert weights.masked_fill(mask.dense(3, n, m), 0).abs().max() == 0
                    if attend.traits.normalised:
                        seen = torch.ones(3, 1, n, 1) if mask is None else mask.dense(3, n, m).any(-1, keepdim=True)
                        total = weights.sum(-1, keepdim=True)
                        if attend.traits.square and mask is not None and mask.padding is not None:
                            real = mask.padding.real(n)[:, None, :, None]  # a padded query is no token
                            total, seen = total * real, seen & real
                        torch.testing.assert_close(total, seen.to(weights).expand(3, 4, n, 1))


@pytest.mark.parametrize("name", EVERY)
def test_an_empty_batch_is_attended_to_as_any_other(name):
    attend = attention(name).eval()
    n = 9 if attend.traits.square else 5
    q, k, v = parts(n, 9, kv_heads=2, batch=0)
    assert attend(q, k, v, layer_state=first_layer()).shape == (0, 4, n, 7)
    assert attend.weights(q, k, layer_state=first_layer()).shape == (0, 4, n, 9)


@pytest.mark.parametrize("name", [name for name in EVERY if traits(name).headwise])
def test_independent_heads_can_be_computed_alone(name):
    for kv_heads in (4, 2, 1):
        q, k, _ = parts(13 if traits(name).square else 5, 13, kv_heads=kv_heads)
        each = 4 // kv_heads
        for mask in masks(attention(name), 13):
            attend = for_mask(name, mask)
            whole = attend.weights(q, k, mask, layer_state=first_layer())
            for head in range(4):
                alone = attend.weights(q[:, [head]], k[:, [head // each]], mask, layer_state=first_layer())
                torch.testing.assert_close(alone, whole[:, [head]], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", EVERY)
def test_requested_rows_equal_those_of_the_full_matrix(name):
    q, k, _ = parts(13, 13)
    for mask in masks(attention(name), 13):
        attend = for_mask(name, mask)
        whole = attend.weights(q, k, mask, layer_state=first_layer())
        for rows in (slice(2, 7), [12, 0]):
            found = attend.weights(q, k, mask, queries=rows, layer_state=first_layer())
            torch.testing.assert_close(found, whole[:, :, rows])


@pytest.mark.parametrize("name", PADDED)
@pytest.mark.parametrize("training", [False, True])
def test_masked_key_has_no_influence(name, training):
    """Nor has a padded query, where queries and keys are the same tokens: real rows stay as they are to the bit."""
    attend = attention(name).train(training)
    q, k, v = parts(9, 9)
    mask = PaddingMask(torch.tensor([9, 4, 1]))
    hidden = torch.arange(9)[None] >= torch.tensor([9, 4, 1])[:, None]
    loud = torch.where(hidden[:, None, :, None], 1e3 * torch.randn(3, 1, 9, 1), 0.0)
    real = (~hidden if attend.traits.square else torch.ones_like(hidden))[:, None, :, None]
    out = attend(q, k, v, mask, layer_state=first_layer()) * real
    louder = q + loud if attend.traits.square else q
    again = attend(louder, k + loud, v + loud, mask, layer_state=first_layer()) * real
    torch.testing.assert_close(again, out, rtol=0, atol=0)
    out.square().sum().backward()
    for gradient in (k.grad, v.grad):
        assert gradient is None or (gradient * hidden[:, None, :, None]).abs().max() == 0


@pytest.mark.parametrize("name", PADDED)
def test_a_row_that_sees_nothing_gives_zeros_and_no_nan(name):
    attend = attention(name)
    q, k, v = parts(5, 5)
    out = attend(q, k, v, PaddingMask(torch.tensor([5, 0, 2])), layer_state=first_layer())
    assert out[1].abs().max() == 0
    out.square().sum().backward()
    assert all(x.grad is None or torch.isfinite(x.grad).all() for x in (q, k, v))
    assert q.grad is None or q.grad[1].abs().max() == 0


@pytest.mark.parametrize("name", [name for name in EVERY if traits(name).causality != "none"])
def test_causality_is_what_the_traits_claim(name):
    attend = attention(name, causal=True).eval()
    q, k, v = parts(13, 13)
    out = attend(q, k, v, CausalMask(), layer_state=first_layer())
    for n in (0, 4, 11):
        for x in (q, k, v):
            x.grad = None
        out[:, :, n].square().sum().backward(retain_graph=True)
        assert v.grad[:, :, n + 1 :].abs().max() == 0
        assert v.grad[:, :, : n + 1].abs().max() > 0
        if attend.traits.causality == "strict":
            assert k.grad is None or k.grad[:, :, n + 1 :].abs().max() == 0
            assert q.grad is None or q.grad[:, :, n + 1 :].abs().max() == 0
            head = (x[:, :, : n + 1] for x in (q, k, v))
            prefix = attend(*head, CausalMask(), layer_state=first_layer())
            torch.testing.assert_close(prefix, out[:, :, : n + 1])


@pytest.mark.parametrize("name", [name for name in EVERY if traits(name).causality == "none"])
def test_mechanisms_without_causality_take_no_causal_mask(name):
    attend = attention(name).eval()
    assert not attend.traits.masks & {"any", "causal"}
    with pytest.raises(Unsupported, match="no mask of kind causal"):
        attend(*parts(5, 5), CausalMask(), layer_state=first_layer())


@pytest.mark.parametrize("name", [name for name in EVERY if traits(name).square])
def test_self_attention_refuses_other_numbers_of_keys(name):
    with pytest.raises(Unsupported, match="got 5 queries and 9 keys"):
        attention(name)(*parts(5, 9), layer_state=first_layer())


@pytest.mark.parametrize("name", PADDED)
def test_a_batch_equals_its_singles(name):
    attend = attention(name).eval()
    q, k, v = parts(11, 11)
    lengths = torch.tensor([11, 6, 3])
    out = attend(q, k, v, PaddingMask(lengths), layer_state=first_layer())
    for row, length in enumerate(lengths.tolist()):
        n = length if attend.traits.square else 11
        one = (x[row : row + 1, :, :end] for x, end in ((q, n), (k, length), (v, length)))
        torch.testing.assert_close(out[row : row + 1, :, :n], attend(*one, layer_state=first_layer()))


@pytest.mark.parametrize("name", EVERY)
def test_gradients_are_those_of_finite_differences(name):
    attend = attention(name).eval()
    inputs = parts(7, 7, kv_heads=2, batch=1)
    for mask in masks(attend, 7):
        if mask is not None and "padding" in mask.kinds:
            continue
        attend = for_mask(name, mask)

        def run(q, k, v, attend=attend, mask=mask):
            return attend(q, k, v, mask, layer_state=first_layer())

        assert torch.autograd.gradcheck(run, inputs, fast_mode=True)


@pytest.mark.parametrize("name", EVERY)
def test_a_copy_with_the_same_state_gives_the_same_outputs(name):
    attend, copy = attention(name).eval(), attention(name).eval()
    for parameter in attend.parameters():
        torch.nn.init.normal_(parameter)
    copy.load_state_dict(attend.state_dict())
    q, k, v = parts(7, 7)
    out = attend(q, k, v, layer_state=first_layer())
    assert torch.equal(copy(q, k, v, layer_state=first_layer()), out)


@pytest.mark.parametrize("name", EVERY)
def test_the_limiting_case_is_softmax_attention(name):
    limit = traits(name).limit
    assert bool(limit) != (name in WITHOUT_LIMIT), "name the limiting case in the traits, or say why there is none"
    if not limit:
        return
    softmax = SoftmaxAttention(backend="eager")
    for n, m in sizes(name):
        q, k, v = parts(n, m, kv_heads=2)
        for mask in masks(attention(name), m):
            place = SIZES_OF_PLACE | {"causal": mask is not None and "causal" in mask.kinds}
            attend = build_part(MECHANISMS, f"{name}({limit})", "attention", **place).eval()  # of the defaults
            found, expected = (x(q, k, v, mask, layer_state=first_layer()) for x in (attend, softmax))
            if attend.traits.square and mask is not None and mask.padding is not None:
                found, expected = (x * mask.padding.real(n)[:, None, :, None] for x in (found, expected))
            torch.testing.assert_close(found, expected)
            for ours, reference in zip(
                torch.autograd.grad(found.square().sum(), (q, k, v)),
                torch.autograd.grad(expected.square().sum(), (q, k, v)),
                strict=True,
            ):
                torch.testing.assert_close(ours, reference)


@pytest.mark.parametrize("name", [name for name in EVERY if traits(name).budget])
def test_the_error_falls_as_the_budget_grows(name):
    """Mean squared distance from softmax attention over several draws."""

    def error(budget):
        total = 0.0
        for seed in range(8):
            torch.manual_seed(seed)
            q, k, v = (x.detach() for x in parts(16, 16))
            attend = attention(f"{name}({traits(name).budget}={budget})").eval().requires_grad_(False)
            expected = SoftmaxAttention(backend="eager")(q, k, v)
            total += float((attend(q, k, v, layer_state=first_layer()) - expected).square().mean())
        return total

    few, many = error(2), error(16)
    assert many < 0.7 * few


@pytest.mark.parametrize("name", rest_is_long(EVERY, "softmax", "linear"))
def test_compiles_without_a_graph_break(name, unchecked):
    torch.compiler.reset()  # one function for all mechanisms would pass dynamo's limit of recompilations
    q, k, v = parts(8, 8)
    for mask in (None, CausalMask()):
        if mask is not None and not traits(name).masks & {"any", "causal"}:
            continue
        attend = for_mask(name, mask)
        run = torch.compile(
            lambda q, k, v, attend=attend, mask=mask: attend(q, k, v, mask, layer_state=first_layer()),
            backend="aot_eager",
            fullgraph=True,
        )
        torch.testing.assert_close(run(q, k, v), attend(q, k, v, mask, layer_state=first_layer()))

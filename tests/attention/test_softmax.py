import pytest
import torch

from regard.attention.mask import CausalMask, GlobalMask, PaddingMask, SegmentMask, WindowMask
from regard.attention.mechanisms import softmax
from regard.attention.mechanisms.softmax import BACKENDS, SoftmaxAttention
from regard.core.errors import UnknownName, Unsupported
from regard.core.positions import TensorBias

MASKS = {
    "none": lambda m: None,
    "causal": lambda m: CausalMask(),
    "keys": lambda m: PaddingMask(torch.tensor([m, m // 3, 0])),
    "causal & keys": lambda m: CausalMask() & PaddingMask(torch.tensor([m, m // 3, 1])),
    "window": lambda m: WindowMask(4),
    "window | global": lambda m: WindowMask(2) | GlobalMask([0]),
    "causal & window": lambda m: CausalMask() & WindowMask(4),
    "same": lambda m: SegmentMask(torch.arange(m)[None].expand(3, m) // 5),
}


def parts(n, m, kv_heads, requires_grad=True, widths=(8, 5)):
    shapes = (3, 4, n, widths[0]), (3, kv_heads, m, widths[0]), (3, kv_heads, m, widths[1])
    return tuple(torch.randn(s, requires_grad=requires_grad) for s in shapes)


@pytest.mark.parametrize("name", MASKS)
@pytest.mark.parametrize(("n", "m"), [(37, 37), (5, 37), (1, 9)])
@pytest.mark.parametrize("kv_heads", [4, 2, 1])
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("backend", ["sdpa", "bmm"])
def test_backends_equal_plain_in_value_and_gradient(double, name, n, m, kv_heads, biased, backend):
    mask, bias = MASKS[name](m), TensorBias(torch.randn(1, 4, n, m)) if biased else None
    q, k, v = parts(n, m, kv_heads)
    results = []
    for which in ("eager", backend):
        out = BACKENDS[which](q, k, v, mask, bias, 0.3, 0.0)
        results.append((out, *torch.autograd.grad(out.square().sum(), (q, k, v))))
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("backend", ["eager", "sdpa", "bmm"])
def test_backends_take_an_empty_batch(backend, biased):
    bias = TensorBias(torch.randn(1, 4, 3, 6)) if biased else None
    q, k, v = (x[:0] for x in parts(3, 6, 2))
    for mask in (None, CausalMask()):
        assert BACKENDS[backend](q, k, v, mask, bias, 0.3, 0.0).shape == (0, 4, 3, 5)


def test_eager_flex_equals_plain(double, unchecked, monkeypatch):
    monkeypatch.setattr(softmax, "_can_compile", lambda device: False)
    for name in ("none", "causal & keys", "window | global"):
        for bias in (None, TensorBias(torch.randn(1, 4, 20, 37))):
            q, k, v = parts(20, 37, 2, requires_grad=False)
            mask = MASKS[name](37)
            out, expected = (BACKENDS[which](q, k, v, mask, bias, 0.3, 0.0) for which in ("flex", "eager"))
            torch.testing.assert_close(out, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.long
@pytest.mark.parametrize("name", ["none", "causal & keys", "causal & window"])
def test_compiled_flex_equals_plain(name, unchecked):
    q, k, v = parts(150, 150, 2, requires_grad=False)
    mask = MASKS[name](150)
    out = SoftmaxAttention(backend="flex").eval()(q, k, v, mask)
    torch.testing.assert_close(out, SoftmaxAttention(backend="eager").eval()(q, k, v, mask), rtol=1e-5, atol=1e-5)


@pytest.mark.gpu
@pytest.mark.parametrize("name", MASKS)
@pytest.mark.parametrize("backend", ["sdpa", "flex"])
def test_backends_equal_plain_on_a_gpu(name, backend, unchecked):
    torch.set_float32_matmul_precision("highest")
    q, k, v = (x.detach().cuda().requires_grad_() for x in parts(150, 150, 2, widths=(32, 32)))  # flex wants >= 16
    mask = MASKS[name](150)
    if mask is not None and mask.padding is not None:
        mask.padding.lengths = mask.padding.lengths.cuda()
        for part in getattr(mask, "parts", ()):
            if hasattr(part, "lengths"):
                part.lengths = part.lengths.cuda()
    if name == "same":
        mask.segment_ids = mask.segment_ids.cuda()
    results = []
    for which in ("eager", backend):
        out = BACKENDS[which](q, k, v, mask, None, 0.3, 0.0)
        results.append((out, *torch.autograd.grad(out.square().sum(), (q, k, v))))
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=2e-3, atol=2e-3)


def test_flex_refuses_what_it_cannot_do():
    q, k, v = parts(8, 8, 4)
    with pytest.raises(Unsupported, match="no gradient on the CPU"):
        SoftmaxAttention(backend="flex")(q, k, v)
    with pytest.raises(Unsupported, match="dropout"):
        SoftmaxAttention(backend="flex", dropout=0.1)(q, k, v)


def test_unknown_backend_offers_the_nearest():
    with pytest.raises(UnknownName, match="did you mean 'sdpa'"):
        SoftmaxAttention(backend="spda")


def test_dropout_only_while_training():
    q, k, v = parts(8, 8, 4, requires_grad=False)
    attend = SoftmaxAttention(dropout=0.5)
    assert torch.equal(attend.eval()(q, k, v), attend(q, k, v))
    attend.train()
    assert not torch.equal(attend(q, k, v), attend(q, k, v))


def test_a_scale_of_one_is_kept():
    q, k, v = parts(4, 4, 4, requires_grad=False)
    torch.testing.assert_close(
        SoftmaxAttention(scale=1.0).eval()(q, k, v), (q @ k.mT).softmax(-1) @ v, rtol=1e-5, atol=1e-5
    )


@pytest.mark.parametrize("backend", ["eager", "bmm", "sdpa"])
def test_dropout_of_weights_keeps_their_mean(double, backend):
    """With the identity as values, the output is the weights: each is 0 or divided by what remains."""
    torch.manual_seed(0)
    q, k = torch.randn(40, 4, 6, 8), torch.randn(40, 2, 7, 8)
    v = torch.eye(7).expand(40, 2, 7, 7)
    whole = SoftmaxAttention(backend=backend).eval()(q, k, v)
    dropped = SoftmaxAttention(backend=backend, dropout=0.25).train()(q, k, v)
    gone = dropped == 0
    torch.testing.assert_close(dropped[~gone], whole[~gone] / 0.75)
    assert 0.22 < float(gone.double().mean()) < 0.28

"""Texts laid end to end, beside the dense mask and beside padding: value and gradient."""

import pytest
import torch

from regard.attention.mask import DocumentMask
from regard.attention.mechanisms.softmax import SoftmaxAttention
from regard.attention.varlen import _equal_length_runs, has_varlen_kernel, varlen_attention
from regard.models import build

LENGTHS = [[3, 5, 5, 1, 7], [4], [1, 1, 1], [6, 2, 2, 6, 6]]


def rows(lengths, heads=3, head_dim=5, **how):
    return [torch.randn(1, heads, sum(lengths), head_dim, **how).requires_grad_() for _ in range(3)]


@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
def test_value_and_gradient_are_those_of_the_dense_mask(double, lengths):
    mask = DocumentMask(torch.tensor(lengths), sum(lengths), max(lengths))
    q, k, v = rows(lengths)
    pull = torch.randn_like(q)
    found, wanted = (SoftmaxAttention(backend=name)(q, k, v, mask) for name in ("sdpa", "eager"))
    torch.testing.assert_close(found, wanted, rtol=1e-10, atol=1e-10)
    for mine, theirs in zip(
        torch.autograd.grad((found * pull).sum(), (q, k, v)),
        torch.autograd.grad((wanted * pull).sum(), (q, k, v)),
        strict=True,
    ):
        torch.testing.assert_close(mine, theirs, rtol=1e-10, atol=1e-10)


def test_a_token_sees_its_own_text_only(double):
    lengths = [3, 5, 5]
    mask = DocumentMask(torch.tensor(lengths), 13, 5)
    q, k, v = (x.detach() for x in rows(lengths))
    before = varlen_attention(q, k, v, mask, 0.4)
    k[:, :, 3:8] += 1
    v[:, :, 3:8] += 1
    after = varlen_attention(q, k, v, mask, 0.4)
    assert torch.equal(before[:, :, :3], after[:, :, :3])
    assert torch.equal(before[:, :, 8:], after[:, :, 8:])
    assert not torch.allclose(before[:, :, 3:8], after[:, :, 3:8])
    assert mask.positions().tolist() == [0, 1, 2, 0, 1, 2, 3, 4, 0, 1, 2, 3, 4]
    assert mask.to_text(4) == "███·\n███·\n███·\n···█"


def test_neighbours_of_equal_length_are_one_call():
    assert list(_equal_length_runs([3, 5, 5, 1, 1, 1, 5])) == [(0, 1, 3), (3, 2, 5), (13, 3, 1), (16, 1, 5)]
    assert list(_equal_length_runs([0, 2, 0, 0, 3])) == [(0, 1, 2), (2, 1, 3)]


@pytest.mark.parametrize("settings", [{}, {"positions": "rotary"}, {"positions": "sinusoidal"},
    {"positions": "alibi"}, {"attention": "softmax(backend='eager')"}], ids=str)  # fmt: skip
@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
def test_packed_vectors_are_those_of_padded_texts(double, lengths, settings):
    model = build("bert", vocab=17, width=16, heads=4, layers=2, length=24, head=None, **settings).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    count, n = len(lengths), max(lengths)
    tokens, segments, sizes = torch.randint(17, (count, n)), torch.randint(2, (count, n)), torch.tensor(lengths)
    there = torch.arange(n) < sizes[:, None]
    wanted = model.hidden(tokens, segments, sizes)[there]
    for longest in (None, n, 23):
        found = model.hidden_packed(tokens[there], sizes, segments[there], longest)
        torch.testing.assert_close(found, wanted, rtol=1e-9, atol=1e-9)
    assert model.can_pack is (settings.get("positions") != "alibi" and "attention" not in settings)


@pytest.mark.long
def test_packed_texts_compile_whole_on_their_way_to_a_gpu(python):
    """In a child process, without a GPU: the kernel itself is stood in for, all around it is traced."""
    code = """
import torch
from regard.attention import varlen
from regard.models import build
dense = varlen.F.scaled_dot_product_attention
def stand_in(q, k, v, mask, scale, dropout=0.0):
    return dense(q, k, v, attn_mask=mask.dense(1, q.shape[2], q.shape[2], q.device), scale=scale)
import regard.attention.mechanisms.softmax as softmax
softmax.varlen_attention = stand_in
model = build("bert", vocab=17, width=16, heads=2, layers=2, length=8, head=None).eval()  # all together are longer
run = torch.compile(model.hidden_packed, backend="aot_eager", fullgraph=True, dynamic=True)
for lengths in ([3, 4, 4], [2, 5, 6, 1]):
    sizes = torch.tensor(lengths)
    tokens = torch.randint(17, (sum(lengths),))
    torch.testing.assert_close(run(tokens, sizes, None, 8), model.hidden_packed(tokens, sizes, None, 8))
"""
    python(code)


def test_there_is_no_such_kernel_on_a_cpu():
    assert not has_varlen_kernel(torch.device("cpu"), torch.bfloat16)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32], ids=str)
def test_on_a_gpu_packed_vectors_are_those_of_padded_texts(dtype):
    device = torch.device("cuda")
    assert has_varlen_kernel(device, dtype) is (dtype != torch.float32)
    model = build("bert", size="mini", vocab=99, length=200, head=None).to(device, dtype).eval()  # all are longer
    lengths = torch.tensor([7, 128, 33, 33, 1, 200])
    tokens = torch.randint(99, (6, 200), device=device)
    there = (torch.arange(200) < lengths[:, None]).to(device)
    with torch.inference_mode():
        wanted = model.hidden(tokens, None, lengths.to(device))[there]
        found = model.hidden_packed(tokens[there], lengths.to(device), longest=200)
    close = 1e-5 if dtype == torch.float32 else 0.06
    torch.testing.assert_close(found, wanted, rtol=close, atol=close)


@pytest.mark.parametrize("scale", [None, 1.0, 0.2])
def test_packed_texts_have_the_scale_of_the_mechanism(double, scale):
    lengths = [3, 5, 5, 2]
    mask = DocumentMask(torch.tensor(lengths), 15, 5)
    q, k, v = (x.detach() for x in rows(lengths))
    scores = (q @ k.mT) * (5**-0.5 if scale is None else scale)
    wanted = scores.masked_fill(~mask.dense(1, 15, 15, q.device), float("-inf")).softmax(-1) @ v
    torch.testing.assert_close(SoftmaxAttention(scale=scale)(q, k, v, mask), wanted)

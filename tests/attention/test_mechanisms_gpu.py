"""Every mechanism and mixer on a GPU: the CPU's values and gradients, half precision, autocast, CUDA graphs.

On a GPU patterns run in FlexAttention's kernels, forward and backward; in float64 they gather, as on a CPU. The test of
autocast has a form for CPUs.
"""

import copy

import pytest
import torch

from regard.attention import MECHANISMS, MIXERS
from regard.attention.mask import CausalMask, PaddingMask
from regard.attention.mixers import build_mixer
from regard.core.layer_state import PassState
from regard.core.spec import resolve

gpu = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")]
on_gpu = pytest.mark.parametrize("device", [pytest.param("cuda", marks=gpu)])

TOKENS, WIDTH, HEADS = 200, 64, 4  # more than a block of FlexAttention, and heads as wide as it wants them
NAMES = [*MECHANISMS, *(name for name in MIXERS if name != "multihead")]
SETTINGS = {  # with which the tokens are many
    "window": "window=40, global_tokens=2",
    "longformer": "window=40",
    "etc": "radius=20, global_tokens=2, segment=30, max_distance=5",
    "local_blocks": "block=48",
    "bigbird": "block=16, random_blocks=1",
    "sparse_strided": "stride=16",
    "sparse_fixed": "stride=32, summary=4",
    "image_local_1d": "query_block=32, memory=24",
    "image_local_2d": "query_block=(4, 4), memory=(2, 2), columns=16",
    "axial": "columns=16",
    "clustered": "clusters=10",
    "improved_clustered": "clusters=10, top_k=8",
    "csalr": "landmarks=10",
    "linformer": "rank=16",
    "low_rank_local": "window=24",
    "nystrom": "landmarks=10, conv=3",
    "poolingformer": "window=16, far=64",
    "adaptive_span": "span=48, ramp=16, initial=0.5",
    "informer": "factor=3",
    "sinkhorn": "block=16",
    "sortcut": "block=16",
    "routing": "clusters=6, window=40",
    "reformer": "chunk=16, buckets=8, rounds=2",
    "isab": "points=8",
    "disagreement": "subspaces=1.0, positions=1.0",
}
# What these select changes where rounding decides between near ties, so in half precision other tokens are selected.
SELECTING = {"clustered", "improved_clustered", "informer", "reformer", "routing"}


@pytest.fixture(autouse=True)
def _no_tf32():
    before = torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    yield
    torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32 = before


def offered(name):
    """The kinds of masks that a mechanism takes."""
    traits = getattr(resolve(MECHANISMS if name in MECHANISMS else MIXERS, name, "attention"), "traits")  # noqa: B009
    if "any" in traits.masks:
        return {"causal", "padding"}
    return set(traits.masks) if traits.causality != "none" else set(traits.masks) - {"causal"}


def masks(name, device):
    """No mask, and every kind that the mechanism takes."""
    kinds, found = offered(name), []
    if "padding" in kinds:
        found.append(PaddingMask(torch.tensor([TOKENS, 90], device=device)))
    if "causal" in kinds:
        found.append(CausalMask())
    if len(found) == 2:
        found.append(found[0] & found[1])
    return [None, *found]


def build(name, causal):
    torch.manual_seed(0)
    mixer = build_mixer(
        f"{name}({SETTINGS.get(name, '')})", width=WIDTH, heads=HEADS, length=TOKENS, causal=causal, prefix=0
    )
    for parameter in mixer.parameters():  # labels and biases that start at zero would not be seen
        torch.nn.init.normal_(parameter, std=WIDTH**-0.5) if not parameter.any() else None
    return mixer


def run(mixer, x, mask):
    """Return the outputs, and the gradients of x and of all parameters."""
    x = x.detach().clone().requires_grad_()
    pass_state = PassState()
    out = mixer(x, None, mask, layer_state=pass_state.layer(0))
    torch.sin(out.to(x.dtype) * 3).mean().backward()
    gradients = [x.grad, *(p.grad for p in mixer.parameters())]
    for p in mixer.parameters():
        p.grad = None
    return out.detach(), [None if g is None else g.detach() for g in gradients]


def distance(found, expected):
    """Norm of the difference, relative to the norm."""
    found, expected = found.double().cpu(), expected.double().cpu()
    return float((found - expected).norm() / expected.norm().clamp_min(1e-12))


def is_causal(mask):
    return mask is not None and "causal" in mask.kinds


@on_gpu
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("name", NAMES)
def test_values_and_gradients_are_those_of_the_cpu(name, dtype, device, unchecked):
    limit = 1e-9 if dtype == torch.float64 else 2e-4
    torch.set_default_dtype(dtype)
    try:
        for here, there in zip(masks(name, "cpu"), masks(name, device), strict=True):
            mixer = build(name, is_causal(here)).train()
            x = torch.randn(2, TOKENS, WIDTH)
            moved = copy.deepcopy(mixer).to(device)
            (expected, gradients), (found, of_found) = run(mixer, x, here), run(moved, x.to(device), there)
            assert found.dtype == dtype
            assert distance(found, expected) < limit, f"{here}: the outputs differ"
            scale = max(float(g.norm()) for g in gradients if g is not None)
            for ours, theirs in zip(of_found, gradients, strict=True):
                assert (ours is None) == (theirs is None)
                if ours is not None:
                    away = float((ours.cpu() - theirs).norm())
                    assert away < 10 * limit * scale, f"{here}: a gradient is {away} away, the largest is {scale}"
    finally:
        torch.set_default_dtype(torch.float32)


@on_gpu
@pytest.mark.parametrize("name", NAMES)
def test_bfloat16_is_near(name, device, unchecked):
    mask, there = masks(name, "cpu")[-1], masks(name, device)[-1]
    mixer = build(name, is_causal(mask)).train()
    x = torch.randn(2, TOKENS, WIDTH)
    moved = copy.deepcopy(mixer).to(device, torch.bfloat16)
    (expected, gradients), (found, of_found) = run(mixer, x, mask), run(moved, x.to(device, torch.bfloat16), there)
    assert found.dtype == torch.bfloat16
    assert all(g is None or bool(g.isfinite().all()) for g in of_found)
    if name not in SELECTING:
        assert distance(found, expected) < 0.05
        assert distance(of_found[0], gradients[0]) < 0.15


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=gpu)])
@pytest.mark.parametrize("name", NAMES)
def test_autocast_is_near(name, device, unchecked):
    mask, there = masks(name, "cpu")[-1], masks(name, device)[-1]
    mixer = build(name, is_causal(mask)).train()
    x = torch.randn(2, TOKENS, WIDTH)
    moved = copy.deepcopy(mixer).to(device)
    expected, gradients = run(mixer, x, mask)
    with torch.autocast(device, dtype=torch.bfloat16):
        found, of_found = run(moved, x.to(device), there)
    assert all(g is None or bool(g.isfinite().all()) for g in of_found)
    if name not in SELECTING:
        assert distance(found, expected) < 0.05
        assert distance(of_found[0], gradients[0]) < 0.15


@on_gpu
@pytest.mark.parametrize("name", NAMES)
def test_an_update_can_be_captured_as_a_graph(name, device, unchecked):
    """Nothing waits for the GPU, and a replay on other tokens is what an ordinary call gives."""
    for mask in masks(name, device)[:: 3 if len(masks(name, device)) == 4 else 1]:
        mixer = build(name, is_causal(mask)).train().to(device)
        x = torch.randn(2, TOKENS, WIDTH, device=device, requires_grad=True)
        parts = [x, *mixer.parameters()]

        def update(mixer=mixer, x=x, mask=mask, parts=parts):
            with torch.autocast("cuda", dtype=torch.bfloat16):
                out = mixer(x, None, mask, layer_state=PassState().layer(0))
            found = torch.autograd.grad(out.float().square().mean(), parts, allow_unused=True)
            return [out, *(g for g in found if g is not None)]

        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(2):
                update()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            captured = update()
        with torch.no_grad():
            x.copy_(torch.randn_like(x))
        graph.replay()
        torch.cuda.synchronize()
        expected = update()
        assert all(bool(part.isfinite().all()) for part in captured)
        if name not in SELECTING:
            assert distance(captured[0], expected[0]) < 0.02
            assert distance(captured[1], expected[1]) < 0.1


@on_gpu
def test_more_lengths_than_dynamo_compiles_of_one_code_stay_fused(device, unchecked):
    """Unfused, the last of them would need 16 GiB for its scores alone."""
    from regard.attention.mechanisms.window import SlidingWindowAttention

    attend = SlidingWindowAttention(64).to(device)
    for n in (*range(128, 1408, 128), 32_768):
        q, k, v = (torch.randn(1, 4, n, 16, device=device, dtype=torch.bfloat16) for _ in range(3))
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        attend(q, k, v)
    assert torch.cuda.max_memory_allocated() - before < 2**31

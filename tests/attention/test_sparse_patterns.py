"""Attention that is sparse by position: equal to loops written from the papers, for sizes that fit and that do not."""

import pytest
import torch

from regard.attention import MECHANISMS
from regard.attention.mask import CausalMask, DocumentMask, PaddingMask, SegmentMask
from regard.attention.mechanisms.softmax import SoftmaxAttention
from regard.attention.sparse_pattern import FLEX_BLOCK, _block_mask, _make_blocks, _shared_blocks
from regard.core.errors import RegardError, Unsupported
from regard.core.layer_state import PassState
from regard.core.positions import TensorBias
from regard.core.spec import build_part
from regard.models import build


@pytest.fixture(autouse=True)
def _double(double):
    pass


def attention(spec, **place):
    return build_part(MECHANISMS, spec, "attention", **place).eval()


def parts(n, batch=2, heads=2, width=4):
    return tuple(torch.randn(batch, heads, n, width, requires_grad=True) for _ in range(3))


# -- who sees whom, as the papers say it: sets of keys m of query n ----------------------------------------------------


def window(n, m, causal, window=6, dilation=1, global_tokens=0):
    if m < global_tokens or n < global_tokens:
        return True
    steps = range(window) if causal else range(-(window // 2), window // 2 + 1)
    return m in {n - step * dilation for step in steps}


def strided(n, m, causal, stride):
    local = range(max(0, n - stride), n + 1) if causal else range(n - stride, n + stride + 1)
    return m in local or (n - m) % stride == 0


def fixed(n, m, causal, stride, summary, offset=0):
    return n // stride == m // stride or m % stride in range(stride - summary - offset, stride - offset)


def local_1d(n, m, causal, block, memory):
    start = n - n % block
    return start - memory <= m < start + block + (0 if causal else memory)


def local_2d(n, m, causal, block, memory, cell):
    (y, x), (at_y, at_x) = cell(n), cell(m)
    top, left = y - y % block[0], x - x % block[1]
    below = 0 if causal else memory[0]
    rows, columns = (
        range(top - memory[0], top + block[0] + below),
        range(left - memory[1], left + block[1] + memory[1]),
    )
    return at_y in rows and at_x in columns


def raster(place, columns=6):
    return divmod(place, columns)


def block_after_block(place):
    """Blocks of 2 x 3 cells on a grid of 6 columns."""
    order = [(by + y, bx + x) for by in range(0, 8, 2) for bx in range(0, 6, 3) for y in range(2) for x in range(3)]
    return order[place]


PAPERS = {
    "window(window=6)": lambda n, m, c: window(n, m, c),
    "window(window=5, dilation=3, global_tokens=2)": lambda n, m, c: window(n, m, c, 5, 3, 2),
    "sparse_strided(stride=4)": lambda n, m, c: strided(n, m, c, 4),
    "sparse_fixed(stride=5, summary=2)": lambda n, m, c: fixed(n, m, c, 5, 2),
    "sparse_fixed(stride=5, summary=2, offset=2)": lambda n, m, c: fixed(n, m, c, 5, 2, 2),
    "image_local_1d(query_block=4, memory=3)": lambda n, m, c: local_1d(n, m, c, 4, 3),
    "image_local_2d(query_block=(2, 4), memory=(1, 2), columns=6)": lambda n, m, c: local_2d(
        n, m, c, (2, 4), (1, 2), raster
    ),
    "image_local_2d(query_block=(2, 3), memory=(2, 1), columns=6, order='blocks')": lambda n, m, c: local_2d(
        n, m, c, (2, 3), (2, 1), block_after_block
    ),
    "axial(axis='row', columns=6)": lambda n, m, c: n // 6 == m // 6,
    "axial(axis='column', columns=6)": lambda n, m, c: n % 6 == m % 6,
}


@pytest.mark.parametrize("spec", PAPERS)
def test_equals_softmax_over_the_keys_that_the_paper_names(spec):
    attend = attention(spec)
    for n in (1, 7, 40):
        q, k, v = parts(n)
        bias = TensorBias(torch.randn(1, 2, n, n))
        for mask in (None, CausalMask()):
            seen = torch.tensor([[PAPERS[spec](i, j, mask is not None) for j in range(n)] for i in range(n)])
            seen = seen & mask.dense(1, n, n)[0, 0] if mask else seen
            scores = (q @ k.mT / 2 + bias.values).masked_fill(~seen, float("-inf"))
            expected = scores.softmax(-1) @ v
            found = attend(q, k, v, mask, bias)
            torch.testing.assert_close(found, expected)
            for ours, theirs in zip(
                torch.autograd.grad(found.square().sum(), (q, k, v)),
                torch.autograd.grad(expected.square().sum(), (q, k, v)),
                strict=True,
            ):
                torch.testing.assert_close(ours, theirs)


def test_bigbird_sees_neighbours_both_ends_and_random_blocks_that_are_neither():
    attend = attention("bigbird(block=3, random_blocks=2)")
    q, k, _ = parts(50, heads=4)  # 17 blocks, the last one not full
    seen = attend.weights(q, k)[0] > 0
    blocks = torch.nn.functional.pad(seen, (0, 1, 0, 1)).unflatten(2, (17, 3)).unflatten(1, (17, 3)).any(4).any(2)
    certain = torch.zeros(17, 17, dtype=torch.bool)
    for i in range(17):
        for j in range(17):
            certain[i, j] = abs(i - j) <= 1 or {i, j} & {0, 16} != set()
    assert bool(blocks[:, certain].all())
    extra = blocks & ~certain
    assert (extra.sum(-1)[:, 1:-1] == 2).all()
    assert not torch.equal(extra[0], extra[1])  # heads differ
    deeper = attend.weights(q, k, layer_state=_layer(1)) > 0
    assert not torch.equal(deeper[0], seen)  # layers differ
    other = attention("bigbird(block=3, random_blocks=2, seed=1)")
    assert not torch.equal(other.weights(q, k)[0] > 0, seen)


def test_every_block_is_about_equally_often_a_random_one():
    pattern = attention("bigbird(block=1, random_blocks=3)").layer_pattern(None)
    h, i = torch.arange(400)[:, None], torch.tensor([10])
    drawn = torch.cat([pattern.random_block(r, h, i, 25, causal=False) for r in range(3)]).flatten()
    counts = drawn.bincount(minlength=25)
    assert counts[[0, 9, 10, 11, 24]].sum() == 0
    others = [j for j in range(25) if j not in (0, 9, 10, 11, 24)]
    assert counts[others].min() > 35  # 1200 draws from 20 blocks: 60 each
    assert counts[others].max() < 95


def test_prefix_tokens_of_a_grid_see_all_and_are_seen_by_all():
    for name in (
        "axial",
        "image_local_1d(query_block=4, memory=0)",
        "image_local_2d(query_block=(1, 1), memory=(0, 0))",
    ):
        attend = attention(name, grid=(4, 5), prefix=2, length=22)
        q, k, v = parts(22)
        for mask in (None, CausalMask()):
            weights = attend.weights(q, k, mask, layer_state=_layer(1))
            later = torch.ones(22, 22, dtype=torch.bool) if mask is None else mask.dense(1, 22, 22)[0, 0]
            assert (weights[..., :2] > 0).sum() == later[:, :2].sum() * 4
            assert (weights[:, :, :2] > 0).sum() == later[:2].sum() * 4
            assert (weights[:, :, 2:, 2:] > 0).double().mean() < 0.5
            torch.testing.assert_close(attend(q, k, v, mask, layer_state=_layer(1)), weights @ v)


def test_axial_attention_alternates_by_depth():
    attend = attention("axial(columns=5)")
    q, k, v = parts(20)
    for depth, axis in enumerate(("row", "column", "row")):
        expected = attention(f"axial(axis='{axis}', columns=5)")(q, k, v)
        torch.testing.assert_close(attend(q, k, v, layer_state=_layer(depth)), expected)
    with pytest.raises(Unsupported, match="got no LayerState"):
        attend(q, k, v)


def test_other_masks_restrict_the_pattern():
    """Documents in one row, padding and causality at the same time."""
    q, k, v = parts(12)
    segments = SegmentMask(torch.tensor([[0] * 5 + [1] * 7, [0] * 12]))
    mask = CausalMask() & segments & PaddingMask(torch.tensor([12, 9]))
    for spec in PAPERS:
        attend = attention(spec)
        torch.testing.assert_close(attend(q, k, v, mask), attend.weights(q, k, mask) @ v)


def test_half_precision_of_rows_that_see_nothing():
    """Padded queries far from every real key: zeros and finite gradients, with a bias too."""
    for dtype in (torch.bfloat16, torch.float32):
        q, k, v = (torch.randn(2, 2, 40, 8, dtype=dtype, requires_grad=True) for _ in range(3))
        for spec in PAPERS:
            for bias in (None, TensorBias(torch.zeros(1, 1, 40, 40, dtype=dtype))):
                out = attention(spec)(q, k, v, PaddingMask(torch.tensor([40, 0])), bias)
                assert out.dtype == dtype
                assert out[1].abs().max() == 0
                assert all(torch.isfinite(x).all() for x in torch.autograd.grad(out.square().sum(), (q, k, v)))


def test_dropout_acts_in_training_only():
    q, k, v = parts(12)
    for spec in ("window(window=4, dropout=0.5)", "sparse_strided(stride=3, dropout=0.5)"):
        attend = attention(spec)
        torch.testing.assert_close(attend(q, k, v), attend.weights(q, k) @ v)
        attend.train()
        assert not torch.allclose(attend(q, k, v), attend(q, k, v))


def test_flex_equals_gather(monkeypatch, unchecked):
    """FlexAttention by the formula, uncompiled."""
    monkeypatch.setattr("regard.attention.mechanisms.softmax._can_compile", lambda device: False)
    q, k, v = (x.detach() for x in parts(40))
    for spec, mask in (
        ("bigbird(block=2, random_blocks=1)", None),
        ("local_blocks(block=3)", None),
        ("window(window=4, dilation=2, global_tokens=1)", CausalMask()),
        ("bigbird(block=2, random_blocks=1)", PaddingMask(torch.tensor([40, 17]))),
    ):
        flex = attention(spec[:-1] + ", backend='flex')")
        torch.testing.assert_close(flex(q, k, v, mask), attention(spec)(q, k, v, mask))
        with pytest.raises(Unsupported, match="no gradient on the CPU"):
            flex(*parts(40))


FLEX = {  # more than one block, and few of them visited
    "window(window=64, global_tokens=1)": 5 * 5 - 1,
    "window(window=300)": 5 * 5 - 1,
    "bigbird(block=64, random_blocks=1)": 5 * 5 - 1,
    "bigbird(block=48, random_blocks=0)": 5 * 5 - 1,
    "local_blocks(block=200)": 15,
    "sparse_fixed(stride=64, summary=8)": 5 * 5,
    "image_local_1d(query_block=128, memory=128)": 13,
}


@pytest.mark.parametrize("spec", FLEX)
def test_flex_visits_every_block_with_an_allowed_pair_and_few_others(spec):
    n = 5 * FLEX_BLOCK - 7
    q, k, _ = parts(n, batch=1)
    for mask in (None, CausalMask()):
        attend = attention(spec)
        found = _shared_blocks(attend.layer_pattern(None), n, n, mask is not None, 2, q.device)
        allowed = attend.weights(q, k, mask)[0] > 0
        cells = torch.nn.functional.pad(allowed, (0, 7, 0, 7)).unflatten(2, (5, -1)).unflatten(1, (5, -1))
        assert not (cells.any(4).any(2) & ~found.needed[0]).any()
        assert torch.equal(cells.all(4).all(2), found.full[0].expand(2, -1, -1))
        assert not (found.full & ~found.needed).any()
        assert found.needed[0, 0].sum() <= FLEX[spec]


@pytest.mark.parametrize("spec", FLEX)
def test_the_formula_that_flex_computes_is_that_of_the_pattern(spec):
    """Inside FlexAttention's kernels indices are 32-bit integers."""
    n, lengths = 200, torch.tensor([200, 90])
    pattern = attention(spec).layer_pattern(None)
    b, h, i, j = torch.meshgrid(*(torch.arange(size, dtype=torch.int32) for size in (2, 2, n, n)), indexing="ij")
    for rest in (None, PaddingMask(lengths)):
        length = n if rest is None or not pattern.looks_at_lengths else lengths.view(-1, 1, 1, 1)
        blocks = _make_blocks(pattern, n, length, False, 2, b.device)
        found = _block_mask(pattern, n, False, blocks, rest).mask_mod(b, h, i, j)
        expected = pattern.allow(h.long(), i.long(), j.long(), length, False)
        assert torch.equal(found, expected if rest is None else expected & rest.allow(b, i, j))


def test_bad_arguments_are_refused():
    with pytest.raises(RegardError, match="summary must be 1 to 4"):
        attention("sparse_fixed(stride=4, summary=5)")
    with pytest.raises(RegardError, match="offset must be 0 to 2"):
        attention("sparse_fixed(stride=4, summary=2, offset=3)")
    with pytest.raises(RegardError, match="8 columns here, got columns=7"):
        attention("axial(columns=7)", grid=(8, 8))
    with pytest.raises(RegardError, match="whole blocks"):
        attention("image_local_2d(query_block=(2, 3), order='blocks')", grid=(8, 8))
    with pytest.raises(RegardError, match="window"):
        attention("window(window=0)")
    with pytest.raises(Unsupported, match="concatenated texts"):
        attention("window")(*parts(5, batch=1), DocumentMask(torch.tensor([3, 2]), 5, 3))


def test_etc_adds_the_scores_of_labels():
    """A loop over pairs: neighbours, the other side, clipped distances, members of a segment."""
    n, g, radius, segment, limit = 17, 3, 4, 5, 2
    attend = attention(
        f"etc(radius={radius}, global_tokens={g}, segment={segment}, max_distance={limit})", heads=2, head_dim=4
    )
    torch.nn.init.normal_(attend.label_vectors)
    torch.nn.init.normal_(attend.label_biases)
    q, k, v = parts(n)
    added, seen = torch.zeros(2, 2, n, n), torch.zeros(n, n, dtype=torch.bool)
    for i in range(n):
        for j in range(n):
            seen[i, j] = i < g or j < g or abs(i - j) <= radius
            if (i < g) == (j < g):
                label = min(j - i, limit) if j >= i else limit + min(i - j, limit)
            else:
                label = 2 * limit + 1 + ((max(i, j) - g) // segment != min(i, j))
            side = int(i < g)
            vectors, numbers = attend.label_vectors[side, :, label], attend.label_biases[side, :, 0, label]
            added[:, :, i, j] = (q[:, :, i] * vectors).sum(-1) + numbers
    expected = ((q @ k.mT + added) / 2).masked_fill(~seen, float("-inf")).softmax(-1) @ v
    found = attend(q, k, v)
    torch.testing.assert_close(found, expected)
    inputs = (q, k, v, *attend.parameters())
    for ours, theirs in zip(
        torch.autograd.grad(found.square().sum(), inputs),
        torch.autograd.grad(expected.square().sum(), inputs),
        strict=True,
    ):
        torch.testing.assert_close(ours, theirs)
    bias = TensorBias(torch.randn(1, 2, n, n))
    torch.testing.assert_close(attend(q, k, v, None, bias), attend.weights(q, k, None, bias) @ v)


def test_longformer_equals_its_mechanism_where_both_projections_are_the_same():
    from regard.attention.mixers import build_mixer

    mixer = build_mixer("longformer(window=4, global_tokens=2)", width=8, heads=2).eval()
    q, k, v = mixer.project.qkv.weight.detach().unflatten(0, (2, 3, 4)).unbind(1)
    mixer.project_global.q.weight.data = q.flatten(0, 1)
    mixer.project_global.kv.weight.data = torch.stack([k, v], 1).flatten(0, 2)
    for layer in (mixer.project.qkv, mixer.project_global.q, mixer.project_global.kv):
        torch.nn.init.zeros_(layer.bias)
    shared = build_mixer("window(window=4, global_tokens=2)", width=8, heads=2).eval()
    shared.project, shared.join = mixer.project, mixer.join
    x, mask = torch.randn(2, 11, 8), PaddingMask(torch.tensor([11, 6]))
    torch.testing.assert_close(mixer(x, mask=mask), shared(x, mask=mask))
    torch.nn.init.zeros_(mixer.project_global.kv.weight)
    changed = (mixer(x) - shared(x)).abs().amax((0, 2)) > 1e-9
    assert changed.tolist() == [True] * 2 + [False] * 9
    with pytest.raises(Unsupported, match="takes no context"):
        mixer(x, x)


def test_rotary_positions_reach_the_global_projections():
    model = build("bert", size="tiny", vocab=11, attention="longformer(window=64)", positions="rotary").eval()
    dense = build("bert", size="tiny", vocab=11, positions="rotary").eval()
    state = model.state_dict()
    for key, value in dense.state_dict().items():
        state[key] = value
    model.load_state_dict(state)
    for block in model.encoder.blocks:  # the second projections as the first
        heads, dim = block.mix.project.kv_heads, block.mix.project.head_dim
        for kind in ("weight", "bias"):
            q, k, v = getattr(block.mix.project.qkv, kind).data.unflatten(0, (heads, 3, dim)).unbind(1)
            getattr(block.mix.project_global.q, kind).data = q.flatten(0, 1)
            getattr(block.mix.project_global.kv, kind).data = torch.stack([k, v], 1).flatten(0, 2)
    tokens = torch.randint(11, (2, 9))
    torch.testing.assert_close(model.hidden(tokens), dense.hidden(tokens))


def test_softmax_is_reached_with_a_window_as_long_as_the_text():
    q, k, v = parts(9)
    for spec in ("window(window=18)", "bigbird(block=9)", "sparse_fixed(stride=9)", "image_local_1d(query_block=9)"):
        torch.testing.assert_close(attention(spec)(q, k, v), SoftmaxAttention()(q, k, v))


def _layer(depth):
    pass_state = PassState()
    return [pass_state.layer(d) for d in range(depth + 1)][-1]

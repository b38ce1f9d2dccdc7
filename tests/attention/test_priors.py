"""Attention with a prior: each mechanism against a loop written from its paper, in value and gradient."""

import math

import pytest
import torch

from regard.attention.capture.watch import watch
from regard.attention.mask import CausalMask, DocumentMask
from regard.attention.mechanisms.camtl import ConditionalAttention
from regard.attention.mechanisms.evolving import EvolvingAttention
from regard.attention.mechanisms.gaussian import GaussianAttention
from regard.attention.mechanisms.hard_coded_gaussian import HardCodedGaussianAttention
from regard.attention.mechanisms.lazyformer import LazyFormerAttention
from regard.attention.mechanisms.localness import LocalnessAttention
from regard.attention.mechanisms.softmax import SoftmaxAttention
from regard.attention.mechanisms.synthesizer import (
    DenseSynthesizer,
    FactorisedDenseSynthesizer,
    FactorisedRandomSynthesizer,
    RandomSynthesizer,
)
from regard.attention.mixers.average import AverageAttention
from regard.core.errors import RegardError, Unsupported
from regard.core.layer_state import PassState
from regard.core.positions import PositionInfo, TensorBias
from regard.models import build

B, H, N, D = 2, 3, 7, 4


@pytest.fixture(autouse=True)
def _double(double):
    pass


def qkv(n=N):
    return [torch.randn(B, H, n, D, requires_grad=True) for _ in range(3)]


def visible(b, n, mask):
    """The keys that a query sees, in order."""
    return [m for m in range(N) if mask is None or bool(mask.dense(B, N, N).expand(B, 1, N, N)[b, 0, n, m])]


def attend_by_loop(q, k, v, mask, score):
    """Σ_m softmax(score(b, h, n, m, seen)) v_m, one pair after another."""
    rows = []
    for b in range(B):
        for h in range(H):
            for n in range(N):
                seen = visible(b, n, mask)
                scores = torch.stack([score(b, h, n, m, seen) for m in seen])
                rows.append(scores.softmax(0) @ v[b, h, seen])
    return torch.stack(rows).view(B, H, N, D)


def compare(attend, inputs, found, expected):
    torch.testing.assert_close(found, expected)
    leaves = [*inputs, *(p for p in attend.parameters() if p.requires_grad)]
    weight = torch.randn_like(expected)
    ours, reference = (torch.autograd.grad((x * weight).sum(), leaves, allow_unused=True) for x in (found, expected))
    for one, other in zip(ours, reference, strict=True):
        if one is not None or other is not None:  # else neither depends on it
            torch.testing.assert_close(one, other)


MASKS = [None, CausalMask()]


@pytest.mark.parametrize("mask", MASKS, ids=["all", "causal"])
def test_gaussian_subtracts_the_squared_distance(mask):
    attend, (q, k, v) = GaussianAttention(weight=0.3, offset=-0.7), qkv()

    def score(b, h, n, m, seen):
        return q[b, h, n] @ k[b, h, m] / D**0.5 - (attend.weight * (n - m) ** 2 + attend.offset).abs()

    compare(attend, (q, k, v), attend(q, k, v, mask), attend_by_loop(q, k, v, mask, score))
    assert attend.weights(q, k, mask)[0, 0, 6, 6] < GaussianAttention(0.3, 0.0).weights(q, k, mask)[0, 0, 6, 6]


@pytest.mark.parametrize("mask", MASKS, ids=["all", "causal"])
@pytest.mark.parametrize("window", ["query", "layer", 5.0])
def test_localness_centres_a_gaussian_at_a_predicted_place(window, mask):
    attend, (q, k, v) = LocalnessAttention(H, H, D, window=window), qkv()
    for parameter in attend.parameters():
        torch.nn.init.normal_(parameter)

    def score(b, h, n, m, seen):
        count, joined = len(seen), q[b, :, n].flatten()
        hidden = torch.tanh(attend.query_hidden.weight @ joined)
        centre = (count - 1) * torch.sigmoid(attend.centre.weight[h] @ hidden)
        width = window
        if window == "layer":
            hidden = torch.tanh(attend.key_hidden.weight @ k[b][:, seen].mean(1).flatten())
        if isinstance(window, str):
            width = count * torch.sigmoid(attend.width.weight[h] @ hidden) + 0.1
        return q[b, h, n] @ k[b, h, m] / D**0.5 - (m - centre) ** 2 / (2 * (width / 2) ** 2)

    compare(attend, (q, k, v), attend(q, k, v, mask), attend_by_loop(q, k, v, mask, score))


def test_localness_refuses_an_unknown_window():
    with pytest.raises(RegardError, match="window"):
        build("gpt", size="tiny", vocab=11, attention="localness(window='wide')")


@pytest.mark.parametrize("causal", [False, True])
def test_evolving_convolves_the_scores_of_the_layers_below(causal):
    """Three layers; the convolution is written out over rows, columns and heads."""
    mask, pass_state, below = CausalMask() if causal else None, PassState(), None
    allowed = torch.ones(N, N, dtype=torch.bool).tril() if causal else torch.ones(N, N, dtype=torch.bool)
    for depth in range(3):
        attend, (q, k, v) = EvolvingAttention(H, below=0.3, convolved=0.4, causal=causal), qkv()
        scores = q @ k.mT / D**0.5
        mixed = scores if below is None else 0.3 * below + 0.7 * scores
        image, convolved = mixed * allowed, torch.zeros(B, H, N, N)
        for n in range(N):
            for m in range(N):
                for i in range(n - 1, min(n + (1 if causal else 2), N)):
                    for j in range(max(m - 1, 0), min(m + 2, N)):
                        if i >= 0:
                            kernel = attend.kernel[:, :, i - n + 1, j - m + 1]
                            convolved[:, :, n, m] += image[:, :, i, j].detach() @ kernel.T
        below = 0.4 * (convolved + attend.kernel_bias[:, None, None]).relu() + 0.6 * mixed
        expected = below.masked_fill(~allowed, -torch.inf).softmax(-1) @ v
        torch.testing.assert_close(attend(q, k, v, mask, layer_state=pass_state.layer(depth)), expected)
        below = below.detach()


def test_evolving_refuses_a_causal_mask_unless_it_is_causal():
    with pytest.raises(Unsupported, match="causal=True"):
        EvolvingAttention(H)(*qkv(), CausalMask(), layer_state=PassState().layer(0))


def test_lazyformer_applies_one_map_in_several_layers():
    model = build("gpt", size="tiny", vocab=11, layers=5, attention="lazyformer(group=2)").eval()
    with watch(model) as seen:
        model(torch.randint(11, (2, 6)))
    maps = [trace.weights for trace in seen.traces()]
    assert torch.equal(maps[0], maps[1])
    assert torch.equal(maps[2], maps[3])
    assert not torch.allclose(maps[1], maps[2])
    assert not torch.allclose(maps[3], maps[4])


def test_lazyformer_refuses_a_map_of_another_shape_and_a_missing_state():
    attend, pass_state, (q, k, v) = LazyFormerAttention(), PassState(), qkv()
    attend(q, k, v, layer_state=pass_state.layer(0))
    with pytest.raises(Unsupported, match="3 heads, 7 queries and 5 keys"):
        attend(q, k[:, :, :5], v[:, :, :5], layer_state=pass_state.layer(1))
    with pytest.raises(Unsupported, match="layer_state="):
        attend(q, k, v)


def test_camtl_adds_blocks_of_the_task_to_the_scores():
    attend, (q, k, v) = ConditionalAttention(width=6, length=8, tasks=2, blocks=3), qkv()
    assert attend.block == 3
    for parameter in attend.parameters():
        torch.nn.init.normal_(parameter)
    pass_state, tasks = PassState(), torch.tensor([1, 0])
    pass_state.layer(-1).publish("task", tasks)
    gain, shift = attend.modulation(attend.tasks[tasks])[:, None].chunk(2, -1)
    films = (1 + gain) * attend.shared + shift
    bias = torch.stack([torch.block_diag(*film.split(3))[:N, :N] for film in films])[:, None]
    expected = (q @ k.mT / D**0.5 + bias).softmax(-1) @ v
    found = attend(q, k, v, layer_state=pass_state.layer(0))
    compare(attend, (q, k, v), found, expected)
    torch.testing.assert_close(attend(q, k, v, layer_state=pass_state.layer(1)), expected)  # the task is handed on
    with pytest.raises(Unsupported, match="2 tasks"):
        attend(q, k, v, layer_state=PassState().layer(0))


def test_camtl_without_a_bias_is_softmax_attention():
    attend, (q, k, v) = ConditionalAttention(width=6, length=8), qkv()
    torch.nn.init.zeros_(attend.modulation.weight)
    torch.testing.assert_close(attend(q, k, v), SoftmaxAttention()(q, k, v))


def test_a_model_learns_two_tasks_by_their_number():
    model = build("bert", vocab=11, width=16, heads=2, layers=2, length=8, attention="camtl(tasks=2)", head=None).eval()
    tokens, outputs = torch.randint(11, (2, 5)), []
    for task in (0, 1):
        pass_state = PassState()
        pass_state.layer(-1).publish("task", torch.full((2,), task))
        outputs.append(model(tokens, pass_state=pass_state))
    assert not torch.allclose(*outputs)


@pytest.mark.parametrize("causal", [False, True])
def test_hard_coded_weights_are_a_normal_density(causal):
    attend, mask = HardCodedGaussianAttention(H, sigma=0.8, causal=causal), CausalMask() if causal else None
    q, k, v = qkv()
    expected = torch.zeros(B, H, N, D)
    for h, offset in zip(range(H), (-1, 0, -1) if causal else (-1, 1, -1), strict=True):
        for n in range(N):
            for m in range(n + 1 if causal else N):
                density = math.exp(-((m - n - offset) ** 2) / (2 * 0.8**2)) / (0.8 * math.sqrt(2 * math.pi))
                expected[:, h, n] += density * v[:, h, m]
    torch.testing.assert_close(attend(q, k, v, mask), expected)
    assert HardCodedGaussianAttention(4, offsets=(0, 2, -3)).offsets.tolist() == [0, 2, -3, 0]


@pytest.mark.parametrize("mask", MASKS, ids=["all", "causal"])
def test_synthesizers_score_places(mask):
    q, k, v = qkv()
    dense, factorised = DenseSynthesizer(H, D, 9), FactorisedDenseSynthesizer(H, D, 10)
    random, low_rank = RandomSynthesizer(H, 9), FactorisedRandomSynthesizer(H, 9, rank=2)
    assert (factorised.rows, factorised.weight_b.shape[-1]) == (4, 3)
    for parameter in (*dense.parameters(), *factorised.parameters()):
        torch.nn.init.normal_(parameter)

    def dense_score(b, h, n, m, seen):
        return q[b, h, n].relu() @ dense.weight[h, :, m] + dense.bias[h, m]

    def factorised_score(b, h, n, m, seen):
        hidden = q[b, h, n].relu()
        first = hidden @ factorised.weight_a[h, :, m % 4] + factorised.bias_a[h, m % 4]
        return first * (hidden @ factorised.weight_b[h, :, m // 4] + factorised.bias_b[h, m // 4])

    scores = {
        dense: dense_score,
        factorised: factorised_score,
        random: lambda b, h, n, m, seen: random.matrix[h, n, m],
        low_rank: lambda b, h, n, m, seen: low_rank.left[h, n] @ low_rank.right[h, m],
    }
    for attend, score in scores.items():
        compare(attend, (q, k, v), attend(q, k, v, mask), attend_by_loop(q, k, v, mask, score))
    assert not any(p.requires_grad for p in FactorisedRandomSynthesizer(H, 9, trainable=False).parameters())


def test_places_beyond_the_length_are_refused():
    for attend in (RandomSynthesizer(H, 6), ConditionalAttention(6, 6)):
        with pytest.raises(Unsupported, match="6 places, got 7 tokens"):
            attend(*qkv())
    with pytest.raises(RegardError, match="length=512"):
        RandomSynthesizer(H, None)
    model = build("gpt", size="tiny", vocab=11, length=8, positions="rotary", attention="synthesizer_random").eval()
    tokens, state = model.start(torch.randint(11, (1, 7)), capacity=8)
    for _ in range(2):
        _, state = model.step(tokens, state)
    with pytest.raises(Unsupported, match="8 places, got 9 tokens"):
        model.step(tokens, state)


def test_concatenated_texts_have_places_of_their_own():
    """Two texts in one row: each is attended to as if it stood alone."""
    lengths = torch.tensor([4, 3])
    for attend in (RandomSynthesizer(H, 9), GaussianAttention(), ConditionalAttention(6, 9, blocks=3)):
        for parameter in attend.parameters():
            torch.nn.init.normal_(parameter)
        q, k, v = (x[:1] for x in qkv())
        found = attend(q, k, v, DocumentMask(lengths, 7, 4))
        for part in (slice(0, 4), slice(4, 7)):
            torch.testing.assert_close(found[:, :, part], attend(q[:, :, part], k[:, :, part], v[:, :, part]))


@pytest.mark.parametrize("ffn", [None, 0])
def test_average_attention_gates_the_cumulative_mean(ffn):
    mixer, x = AverageAttention(6, ffn=ffn).eval(), torch.randn(B, N, 6, requires_grad=True)
    expected = []
    for n in range(N):
        mean = mixer.feed(x[:, : n + 1].mean(1))
        gates = torch.sigmoid(torch.cat([x[:, n], mean], -1) @ mixer.gate.weight.T + mixer.gate.bias)
        expected.append(gates[:, :6] * x[:, n] + gates[:, 6:] * mean)
    compare(mixer, (x,), mixer(x, mask=CausalMask()), torch.stack(expected, 1))


def test_average_attention_shows_its_weights_and_refuses_what_it_cannot_use():
    model = build("gpt", size="tiny", vocab=11, attention="average").eval()
    with watch(model) as seen:
        model(torch.randint(11, (2, 4)))
    expected = torch.ones(4, 4).tril() / torch.arange(1, 5)[:, None]
    torch.testing.assert_close(seen["decoder.blocks.0.mix"].weights[0, 0], expected)
    mixer, x = AverageAttention(6), torch.randn(1, 3, 6)
    with pytest.raises(Unsupported, match="takes no context"):
        mixer(x, x)
    index = torch.arange(3)[None]
    with pytest.raises(Unsupported, match="positions added to tokens"):
        mixer(x, positions=PositionInfo(index, index, bias=TensorBias(torch.zeros(1, 1, 3, 3))))


def test_half_precision_gives_its_own_dtype():
    q, k, v = (x.detach().to(torch.float16) for x in qkv())
    for attend in (GaussianAttention(), LocalnessAttention(H, H, D), EvolvingAttention(H), RandomSynthesizer(H, 9)):
        attend = attend.to(torch.float16)
        out = attend(q, k, v, layer_state=PassState().layer(0))
        assert out.dtype == torch.float16
        assert out.isfinite().all()


def test_places_beyond_256_are_told_apart_in_half_precision():
    torch.set_default_dtype(torch.float32)
    n = 600  # the centre is at 299.5, between two keys of equal weight
    attend = LocalnessAttention(1, 1, D, window=4.0)
    q = torch.zeros(1, 1, n, D)
    found = attend.to(torch.bfloat16).weights(q.bfloat16(), q.bfloat16())[0, 0, 0].float()
    assert found.topk(2).indices.sort().values.tolist() == [299, 300]
    torch.testing.assert_close(found, attend.float().weights(q, q)[0, 0, 0], atol=2e-3, rtol=0)

"""Sampling a token: which tokens are allowed, how often they come, and agreement with transformers."""

import pytest
import torch

from regard.core.errors import BadInput
from regard.decoding.beam_search import greedy_search, sample
from regard.decoding.generation_config import ContinuationConfig, GenerationConfig
from regard.decoding.sampling import Sampler, apply_repetition_penalty, fast_topk, uniform_numbers, validate_seed

LOGITS = torch.tensor([[2.0, -1.0, 0.5, 2.0, -3.0, 1.0, 0.0, -0.5]])


def plainly(logits, temperature=1.0, top_k=0, top_p=1.0, min_p=0.0):
    """Reference implementation: one row, with Python numbers."""
    p = (logits.double() / temperature).softmax(-1).tolist()
    left = dict(enumerate(p))
    if top_k:
        border = sorted(p, reverse=True)[min(top_k, len(p)) - 1]
        left = {i: x for i, x in left.items() if x >= border}
    if top_p < 1:
        total, filled, inside = sum(left.values()), 0.0, set()
        for i in sorted(left, key=lambda i: -left[i]):
            if filled >= top_p and left[i] < border:
                break
            inside.add(i)
            filled, border = filled + left[i] / total, left[i]
        left = {i: left[i] for i in inside}
    if min_p:
        left = {i: x for i, x in left.items() if x >= min_p * max(left.values())}
    total = sum(left.values())
    return [left.get(i, 0.0) / total for i in range(len(p))]


WAYS = [
    {},
    {"temperature": 0.5},
    {"temperature": 3.0},
    {"top_k": 1},
    {"top_k": 3},
    {"top_k": 50},
    {"top_p": 1e-6},
    {"top_p": 0.5},
    {"top_p": 0.9},
    {"min_p": 0.2},
    {"min_p": 1.0},
    {"top_k": 5, "top_p": 0.8, "min_p": 0.1, "temperature": 0.7},
]


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_filters_equal_their_formulas(way):
    for seed in range(20):
        logits = 2 * torch.randn(1, 40, generator=torch.Generator().manual_seed(seed))
        p = Sampler(**way).probabilities(logits)[0]
        expected = torch.tensor(plainly(logits[0], **way))
        assert torch.equal(p > 0, expected > 0)
        torch.testing.assert_close(p / p.sum(), expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("way", WAYS[:-1], ids=str)
def test_filters_equal_transformers(way):
    """One filter at a time; with several, transformers applies them in the same order."""
    transformers = pytest.importorskip("transformers")
    kinds = {
        "temperature": transformers.TemperatureLogitsWarper,
        "top_k": transformers.TopKLogitsWarper,
        "top_p": transformers.TopPLogitsWarper,
        "min_p": transformers.MinPLogitsWarper,
    }
    logits = 3 * torch.randn(16, 100)
    reference = logits
    for name, value in way.items():
        reference = kinds[name](value)(None, reference)
    ours = Sampler(**way).probabilities(logits)
    torch.testing.assert_close(ours / ours.sum(-1, keepdim=True), reference.softmax(-1), rtol=1e-4, atol=1e-6)


def test_ties_at_the_threshold_all_stay():
    assert (Sampler(top_k=1).probabilities(LOGITS) > 0).nonzero()[:, 1].tolist() == [0, 3]
    assert (Sampler(top_p=0.1).probabilities(LOGITS) > 0).nonzero()[:, 1].tolist() == [0, 3]


@pytest.mark.parametrize("way", [{}, {"temperature": 1.7}, {"top_k": 4}, {"top_p": 0.8}, {"min_p": 0.15}], ids=str)
def test_sample_frequencies_equal_probabilities(way):
    """Chi-square over 8 tokens with a fixed seed: 24.3 is exceeded once in a thousand times."""
    count = 40_000
    uniform = uniform_numbers([5], count, 1)[:, 0].T  # 1 many
    drawn = Sampler(**way)(LOGITS[:, None].expand(1, count, 8), uniform)
    seen = drawn[0].bincount(minlength=8).double()
    expected = count * torch.tensor(plainly(LOGITS[0], **way), dtype=torch.float64)
    assert torch.equal(seen > 0, expected > 0)
    some = expected > 0
    assert float(((seen - expected)[some] ** 2 / expected[some]).sum()) < 24.3


def test_largest_uniform_number_never_samples_an_excluded_token():
    p = torch.full((1, 1, 1000), float("-inf"))
    p[..., 3:7] = torch.tensor([0.3, 1e-3, 2.0, 0.1])
    highest = uniform_numbers([0], 1, 1).fill_(1 - 2**-23)[0]
    assert int(Sampler()(p, highest)) == 6
    assert int(Sampler()(p, torch.zeros(1, 1))) == 3
    assert float(uniform_numbers(range(50), 400, 8).max()) <= 1 - 2**-23


@pytest.mark.parametrize("penalty", [1.3, 0.7])
def test_repetition_penalty_equals_transformers(penalty):
    transformers = pytest.importorskip("transformers")
    logits, ids = 3 * torch.randn(5, 60), torch.randint(60, (5, 12))
    reference = transformers.RepetitionPenaltyLogitsProcessor(penalty)(ids, logits.clone())
    message = torch.zeros(5, 60, dtype=torch.bool).scatter_(1, ids, True)
    assert torch.equal(apply_repetition_penalty(logits[:, None], message[:, None], penalty)[:, 0], reference)


class Counter:
    """A model whose logits depend on the last token only. Its vocabulary is 0 (eos) to 5."""

    eos = 0
    table = torch.tensor([[0.0, 9, 8, 7, 6, 5], [-9, 3.0, 2.9, 0, -1, -2], [-9, 2.9, 3.0, 0, -1, -2],
                          [0, 0, 0, 0, 3, 2], [0, 0, 0, 0, 0, 3.0], [3.0, 0, 0, 0, 0, 0]])  # fmt: skip

    def start(self, prompts, capacity):
        return prompts[:, -1:].clone(), ()

    def step(self, tokens, state):
        return self.table[tokens].clone(), state

    def select(self, state, rows, beams):
        return state


def test_repetition_penalty_counts_prompt_and_output():
    prompts = torch.tensor([[3, 1]])
    assert greedy_search(Counter(), prompts, max_length=4)[0].tokens == [1, 1, 1, 1]
    # 1 is said: 3.0 / 2 < 2.9, so 2; then both are, and 3.0 / 2 > 2.9 / 2
    assert greedy_search(Counter(), prompts, max_length=4, repetition_penalty=2.0, previous_tokens=[[3, 1]])[
        0
    ].tokens == [2, 2, 2, 2]
    assert greedy_search(Counter(), prompts, max_length=3, repetition_penalty=2.0)[0].tokens == [1, 2, 2]
    # each output has its own memory, and what is reported is the model's own probability
    found = sample(Counter(), prompts.repeat(3, 1), max_length=5, num_samples=4, repetition_penalty=5.0, seed=[1, 2, 1])
    assert found[0] == found[2] != found[1]
    for output in found[0]:
        last, total = 1, 0.0
        for token in [*output.tokens, *([0] if output.finished else [])]:
            total += float(Counter.table[last].log_softmax(-1)[token])
            last = token
        assert output.log_probability == pytest.approx(total, rel=1e-5)


def test_fast_topk_equals_sorting():
    x = torch.randn(3, 2, 5003)
    for n in (1, 5, 17):
        for ours, reference in zip(fast_topk(x, n), x.topk(n), strict=True):
            assert torch.equal(ours, reference)


@pytest.mark.parametrize(
    ("way", "message"),
    [
        ({"temperature": 0}, "temperature must be above 0 .* got 0"),
        ({"temperature": float("nan")}, "temperature must be above 0 .* got nan"),
        ({"top_p": 0}, r"top_p must lie in \(0, 1\], got 0"),
        ({"top_p": 1.1}, r"top_p must lie in \(0, 1\], got 1.1"),
        ({"min_p": -0.1}, r"min_p must lie in \[0, 1\], got -0.1"),
        ({"top_k": -1}, "top_k must be at least 1, .* got -1"),
    ],
    ids=str,
)
def test_invalid_sampler_settings_are_refused(way, message):
    with pytest.raises(BadInput, match=message):
        Sampler(**way)


def test_invalid_repetition_penalty_is_refused():
    with pytest.raises(BadInput, match=r"repetition_penalty must be above 0 .* got 0"):
        greedy_search(Counter(), torch.tensor([[1]]), max_length=2, repetition_penalty=0)


@pytest.mark.parametrize("how", [{"top_p": 1e-300}, {"temperature": 1e-300}, {"top_p": 1e-45, "min_p": 1.0}])
def test_smallest_settings_leave_the_most_likely_token(how):
    logits = torch.randn(2, 3, 69, dtype=torch.float32)
    uniform = torch.full((2, 3), 1 - 2**-23, dtype=torch.float32)
    assert (Sampler(**how)(logits, uniform) == logits.argmax(-1)).all()


@pytest.mark.parametrize("seed", [2**70, -(2**64), 1.5, None])
def test_invalid_seed_is_refused(seed):
    for requested in (
        lambda: uniform_numbers([seed], 2, 1),
        lambda: GenerationConfig(seed=seed),
        lambda: ContinuationConfig(seed=seed),
    ):
        with pytest.raises(BadInput, match="a whole number of at most 64 bits"):
            requested()


def test_64_bit_seeds_are_accepted():
    assert uniform_numbers([-(2**63), 2**63, 2**64 - 1], 2, 1).shape == (2, 3, 1)


@pytest.mark.parametrize(
    ("top_p", "kept"),
    [(0.5, [0]), (0.51, [0, 1, 2]), (0.75, [0, 1, 2]), (0.76, [0, 1, 2]), (1.0, [0, 1, 2, 3, 4])],
)
def test_a_nucleus_that_is_exactly_full_takes_no_more_but_equal_probabilities_stay(top_p, kept):
    p = Sampler(top_p=top_p).probabilities(torch.tensor([[0.5, 0.1875, 0.1875, 0.0625, 0.0625]]).log())
    assert p[0].nonzero().flatten().tolist() == kept


def test_a_nucleus_exactly_full_after_some_tokens_ends_there():
    p = Sampler(top_p=0.75).probabilities(torch.tensor([[0.125, 0.5, 0.0625, 0.25, 0.0625]]).log())
    assert p[0].nonzero().flatten().tolist() == [1, 3]


@pytest.mark.parametrize("how", [{"top_p": 1}, {"min_p": 0}, {"min_p": 1}, {"top_k": 0}, {"top_k": 1}])
def test_limits_themselves_are_allowed(how):
    assert Sampler(**how).probabilities(torch.tensor([[1.0, 0.0]]))[0, 0] > 0


@pytest.mark.parametrize("seed", [-(2**63), 2**64 - 1])
def test_the_outermost_seeds_are_allowed_and_no_more(seed):
    assert validate_seed(seed) == seed
    with pytest.raises(BadInput, match="64 bits"):
        validate_seed(seed + (1 if seed > 0 else -1))

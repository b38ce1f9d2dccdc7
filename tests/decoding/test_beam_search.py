"""Every search against a simple reference: Python lists, the whole model run again at every step."""

import math

import pytest
import torch

from regard.core.errors import RegardError
from regard.decoding.beam_search import Hypothesis, beam_search, greedy_search, sample
from regard.models import build
from tests.long_params import rest_is_long
from tests.models.brute_force_search import brute_beam, log_probs, ragged

EOS = 2


def tiny(seed=0, vocab=11, **settings):
    torch.manual_seed(seed)
    model = build("transformer", size="tiny", vocab=vocab, width=16, heads=2, ffn=32, encoder_layers=2, decoder_layers=2, **settings)  # fmt: skip  # noqa: E501
    with torch.no_grad():  # larger weights: sharper, more varied outputs than a fresh model's
        for parameter in model.parameters():
            parameter.mul_(1.5)
    return model.double().eval()


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("beams", "penalty"), [(1, 1.0), (4, 1.0), (4, 0.0), (5, 0.6)])
def test_beam_equals_brute_force(seed, beams, penalty):
    model, (source, lengths) = tiny(seed), ragged(4, seed=seed)
    limit = lengths + 4
    found = beam_search(
        model, source, lengths, beam_size=beams, length_penalty=penalty, num_candidates=beams, max_length=limit
    )
    for row, length in enumerate(lengths.tolist()):
        expected = brute_beam(model, source[row, :length], length + 4, beams, penalty)
        assert [h.tokens for h in found[row]] == [tokens for _, tokens, _ in expected]
        assert [h.finished for h in found[row]] == [ended for _, _, ended in expected]
        for actual, (score, _, _) in zip(found[row], expected, strict=True):
            assert math.isclose(actual.score, score, rel_tol=1e-5, abs_tol=1e-5)


@pytest.mark.parametrize("seed", range(2))
def test_diverse_beam_equals_brute_force(seed):
    model, (source, lengths) = tiny(seed), ragged(3, seed=seed)
    found = beam_search(
        model, source, lengths, beam_size=4, groups=2, diversity=1.5, num_candidates=4, max_length=lengths + 3
    )
    for row, length in enumerate(lengths.tolist()):
        expected = brute_beam(model, source[row, :length], length + 3, 4, 1.0, groups=2, diversity=1.5)
        assert sorted(h.tokens for h in found[row]) == [list(w) for w in sorted({tuple(w) for _, w, _ in expected})]


def test_diverse_groups_differ_more_than_beams():
    model, (source, lengths) = tiny(3), ragged(6, seed=3)
    plain = beam_search(model, source, lengths, beam_size=4, num_candidates=4, max_length=8)
    diverse = beam_search(model, source, lengths, beam_size=4, groups=4, diversity=5.0, num_candidates=4, max_length=8)

    def starts(found):
        return sum(len({tuple(h.tokens[:1]) for h in hypotheses}) for hypotheses in found)

    assert starts(diverse) > starts(plain)


@pytest.mark.parametrize("seed", range(3))
def test_greedy_equals_rerunning_the_model(seed):
    model, (source, lengths) = tiny(seed), ragged(6, seed=seed)
    found = greedy_search(model, source, lengths, max_length=lengths + 5)
    for row, length in enumerate(lengths.tolist()):
        tokens, total = [], 0.0
        while len(tokens) < length + 5:
            scores = log_probs(model, source[row, :length], tokens)
            word = max(range(len(scores)), key=scores.__getitem__)
            total += scores[word]
            if word == EOS:
                break
            tokens.append(word)
        assert found[row].tokens == tokens
        assert math.isclose(found[row].log_probability, total, rel_tol=1e-5)


SEARCHES = {
    "greedy": lambda m, s, n, **k: [[h] for h in greedy_search(m, s, n, max_length=n + 6)],
    "beam": lambda m, s, n, **k: beam_search(m, s, n, beam_size=4, num_candidates=3, max_length=n + 6),
    "diverse": lambda m, s, n, **k: beam_search(m, s, n, beam_size=4, groups=2, num_candidates=4, max_length=n + 6),
    "sample": lambda m, s, n, **k: sample(m, s, n, num_samples=3, top_k=8, top_p=0.9, seed=k["seed"], max_length=n + 6),
}


@pytest.mark.parametrize("name", SEARCHES)
@pytest.mark.parametrize(
    "positions", rest_is_long(["sinusoidal", "rotary", "relative", "alibi"], "sinusoidal", "relative")
)
def test_batched_search_equals_single_searches(name, positions):
    model, (source, lengths) = tiny(1, positions=positions), ragged(6, seed=5)
    batch = SEARCHES[name](model, source, lengths, seed=list(range(6)))
    for row, length in enumerate(lengths.tolist()):
        (single,) = SEARCHES[name](model, source[row : row + 1, :length], lengths[row : row + 1], seed=[row])
        assert [h.tokens for h in batch[row]] == [h.tokens for h in single]


@pytest.mark.parametrize("kv_heads", [None, 1])
@pytest.mark.parametrize("norm", ["pre", "post"])
def test_steps_equal_one_forward(kv_heads, norm):
    model, (source, lengths) = tiny(2, kv_heads=kv_heads, norm=norm), ragged(5)
    target = torch.randint(3, 11, (5, 7))
    target[:, 0] = model.config.bos
    full = model(source, target, lengths)
    first, state = model.start(source, lengths, capacity=7)
    assert first.flatten().tolist() == [model.config.bos] * 5
    for t in range(7):
        logits, state = model.step(target[:, t : t + 1], state)
        torch.testing.assert_close(logits[:, 0], full[:, t], rtol=1e-9, atol=1e-9)


def test_prefix_is_forced_and_scored():
    model, (source, lengths) = tiny(4), ragged(3)
    prefix = [[5, 6], [], [7]]
    for found in (
        beam_search(model, source, lengths, beam_size=3, max_length=9, prefix=prefix),
        [[h] for h in greedy_search(model, source, lengths, max_length=9, prefix=prefix)],
        sample(model, source, lengths, max_length=9, prefix=prefix),
    ):
        for row, words in enumerate(prefix):
            assert found[row][0].tokens[: len(words)] == words
    forced = greedy_search(model, source[:1, : lengths[0]], max_length=2, prefix=[[5, 6]])[0]
    expected = log_probs(model, source[0, : lengths[0]], [])[5] + log_probs(model, source[0, : lengths[0]], [5])[6]
    assert math.isclose(forced.log_probability, expected, rel_tol=1e-5)
    free = greedy_search(model, source, lengths, max_length=9)
    assert greedy_search(model, source, lengths, max_length=9, prefix=[[], [], []]) == free


def test_sampling_follows_the_model():
    model, (source, lengths) = tiny(6), ragged(1)
    drawn = sample(model, source, lengths, num_samples=4000, max_length=1, seed=3)[0]
    expected = torch.tensor(log_probs(model, source[0], [])).exp()
    words = torch.tensor([h.tokens[0] if h.tokens else EOS for h in drawn])
    seen = torch.bincount(words, minlength=11) / 4000
    assert (seen - expected).abs().max() < 0.03
    assert sample(model, source, lengths, num_samples=5, max_length=6, seed=3) == sample(model, source, lengths, num_samples=5, max_length=6, seed=3)  # fmt: skip  # noqa: E501


def test_top_k_of_one_is_greedy():
    model, (source, lengths) = tiny(6), ragged(4)
    drawn = sample(model, source, lengths, top_k=1, max_length=8)
    assert [h[0].tokens for h in drawn] == [h.tokens for h in greedy_search(model, source, lengths, max_length=8)]
    tiny_p = sample(model, source, lengths, top_p=1e-6, max_length=8)
    assert [h[0].tokens for h in tiny_p] == [h[0].tokens for h in drawn]


def test_banned_tokens_never_appear():
    model, (source, lengths) = tiny(7), ragged(4)
    found = beam_search(model, source, lengths, beam_size=3, num_candidates=3, max_length=8, banned_tokens=[5, 6, 7])
    assert not {5, 6, 7} & {word for hypotheses in found for h in hypotheses for word in h.tokens}


def test_beam_larger_than_vocabulary():
    model, (source, lengths) = tiny(8, vocab=5), (torch.tensor([[3, 4]]), torch.tensor([2]))
    found = beam_search(model, source, lengths, beam_size=8, num_candidates=8, max_length=3)
    assert found[0] == sorted(found[0], key=lambda h: (-h.finished, -h.score))
    assert len({tuple(h.tokens) for h in found[0]}) == len(found[0])


def test_beams_larger_than_the_vocabulary_of_several_inputs_are_those_of_each_alone():
    model, (source, lengths) = tiny(8, vocab=5), (torch.tensor([[3, 4, 3], [4, 3, 0], [4, 0, 0]]), [3, 2, 1])
    found = beam_search(model, source, torch.tensor(lengths), beam_size=8, num_candidates=8, max_length=3)
    for row, size, own in zip(source, lengths, found, strict=True):
        (alone,) = beam_search(
            model, row[None, :size], torch.tensor([size]), beam_size=8, num_candidates=8, max_length=3
        )
        assert [h.tokens for h in own] == [h.tokens for h in alone]
        assert [h.score for h in own] == pytest.approx([h.score for h in alone], abs=1e-5)


def test_empty_batch_returns_empty_list():
    model = tiny(0)
    nothing = torch.zeros(0, 3, dtype=torch.long), torch.zeros(0, dtype=torch.long)
    assert greedy_search(model, *nothing, max_length=4) == []
    assert beam_search(model, *nothing, max_length=4) == []


def test_invalid_input_is_refused():
    model, (source, lengths) = tiny(0), ragged(2)
    with pytest.raises(RegardError, match="groups must divide"):
        beam_search(model, source, lengths, beam_size=4, groups=3, max_length=4)
    with pytest.raises(RegardError, match="temperature"):
        sample(model, source, lengths, temperature=0, max_length=4)
    with pytest.raises(RegardError, match="at least 1"):
        greedy_search(model, source, lengths, max_length=0)
    with pytest.raises(RegardError, match="2 inputs"):
        greedy_search(model, source, lengths, max_length=4, prefix=[[1]])


def test_equal_hypotheses_compare_equal():
    assert Hypothesis([1], -0.5, -1.0, True) == Hypothesis([1], -0.5, -1.0, True)


def test_the_score_of_a_greedy_output_is_per_token_with_its_end_if_it_has_one():
    model, (source, lengths) = tiny(0), ragged(6, seed=0)
    whole = greedy_search(model, source, lengths, max_length=12)
    ended = next(n for n, h in enumerate(whole) if h.finished and h.tokens)
    own = {"max_length": len(whole[ended].tokens)}  # one less than it needs
    cut = greedy_search(model, source[[ended], : lengths[ended]], lengths[[ended]], **own)[0]
    assert whole[ended].score == pytest.approx(whole[ended].log_probability / (len(whole[ended].tokens) + 1))
    assert cut.tokens == whole[ended].tokens
    assert not cut.finished
    assert cut.score == pytest.approx(cut.log_probability / len(cut.tokens))
    assert cut.log_probability > whole[ended].log_probability  # without the end's own


def test_a_forced_prefix_as_long_as_the_limit_is_kept():
    model, (source, lengths) = tiny(0), ragged(1)
    assert greedy_search(model, source, lengths, max_length=3, prefix=[[4, 5, 6]])[0].tokens == [4, 5, 6]
    with pytest.raises(RegardError, match="max_length is 3"):
        greedy_search(model, source, lengths, max_length=3, prefix=[[4, 5, 6, 7]])

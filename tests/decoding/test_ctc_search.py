import math

import pytest
import torch

from regard.core.errors import BadInput
from regard.decoding.ctc_search import ctc_beam_search, ctc_greedy_search, language_model_scorer
from regard.losses.ctc import ctc_loss
from tests.losses.test_ctc import enumerated

EVERY = 10_000  # beams: as many as there are texts


def frames(t, v, seed=0):
    return (
        torch.randn(t, v, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)).mul(1.5).log_softmax(-1)
    )


@pytest.mark.parametrize("seed", range(4))
def test_wide_beam_finds_every_text_with_its_probability(seed):
    logp = frames(5, 3, seed)
    ways = enumerated(logp, 2)
    expected = {text: float(torch.stack([s for s, _ in some]).logsumexp(0)) for text, some in ways.items()}
    found = {
        one.labels: one.score for one in ctc_beam_search(logp, 2, EVERY, num_candidates=EVERY, min_log_prob=-math.inf)
    }
    assert found.keys() == expected.keys()
    assert all(found[text] == pytest.approx(expected[text], abs=1e-9) for text in expected)
    assert ctc_beam_search(logp, 2, EVERY)[0].labels == max(expected, key=expected.get)


def test_the_most_likely_text_is_not_always_the_most_likely_alignment():
    logp = torch.tensor([[0.4, 0.6], [0.4, 0.6]]).log()  # blank blank is the likeliest way; "a" has three
    assert ctc_greedy_search(logp[None], torch.tensor([2]), 1)[0].labels == ()
    assert ctc_beam_search(logp, 1, 4)[0].labels == (0,)
    assert math.exp(ctc_beam_search(logp, 1, 4)[0].score) == pytest.approx(0.64)


def test_blank_may_have_any_id():
    logp = frames(5, 4, 7)
    for blank in (0, 2):
        found = {
            one.labels: one.score
            for one in ctc_beam_search(logp, blank, EVERY, num_candidates=40, min_log_prob=-math.inf)
        }
        for text, score in found.items():
            target = torch.tensor([text], dtype=torch.long).reshape(1, -1)
            loss = ctc_loss(logp[None], target, torch.tensor([5]), torch.tensor([len(text)]), blank)
            assert float(loss) == pytest.approx(-score, abs=1e-9)


def test_greedy_ignores_padding_frames():
    ways = [[1, 1, 2, 0, 0, 2, 0], [0, 2, 2, 1, 9, 9, 9]]
    logp = torch.full((2, 7, 3), -5.0)
    for row, way in enumerate(ways):
        for t, k in enumerate(way):
            logp[row, t, k % 3] = -0.1
    found = ctc_greedy_search(logp, torch.tensor([7, 4]), 2)
    assert [one.labels for one in found] == [(1, 0, 0), (0, 1)]
    assert found[1].score == pytest.approx(-0.4)


def test_language_model_scores_growing_prefixes():
    logp = frames(5, 3, 11)
    table = {(): (0.7, 0.2, 0.1), (0,): (0.1, 0.8, 0.1), (1,): (0.5, 0.1, 0.4)}
    judge = lambda prefix: [math.log(p) for p in table.get(prefix[-1:], (1 / 3,) * 3)]  # noqa: E731
    plain = {
        one.labels: one.score for one in ctc_beam_search(logp, 2, EVERY, num_candidates=EVERY, min_log_prob=-math.inf)
    }
    for weight, bonus in ((0.5, 0.0), (1.0, 0.7)):
        found = ctc_beam_search(
            logp,
            2,
            EVERY,
            num_candidates=EVERY,
            scorer=judge,
            lm_weight=weight,
            insertion_bonus=bonus,
            eos=2,
            min_log_prob=-math.inf,
        )
        for one in found:
            words = sum(judge(one.labels[:i])[k] for i, k in enumerate(one.labels)) + judge(one.labels)[2]
            assert one.score == pytest.approx(plain[one.labels] + weight * words + bonus * len(one.labels))


def test_a_language_model_can_change_the_transcript():
    logp = torch.tensor([[0.50, 0.45, 0.05], [0.02, 0.03, 0.95]]).log()
    assert ctc_beam_search(logp, 2)[0].labels == (0,)
    assert ctc_beam_search(logp, 2, scorer=lambda prefix: [-5.0, -0.1, -3.0], lm_weight=1.0)[0].labels == (1,)


def test_language_model_scorer_equals_the_model():
    import regard

    model = regard.build("gpt", vocab=9, width=8, heads=2, layers=1, length=8, ffn=16).eval()
    expected = model(torch.tensor([[1, 4, 5]]))[0, -1].log_softmax(-1).tolist()
    assert language_model_scorer(model, bos=1)((4, 5)) == pytest.approx(expected, abs=1e-5)


def test_no_frames_give_the_empty_text():
    assert ctc_beam_search(torch.zeros(0, 3), 2)[0].labels == ()
    assert ctc_greedy_search(torch.zeros(1, 0, 3), torch.tensor([0]), 2)[0].labels == ()


def test_more_texts_than_beams_are_refused():
    with pytest.raises(BadInput, match=r"num_candidates must be 1 to beam_size \(2\), got 3"):
        ctc_beam_search(frames(3, 3), 2, beam_size=2, num_candidates=3)

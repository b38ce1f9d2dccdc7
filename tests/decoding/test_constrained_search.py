import pytest
import torch

from regard.core.errors import RegardError
from regard.decoding.beam_search import beam_search
from regard.decoding.constrained_search import ConstraintProgress, constrained_beam_search
from tests.decoding.test_beam_search import EOS, ragged, tiny


def holds(tokens, phrase):
    return any(tokens[i : i + len(phrase)] == list(phrase) for i in range(len(tokens)))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("beams", [1, 3, 5])
def test_constrained_search_without_phrases_equals_beam_search(seed, beams):
    model, (source, lengths) = tiny(seed), ragged(5, seed=seed)
    free = beam_search(model, source, lengths, beam_size=beams, num_candidates=beams, max_length=lengths + 4)
    same = constrained_beam_search(
        model, source, lengths, phrases=[[]] * 5, beam_size=beams, num_candidates=beams, max_length=lengths + 4
    )
    assert [[h.tokens for h in one] for one in same] == [[h.tokens for h in one] for one in free]


def test_finished_outputs_contain_every_phrase():
    model, (source, lengths) = tiny(1), ragged(5)
    phrases = [[[5, 6]], [[7], [3, 4, 5]], [], [[9, 9]], [[8]]]
    found = constrained_beam_search(
        model, source, lengths, phrases=phrases, beam_size=8, num_candidates=4, max_length=16
    )
    for params, hypotheses in zip(phrases, found, strict=True):
        assert any(h.finished for h in hypotheses)
        for h in hypotheses:
            if h.finished:
                assert all(holds(h.tokens, phrase) for phrase in params)


def test_batched_search_equals_single_searches():
    model, (source, lengths) = tiny(2), ragged(6)
    phrases = [[[5, 6]], [], [[7], [3]], [[4]], [], [[10, 3]]]
    batch = constrained_beam_search(model, source, lengths, phrases=phrases, beam_size=4, max_length=lengths + 8)
    for row, length in enumerate(lengths.tolist()):
        (single,) = constrained_beam_search(
            model, source[row : row + 1, :length], lengths[row : row + 1], phrases=[phrases[row]], beam_size=4,
            max_length=length + 8,
        )  # fmt: skip
        assert [h.tokens for h in batch[row]] == [h.tokens for h in single]


def test_interrupted_phrase_starts_again():
    phrases = [[5, 6, 7], [8]]
    progress = ConstraintProgress()
    for word, count in [(5, 1), (6, 2), (9, 0), (5, 1), (6, 2), (7, 3), (8, 4)]:
        progress = progress.after(word, phrases)
        assert progress.count(phrases) == count
    assert progress.met == {0, 1}
    assert ConstraintProgress(frozenset(), 0, 1).after(8, phrases).met == {1}


def test_scores_equal_model_log_probabilities():
    model, (source, lengths) = tiny(3), ragged(1)
    (found,) = constrained_beam_search(model, source, lengths, phrases=[[[5, 6]]], beam_size=6, max_length=12)
    tokens = found[0].tokens
    target = torch.tensor([[model.config.bos, *tokens]])
    with torch.no_grad():
        logs = model(source, target, lengths).log_softmax(-1)
    expected = sum(float(logs[0, t, w]) for t, w in enumerate([*tokens, model.config.eos]))
    assert abs(found[0].log_probability - expected) < 1e-5


def test_invalid_input_is_refused():
    model, (source, lengths) = tiny(0), ragged(1)
    with pytest.raises(RegardError, match="empty"):
        constrained_beam_search(model, source, lengths, phrases=[[[]]], max_length=5)
    with pytest.raises(RegardError, match="limit is 3"):
        constrained_beam_search(model, source, lengths, phrases=[[[4, 5, 6]]], max_length=3)
    with pytest.raises(RegardError, match="there are 1"):
        constrained_beam_search(model, source, lengths, phrases=[], max_length=3)


def table_model(next_log_probs):
    """A model of one input whose next token depends on the last one only; token 0 starts, EOS ends."""

    class Table:
        eos = EOS

        def start(self, inputs, capacity):
            return torch.zeros(len(inputs), 1, dtype=torch.long), None

        def step(self, tokens, state):
            return next_log_probs[tokens], state

        def select(self, state, rows, beams):
            return state

    return Table()


def test_at_the_limit_the_output_that_is_furthest_comes_unfinished_with_its_own_score():
    words = torch.full((6, 6), -9.0)
    words[:, 3], words[:, EOS] = 2.0, -4.0  # 3 again and again; 4 and 5 are required and unlikely
    table, model = words.log_softmax(-1), table_model(words)
    given = {"phrases": [[[4, 5]]], "max_length": 3, "beam_size": 2, "length_penalty": 0.5, "num_candidates": 2}
    (found,) = constrained_beam_search(model, torch.zeros(1, 1), **given)
    best = max(
        (float(table[0, a] + table[a, b] + table[b, EOS]), [a, b]) for a, b in [(4, 5)]
    )  # with both words and the end at the limit
    assert found[0].finished
    assert found[0].tokens == best[1]
    assert found[0].log_probability == pytest.approx(best[0])
    assert found[0].score == pytest.approx(best[0] / 3**0.5)
    rest = found[1]
    assert not rest.finished
    assert len(rest.tokens) == 3
    assert rest.tokens[-2:] == [4, 5]  # as far as the phrase goes, before what is likelier
    total = sum(float(table[a, b]) for a, b in zip([0, *rest.tokens], rest.tokens, strict=False))
    assert rest.log_probability == pytest.approx(total)
    assert rest.score == pytest.approx(total / 3**0.5)


@pytest.mark.parametrize("penalty", [0.0, 0.5, 1.0])
def test_scores_divide_by_the_length_with_its_end(penalty):
    model, (source, lengths) = tiny(3), ragged(2)
    found = constrained_beam_search(
        model, source, lengths, phrases=[[[5, 6], [7]], []], beam_size=4, num_candidates=4, max_length=4,
        length_penalty=penalty,
    )  # fmt: skip
    for h in (h for hypotheses in found for h in hypotheses):
        assert h.score == pytest.approx(h.log_probability / (len(h.tokens) + h.finished) ** penalty)
    assert {h.finished for hypotheses in found for h in hypotheses} == {True, False}
    for hypotheses in found:
        scores = [h.score for h in hypotheses if h.finished]
        assert scores == sorted(scores, reverse=True)


def test_phrases_that_fill_the_limit_with_their_end_are_searched():
    model, (source, lengths) = tiny(0), ragged(1)
    ((found,),) = constrained_beam_search(model, source, lengths, phrases=[[[4, 5, 6]]], max_length=4)
    assert (found.tokens, found.finished) == ([4, 5, 6], True)

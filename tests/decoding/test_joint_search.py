"""CTC's prefix scores against the enumeration of all alignments, and joint search against every output written out."""

import itertools
import math

import pytest
import torch

import regard
from regard.core.errors import BadInput
from regard.decoding.beam_search import beam_search, greedy_search
from regard.decoding.joint_search import CTCPrefixScorer, JointDecodable
from tests.losses.test_ctc import enumerated

EOS, LABELS = 2, 4  # labels 0 .. 3, of which 2 ends an output and is no label of CTC


def frames(t, seed=0):
    logp = torch.randn(t, LABELS + 1, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)).mul(1.5)
    logp[:, EOS] = -1e4
    return logp.log_softmax(-1)


def texts_of(logp):
    return {
        text: float(torch.stack([s for s, _ in ways]).logsumexp(0)) for text, ways in enumerated(logp, LABELS).items()
    }


@pytest.mark.parametrize("seed", range(3))
def test_prefix_scores_are_sums_over_all_texts_that_begin_so(seed):
    logp = frames(5, seed)
    texts = texts_of(logp)
    scorer = CTCPrefixScorer(logp[None], torch.tensor([5]))
    for prefix in [(), (0,), (0, 0), (1, 3), (0, 1, 0), (3, 3, 3)]:
        state = scorer.start()
        for label in prefix:
            scores = scorer.scores(state, EOS)
            state = scorer.extend(state, torch.tensor([[label]]), scores[:, :, label])
        scores = scorer.scores(state, EOS)[0, 0]
        for label in (0, 1, 3):
            grown = (*prefix, label)
            expected = sum(math.exp(p) for text, p in texts.items() if text[: len(grown)] == grown)
            assert float(scores[label].exp()) == pytest.approx(expected, rel=1e-9, abs=1e-12)
        assert float(scores[EOS]) == pytest.approx(texts.get(prefix, -torch.inf), rel=1e-9)


def test_padding_has_no_influence_on_prefix_scores():
    logp, noise = frames(6, 5), frames(3, 9)
    alone = CTCPrefixScorer(logp[None, :4], torch.tensor([4]))
    padded = CTCPrefixScorer(
        torch.stack([torch.cat([logp[:4], noise]), torch.cat([logp, noise[:1]])]), torch.tensor([4, 6])
    )
    states = alone.start(), padded.start()
    for label in (1, 1, 0):
        found = [scorer.scores(state, EOS) for scorer, state in zip((alone, padded), states, strict=True)]
        torch.testing.assert_close(found[1][:1], found[0], rtol=1e-9, atol=1e-9)
        states = tuple(
            scorer.extend(state, torch.full((len(score), 1), label), score[:, :, label])
            for scorer, state, score in zip((alone, padded), states, found, strict=True)
        )


def model(**settings):
    torch.manual_seed(3)
    sizes = {"input_dim": 5, "channels": 4, "width": 8, "heads": 2, "layers": 1, "kernel": 3, "decoder_layers": 1}
    made = regard.build("hybrid_asr", vocab=LABELS, decoder_heads=2, decoder_ffn=12, **sizes | settings)
    made = made.double().eval()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    return made


FRAMES = torch.randn(2, 20, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
LENGTHS = torch.tensor([20, 13])


def every_output(hybrid, frames, weight, longest):
    """The joint score of every output that ends within so many tokens, each by itself."""
    memory, _ = hybrid.encode(frames)
    logp = hybrid.ctc_logits(memory)[0].log_softmax(-1)
    texts = texts_of(logp)
    found = {}
    for size in range(longest):
        for tokens in itertools.product([1, 3], repeat=size):
            target = torch.tensor([[hybrid.config.bos, *tokens]])
            scores = hybrid(frames, target)[0].log_softmax(-1)
            attention = sum(float(scores[t, token]) for t, token in enumerate([*tokens, EOS]))
            found[tokens] = (1 - weight) * attention + weight * texts.get(tokens, -torch.inf)
    return found


@pytest.mark.parametrize("weight", [0.3, 1.0])
def test_a_wide_joint_beam_finds_the_best_output_with_its_score(weight):
    hybrid = model()
    joint = JointDecodable(hybrid, weight)
    with torch.no_grad():
        for row, length in enumerate(LENGTHS.tolist()):
            given = FRAMES[row : row + 1, :length]
            expected = every_output(hybrid, given, weight, 4)
            (found,) = beam_search(
                joint, given, torch.tensor([length]), max_length=4, beam_size=40, length_penalty=0.0,
                banned_tokens=(0,), num_candidates=5,
            )  # fmt: skip
            ended = [one for one in found if one.finished]
            best = max(expected, key=expected.get)
            assert tuple(ended[0].tokens) == best
            for one in ended:
                assert one.log_probability == pytest.approx(expected[tuple(one.tokens)], abs=1e-4)


def test_without_ctc_joint_search_is_that_of_the_decoder():
    hybrid = model()
    joint, options = JointDecodable(hybrid, 0.0), {"max_length": 5, "banned_tokens": (0,)}
    with torch.no_grad():
        for beams in (1, 3):
            search = greedy_search if beams == 1 else beam_search
            more = {} if beams == 1 else {"beam_size": beams}
            given = (
                search(hybrid, FRAMES, LENGTHS, **options, **more),
                search(joint, FRAMES, LENGTHS, **options, **more),
            )
            plain, both = ([one if beams == 1 else one[0] for one in side] for side in given)
            assert [one.tokens for one in plain] == [one.tokens for one in both]


def test_joint_search_of_a_batch_is_that_of_each_recording():
    joint = JointDecodable(model(), 0.4)
    with torch.no_grad():
        together = beam_search(joint, FRAMES, LENGTHS, max_length=LENGTHS // 4 + 2, beam_size=3, banned_tokens=(0,))
        for row, length in enumerate(LENGTHS.tolist()):
            (alone,) = beam_search(
                joint, FRAMES[row : row + 1, :length], LENGTHS[row : row + 1], max_length=length // 4 + 2, beam_size=3,
                banned_tokens=(0,),
            )  # fmt: skip
            assert alone[0].tokens == together[row][0].tokens
            assert alone[0].score == pytest.approx(together[row][0].score, abs=1e-5)


def test_an_impossible_weight_is_refused():
    with pytest.raises(BadInput, match=r"ctc_weight must be 0 to 1, got 1\.5"):
        JointDecodable(model(), 1.5)

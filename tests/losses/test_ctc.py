import itertools

import pytest
import torch
import torch.nn.functional as F

from regard.core.errors import BadInput
from regard.losses.ctc import (
    check_frame_lengths,
    ctc_loss,
    ctc_training_loss,
    forced_align,
    required_frames,
    state_posteriors,
)


def collapsed(way, blank):
    """The text of an alignment: repeats are merged, blanks dropped."""
    return tuple(k for k, _ in itertools.groupby(way) if k != blank)


def enumerated(logp, blank):
    """Every text of T frames with the log-probabilities of all its alignments, by brute force."""
    texts = {}
    for way in itertools.product(range(logp.shape[1]), repeat=len(logp)):
        score = sum(logp[t, k] for t, k in enumerate(way)) if way else logp.new_zeros(())
        texts.setdefault(collapsed(way, blank), []).append((score, way))
    return texts


def some(batch, frames, size, vocab, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(batch, frames, vocab, dtype=dtype, generator=generator)
    targets = torch.randint(0, vocab - 1, (batch, size), generator=generator)
    frame_lengths = torch.randint(frames // 2, frames + 1, (batch,), generator=generator)
    target_lengths = torch.randint(0, size + 1, (batch,), generator=generator)
    return logits, targets, frame_lengths, target_lengths, vocab - 1


def graded(loss, logits, weights):
    """Losses and the gradient of their weighted sum, without infinite ones."""
    x = logits.clone().requires_grad_()
    losses = loss(x.log_softmax(-1))
    (gradient,) = torch.autograd.grad((losses.where(losses.isfinite(), 0.0) * weights).sum(), x)
    return losses.detach(), gradient


@pytest.mark.parametrize("shape", [(5, 13, 5, 6), (7, 9, 4, 2), (3, 6, 1, 4), (4, 31, 11, 3), (2, 5, 0, 3)], ids=str)
def test_loss_and_gradient_equal_torch(shape):
    logits, targets, frames, sizes, blank = some(*shape)
    weights = torch.arange(1.0, len(logits) + 1, dtype=torch.float64)
    frames = torch.maximum(frames, required_frames(targets, sizes)).clamp(max=logits.shape[1])
    actual = graded(lambda logp: ctc_loss(logp, targets, frames, sizes, blank), logits, weights)

    def reference(logp):
        return F.ctc_loss(
            logp.transpose(0, 1), targets, frames, sizes, blank=blank, reduction="none", zero_infinity=True
        )

    expected, gradient = graded(reference, logits, weights)
    finite = actual[0].isfinite()
    torch.testing.assert_close(actual[0][finite], expected[finite], rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(actual[1], gradient, rtol=1e-9, atol=1e-10)
    assert finite.any()


@pytest.mark.parametrize("target", [(), (0,), (0, 1), (0, 0), (1, 0, 1), (1, 1, 0)], ids=str)
def test_probability_is_the_sum_over_alignments(target):
    logp = torch.randn(5, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1)).log_softmax(-1)
    ways = enumerated(logp, 2)
    expected = torch.stack([score for score, _ in ways[target]]).logsumexp(0)
    requested = (
        torch.tensor([target], dtype=torch.long).reshape(1, -1),
        torch.tensor([5]),
        torch.tensor([len(target)]),
        2,
    )
    torch.testing.assert_close(-ctc_loss(logp[None], *requested)[0], expected)
    path, score = forced_align(logp[None], *requested)
    best, way = max(ways[target], key=lambda one: float(one[0]))
    torch.testing.assert_close(score[0], best)
    labels = [2 if s % 2 == 0 else target[s // 2] for s in path[0].tolist()]
    assert labels == list(way)
    share, _ = state_posteriors(logp[None], *requested)
    torch.testing.assert_close(share.sum(-1), torch.ones(1, 5, dtype=torch.float64))


def test_posteriors_equal_a_sum_over_all_alignments():
    target, blank = (0, 1, 1), 2
    logp = torch.randn(6, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(2)).log_softmax(-1)
    ways = enumerated(logp, blank)[target]
    total = torch.stack([score for score, _ in ways]).logsumexp(0)
    expected = torch.zeros(6, 3, dtype=torch.float64)  # by label: a way says which, not which state
    for score, way in ways:
        for t, k in enumerate(way):
            expected[t, k] += (score - total).exp()
    x = logp.clone().requires_grad_()
    ctc_loss(x[None], torch.tensor([target]), torch.tensor([6]), torch.tensor([3]), blank).sum().backward()
    torch.testing.assert_close(-x.grad, expected)


def test_all_probabilities_of_a_length_sum_to_one():
    logp = torch.randn(4, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(3)).log_softmax(-1)
    texts = [t for n in range(5) for t in itertools.product(range(2), repeat=n)]
    targets = torch.zeros(len(texts), 4, dtype=torch.long)
    for row, text in zip(targets, texts, strict=True):
        row[: len(text)] = torch.tensor(text)
    sizes = torch.tensor([len(t) for t in texts])
    losses = ctc_loss(logp.expand(len(texts), -1, -1), targets, torch.full_like(sizes, 4), sizes, 2)
    torch.testing.assert_close((-losses).exp().sum(), torch.ones((), dtype=torch.float64))


def test_too_few_frames_are_infinite_and_never_nan():
    logits = torch.randn(4, 3, 4, dtype=torch.float64)
    targets = torch.tensor([[0, 0, 1], [0, 1, 2], [0, 1, 1], [2, 2, 2]])
    frames, sizes = torch.tensor([3, 3, 3, 0]), torch.tensor([3, 3, 2, 3])
    losses, gradient = graded(lambda logp: ctc_loss(logp, targets, frames, sizes, 3), logits, torch.ones(4).double())
    assert losses.isinf().tolist() == [True, False, False, True]
    assert gradient.isfinite().all()
    assert gradient[0].abs().max() == gradient[3].abs().max() == 0
    assert gradient[1].abs().max() > 0
    assert required_frames(targets, sizes).tolist() == [4, 3, 2, 5]
    path, score = forced_align(logits.log_softmax(-1), targets, frames, sizes, 3)
    assert (path[0] == -1).all()
    assert score[0] == float("-inf")
    with pytest.raises(BadInput, match=r"recording 0 has 3 frames for 3 labels, 1 of which repeat .* CTC needs 4"):
        check_frame_lengths(targets, frames, sizes)
    check_frame_lengths(targets[1:3], frames[1:3], sizes[1:3])


def test_frames_are_needed_for_repetitions_of_neighbours_alone():
    targets = torch.tensor([[0, 1, 1, 1], [0, 1, 0, 1], [0, 0, 1, 0], [0, 1, 1, 1]])
    assert required_frames(targets, torch.tensor([4, 4, 4, 2])).tolist() == [6, 4, 5, 2]


def test_gradient_of_infinite_loss_is_zero():
    x = torch.randn(1, 2, 3, requires_grad=True)
    losses = ctc_loss(x.log_softmax(-1), torch.tensor([[0, 0]]), torch.tensor([2]), torch.tensor([2]), 2)
    losses.sum().backward()
    assert x.grad.abs().max() == 0


def test_no_frames_emit_the_empty_target_with_probability_one():
    logp = torch.zeros(2, 0, 3)
    losses = ctc_loss(logp, torch.tensor([[0], [0]]), torch.tensor([0, 0]), torch.tensor([0, 1]), 2)
    assert losses.tolist() == [0.0, float("inf")]
    assert forced_align(logp, torch.tensor([[0], [0]]), torch.tensor([0, 0]), torch.tensor([0, 1]), 2)[0].shape == (
        2,
        0,
    )


def test_padding_of_frames_and_targets_changes_nothing():
    logits, targets, frames, sizes, blank = some(4, 12, 4, 5, seed=5)
    frames = torch.maximum(frames, required_frames(targets, sizes))
    logp = logits.log_softmax(-1)
    losses = ctc_loss(logp, targets, frames, sizes, blank)
    path, _ = forced_align(logp, targets, frames, sizes, blank)
    for row in range(4):
        t, s = int(frames[row]), int(sizes[row])
        alone = logp[row : row + 1, :t], targets[row : row + 1, :s], frames[row : row + 1], sizes[row : row + 1], blank
        torch.testing.assert_close(ctc_loss(*alone)[0], losses[row])
        assert forced_align(*alone)[0][0].tolist() == path[row, :t].tolist()
        assert (path[row, t:] == -1).all()


def test_five_thousand_frames_stay_finite():
    logp = torch.randn(1, 5000, 4).log_softmax(-1)
    losses = ctc_loss(logp, torch.tensor([[0, 1, 1, 2]]), torch.tensor([5000]), torch.tensor([4]), 3)
    expected = F.ctc_loss(logp.transpose(0, 1), torch.tensor([[0, 1, 1, 2]]), (5000,), (4,), blank=3, reduction="none")
    torch.testing.assert_close(losses, expected, rtol=1e-4, atol=0.5)


def impossible_and_possible():
    logits, targets, frames, sizes, blank = some(6, 12, 5, 4)
    frames[0], sizes[0] = 2, 5  # too few
    return logits, targets, frames, sizes, blank


def test_training_loss_leaves_out_targets_that_do_not_fit():
    logits, targets, frames, sizes, blank = impossible_and_possible()
    losses, gradient = graded(lambda logp: ctc_training_loss(logp, targets, frames, sizes, blank), logits, 1.0)
    infinite = ctc_loss(logits.log_softmax(-1), targets, frames, sizes, blank).isinf()
    assert infinite[0]
    assert not losses[infinite].any()
    assert not gradient[infinite].any()
    assert losses[~infinite].all()


@pytest.mark.gpu
def test_training_loss_on_a_gpu_equals_torchs_on_a_cpu():
    logits, *rest, blank = impossible_and_possible()
    expected = graded(lambda logp: ctc_training_loss(logp, *rest, blank), logits, 1.0)
    rest = [x.cuda() for x in rest]
    actual = graded(lambda logp: ctc_training_loss(logp, *rest, blank), logits.cuda(), 1.0)
    for ours, theirs in zip(actual, expected, strict=True):
        torch.testing.assert_close(ours.cpu(), theirs, rtol=1e-9, atol=1e-10)

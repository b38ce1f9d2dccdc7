import pytest
import torch

import regard
from regard.attention.capture.watch import watch
from regard.decoding.beam_search import beam_search, greedy_search

FRAMES = torch.randn(3, 25, 5, generator=torch.Generator().manual_seed(0)).double()
LENGTHS = torch.tensor([25, 9, 14])
TARGET = torch.tensor([[1, 4, 5, 4], [1, 6, 5, 3], [1, 3, 3, 4]])
ALIGNERS = ["location(filters=3, radius=2)", "additive", "gmm(mixtures=2)"]


def built(aligner=ALIGNERS[0], **settings):
    torch.manual_seed(1)
    sizes = {"conv_width": 6, "width": 4, "hidden": 6, "layers": 1, "subsampling_layers": 1}
    return regard.build("attention_asr", vocab=8, input_dim=5, aligner=aligner, **sizes | settings).double().eval()


@pytest.mark.parametrize("aligner", ALIGNERS)
def test_steps_equal_one_forward(aligner):
    model = built(aligner)
    wanted = model(FRAMES, TARGET, LENGTHS)
    first, state = model.start(FRAMES, LENGTHS, capacity=4)
    assert first[:, 0].tolist() == [1, 1, 1]
    for t in range(4):
        logits, state = model.step(TARGET[:, t : t + 1], state)
        torch.testing.assert_close(logits[:, 0], wanted[:, t])


@pytest.mark.parametrize("aligner", ALIGNERS)
def test_batch_equals_singles(aligner):
    model = built(aligner)
    wanted = model(FRAMES, TARGET, LENGTHS)
    for row, many in enumerate(LENGTHS.tolist()):
        alone = model(FRAMES[row : row + 1, :many], TARGET[row : row + 1])
        torch.testing.assert_close(alone[0], wanted[row])


def test_all_searches_work_and_one_beam_is_greedy():
    model = built()
    one = greedy_search(model, FRAMES, LENGTHS, max_length=6)
    beams = beam_search(model, FRAMES, LENGTHS, max_length=6, beam_size=1)
    assert [h.tokens for h in one] == [h[0].tokens for h in beams]
    for row, many in enumerate(LENGTHS.tolist()):
        alone = beam_search(model, FRAMES[row : row + 1, :many], LENGTHS[row : row + 1], max_length=6, beam_size=3)
        whole = beam_search(model, FRAMES, LENGTHS, max_length=6, beam_size=3)
        assert alone[0][0].tokens == whole[row][0].tokens


def test_watch_captures_the_alignment():
    model = built()
    with watch(model) as seen:
        model(FRAMES, TARGET, LENGTHS)
    (trace,) = seen.traces("align")
    assert trace.weights.shape == (3, 1, 4, 13)
    torch.testing.assert_close(trace.weights.sum(-1), torch.ones(3, 1, 4, dtype=torch.float64))
    assert trace.weights[1, 0, :, 5:].abs().max() == 0  # nine frames leave five


def test_location_attention_depends_on_the_last_alignment():
    model = built()
    other = TARGET.clone()
    with torch.no_grad():
        before = model(FRAMES, TARGET, LENGTHS)
        model.decoder.aligner.location.weight.mul_(3.0)
        after = model(FRAMES, other, LENGTHS)
    torch.testing.assert_close(before[:, 0], after[:, 0])  # before the first step nothing was looked at
    assert (before[:, 1:] - after[:, 1:]).abs().max() > 1e-6

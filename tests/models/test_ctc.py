import pytest
import torch

import regard
from regard.core.errors import RegardError

FRAMES = torch.randn(3, 23, 5, generator=torch.Generator().manual_seed(0))
LENGTHS = torch.tensor([23, 9, 14])


def built(**settings):
    torch.manual_seed(1)
    made = regard.build("ctc", vocab=7, input_dim=5, width=6, hidden=4, layers=2, **settings)
    return made.double().eval()


@pytest.mark.parametrize("halvings", [0, 1, 2, 3])
def test_every_convolution_halves_the_frames_rounded_up(halvings):
    model = built(subsampling_layers=halvings)
    logits, lengths = model(FRAMES.double(), LENGTHS)
    wanted = [23, 9, 14]
    for _ in range(halvings):
        wanted = [-(-n // 2) for n in wanted]
    assert lengths.tolist() == wanted
    assert logits.shape == (3, max(wanted), 8)  # seven labels and the blank
    assert model.blank == 7


def test_stacked_frames_are_one_position_and_the_encoder_is_causal():
    model, x = built(frame_stack=4, subsampling_layers=0, encoder="lstm(directions=1)"), FRAMES.double()
    logits, lengths = model(x, LENGTHS)
    assert lengths.tolist() == [6, 3, 4]
    assert logits.shape == (3, 6, 8)
    for at in range(0, 23, 4):
        other = x.clone()
        other[:, at:] += 1
        changed = (model(other)[0] != model(x)[0]).any(-1).all(0).tolist()
        assert changed == [n >= at // 4 for n in range(6)]
    with pytest.raises(RegardError, match="stack must be at least 1, got 0"):
        built(frame_stack=0)


@pytest.mark.parametrize(
    "settings",
    [
        {"encoder": "lstm"},
        {"encoder": "gru"},
        {"encoder": "lstm(directions=1)"},
        {"frame_stack": 3, "subsampling_layers": 1},
    ],
    ids=lambda settings: " ".join(map(str, settings.values())),
)
def test_batch_equals_singles_and_padding_has_no_influence(settings):
    model = built(**settings)
    x = FRAMES.double()
    logits, lengths = model(x, LENGTHS)
    noisy = x + 100 * (torch.arange(23)[None, :, None] >= LENGTHS[:, None, None])
    torch.testing.assert_close(model(noisy, LENGTHS)[0][1, : lengths[1]], logits[1, : lengths[1]])
    for row, many in enumerate(LENGTHS.tolist()):
        alone, left = model(x[row : row + 1, :many])
        assert int(left) == int(lengths[row]) == alone.shape[1]
        torch.testing.assert_close(alone[0], logits[row, : lengths[row]])


def test_no_gradient_flows_from_padding():
    x = FRAMES.double().clone().requires_grad_()
    model = built()
    logits, lengths = model(x, LENGTHS)
    real = torch.arange(logits.shape[1]) < lengths[:, None]
    logits[real].sum().backward()
    padding = torch.arange(23) >= LENGTHS[:, None]
    assert x.grad[padding].abs().max() == 0
    assert x.grad[~padding].abs().max() > 0


def test_one_frame_and_no_frames_work():
    model = built()
    logits, lengths = model(FRAMES.double()[:, :1], torch.tensor([1, 1, 0]))
    assert lengths.tolist() == [1, 1, 0]
    assert logits.isfinite().all()


def test_outputs_depend_on_all_frames_in_both_directions():
    model = built(subsampling_layers=1)
    x = FRAMES.double()[:1]
    before = model(x)[0]
    first, last = x.clone(), x.clone()
    first[:, 0] += 1
    last[:, -1] += 1
    assert ((model(first)[0] - before).abs().amax((0, 2)) > 0).all()
    assert ((model(last)[0] - before).abs().amax((0, 2)) > 0).all()


def test_negative_subsampling_layers_raise():
    with pytest.raises(RegardError, match="subsampling_layers must be from 0 to 6, got -1"):
        built(subsampling_layers=-1)

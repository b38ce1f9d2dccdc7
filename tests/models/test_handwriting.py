"""Graves' network: steps equal one forward, padding changes nothing, the window only moves forward and can be seen."""

import pytest
import torch

from regard.attention.capture.watch import watch
from regard.core.errors import BadInput
from regard.models import build
from regard.models.handwriting import SIZES, Config, Handwriting, shift_right


def network(**settings):
    torch.manual_seed(0)
    chosen = {"vocab": 5, "hidden": 7, "mixtures": 3, "aligner": "gmm(mixtures=2, step=0.3)"} | settings
    made = build("handwriting", **chosen)
    with torch.no_grad():  # larger weights: more varied than a fresh model's
        for parameter in made.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return made.double().eval()


def lines(batch=3, points=9, letters=4):
    g = torch.Generator().manual_seed(3)
    drawn = torch.randn(batch, points, 3, generator=g, dtype=torch.float64)
    drawn[..., 2] = (drawn[..., 2] > 0).double()
    return drawn, torch.randint(0, 5, (batch, letters), generator=g), torch.tensor([4, 2, 1][:batch])


def same(a, b):
    for x, y in zip(a, b, strict=True):
        torch.testing.assert_close(x, y)


@pytest.mark.parametrize("vocab", [5, 0])
def test_steps_equal_one_forward(vocab):
    model = network(vocab=vocab)
    points, *text = lines()
    text = text if vocab else []
    whole, state = model(points, *text), model.start(points, *text)
    for t in range(points.shape[1]):
        found, state = model.step(points[:, t], state)
        same(found, [x[:, t] for x in whole])


@pytest.mark.parametrize("cut", [1, 4, 8])
def test_reading_can_resume_from_any_state(cut):
    model = network()
    points, *text = lines()
    whole = model(points, *text)
    first, state = model.read(points[:, :cut], model.start(points, *text))
    second, _ = model.read(points[:, cut:], state)
    same([torch.cat(pair, 1) for pair in zip(first, second, strict=True)], whole)


def test_batch_equals_singles_and_padding_of_the_text_has_no_influence():
    model = network()
    points, text, lengths = lines()
    whole = model(points, text, lengths)
    for row, n in enumerate(lengths.tolist()):
        same(model(points[row : row + 1], text[row : row + 1, :n]), [x[row : row + 1] for x in whole])


def test_select_rows_of_a_state():
    model = network()
    points, *text = lines()
    _, state = model.read(points[:, :5], model.start(points, *text))
    kept = torch.tensor([2, 0])
    found, _ = model.step(points[kept, 5], state.select_rows(kept))
    same(found, [x[kept] for x in model.step(points[:, 5], state)[0]])


def test_the_future_has_no_influence():
    model = network()
    points, *text = lines()
    other = points.clone()
    other[:, 6:] += 5
    same([x[:, :6] for x in model(other, *text)], [x[:, :6] for x in model(points, *text)])


def test_the_window_only_moves_forward():
    model = network()
    points, text, lengths = lines(points=30)
    state, before = model.start(points, text, lengths), torch.zeros(3, 1, 2, dtype=torch.float64)
    for t in range(30):
        _, state = model.step(100 * points[:, t], state)
        assert (state.window > before).all()
        before = state.window


def test_initial_speed_of_the_window_is_the_step_of_the_aligner():
    torch.manual_seed(0)
    model = build("handwriting", size="tiny").eval()
    points, text = torch.zeros(1, 50, 3), torch.zeros(1, 4, dtype=torch.long)
    _, state = model.read(points, model.start(points, text))
    assert float(state.window.detach().mean()) == pytest.approx(50 * 0.04, rel=0.1)


def test_the_window_can_be_watched():
    model = network()
    points, *text = lines()
    with watch(model) as seen:
        model(points, *text)
    weights = seen["first_layer.aligner"].weights  # B 1 T U
    assert weights.shape == (3, 1, 9, 4)
    state = model.start(points, *text)
    for t in range(9):
        _, state = model.step(points[:, t], state)
        torch.testing.assert_close(weights[:, 0, t], state.window_weights[:, 0])
    assert weights[2, 0, :, 1:].abs().max() == 0  # its text is one mark long


def test_gradients_are_finite_for_extreme_points():
    torch.manual_seed(0)
    model = Handwriting(Config(vocab=4, hidden=8, mixtures=3))
    points = torch.tensor([1.0, 1e4, -1e8, 1e18, 0.0])[None, :, None].expand(2, 5, 3) * torch.tensor([1.0, -1.0, 0.0])
    said = model(shift_right(points), torch.tensor([[0, 1, 3], [2, 3, 3]]), torch.tensor([3, 2]))
    loss = -said.log_prob(points[..., :2]).sum() - said.pen_log_prob(points[..., 2]).sum()
    loss.backward()
    assert torch.isfinite(loss)
    assert all(torch.isfinite(p.grad).all() for p in model.parameters())


def test_inputs_are_shifted_by_one_point():
    points = torch.arange(12.0).view(1, 4, 3)
    assert shift_right(points).tolist() == [[[0, 0, 1], [0, 1, 2], [3, 4, 5], [6, 7, 8]]]


def test_a_missing_text_raises_and_one_point_is_enough():
    model = network()
    with pytest.raises(BadInput, match="needs a text to write"):
        model(torch.zeros(1, 2, 3, dtype=torch.float64))
    found = model(torch.zeros(1, 1, 3, dtype=torch.float64), torch.tensor([[4]]), torch.tensor([1]))
    assert found.means.shape == (1, 1, 3, 2)
    with pytest.raises(BadInput, match="layers must be at least 1, got 0"):
        network(layers=0)


def test_number_of_parameters_of_the_papers_sizes():
    with torch.device("meta"):
        paper, free = (build("handwriting", size=size) for size in ("paper", "unconditional"))
    assert sum(p.numel() for p in free.parameters()) == pytest.approx(3.4e6, rel=0.02)  # as the paper says
    assert paper.head.params.out_features == 121  # 20 bells of 6 numbers, and the pen
    assert SIZES.keys() == {"paper", "unconditional", "tiny"}

"""Positions between the cells of a window: laws over their table, and what each claims."""

import math

import pytest
import torch

from regard.core.spec import build_part
from regard.positions import WINDOW_BIASES


def build(name, **settings):
    torch.manual_seed(3)
    return build_part(WINDOW_BIASES, name, "positions", heads=3, **settings)


@pytest.mark.parametrize("name", WINDOW_BIASES)
@pytest.mark.parametrize("window", [4, (3, 5), (1, 1)])
def test_bias_depends_only_on_relative_position_and_head(name, window):
    part = build(name, window=window)
    bias = part()
    rows, columns = part.window
    assert bias.shape == (3, rows * columns, rows * columns)
    seen = {}
    for n in range(rows * columns):
        for m in range(rows * columns):
            step = n // columns - m // columns, n % columns - m % columns
            assert torch.equal(seen.setdefault(step, bias[:, n, m]), bias[:, n, m])
    assert len(seen) == (2 * rows - 1) * (2 * columns - 1)
    if len(seen) > 1:
        assert torch.stack(list(seen.values())).std(0).min() > 0


@pytest.mark.parametrize("name", WINDOW_BIASES)
def test_every_parameter_learns_and_only_parameters_are_saved(name):
    part = build(name, window=(3, 4))
    part().square().sum().backward()
    assert all(p.grad.abs().max() > 0 for p in part.parameters())
    assert set(part.state_dict()) == {n for n, _ in part.named_parameters()}


@pytest.mark.parametrize("name", WINDOW_BIASES)
def test_compiles_to_one_graph(name, unchecked):
    part = build(name, window=3)
    torch.testing.assert_close(torch.compile(part, backend="aot_eager", fullgraph=True)(), part())


def test_continuous_bias_is_the_formula():
    part = build("continuous", window=(3, 6))
    bias = part()

    def measure(step, width):
        return math.copysign(math.log2(1 + 8 * abs(step) / (width - 1)) / 3, step) if step else 0.0

    for n, m in [(0, 17), (17, 0), (7, 3), (2, 12)]:
        at = torch.tensor([measure(n // 6 - m // 6, 3), measure(n % 6 - m % 6, 6)])
        expected = 16 * torch.sigmoid(part.down.weight @ torch.relu(part.up.weight @ at + part.up.bias))
        torch.testing.assert_close(bias[:, n, m], expected, rtol=1e-5, atol=1e-5)


def test_continuous_bias_lies_between_0_and_16_and_one_cell_has_one():
    part = build("continuous", window=5)
    with torch.no_grad():
        part.down.weight.mul_(1e3)
    assert part().min() >= 0
    assert part().max() <= 16
    assert torch.isfinite(build("continuous", window=1)()).all()


def test_a_relative_position_keeps_its_bias_in_a_larger_window():
    small = build("continuous", window=4)
    large = build("continuous", window=7, pretrained_window=4)
    large.load_state_dict(small.state_dict())
    cells = [7 * (n // 4) + n % 4 for n in range(16)]
    torch.testing.assert_close(large()[:, cells][:, :, cells], small(), rtol=1e-6, atol=1e-6)
    unmoved = build("continuous", window=7)
    unmoved.load_state_dict(small.state_dict())
    assert not torch.allclose(unmoved()[:, cells][:, :, cells], small())  # without `trained` steps are measured anew

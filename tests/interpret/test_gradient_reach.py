"""How far a gradient reaches, beside Jacobians written out; and its picture."""

import pytest
import torch

from regard import see
from regard.attention.mask import CausalMask
from regard.attention.multihead import MultiHeadAttention
from regard.blocks import RNN_ENCODERS
from regard.core.errors import BadInput
from regard.core.spec import build_part
from regard.interpret.gradient_reach import gradient_by_distance


def test_it_is_the_size_of_the_jacobian_at_every_distance():
    torch.manual_seed(0)
    reader = build_part(RNN_ENCODERS, "gru", "encoder", width=3, hidden=4, directions=1)
    found = gradient_by_distance(reader, 6, 3, inputs=2, seed=5)
    drawn = torch.randn(2, 6, 3, generator=torch.Generator().manual_seed(5))
    wanted = []
    for x in drawn:
        whole = torch.autograd.functional.jacobian(lambda x: reader(x[None])[0, -1], x)  # E N C
        wanted.append(whole.square().sum((0, 2)).sqrt().flip(0))
    torch.testing.assert_close(found, torch.stack(wanted).mean(0))


def test_of_a_linear_recurrence_it_is_known():
    def read(x):  # y_n = x_n + half of y_(n - 1)
        states = [x[:, 0]]
        for n in range(1, x.shape[1]):
            states.append(x[:, n] + 0.5 * states[-1])
        return torch.stack(states, 1)

    torch.testing.assert_close(
        gradient_by_distance(read, 8, 4), 2.0 * 0.5 ** torch.arange(8.0)
    )  # ‖I‖ of four features is two


def test_attention_reaches_everywhere_and_nothing_comes_from_the_future():
    torch.manual_seed(1)
    mix = MultiHeadAttention(8, heads=2)
    found = gradient_by_distance(lambda x: mix(x, mask=CausalMask()), 40, 8)
    assert found.min() > found.max() / 100
    first = gradient_by_distance(
        lambda x: mix(x, mask=CausalMask())[:, :1], 5, 8
    )  # the first place knows of none but itself
    assert first[-1] > 0
    assert first[:-1].abs().max() == 0


def test_parameters_get_no_gradient_and_bad_sizes_are_refused():
    reader = build_part(RNN_ENCODERS, "rnn", "encoder", width=3, hidden=4, directions=1)
    with torch.no_grad():
        gradient_by_distance(reader, 4, 3)
    assert all(p.grad is None for p in reader.parameters())
    with pytest.raises(BadInput, match="at least 1"):
        gradient_by_distance(reader, 0, 3)


def test_pictures(tmp_path):
    see.gradient_by_distance({"rnn": [1.0, 0.5, 0.0], "attention": torch.ones(3)}, tmp_path / "a.svg")
    assert "attention" in (tmp_path / "a.svg").read_text("utf-8")
    with pytest.raises(BadInput, match="Nothing to draw"):
        see.gradient_by_distance({"rnn": [0.0]})
    see.positional_encoding(torch.randn(5, 4), tmp_path / "b.svg", "mine")
    assert "mine" in (tmp_path / "b.svg").read_text("utf-8")
    for wrong in (torch.zeros(3), torch.zeros(0, 2), torch.full((2, 2), float("nan"))):
        with pytest.raises(BadInput, match="positions, features"):
            see.positional_encoding(wrong)

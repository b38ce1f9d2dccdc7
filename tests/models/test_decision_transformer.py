"""Decision Transformer: who sees what, histories of any length, actions of every kind."""

import pytest
import torch

from regard.attention.capture.watch import watch
from regard.core.errors import BadInput
from regard.models import build

SMALL = {"state_dim": 3, "action_dim": 2, "width": 12, "heads": 3, "layers": 2, "length": 20}
KINDS = ("tanh", "linear", "discrete")


def small(kind="tanh", **settings):
    model = build("decision_transformer", **(SMALL | {"action_type": kind} | settings)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    return model


def history(kind="tanh", b=3, t=6):
    actions = torch.randint(2, (b, t)) if kind == "discrete" else torch.randn(b, t, 2)
    return [torch.randn(b, t), torch.randn(b, t, 3), actions, torch.arange(t).expand(b, t) + 4]


def test_the_papers_size_has_its_parameters():
    """Three tokens, one table, three blocks of 12 width² and the heads."""
    with torch.device("meta"):
        model = build("decision_transformer", size="hopper")
    w = 128
    inside = 3 * (12 * w * w + 13 * w)
    ends = (1 + 11 + 3 + 3) * w + 1000 * w + 2 * w + 2 * w + (w + 1) * (3 + 11 + 1)
    assert sum(p.numel() for p in model.parameters()) == inside + ends


@pytest.mark.parametrize("kind", KINDS)
def test_an_action_depends_only_on_its_state_and_the_past(double, kind):
    model, (returns, states, actions, times) = small(kind), history(kind)
    whole = model(returns, states, actions, times)
    other = [x.clone() for x in (returns, states, actions)]
    other[0][:, 4:] += 1
    other[1][:, 4:] += 1
    other[2][:, 3:] = 1 - other[2][:, 3:]  # its own action too
    changed = model(*other, times)
    torch.testing.assert_close(changed.actions[:, :4], whole.actions[:, :4], rtol=1e-10, atol=1e-10)
    assert not torch.allclose(changed.actions[:, 4:], whole.actions[:, 4:])
    assert not torch.allclose(changed.states[:, 3], whole.states[:, 3])  # what an action leads to depends on it
    wanted = model(returns + 1, states, actions, times)
    assert not torch.allclose(wanted.actions[:, 0], whole.actions[:, 0])


@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_of_short_episodes_equals_singles(double, kind):
    model, moves, lengths = small(kind), history(kind), torch.tensor([6, 1, 4])
    whole = model(*moves, lengths)
    for row, n in enumerate(lengths.tolist()):
        single = model(*(x[row : row + 1, :n] for x in moves))
        for a, b in zip(whole, single, strict=True):
            torch.testing.assert_close(a[row : row + 1, :n], b, rtol=1e-9, atol=1e-9)


def test_predicted_actions_have_the_declared_type():
    bounded = small("tanh")(*history("tanh")).actions
    assert bounded.abs().max() <= 1
    assert small("linear")(*history("linear")).actions.abs().max() > 1
    assert small("discrete")(*history("discrete")).actions.shape == (3, 6, 2)


@pytest.mark.parametrize("kind", KINDS)
def test_every_parameter_gets_a_gradient(kind):
    model = small(kind)
    sum(x.square().sum() for x in model(*history(kind))).backward()
    assert not [n for n, p in model.named_parameters() if p.grad is None or not p.grad.abs().sum() > 0]


def test_episodes_up_to_the_maximum_length_work_on_any_device():
    # where indices cannot be read (a GPU, tensors without numbers) the shape alone speaks: steps, not tokens
    asked = []
    model = build("decision_transformer", **SMALL)
    model.time.register_forward_pre_hook(lambda module, args: asked.append(args[1].shape[1]))
    steps = torch.arange(20).expand(2, 20)
    assert model(torch.zeros(2, 20), torch.zeros(2, 20, 3), torch.zeros(2, 20, 2), steps).actions.shape == (2, 20, 2)
    assert max(asked) == 20 == model.time.length


def test_a_timestep_beyond_the_maximum_raises():
    with pytest.raises(BadInput, match="20 were learned"):
        small()(*history()[:3], torch.arange(15, 21).expand(3, 6))


def test_watch_captures_attention_to_the_three_kinds_of_tokens(double):
    model = small()
    with watch(model) as seen:
        model(*history())
    assert [trace.weights.shape for trace in seen.values()] == [(3, 3, 18, 18)] * 2


@pytest.mark.long
def test_compiles_to_one_graph(python):
    """In a child process: dynamo cannot trace through the shape checks that tests switch on."""
    code = """
import torch
from regard.models import build
model = build("decision_transformer", size="tiny").eval()
moves = torch.randn(2, 5), torch.randn(2, 5, 3), torch.randn(2, 5, 1), torch.arange(5).expand(2, 5)
run = torch.compile(model, backend="aot_eager", fullgraph=True)
for a, b in zip(run(*moves), model(*moves), strict=True):
    torch.testing.assert_close(a, b)
"""
    python(code)

"""transformers' DecisionTransformerModel and ours, from the same weights: predictions, gradients, maps."""

import pytest
import torch

from regard.core.errors import Unsupported
from regard.models.decision_transformer import Config, DecisionTransformer
from regard.weights.hf import decision_transformer
from regard.weights.table import export_state_dict, import_state_dict

from .harness import gradients_equal, hf_peer, maps_equal, maps_of

transformers = pytest.importorskip("transformers")

STATES, ACTIONS, LENGTH = 5, 3, 30


def peer(**settings):
    """A small random one in float64, every tensor of it away from its initial value."""
    config = transformers.DecisionTransformerConfig(
        **{
            "state_dim": STATES,
            "act_dim": ACTIONS,
            "hidden_size": 12,
            "n_head": 3,
            "n_layer": 2,
            "max_ep_len": LENGTH,
            "resid_pdrop": 0.0,
            "embd_pdrop": 0.0,
            "attn_pdrop": 0.0,
        }
        | settings
    )
    return hf_peer(transformers.DecisionTransformerModel, config)


def pair(**settings):
    theirs = peer(**settings)
    ours = DecisionTransformer(decision_transformer.import_config(theirs.config.to_dict())).double().eval()
    import_state_dict(
        decision_transformer.table(ours.config), decision_transformer.normalize_keys(theirs.state_dict()), ours
    )
    return theirs, ours


def history(b=3, t=7):
    begin = torch.tensor([0, 11, LENGTH - t])[:b, None]
    moves = torch.randn(b, t), torch.randn(b, t, STATES), torch.randn(b, t, ACTIONS), begin + torch.arange(t)
    return tuple(x.double() if x.is_floating_point() else x for x in moves)


def asked(theirs, returns, states, actions, timesteps, mask=None):
    found = theirs(
        states=states, actions=actions, returns_to_go=returns[..., None], timesteps=timesteps, attention_mask=mask
    )
    return found.action_preds, found.state_preds, found.return_preds[..., 0]


SETTINGS = [{}, {"action_tanh": False}, {"n_inner": 20}, {"activation_function": "gelu_new"}]


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_actions_states_and_returns_equal_transformers(settings):
    theirs, ours = pair(**settings)
    moves = history()
    with torch.no_grad():
        for found, expected in zip(ours(*moves), asked(theirs, *moves), strict=True):
            torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)


def test_short_episodes_equal_left_padded_ones_of_transformers():
    theirs, ours = pair()
    moves, lengths = history(), torch.tensor([7, 4, 1])
    right = [x.clone() for x in moves]
    left = [torch.stack([row.roll(7 - n, 0) for row, n in zip(x, lengths.tolist(), strict=True)]) for x in moves]
    real = torch.arange(7) < lengths[:, None]
    mask = torch.arange(7) >= 7 - lengths[:, None]
    for x in right[:3]:
        x[~real] = 99.0
    for x in left[:3]:
        x[~mask] = -99.0
    with torch.no_grad():
        expected = asked(theirs, *left, mask.long())
        for found, there in zip(ours(*right, lengths), expected, strict=True):
            torch.testing.assert_close(found[real], there[mask], rtol=1e-10, atol=1e-10)
        for found, there in zip(ours(*right), expected, strict=True):  # nobody looks to the right anyway
            torch.testing.assert_close(found[real], there[mask], rtol=1e-10, atol=1e-10)


def test_gradients_of_all_parameters_equal_the_peers():
    theirs, ours = pair()
    moves = history()
    for answers in (ours(*moves), asked(theirs, *moves)):
        sum((n + 1) * x.square().sum() for n, x in enumerate(answers)).backward()
    compared = gradients_equal(
        theirs, decision_transformer.table(ours.config), ours, unused=("encoder.wte.weight", "encoder.wpe.weight")
    )
    assert compared == 2 * 12 + 2 + 1 + 3 * 2 + 2 + 3 * 2


def test_attention_maps_equal_the_peers():
    theirs, ours = pair()
    returns, states, actions, timesteps = history()
    with torch.no_grad():
        maps = theirs(
            states=states,
            actions=actions,
            returns_to_go=returns[..., None],
            timesteps=timesteps,
            output_attentions=True,
        ).attentions
    maps_equal(maps_of(maps, "decoder"), ours, returns, states, actions, timesteps)


def test_import_then_export_is_the_same_function_and_then_exact(tmp_path):
    theirs, ours = pair()
    ours = ours.float()
    decision_transformer.save(tmp_path / "there", ours)
    again = transformers.DecisionTransformerModel.from_pretrained(tmp_path / "there").double().eval()
    moves = history()
    with torch.no_grad():
        for found, expected in zip(asked(again, *moves), asked(theirs, *moves), strict=True):
            torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    back = decision_transformer.load(tmp_path / "there")
    assert back.config == ours.config
    for name, value in ours.state_dict().items():
        assert torch.equal(back.state_dict()[name], value), name
    state = again.float().state_dict()
    for name, value in export_state_dict(decision_transformer.table(back.config), back).items():
        assert torch.equal(state[name], value), name


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"model_type": "gpt2"}, "'gpt2'"),
        ({"layer_norm_epsilon": 1e-6}, "layer_norm_epsilon"),
        ({"activation_function": "mish"}, "'mish'"),
    ],
)
def test_unsupported_checkpoints_raise(change, said):
    with pytest.raises(Unsupported, match=said):
        decision_transformer.import_config(peer().config.to_dict() | change)


@pytest.mark.parametrize("settings", [{"action_type": "discrete"}, {"feedforward": "swiglu"}], ids=str)
def test_models_that_the_format_cannot_represent_raise(settings):
    (name,) = settings
    with pytest.raises(Unsupported, match=f"Decision Transformer needs {name}"):
        decision_transformer.table(Config(state_dim=2, action_dim=2, **settings))

"""torch.nn.Transformer and our stacks, from the same weights: values, gradients, maps, and 20 steps of training."""

import pytest
import torch
from torch import nn

from regard.attention.capture.watch import watch
from regard.attention.mask import PaddingMask
from regard.core.errors import BadInput
from regard.models.transformer import Config, Transformer
from regard.weights.other import torch_transformer
from regard.weights.table import export_state_dict, import_state_dict

from .harness import exported_gradients

pytestmark = pytest.mark.usefixtures("double")

CAUSAL = nn.Transformer.generate_square_subsequent_mask


def pair(norm="post", feedforward="relu", bias=True):
    """The peer with random weights everywhere (its biases and norms begin at 0 and 1), and ours with its weights."""
    config = Config(
        vocab=8,
        width=16,
        heads=4,
        ffn=24,
        encoder_layers=2,
        decoder_layers=2,
        dropout=0.0,
        norm=norm,
        final_norm=True,
        feedforward=feedforward,
        positions="none",
    )
    theirs = torch_transformer.export_module(config, bias=bias)
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    ours = Transformer(config)
    import_state_dict(torch_transformer.table(config, bias), theirs.state_dict(), ours)
    return theirs, ours


def batch():
    """Vectors of three sources, padded on the right, and of three targets."""
    return torch.randn(3, 7, 16), torch.randn(3, 5, 16), torch.tensor([7, 4, 1])


def run_theirs(theirs, source, target, lengths):
    hidden = torch.arange(source.shape[1]) >= lengths[:, None]
    mask = CAUSAL(target.shape[1], dtype=source.dtype)
    return theirs(source, target, tgt_mask=mask, src_key_padding_mask=hidden, memory_key_padding_mask=hidden)


def run_ours(ours, source, target, lengths):
    return ours.decoder(target, ours.encoder(source, PaddingMask(lengths)), memory_mask=PaddingMask(lengths))


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("feed", ["relu", "gelu"])
@pytest.mark.parametrize("bias", [True, False])
def test_outputs_equal_those_of_torch(norm, feed, bias):
    theirs, ours = pair(norm, feed, bias)
    expected = run_theirs(theirs, *(data := batch()))
    torch.testing.assert_close(run_ours(ours, *data), expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_gradients_of_weights_and_inputs_equal_those_of_torch(norm):
    theirs, ours = pair(norm)
    source, target, lengths = batch()
    wanted = torch.randn(3, 5, 16)
    inputs = {}
    for run, model in ((run_theirs, theirs), (run_ours, ours)):
        here = source.clone().requires_grad_(), target.clone().requires_grad_()
        (run(model, *here, lengths) * wanted).sum().backward()
        inputs[run] = [each.grad for each in here]
    torch.testing.assert_close(inputs[run_ours], inputs[run_theirs], rtol=1e-9, atol=1e-9)
    mapped = exported_gradients(torch_transformer.table(ours.config), ours)
    assert mapped.keys() == dict(theirs.named_parameters()).keys()
    for name, parameter in theirs.named_parameters():
        torch.testing.assert_close(mapped[name], parameter.grad, rtol=1e-9, atol=1e-9, msg=name)


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_maps_of_every_head_equal_those_of_torch(norm):
    theirs, ours = pair(norm)
    data = batch()
    maps, handles = {}, []
    for name, module in theirs.named_modules():
        if isinstance(module, nn.MultiheadAttention):

            def ask(module, args, kwargs):
                return args, kwargs | {"need_weights": True, "average_attn_weights": False}

            def keep(module, args, out, name=name):
                maps[name] = out[1]

            handles += [module.register_forward_pre_hook(ask, with_kwargs=True), module.register_forward_hook(keep)]
    with torch.no_grad():
        run_theirs(theirs, *data)
        with watch(ours) as seen:
            run_ours(ours, *data)
    assert len(maps) == len(seen) == 6
    for name, expected in maps.items():
        mine = name.replace("layers", "blocks").replace("self_attn", "mix").replace("multihead_attn", "cross")
        torch.testing.assert_close(seen[mine].weights, expected, rtol=1e-10, atol=1e-10, msg=name)


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_twenty_training_steps_equal_those_of_torch(norm):
    theirs, ours = pair(norm)
    data = [(*batch(), torch.randn(3, 5, 16)) for _ in range(4)]
    losses = {}
    for name, model, run in (("theirs", theirs, run_theirs), ("ours", ours, run_ours)):
        parameters = [p for n, p in model.named_parameters() if not n.startswith(("embed", "head"))]
        optimizer = torch.optim.AdamW(parameters, lr=3e-3, weight_decay=0.01)
        losses[name] = []
        for step in range(20):
            source, target, lengths, wanted = data[step % 4]
            loss = (run(model, source, target, lengths) - wanted).square().mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(parameters, 1.0)
            optimizer.step()
            losses[name].append(loss.item())
    assert losses["theirs"][-1] < 0.9 * losses["theirs"][0]  # it does learn
    torch.testing.assert_close(losses["ours"], losses["theirs"], rtol=1e-8, atol=1e-8)
    trained = export_state_dict(torch_transformer.table(ours.config), ours)
    for name, value in theirs.state_dict().items():
        torch.testing.assert_close(trained[name], value, rtol=1e-7, atol=1e-7, msg=name)


@pytest.mark.parametrize("bias", [True, False])
def test_import_then_export_is_exact(bias):
    theirs, ours = pair(bias=bias)
    back = export_state_dict(torch_transformer.table(ours.config, bias), ours)
    assert back.keys() == theirs.state_dict().keys()
    for name, value in theirs.state_dict().items():
        assert torch.equal(back[name], value), name


def test_a_bias_that_torch_lacks_raises():
    _, ours = pair(bias=False)
    with torch.no_grad():
        ours.decoder.blocks[1].feed.up.bias[3] = 1.0
    with pytest.raises(BadInput, match=r"decoder\.blocks\.1\.feed\.up\.bias"):
        export_state_dict(torch_transformer.table(ours.config, bias=False), ours)


def test_config_is_inferred_from_the_module():
    theirs, ours = pair("pre", "gelu")
    assert torch_transformer.import_config(theirs, vocab=8, positions="none") == ours.config

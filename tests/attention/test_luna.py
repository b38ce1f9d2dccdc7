"""Luna against the formulas of the paper, written out; its memory travels from layer to layer."""

from math import log

import pytest
import torch
import torch.nn.functional as F

import regard
from regard.attention.kv_cache import BeamTable
from regard.attention.mask import CausalMask, PaddingMask, WindowMask
from regard.attention.mixers import build_mixer
from regard.core.errors import Unsupported
from regard.core.layer_state import PassState
from regard.models import build


@pytest.fixture(autouse=True)
def _double(double):
    pass


def luna(layer=0, **settings):
    return build_mixer("luna(memory=3, chunk=4)", width=8, heads=2, layer=layer, **settings).eval()


def attend(q, kv):
    """Two heads of width 4, keys are values."""
    q, kv = (x.unflatten(-1, (2, 4)).transpose(0, 1) for x in (q, kv))
    return ((q @ kv.mT / 2).softmax(-1) @ kv).transpose(0, 1).flatten(1)


def both_by_hand(mixer, x, memory):
    """Y and P + Y_P of one text."""
    p = mixer.norm(memory)
    packed = attend(mixer.pack_q(p), mixer.pack_kv(x))
    return mixer.out(attend(mixer.q(x), mixer.kv(packed))), p + packed


def causal_by_hand(mixer, x, memory):
    """The sums of the paper, token by token."""
    p, out = mixer.norm(memory), []
    for n in range(len(x)):
        heads = []
        for h in range(2):
            own = slice(4 * h, 4 * h + 4)
            q, v = mixer.q(x)[:, own] / 2, mixer.kv(x)[:, own]
            a = F.softplus(mixer.pack_kv(x)[:, own] @ mixer.pack_q(p)[:, own].T / 2, beta=log(2))
            w = (sum(q[n] @ v[j] * a[j] for j in range(n + 1)) / (n + 1)).softmax(-1)
            heads.append(sum(w @ a[j] * v[j] for j in range(n + 1)) / (n + 1))
        out.append(mixer.out(torch.cat(heads)))
    return torch.stack(out)


def test_it_is_the_papers_pack_and_unpack_in_two_layers():
    first, second, x, lengths = luna(), luna(layer=1), torch.randn(3, 7, 8), torch.tensor([7, 4, 1])
    state, mask = PassState(), PaddingMask(lengths)
    low = first(x, mask=mask, layer_state=state.layer(0))
    high = second(low, mask=mask, layer_state=state.layer(1))
    for b, n in enumerate(lengths.tolist()):
        y, memory = both_by_hand(first, x[b, :n], first.memory)
        torch.testing.assert_close(low[b, :n], y)
        torch.testing.assert_close(high[b, :n], both_by_hand(second, y, memory)[0])


def test_causal_attention_is_the_papers_sum_in_value_and_gradient():
    mixer, x = luna(), torch.randn(2, 11, 8, requires_grad=True)
    found = mixer(x, mask=CausalMask())
    expected = torch.stack([causal_by_hand(mixer, each, mixer.memory) for each in x])
    torch.testing.assert_close(found, expected)
    inputs = [x, *mixer.parameters()]
    for a, b in zip(*(torch.autograd.grad(y.square().sum(), inputs) for y in (found, expected)), strict=True):
        torch.testing.assert_close(a, b)


def test_steps_after_prompts_of_different_lengths_and_with_beams_equal_one_forward():
    mixer, x, lengths = luna(), torch.randn(3, 9, 8), torch.tensor([4, 1, 3])
    table, state = BeamTable.start(3, 32, x.device), mixer.start(3, 32)
    table.add_prompt(4, lengths)
    out, state = mixer.prefill(x[:, :4], state, table, CausalMask(), None, PassState().layer(0))
    beams = torch.tensor([[0, 0]] * 3)
    state, table = state.select(None, beams), table.select(None, beams)
    new = torch.randn(3, 2, 5, 8)
    found = []
    for token in new.unbind(2):
        table.add_step(2)
        y, state = mixer.step(token, state, table, table.mask(), None, PassState().layer(0))
        found.append(y)
    for b, n in enumerate(lengths.tolist()):
        for beam in range(2):
            whole = mixer(torch.cat([x[b, :n], new[b, beam]])[None], mask=CausalMask())[0]
            torch.testing.assert_close(out[b, :n], whole[:n])
            torch.testing.assert_close(torch.stack(found, 2)[b, beam], whole[n:])


def test_every_parameter_learns_and_watch_sees_both_attentions():
    for name, settings in (("bert", {"head": "tags(3)"}), ("gpt", {}), ("transformer", {})):
        model = build(name, size="tiny", vocab=11, attention="luna(memory=3)", **settings)
        tokens = (torch.randint(3, 11, (2, 5)),) * (2 if name == "transformer" else 1)
        model(*tokens).square().sum().backward()
        assert [key for key, parameter in model.named_parameters() if parameter.grad is None] == []
    model = build("vit", size="tiny", attention="luna(memory=3)").eval()
    with torch.no_grad(), regard.watch(model) as seen:
        model(torch.randn(1, 3, 32, 32))
    assert seen["encoder.blocks.1.mix.pack"].weights.shape[2:] == (3, 65)
    assert seen["encoder.blocks.1.mix.unpack"].weights.shape[2:] == (65, 3)


def test_what_it_cannot_do_is_refused():
    x = torch.randn(1, 5, 8)
    with pytest.raises(Unsupported, match="use luna in every layer"):
        luna(layer=1)(x, layer_state=PassState().layer(0))
    with pytest.raises(Unsupported, match="takes no context"):
        luna()(x, x)
    with pytest.raises(Unsupported, match="no mask of kind any"):
        luna()(x, mask=WindowMask(2))
    model = build("gpt", size="tiny", vocab=11, attention=["softmax", "luna"])
    with pytest.raises(Unsupported, match="luna of layer 1"):
        model(torch.randint(11, (1, 4)))

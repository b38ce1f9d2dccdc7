"""Contract of decoding over the table of mechanisms: N steps equal one forward, for beams and ragged prompts."""

import pytest
import torch

from regard.attention import MECHANISMS
from regard.attention.kv_cache import BeamTable
from regard.attention.mask import CausalMask, PaddingMask
from regard.attention.mixers import MIXERS, build_mixer
from regard.attention.protocol import Mechanism, Traits
from regard.core.errors import Unsupported
from regard.core.layer_state import PassState
from regard.core.spec import resolve
from regard.models import build

from .test_mechanisms import SMALL

TRAITS = {name: resolve(MECHANISMS, name, "attention").traits for name in MECHANISMS}
STRICT = [name for name in MECHANISMS if TRAITS[name].causality == "strict"]
STRICT_MIXERS = [name for name in MIXERS if resolve(MIXERS, name, "attention").traits.causality == "strict"]
OTHERS = [name for name in MECHANISMS if name not in STRICT]
SIZES = {"width": 12, "heads": 4, "length": 16, "causal": True}


@pytest.fixture(autouse=True)
def _double(double):
    pass


def small(name):
    """The spec with which a few tokens are many."""
    return f"{name}({SMALL[name]})" if name in SMALL else name


class Blurred(Mechanism):
    """Every query sees the mean of all values, later ones too."""

    traits = Traits(cost="M E", paper="none", causality="none")

    def mix(self, q, k, v, mask, bias, layer_state=None):
        return v.mean(2, keepdim=True).repeat_interleave(q.shape[1] // v.shape[1], 1).expand(-1, -1, q.shape[2], -1)


def steps(mixer, x, state, table):
    """The outputs of x B K T C, one token of every beam after another."""
    out = []
    for token in x.unbind(2):
        table.add_step(token.shape[1])
        heads, state = mixer.step(token, state, table, table.mask(), None, PassState().layer(0))
        out.append(heads)
    return torch.stack(out, 2), state


@pytest.mark.parametrize("name", [*STRICT, *STRICT_MIXERS])
def test_steps_equal_one_forward(name):
    for kv_heads in (4, 2, 1):
        mixer = build_mixer(small(name), kv_heads=kv_heads, **SIZES).eval()
        x = torch.randn(3, 13, 12)
        whole = mixer(x, mask=CausalMask(), layer_state=PassState().layer(0))
        found, _ = steps(mixer, x[:, None], mixer.start(3, 16), BeamTable.start(3, 16, x.device))
        torch.testing.assert_close(found[:, 0], whole)


@pytest.mark.parametrize("name", [*STRICT, *STRICT_MIXERS])
def test_steps_after_prompts_of_different_lengths_equal_one_forward(name):
    mixer = build_mixer(small(name), kv_heads=2, **SIZES).eval()
    x, lengths = torch.randn(3, 9, 12), torch.tensor([4, 1, 3])
    table, state = BeamTable.start(3, 32, x.device), mixer.start(3, 32)
    table.add_prompt(4, lengths)
    out, state = mixer.prefill(x[:, :4], state, table, CausalMask(), None, PassState().layer(0))
    rest = torch.stack([x[b, n : n + 5] for b, n in enumerate(lengths.tolist())])
    found, _ = steps(mixer, rest[:, None], state, table)
    for b, n in enumerate(lengths.tolist()):
        whole = mixer(x[b : b + 1, : n + 5], mask=CausalMask(), layer_state=PassState().layer(0))[0]
        torch.testing.assert_close(out[b, :n], whole[:n])
        torch.testing.assert_close(found[b, 0], whole[n:])


@pytest.mark.parametrize("name", [*STRICT, *STRICT_MIXERS])
@pytest.mark.parametrize("frozen", [False, True])
def test_beams_follow_their_ancestors_when_they_are_selected(name, frozen):
    """Two beams are swapped, one is doubled, an input is dropped; each then equals a forward over its own history."""
    mixer = build_mixer(small(name), **SIZES).eval()
    x = torch.randn(3, 2, 6, 12)  # B K T C
    first = torch.zeros(3, 2, dtype=torch.long)
    table, state = BeamTable.start(3, 64, x.device).select(None, first), mixer.start(3, 64).select(None, first)
    _, state = steps(mixer, x[:, :, :2], state, table)
    if frozen:  # static shapes, written in place: what a CUDA graph captures
        table.freeze()
        state = state.freeze()
    swap = torch.tensor([[1, 0], [1, 1], [0, 1]])
    state, table = state.select(None, swap), table.select(None, swap)
    past = x[:, :, :2][torch.arange(3)[:, None], swap]
    _, state = steps(mixer, x[:, :, 2:4], state, table)
    past = torch.cat([past, x[:, :, 2:4]], 2)
    if frozen:
        rows, beams = None, torch.tensor([[0, 1], [1, 0], [0, 0]])
        past = past[torch.arange(3)[:, None], beams]
    else:
        rows, beams = torch.tensor([2, 0]), torch.tensor([[1, 0], [0, 0]])
        past = past[rows[:, None], beams]
    state, table = state.select(rows, beams), table.select(rows, beams)
    last = x[: len(past), :, 4:]
    found, _ = steps(mixer, last, state, table)
    history = torch.cat([past, last], 2)
    whole = mixer(history.flatten(0, 1), mask=CausalMask(), layer_state=PassState().layer(0)).unflatten(0, (-1, 2))
    torch.testing.assert_close(found, whole[:, :, 4:])


@pytest.mark.parametrize("name", [*STRICT, *STRICT_MIXERS])
def test_one_spec_finds_a_mechanism_or_a_mixer_and_generates_with_it(name):
    model = build("gpt", size="tiny", vocab=11, attention=small(name)).eval()
    tokens = torch.randint(11, (2, 7))
    whole = model(tokens)
    last, state = model.start(tokens[:, :4], capacity=8)
    for t in range(3, 7):
        logits, state = model.step(tokens[:, t : t + 1], state)
        torch.testing.assert_close(logits[:, 0], whole[:, t])
    assert torch.equal(last, tokens[:, 3:4])


@pytest.mark.parametrize("name", OTHERS or [None])
def test_mechanisms_that_are_not_strictly_causal_refuse_to_step(name):
    attention = Blurred() if name is None else small(name)
    if name is not None and TRAITS[name].causality == "none":
        with pytest.raises(Unsupported, match="no mask of kind causal, which a decoder needs; use it in an encoder"):
            build("gpt", size="tiny", vocab=11, attention=attention)
        return
    model = build("gpt", size="tiny", vocab=11, attention=attention).eval()
    model(torch.randint(11, (2, 7)))
    with pytest.raises(Unsupported, match="cannot decode step by step"):
        model.start(torch.randint(11, (2, 4)), capacity=8)


@pytest.mark.parametrize("name", [name for name in MECHANISMS if TRAITS[name].masks & {"any", "padding"}])
def test_encoders_take_padding(name):
    """A batch of k equals k singles in a stack of layers."""
    model = build("transformer", size="tiny", vocab=11, attention=small(name), decoder_attention="softmax").eval()
    source, lengths = torch.randint(3, 11, (3, 8)), torch.tensor([8, 5, 1])
    whole = model.encode(source, lengths)
    for b, n in enumerate(lengths.tolist()):
        torch.testing.assert_close(whole[b : b + 1, :n], model.encode(source[b : b + 1, :n]))


@pytest.mark.parametrize("name", [name for name in MECHANISMS if not TRAITS[name].square])
def test_cross_attention_gets_a_layer_state_too(name):
    mixer = build_mixer(small(name), cross=True, **SIZES | {"causal": False}).eval()
    x, context = torch.randn(2, 3, 12), torch.randn(2, 5, 12)
    out = mixer(x, context, PaddingMask(torch.tensor([5, 2])), None, PassState().layer(0).scope("cross"))
    keys = mixer.project_kv(context)
    again = mixer.cross_attend(x, keys, PaddingMask(torch.tensor([5, 2])), None, PassState().layer(0).scope("cross"))
    torch.testing.assert_close(out, again)


@pytest.mark.parametrize("name", list(MECHANISMS))
def test_every_mechanism_trains_in_a_vision_transformer(name):
    model = build("vit", size="tiny", attention=name, layers=2, width=24)
    model(torch.randn(2, 3, 32, 32)).square().sum().backward()
    unused = [key for key, parameter in model.named_parameters() if parameter.grad is None]
    assert not unused
    assert all(torch.isfinite(parameter.grad).all() for parameter in model.parameters())

"""Contracts over the tables of mixers, projections and joins: built with the sizes of their place, by one spec."""

from functools import partial

import pytest
import torch
from torch import nn

from regard.attention import JOINS, MECHANISMS, MIXERS, PROJECTIONS, MultiHeadAttention, build_mixer
from regard.attention.mask import CausalMask, PaddingMask
from regard.attention.protocol import Mechanism, Mixer, Traits
from regard.core.errors import RegardError, UnknownName, Unsupported
from regard.core.layer_state import PassState
from regard.core.spec import build_part, resolve
from regard.models import build

from .test_mechanisms import SMALL

SIZES = {"width": 12, "heads": 4, "kv_heads": 2, "head_dim": 5, "length": 16, "causal": True}


@pytest.fixture(autouse=True)
def _double(double):
    pass


def sizes(name):
    """The sizes of the place; queries that are keys have as many heads as keys."""
    return SIZES | {"kv_heads": 4} if name in ("shared_qk", "reformer", "routing") else SIZES


def every_mixer():
    """Every mixer and every mechanism in multi-head attention, with its traits."""
    for table in (MIXERS, MECHANISMS):
        for name in table:
            spec = f"{name}({SMALL[name]})" if name in SMALL else name
            yield resolve(table, name, "attention").traits, partial(build_mixer, spec, **sizes(name))


def test_no_name_is_in_both_tables():
    assert not MECHANISMS.keys() & MIXERS.keys()


def test_mixers_keep_the_shape_and_follow_masks():
    x = torch.randn(3, 7, 12)
    for traits, make in every_mixer():
        if traits.masks & {"any", "causal"}:
            mixer = make().eval()
            assert isinstance(mixer, Mixer)
            out = mixer(x, mask=CausalMask(), layer_state=PassState().layer(0))
            assert out.shape == x.shape
            if traits.causality == "strict":
                changed = torch.cat([x[:, :5], x[:, 5:] + 1], 1)
                again = mixer(changed, mask=CausalMask(), layer_state=PassState().layer(0))
                torch.testing.assert_close(again[:, :5], out[:, :5])
        mixer = make(causal=False).eval()
        assert mixer(x, layer_state=PassState().layer(0)).shape == x.shape
        if traits.masks & {"any", "padding"}:
            lengths = torch.tensor([7, 4, 1])
            padded = mixer(x, mask=PaddingMask(lengths), layer_state=PassState().layer(0))
            for b, n in enumerate(lengths.tolist()):
                alone = mixer(x[b : b + 1, :n], layer_state=PassState().layer(0))
                torch.testing.assert_close(padded[b : b + 1, :n], alone)


def test_without_positions_they_are_permutation_equivariant_unless_they_say_otherwise():
    x, order = torch.randn(2, 7, 12), torch.tensor([3, 0, 6, 2, 5, 1, 4])
    for traits, make in every_mixer():
        mixer = make(causal=False).eval()
        out = mixer(x, layer_state=PassState().layer(0))
        again = mixer(x[:, order], layer_state=PassState().layer(0))
        assert torch.allclose(again, out[:, order]) == (not traits.positional), mixer


@pytest.mark.parametrize("name", PROJECTIONS)
def test_projections_make_queries_keys_and_values_of_the_sizes_of_their_place(name):
    project = build_part(PROJECTIONS, name, "projection", **sizes(name), bias=True)
    x, positions = torch.randn(3, 7, 12), torch.randn(1, 7, 12)
    if hasattr(project, "project_kv"):
        q, (k, v) = project.project_q(x), project.project_kv(x)
        moved = project.project_q(x, positions), *project.project_kv(x, positions)
        expected = project.project_q(x + positions), project.project_kv(x + positions)[0], v
    else:
        q, k, v = project(x)
        moved = project(x, positions)
        expected = *project(x + positions)[:2], v
    g, width = sizes(name)["kv_heads"], q.shape[-1]  # collaborative heads are as wide as they like
    assert (q.shape, k.shape, v.shape) == ((3, 4, 7, width), (3, g, 7, width), (3, g, 7, 5))
    assert width == 5 or name == "collaborative"
    for found, wanted in zip(moved, expected, strict=True):  # positions enter q and k, never v
        torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("name", JOINS)
def test_joins_make_tokens_of_heads(name):
    join = build_part(JOINS, name, "join", **SIZES, bias=True)
    assert join(torch.randn(3, 4, 7, 5)).shape == (3, 7, 12)


class Counting(Mechanism):
    """Zeros; it keeps the sizes it was built with."""

    traits = Traits(cost="1", paper="none")

    def __init__(self, width, heads, kv_heads, head_dim, length, causal, rate=2):
        super().__init__()
        self.sizes = width, heads, kv_heads, head_dim, length, causal
        self.rate = rate

    def mix(self, q, k, v, mask, bias, layer_state=None):
        return torch.zeros_like(q)


def test_parts_are_built_with_the_sizes_of_their_place(monkeypatch):
    monkeypatch.setitem(MECHANISMS, "counting", (__name__, "Counting"))
    model = build("gpt", size="tiny", vocab=11, kv_heads=2, attention="counting(rate=3)")
    attend = model.decoder.blocks[0].mix.attend
    assert attend.sizes == (128, 4, 2, 32, 64, True)
    assert attend.rate == 3
    inner = build("gpt", size="tiny", vocab=11, attention="multihead(mechanism='counting(rate=4)')")
    assert inner.decoder.blocks[0].mix.attend.rate == 4
    encoder = build("transformer", size="tiny", vocab=11, attention="counting").encoder.blocks[0].mix.attend
    assert encoder.sizes[-1] is False


def test_modules_of_ones_own_are_mechanisms_or_mixers():
    mechanism = Counting(8, 2, 2, 4, None, False)
    assert build_mixer(mechanism, width=8, heads=2).attend is mechanism

    class Mean(nn.Module):
        def forward(self, x, context=None, mask=None, positions=None, layer_state=None):
            return x.mean(1, keepdim=True).expand_as(x)

    mixer = Mean()
    assert build_mixer(mixer, width=8, heads=2) is mixer
    model = build("bert", vocab=11, width=16, heads=2, layers=2, length=8, attention=mixer, head=None)
    assert model(torch.randint(11, (2, 5))).shape == (2, 5, 16)
    gpt = build("gpt", size="tiny", vocab=11, attention=mixer)
    with pytest.raises(Unsupported, match="Mean cannot decode step by step"):
        gpt.start(torch.randint(11, (1, 3)), capacity=4)


def test_unknown_names_and_sizes_that_do_not_fit_are_refused():
    with pytest.raises(UnknownName, match="did you mean 'softmax'"):
        build("gpt", size="tiny", vocab=11, attention="sofmax")
    with pytest.raises(UnknownName, match="did you mean 'multihead'"):
        build_mixer("multihed", width=8, heads=2)
    with pytest.raises(RegardError, match="width 9 is not divisible by 2 heads"):
        MultiHeadAttention(9, 2)
    with pytest.raises(RegardError, match="4 heads are not divisible by 3 key heads"):
        MultiHeadAttention(12, 4, kv_heads=3)
    with pytest.raises(Unsupported, match="cross=True"):
        MultiHeadAttention(8, 2)(torch.randn(1, 3, 8), torch.randn(1, 4, 8))

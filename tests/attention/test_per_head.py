"""Parts by head: every share of the heads is the mechanism that its spec names, decoding and losses included."""

import pytest
import torch

from regard.attention.kv_cache import BeamTable
from regard.attention.mask import CausalMask, PaddingMask
from regard.attention.mechanisms import MECHANISMS
from regard.attention.mixers import build_mixer
from regard.core.errors import BadInput, UnknownName, Unsupported
from regard.core.layer_state import PassState
from regard.core.positions import TensorBias
from regard.core.spec import build_part
from regard.models import build

PLACE = {"width": 24, "heads": 4, "kv_heads": 4, "head_dim": 6, "length": 16, "causal": False}


@pytest.fixture(autouse=True)
def _double(double):
    pass


def attention(*parts, **place):
    return build_part(MECHANISMS, f"per_head(parts={parts!r})", "attention", **PLACE | place)


@pytest.mark.parametrize("kv_heads", [4, 2, 1])
def test_heads_are_those_of_their_mechanisms(kv_heads):
    """Three shares of four heads are 1, 2 and 1 of them, so that grouped keys are also cut within a group."""
    parts = "softmax", "window(window=4)", "gaussian"
    attend = attention(*parts).eval()
    q, (k, v) = torch.randn(2, 4, 13, 6), torch.randn(2, 2, kv_heads, 13, 6)
    bias, mask = TensorBias(torch.randn(1, 4, 13, 13)), CausalMask() & PaddingMask(torch.tensor([13, 6]))
    found = attend(q, k, v, mask, bias, layer_state=PassState().layer(0))
    wide_k, wide_v = (x.repeat_interleave(4 // kv_heads, 1) for x in (k, v))
    for spec, begin, end in zip(parts, (0, 1, 3), (1, 3, 4), strict=True):
        own = slice(begin, end)
        alone = build_part(MECHANISMS, spec, "attention", **PLACE | {"heads": end - begin, "kv_heads": end - begin})
        part = TensorBias(bias.values[:, own])
        torch.testing.assert_close(found[:, own], alone(q[:, own], wide_k[:, own], wide_v[:, own], mask, part))


def test_it_is_as_capable_as_all_of_its_parts():
    routed = attention("routing", "window", causal=True)
    assert routed.traits.causality == "values"
    assert routed.traits.masks == {"causal", "padding"}
    assert routed.default_projection == "shared_qk"
    assert not routed.traits.bias
    strict = attention("linear", "softmax")
    assert strict.traits.causality == "strict"
    assert not strict.traits.square
    for attend in (routed, attention("nystrom", "softmax")):
        with pytest.raises(Unsupported, match="cannot decode step by step"):
            attend.start(1, 4)
    with pytest.raises(Unsupported, match="takes no mask of kind causal, which a decoder needs"):
        build("gpt", size="tiny", vocab=9, attention="per_head(parts=('softmax', 'nystrom'))")


def test_steps_of_parts_with_states_of_different_kinds_equal_one_forward():
    spec = "per_head(parts=('linear(chunk=4)', 'window(window=4)', 'delta(chunk=4)'))"
    mixer = build_mixer(spec, width=24, heads=4, kv_heads=2, length=16, causal=True).eval()
    x, table, state = torch.randn(3, 9, 24), BeamTable.start(3, 16, torch.device("cpu")), mixer.start(3, 16)
    whole = mixer(x, mask=CausalMask(), layer_state=PassState().layer(0))
    for t in range(9):
        table.add_step(1)
        out, state = mixer.step(x[:, t : t + 1], state, table, table.mask(), None, PassState().layer(0))
        torch.testing.assert_close(out[:, 0], whole[:, t])


def test_parts_add_losses_and_change_after_updates_each_for_itself():
    attend = attention("adaptive_span(span=8)", "routing(clusters=2)", "adaptive_span(span=8)").train()
    state = PassState()
    attend(*(torch.randn(2, 4, 13, 6) for _ in range(3)), layer_state=state.layer(0))
    assert set(state.layer(0).losses) == {"part0.span", "part1.commitment", "part2.span"}
    assert sum(hasattr(module, "after_update") for module in attend.modules()) == 3


def test_parts_that_do_not_fit_are_refused():
    with pytest.raises(BadInput, match="shares 4 heads out among its parts, got 5"):
        attention(*["softmax"] * 5)
    with pytest.raises(BadInput, match="got 0"):
        attention()
    with pytest.raises(UnknownName, match="did you mean 'window'"):
        attention("softmax", "windw")

"""Laws over the table: adding a row adds its tests."""

from __future__ import annotations

import pytest
import torch

from regard.core.errors import UnknownName
from regard.core.spec import build_part, resolve
from regard.positions import POSITIONS

GIVEN = {"width": 24, "heads": 3, "head_dim": 8, "length": 64, "causal": False}
SPECS = [
    "sinusoidal",
    "sinusoidal(layout='halves')",
    "learned",
    "rotary",
    "rotary(layout='interleaved')",
    "relative",
    "relative(buckets=8, max_distance=20, causal=True)",
    "alibi",
    "per_layer",
    "per_layer(base='learned')",
    "none",
]
TOKEN = torch.linspace(-1, 1, 24).view(1, 1, 24)
HEADS = torch.linspace(-1, 1, 24).view(1, 3, 1, 8)
RAGGED = torch.tensor([[0, 1, 2, 3, 4], [7, 8, 9, 10, 11], [0, 0, 5, 40, 2]])


def build(spec):
    torch.manual_seed(0)
    return build_part(POSITIONS, spec, "position", **GIVEN)


def apply(part, index, keys=None):
    """What the part does at these indices, as one tensor with the batch in front."""
    if part.kind == "added":
        return part(TOKEN.expand(len(index), index.shape[1], -1), index)
    if part.kind == "qk_input":
        return part.vectors(index)
    if part.kind == "qk_transform":
        return part.transform(HEADS.expand(len(index), -1, index.shape[1], -1), index)
    return part.bias(index, index if keys is None else keys).dense()


def test_every_registered_part_is_tested():
    assert {spec.partition("(")[0] for spec in SPECS} == set(POSITIONS)


@pytest.mark.parametrize("name", POSITIONS)
def test_kind_matches_the_methods(name):
    cls = resolve(POSITIONS, name, "position")
    offers = {
        "added": "forward",
        "qk_input": "vectors",
        "qk_transform": "transform",
        "bias": "bias",
        "none": "extra_repr",
    }
    assert callable(getattr(cls, offers[cls.kind]))


@pytest.mark.parametrize("spec", [s for s in SPECS if s != "none"])
class TestLaws:
    def test_batched_index_equals_singles(self, spec):
        part = build(spec)
        together = apply(part, RAGGED)
        for b in range(len(RAGGED)):
            torch.testing.assert_close(together[b : b + 1], apply(part, RAGGED[b : b + 1]), rtol=0, atol=0)

    def test_one_index_for_all_equals_the_index_repeated(self, spec):
        part = build(spec)
        one, three = apply(part, RAGGED[:1]), apply(part, RAGGED[:1].expand(3, -1))
        torch.testing.assert_close(three, one.expand_as(three), rtol=0, atol=0)

    def test_one_token_at_a_time_equals_all_at_once(self, spec):
        part = build(spec)
        line = torch.arange(9)[None]
        rows = [apply(part, line[:, n : n + 1], line) for n in range(9)]
        torch.testing.assert_close(torch.cat(rows, -2), apply(part, line, line), rtol=0, atol=0)

    def test_compiles_to_one_graph(self, spec, unchecked):
        part = build(spec)
        torch._dynamo.reset()  # every spec is a recompilation of `apply`
        compiled = torch.compile(apply, backend="aot_eager", fullgraph=True)
        torch.testing.assert_close(compiled(part, RAGGED), apply(part, RAGGED))

    def test_only_what_is_learned_is_saved(self, spec):
        part = build(spec)
        assert set(part.state_dict()) == {name for name, _ in part.named_parameters()}

    def test_rounding_the_model_does_not_round_the_formula(self, spec):
        part = build(spec)
        if not list(part.parameters()):
            before = apply(part, RAGGED)
            torch.testing.assert_close(apply(part.half(), RAGGED), before, rtol=0, atol=0)


def test_unknown_argument_suggests_the_nearest():
    with pytest.raises(UnknownName, match="buckets"):
        build("relative(bucket=8)")

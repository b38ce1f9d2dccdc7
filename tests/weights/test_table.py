"""Rows, operations and their inverses, on a model small enough to see through."""

import pytest
import torch
from torch import nn

from regard.core.errors import BadInput
from regard.weights.table import (
    Row,
    collapse_indices,
    computed,
    concat,
    export_state_dict,
    import_state_dict,
    same,
    split,
    stack,
    tie,
    transpose,
    view,
    zero,
)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(6, 18)
        self.out = nn.Linear(6, 6, bias=False)


class Clock(nn.Module):
    def vectors(self, index, dtype):
        return torch.stack([index.to(dtype).sin(), index.to(dtype).cos()], -1)


class Model(nn.Module):
    def __init__(self, blocks=2):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(blocks))
        self.embed = nn.Embedding(5, 6)
        self.head = nn.Linear(6, 5, bias=False)
        self.head.weight = self.embed.weight
        self.clock = Clock()


THREE = ("h.{}.q", "h.{}.k", "h.{}.v")

TABLE = [
    Row(("lm_head", "wte"), ("embed.weight", "head.weight"), tie),
    Row(THREE, "blocks.{}.qkv.weight", stack("three (h d) c -> (h three d) c", three=3, h=2)),
    Row(("h.{}.q_bias", None, "h.{}.v_bias"), "blocks.{}.qkv.bias", stack("three (h d) -> (h three d)", three=3, h=2)),
    Row("h.{}.proj", "blocks.{}.out.weight", transpose),
    Row("clock", "clock", computed(rows=4)),
    Row("h.{}.step", None, reason="a counter that only their program reads"),
]


def state(blocks=2):
    theirs = {"wte": torch.randn(5, 6), "clock": Clock().vectors(torch.arange(4), torch.float32)}
    for n in range(blocks):
        theirs |= {f"h.{n}.{name}": torch.randn(6, 6) for name in ("q", "k", "v", "proj")}
        theirs |= {f"h.{n}.{name}": torch.randn(6) for name in ("q_bias", "v_bias")}
        theirs[f"h.{n}.step"] = torch.tensor(n)
    return theirs


def test_rows_import():
    theirs, model = state(), Model()
    import_state_dict(TABLE, theirs, model)
    assert torch.equal(model.embed.weight, theirs["wte"])
    assert model.head.weight is model.embed.weight
    assert torch.equal(model.blocks[1].out.weight, theirs["h.1.proj"].T)
    second_head = model.blocks[1].qkv.weight[9:]
    assert torch.equal(second_head, torch.cat([theirs[f"h.1.{name}"][3:] for name in "qkv"]))
    assert torch.equal(model.blocks[0].qkv.bias[3:6], torch.zeros(3))  # the bias of the keys, which they lack


def test_the_same_rows_export():
    theirs, model = state(), Model()
    import_state_dict(TABLE, theirs, model)
    back = export_state_dict(TABLE, model)
    assert back.keys() == theirs.keys() - {"h.0.step", "h.1.step"} | {"lm_head"}
    for name in back.keys() & theirs.keys():
        assert torch.equal(back[name], theirs[name]), name


OPERATIONS = [
    (same, [(4, 6)]),
    (transpose, [(4, 6)]),
    (view("(three h d) c -> (h three d) c", three=3, h=2), [(12, 5)]),
    (view("1 v -> v"), [(1, 7)]),
    (stack("two (h d) ... -> (h two d) ...", two=2, h=2), [(4, 5), (4, 5)]),
    (stack("two (h d) ... -> (h two d) ...", two=2, h=2), [(4,), (4,)]),
    (
        concat(
            "(g e d) c -> g e d c",
            "(g d) c -> g 1 d c",
            "(g d) c -> g 1 d c",
            lengths=(3, 1, 1),
            along="x",
            then="g x d c -> (g x d) c",
            g=2,
            e=3,
        ),
        [(24, 5), (8, 5), (8, 5)],
    ),
    (
        split(
            "(h d) ... -> 1 h d ...",
            "(h two d) ... -> two h d ...",
            lengths=(1, 2),
            along="x",
            then="x h d ... -> (x h d) ...",
            h=2,
            two=2,
        ),
        [(12, 5)],
    ),
]


@pytest.mark.parametrize(("op", "shapes"), OPERATIONS, ids=lambda value: type(value).__name__)
def test_every_operation_has_an_inverse(op, shapes):
    theirs = [torch.randn(shape) for shape in shapes]
    back = op.save(op.load(theirs))
    assert len(back) == len(theirs)
    for a, b in zip(back, theirs, strict=True):
        assert torch.equal(a, b)


def test_grouped_heads_are_laid_out_group_by_group():
    op, shapes = OPERATIONS[6]
    q, k, v = (torch.randn(shape) for shape in shapes)
    (ours,) = op.load([q, k, v])
    assert torch.equal(ours, torch.cat([q[:12], k[:4], v[:4], q[12:], k[4:], v[4:]]))


def test_names_without_a_row_raise_with_both_lists():
    theirs = state(3)
    theirs["surprise"] = torch.zeros(1)
    del theirs["h.0.k"]
    model = Model(2)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with pytest.raises(BadInput) as error:
        import_state_dict(TABLE, theirs, model)
    message = str(error.value)
    assert "\n" not in message
    extra, missing = message.split("missing tensors")
    for name in ("surprise", "h.{0,2}.q", "h.2.k", "h.2.proj"):
        assert name in extra
    assert "blocks.0.qkv.weight" in missing
    assert "blocks.1" not in missing
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


def test_a_model_with_more_layers_than_the_checkpoint_raises():
    with pytest.raises(BadInput, match=r"unexpected tensors: none.*blocks\.2\.qkv\.weight"):
        import_state_dict(TABLE, state(2), Model(3))


def test_an_empty_checkpoint_raises():
    with pytest.raises(BadInput, match=r"embed\.weight"):
        import_state_dict(TABLE, {}, Model())


def test_shapes_that_do_not_fit_raise_and_change_nothing():
    theirs, model = state(), Model()
    theirs["wte"], theirs["h.0.k"] = torch.randn(7, 6), torch.randn(4, 6)
    before = model.blocks[1].out.weight.clone()
    with pytest.raises(BadInput, match=r"wte \(7, 6\) for embed\.weight \(5, 6\).*h\.0\.k \(4, 6\)"):
        import_state_dict(TABLE, theirs, model)
    assert torch.equal(model.blocks[1].out.weight, before)


def test_what_is_not_a_tensor_raises():
    with pytest.raises(BadInput, match="'epoch' is a int"):
        import_state_dict(TABLE, state() | {"epoch": 3}, Model())


def test_tied_names_must_be_equal():
    theirs, model = state(), Model()
    theirs["lm_head"] = theirs["wte"].clone()
    import_state_dict(TABLE, theirs, model)
    theirs["lm_head"] = theirs["wte"] + 1
    with pytest.raises(BadInput, match="are one tensor in this model, but differ"):
        import_state_dict(TABLE, theirs, model)


def test_any_of_the_tied_names_is_enough():
    theirs, model = state(), Model()
    theirs["lm_head"] = theirs.pop("wte")
    import_state_dict(TABLE, theirs, model)
    assert torch.equal(model.embed.weight, theirs["lm_head"])


def test_an_untied_model_cannot_be_exported_to_a_tied_format():
    model = Model()
    model.head.weight = nn.Parameter(torch.randn(5, 6))
    with pytest.raises(BadInput, match="one tensor in this format, but differ in the model"):
        export_state_dict(TABLE, model)


def test_a_computed_table_is_compared():
    theirs, model = state(), Model()
    theirs["clock"] = theirs["clock"].flip(1)
    with pytest.raises(BadInput, match="'clock' is not the table that Clock computes"):
        import_state_dict(TABLE, theirs, model)
    theirs["clock"] = torch.zeros(4, 3)
    with pytest.raises(BadInput, match=r"'clock' is \(4, 3\), Clock computes \(4, 2\)"):
        import_state_dict(TABLE, theirs, model)
    del theirs["clock"]
    import_state_dict(TABLE, theirs, model)


def test_a_bias_that_the_format_lacks_is_zero_both_ways():
    model = Model()
    with pytest.raises(BadInput, match=r"blocks\.0\.qkv\.bias"):
        export_state_dict(TABLE, model)  # a fresh bias of the keys is not zero


def test_a_bias_that_the_model_lacks_must_be_zero():
    rows = [*TABLE, Row("final_bias", None, zero(1, 5))]
    theirs, model = state(), Model()
    import_state_dict(rows, theirs | {"final_bias": torch.zeros(1, 5)}, model)
    assert torch.equal(export_state_dict(rows, model)["final_bias"], torch.zeros(1, 5))
    with pytest.raises(BadInput, match="'final_bias' has values, but the model has no such bias"):
        import_state_dict(rows, theirs | {"final_bias": torch.ones(1, 5)}, model)


def test_tensors_that_the_format_lacks_raise():
    model = Model()
    model.extra = nn.Linear(2, 2)
    with pytest.raises(BadInput, match=r"no tensors for: extra\.weight, extra\.bias"):
        export_state_dict(TABLE, model)


def test_several_indices_have_names():
    class Stages(nn.Module):
        def __init__(self):
            super().__init__()
            self.stages = nn.ModuleList(nn.ModuleList(nn.Linear(2, 2, bias=False) for _ in range(n)) for n in (1, 2))

    rows = [Row("layers.{s}.blocks.{b}.w", "stages.{s}.{b}.weight")]
    theirs = {f"layers.{s}.blocks.{b}.w": torch.randn(2, 2) for s, b in ((0, 0), (1, 0), (1, 1))}
    model = Stages()
    import_state_dict(rows, theirs, model)
    assert torch.equal(model.stages[1][1].weight, theirs["layers.1.blocks.1.w"])
    assert all(torch.equal(value, theirs[name]) for name, value in export_state_dict(rows, model).items())


def test_an_invalid_row_raises_at_once():
    with pytest.raises(ValueError, match="reason"):
        Row("a", None)
    with pytest.raises(ValueError, match="reason"):
        Row("a", "b", reason="why")
    with pytest.raises(ValueError, match="indices"):
        Row("a.{}", "b.{n}")
    with pytest.raises(ValueError, match="number of tensors to export is unknown"):
        Row("a.{}", None, zero(3))


def test_indices_of_names_are_collapsed():
    assert collapse_indices(["a.0.b", "a.1.b", "a.2.b", "a.4.b", "c"]) == ["a.{0-2,4}.b", "c"]
    assert collapse_indices(["a.3.b"]) == ["a.3.b"]

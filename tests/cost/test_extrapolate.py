"""Counting four blocks of a stack of equal ones gives the count of the full stack."""

import pytest

from regard.cost import extrapolate
from regard.cost.meta_model import InputShape, build, fake_tensors, parse_model_name, resolve_config
from regard.cost.op_log import Marker
from regard.cost.passes import ExecutionPlan, _training_log

DEEP = {
    "gpt:tiny": (["vocab=300", "layers=9"], InputShape(batch=2, length=32)),
    "transformer:tiny": (["encoder_layers=6", "decoder_layers=7"], InputShape(batch=2, source=9, target=11)),
}
PLANS = [
    ExecutionPlan("float32"),
    ExecutionPlan("bfloat16"),
    ExecutionPlan("bfloat16", recompute=True),
    ExecutionPlan("bfloat16", sharded=True),
    ExecutionPlan("bfloat16", recompute=True, sharded=True, tensor_parallel=2, accumulate=2),
    ExecutionPlan("float32", accumulate=2),
    ExecutionPlan("float32", is_cpu=True),
]


SHORT = {"gpt:tiny": (PLANS[4],), "transformer:tiny": (PLANS[3],)}
CASES = [
    pytest.param(name, plan, marks=() if plan in SHORT[name] else pytest.mark.long) for name in DEEP for plan in PLANS
]


def shown(x):
    return x if isinstance(x, str) else "-".join(str(value) for value in vars(x).values())


@pytest.mark.parametrize(("name", "plan"), CASES, ids=shown)
def test_shortened_stack_counts_equal_the_full_stack(name, plan):
    settings, shape = DEEP[name]
    config = resolve_config(*parse_model_name(name), settings)
    short, full = _training_log(config, shape, plan), _training_log(config, shape, plan, short=False)
    assert short.kernels() == full.kernels()
    assert short.work("forward") == full.work("forward")
    assert short.noted("forward") == full.noted("forward")
    assert short.peak() == full.peak()
    assert short.peak(["gradients"]) == full.peak(["gradients"])
    assert short.alive("loss") == full.alive("loss")


@pytest.mark.parametrize(
    "settings", [["positions=alibi"], ["positions=relative"], ["norm_kind=rms", "feedforward=swiglu"]]
)
def test_shortened_stack_with_other_parts(settings):
    config, shape = resolve_config("gpt", "tiny", ["vocab=300", "layers=6", *settings]), InputShape(batch=2, length=16)
    short, full = (
        _training_log(config, shape, ExecutionPlan()),
        _training_log(config, shape, ExecutionPlan(), short=False),
    )
    assert (short.kernels(), short.peak()) == (full.kernels(), full.peak())


def test_unequal_blocks_are_not_dropped():
    with fake_tensors():
        same = build(resolve_config("gpt", "tiny", ["vocab=30", "layers=6"]))
        mixed = ["softmax", "softmax(backend='eager')"]
        other = build(resolve_config("gpt", "tiny", ["vocab=30", "layers=6", f"attention={mixed!r}"]))
        few = build(resolve_config("gpt", "tiny", ["vocab=30", "layers=4"]))
        assert extrapolate.drop_repeated_blocks(same) == {"decoder.blocks": 2}
        assert len(same.decoder.blocks) == extrapolate.KEPT_BLOCKS
        assert extrapolate.drop_repeated_blocks(other) == extrapolate.drop_repeated_blocks(few) == {}


def test_out_of_order_blocks_raise():
    marks = [Marker("enter", "blocks", i) for i in (0, 1, 3, 2)]
    with pytest.raises(extrapolate.IrregularStack):
        extrapolate._restore_stack(marks, "blocks", 3)

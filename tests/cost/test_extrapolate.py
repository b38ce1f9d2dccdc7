"""Four blocks stand for a stack of equal ones: the count is that of the whole."""

import pytest

from regard.cost import extrapolate
from regard.cost.meta_model import InputShape, build, fake_tensors, parse_model_name, resolve_config
from regard.cost.op_log import Marker
from regard.cost.passes import ExecutionPlan, _training_log

DEEP = {
    "gpt:tiny": (["vocab=300", "layers=9"], InputShape(batch=2, length=32)),
    "transformer:tiny": (["encoder_layers=6", "decoder_layers=7"], InputShape(batch=2, source=9, target=11)),
}
WAYS = [
    ExecutionPlan("float32"),
    ExecutionPlan("bfloat16"),
    ExecutionPlan("bfloat16", recompute=True),
    ExecutionPlan("bfloat16", sharded=True),
    ExecutionPlan("bfloat16", recompute=True, sharded=True, tensor_parallel=2, accumulate=2),
    ExecutionPlan("float32", accumulate=2),
    ExecutionPlan("float32", is_cpu=True),
]


SHORT = {"gpt:tiny": (WAYS[0], WAYS[2], WAYS[4], WAYS[6]), "transformer:tiny": (WAYS[3],)}
CASES = [pytest.param(word, way, marks=() if way in SHORT[word] else pytest.mark.long) for word in DEEP for way in WAYS]


def shown(x):
    return x if isinstance(x, str) else "-".join(str(value) for value in vars(x).values())


@pytest.mark.parametrize(("word", "way"), CASES, ids=shown)
def test_a_shortened_stack_counts_like_the_whole(word, way):
    settings, shape = DEEP[word]
    config = resolve_config(*parse_model_name(word), settings)
    short, whole = _training_log(config, shape, way), _training_log(config, shape, way, short=False)
    assert short.kernels() == whole.kernels()
    assert short.work("forward") == whole.work("forward")
    assert short.noted("forward") == whole.noted("forward")
    assert short.peak() == whole.peak()
    assert short.peak(["gradients"]) == whole.peak(["gradients"])
    assert short.alive("loss") == whole.alive("loss")


@pytest.mark.parametrize(
    "settings", [["positions=alibi"], ["positions=relative"], ["norm_kind=rms", "feedforward=swiglu"]]
)
def test_so_does_one_with_other_parts(settings):
    config, shape = resolve_config("gpt", "tiny", ["vocab=300", "layers=6", *settings]), InputShape(batch=2, length=16)
    short, whole = (
        _training_log(config, shape, ExecutionPlan()),
        _training_log(config, shape, ExecutionPlan(), short=False),
    )
    assert (short.kernels(), short.peak()) == (whole.kernels(), whole.peak())


def test_blocks_that_differ_are_run_whole():
    with fake_tensors():
        same = build(resolve_config("gpt", "tiny", ["vocab=30", "layers=6"]))
        mixed = ["softmax", "softmax(backend='eager')"]
        other = build(resolve_config("gpt", "tiny", ["vocab=30", "layers=6", f"attention={mixed!r}"]))
        few = build(resolve_config("gpt", "tiny", ["vocab=30", "layers=4"]))
        assert extrapolate.drop_repeated_blocks(same) == {"decoder.blocks": 2}
        assert len(same.decoder.blocks) == extrapolate.KEPT_BLOCKS
        assert extrapolate.drop_repeated_blocks(other) == extrapolate.drop_repeated_blocks(few) == {}


def test_blocks_out_of_order_are_noticed():
    marks = [Marker("enter", "blocks", i) for i in (0, 1, 3, 2)]
    with pytest.raises(extrapolate.IrregularStack):
        extrapolate._restore_stack(marks, "blocks", 3)

"""Four blocks stand for a stack of equal ones: the count is that of the whole."""

import pytest

from regard.cost import stacks
from regard.cost.imagine import Shape, build, config_of, imagined, named
from regard.cost.passes import Way, _trained
from regard.cost.tape import Mark

DEEP = {
    "gpt:tiny": (["vocab=300", "layers=9"], Shape(batch=2, length=32)),
    "transformer:tiny": (["encoder_layers=6", "decoder_layers=7"], Shape(batch=2, source=9, target=11)),
}
WAYS = [
    Way("float32"),
    Way("bfloat16"),
    Way("bfloat16", recompute=True),
    Way("bfloat16", sliced=True),
    Way("bfloat16", recompute=True, sliced=True, tensor=2, accumulate=2),
    Way("float32", accumulate=2),
    Way("float32", host=True),
]


CASES = [("gpt:tiny", way) for way in WAYS] + [("transformer:tiny", WAYS[1]), ("transformer:tiny", WAYS[3])]
CASES += [pytest.param("transformer:tiny", way, marks=pytest.mark.long) for way in (WAYS[0], WAYS[2], *WAYS[4:])]


def shown(x):
    return x if isinstance(x, str) else "-".join(str(value) for value in vars(x).values())


@pytest.mark.parametrize(("word", "way"), CASES, ids=shown)
def test_a_shortened_stack_counts_like_the_whole(word, way):
    settings, shape = DEEP[word]
    config = config_of(*named(word), settings)
    short, whole = _trained(config, shape, way), _trained(config, shape, way, short=False)
    assert short.kernels() == whole.kernels()
    assert short.work("forward") == whole.work("forward")
    assert short.noted("forward") == whole.noted("forward")
    assert short.peak() == whole.peak()
    assert short.peak(["gradients"]) == whole.peak(["gradients"])
    assert short.alive("loss") == whole.alive("loss")


@pytest.mark.parametrize("settings", [["positions=alibi"], ["positions=relative"], ["norm_kind=rms", "feed=swiglu"]])
def test_so_does_one_with_other_parts(settings):
    config, shape = config_of("gpt", "tiny", ["vocab=300", "layers=6", *settings]), Shape(batch=2, length=16)
    short, whole = _trained(config, shape, Way()), _trained(config, shape, Way(), short=False)
    assert (short.kernels(), short.peak()) == (whole.kernels(), whole.peak())


def test_blocks_that_differ_are_run_whole():
    with imagined():
        same = build(config_of("gpt", "tiny", ["vocab=30", "layers=6"]))
        mixed = ["softmax", "softmax(backend='plain')"]
        other = build(config_of("gpt", "tiny", ["vocab=30", "layers=6", f"attention={mixed!r}"]))
        few = build(config_of("gpt", "tiny", ["vocab=30", "layers=4"]))
        assert stacks.shorten(same) == {"decoder.blocks": 2}
        assert len(same.decoder.blocks) == stacks.SHOWN
        assert stacks.shorten(other) == stacks.shorten(few) == {}


def test_blocks_out_of_order_are_noticed():
    marks = [Mark("enter", "blocks", i) for i in (0, 1, 3, 2)]
    with pytest.raises(stacks.Irregular):
        stacks._lengthened(marks, "blocks", 3)

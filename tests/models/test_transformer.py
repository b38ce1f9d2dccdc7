import pytest
import torch

from regard.attention.mechanisms.linear import LinearAttention
from regard.core.errors import RegardError, UnknownName, Unsupported
from regard.models import build
from regard.models.transformer import SIZES, Config
from regard.positions import POSITIONS

from .sequence_checks import check_batch_equals_singles, check_steps_equal_one_forward

SMALL = {"vocab": 17, "width": 16, "heads": 4, "ffn": 24, "encoder_layers": 2, "decoder_layers": 2}


def small(**settings):
    return build("transformer", **(SMALL | settings)).eval()


def count(model):
    return sum(p.numel() for p in model.parameters())


def test_sizes_have_the_papers_parameters():
    # Table 3 counts 65 M and 213 M with a shared vocabulary of 37,000
    with torch.device("meta"):
        base = build("transformer", size="base", vocab=37000)
        big = build("transformer", size="big", vocab=37000)
        tiny = build("transformer", size="tiny", vocab=10000)
    assert 62e6 < count(base) < 66e6
    assert 209e6 < count(big) < 215e6
    assert 2.5e6 < count(tiny) < 2.9e6
    assert set(SIZES) == {"base", "big", "small", "tiny"}


VARIANTS = {
    "post": {},
    "pre": {"norm": "pre"},
    "rms": {"norm_kind": "rms", "norm": "pre"},
    "swiglu": {"feedforward": "swiglu"},
    "grouped": {"kv_heads": 2},
    "multi-query": {"kv_heads": 1},
    "untied": {"tied": False, "head_bias": True},
    "plain backend": {"attention": "softmax(backend='eager')"},
    "one a layer": {"attention": ["softmax", "softmax(scale=0.5)"]},
} | {name: {"positions": name} for name in POSITIONS}


@pytest.mark.parametrize("name", VARIANTS)
def test_batch_equals_singles(double, name):
    model = small(**VARIANTS[name])
    source, target = torch.randint(3, 17, (3, 7)), torch.randint(3, 17, (3, 5))
    lengths = torch.tensor([7, 2, 4])
    check_batch_equals_singles(model, source, target, lengths, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", VARIANTS)
def test_padding_and_the_future_have_no_influence(double, name):
    model = small(**VARIANTS[name])
    source, target = torch.randint(3, 17, (2, 6)), torch.randint(3, 17, (2, 5))
    lengths = torch.tensor([6, 3])
    out = model(source, target, lengths)
    changed_source, changed_target = source.clone(), target.clone()
    changed_source[1, 3:] = 5
    changed_target[:, 3:] = 4
    again = model(changed_source, changed_target, lengths)
    torch.testing.assert_close(out[:, :3], again[:, :3], rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", VARIANTS)
def test_every_parameter_gets_a_gradient(name):
    model = small(**VARIANTS[name])
    source, target = torch.randint(3, 17, (2, 6)), torch.randint(3, 17, (2, 5))
    model(source, target).square().sum().backward()
    missing = [n for n, p in model.named_parameters() if p.grad is None or not p.grad.abs().sum() > 0]
    assert not missing


@pytest.mark.parametrize("name", VARIANTS)
def test_steps_equal_one_forward(double, name):
    model = small(**VARIANTS[name])
    source, lengths = torch.randint(3, 17, (3, 6)), torch.tensor([6, 1, 4])
    target = torch.randint(3, 17, (3, 5))
    check_steps_equal_one_forward(model, source, target, lengths)


@pytest.fixture
def poisoned():
    """Memory that nobody wrote holds nan, so that reading it shows."""
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


def test_frozen_steps_equal_growing_ones(double, poisoned):
    """What a GPU records: counters as tensors, static shapes."""
    model = small()
    source, target = torch.randint(3, 17, (3, 6)), torch.randint(3, 17, (3, 2, 5))
    results = []
    for freeze in (False, True):
        first, state = model.start(source, capacity=11)
        seen = []
        logits, state = model.step(first, state)
        state = model.select(state, None, torch.zeros(3, 2, dtype=torch.long))
        state = model.freeze(state) if freeze else state
        for t in range(5):
            logits, state = model.step(target[..., t], state)
            state = model.select(state, None, torch.tensor([[1, 0], [0, 0], [1, 1]]))
            seen.append(logits)
        results.append(torch.stack(seen))
    torch.testing.assert_close(*results, rtol=1e-10, atol=1e-10)


def test_without_positions_the_encoder_is_permutation_equivariant(double):
    model = small(positions="none")
    source, order = torch.randint(3, 17, (2, 7)), torch.randperm(7)
    torch.testing.assert_close(model.encode(source)[:, order], model.encode(source[:, order]))
    ordered = small(positions="sinusoidal")
    assert not torch.allclose(ordered.encode(source)[:, order], ordered.encode(source[:, order]))


@pytest.mark.long
def test_compiles_to_one_graph_for_many_shapes(python):
    """In a child process: dynamo cannot trace through the shape checks that tests switch on."""
    code = """
import torch
from torch._dynamo.testing import CompileCounterWithBackend
from regard.models import build
model = build("transformer", size="tiny", vocab=17, width=16, ffn=24, encoder_layers=1, decoder_layers=1).eval()
counter = CompileCounterWithBackend("aot_eager")
run = torch.compile(model, backend=counter, fullgraph=True, dynamic=True)
for n, t in [(6, 5), (8, 9), (16, 12), (11, 7)]:
    batch = torch.randint(3, 17, (2, n)), torch.randint(3, 17, (2, t)), torch.tensor([n, 2])
    torch.testing.assert_close(run(*batch), model(*batch))
    graphs = counter.frame_count if n == 6 else graphs
assert counter.frame_count == graphs, "a new shape was compiled anew"
"""
    python(code)


def test_embeddings_are_tied_unless_asked_otherwise():
    model = small()
    assert model.head.weight is model.embed.weight
    assert small(tied=False).head.weight is not small(tied=False).embed.weight
    assert model.embed.weight[0].abs().max() == 0


def test_bad_settings_are_named():
    with pytest.raises(UnknownName, match="did you mean 'encoder_layers'"):
        build("transformer", vocab=9, encoder_layer=3)
    with pytest.raises(UnknownName, match="did you mean 'tiny'"):
        build("transformer", size="tinny", vocab=9)
    with pytest.raises(UnknownName, match="did you mean 'transformer'"):
        build("transfromer", vocab=9)
    with pytest.raises(UnknownName, match="did you mean 'softmax'"):
        build("transformer", vocab=9, attention="sofmax")
    with pytest.raises(UnknownName, match="did you mean 'rotary'"):
        build("transformer", vocab=9, positions="rotery")
    with pytest.raises(RegardError, match="vocab"):
        build("transformer", size="tiny")
    with pytest.raises(RegardError, match="not divisible by"):
        build("transformer", vocab=9, width=10, heads=3)
    with pytest.raises(RegardError, match="must be int, got"):
        build("transformer", vocab="many")


def test_encoder_decoder_and_cross_attention_may_differ():
    """What has no causal form serves the encoder; the decoder and its attention to the memory have mechanisms too."""
    mixed = {"attention": "nystrom(landmarks=4)", "decoder_attention": "window(window=4)", "cross_attention": "linear"}
    model = build("transformer", **SMALL, **mixed).double().eval()
    source, target = torch.randint(3, SMALL["vocab"], (2, 9)), torch.randint(3, SMALL["vocab"], (2, 6))
    whole = model(source, target)
    _, state = model.start(source, torch.tensor([9, 9]), capacity=6)
    for t in range(6):
        logits, state = model.step(target[:, t : t + 1], state)
        torch.testing.assert_close(logits[:, 0], whole[:, t])
    assert isinstance(model.decoder.blocks[0].cross.attend, LinearAttention)
    with pytest.raises(Unsupported, match="nystrom takes no mask of kind causal, which a decoder needs"):
        build("transformer", **SMALL, attention="nystrom")
    with pytest.raises(Unsupported, match="window attends within one sequence"):
        build("transformer", **SMALL, cross_attention="window")


def test_a_module_can_be_passed_as_a_part():
    from regard.attention.mechanisms.softmax import SoftmaxAttention

    class Loud(SoftmaxAttention):
        pass

    model = build("transformer", **SMALL, attention=Loud())
    assert isinstance(model.encoder.blocks[0].mix.attend, Loud)
    assert Config(vocab=3).attention == "softmax"

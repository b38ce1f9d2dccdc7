import pytest
import torch
import torch.nn.functional as F

from regard.attention.capture.watch import watch
from regard.core.errors import BadInput, RegardError, UnknownName, Unsupported
from regard.losses.fused_linear_cross_entropy import fused_linear_cross_entropy
from regard.models import build
from regard.models.bert import SIZES
from regard.positions import POSITIONS

SMALL = {"vocab": 17, "width": 16, "heads": 4, "ffn": 24, "layers": 2, "length": 24}
HEADS = {"pretraining": "pretraining", "masked": "masked", "classes": "classes(3)", "tags": "tags(5)", "span": "span"}


def small(**settings):
    """Away from its initial weights, which are so small that attention is nearly uniform."""
    model = build("bert", **(SMALL | settings)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    return model


def inputs(rows=3, n=7):
    return torch.randint(17, (rows, n)), torch.randint(2, (rows, n)), torch.tensor([7, 2, 4][:rows])


VARIANTS = (
    {"no head": {"head": None}}
    | {name: {"head": spec} for name, spec in HEADS.items()}
    | {
        "rms": {"norm_kind": "rms"},
        "swiglu": {"feedforward": "swiglu"},
        "plain backend": {"attention": "softmax(backend='eager')"},
        "one a layer": {"attention": ["softmax", "softmax(scale=0.5)"]},
    }
    | {name: {"positions": name} for name in POSITIONS}
)


def answers(model, *given, **asked):
    found = model(*given, **asked)
    return found if isinstance(found, tuple) else (found,)


@pytest.mark.parametrize(
    ("size", "bare", "pretraining"),
    [
        ("tiny", 4_385_920, 4_433_468),
        ("mini", 11_170_560, 11_267_900),
        ("small", 28_763_648, 29_058_876),
        ("medium", 41_373_184, 41_668_412),
        ("base", 109_482_240, 110_106_428),
        ("large", 335_141_888, 336_226_108),
        ("minilm", 22_713_216, 22_893_116),
    ],
)
def test_sizes_have_the_published_parameters(size, bare, pretraining):
    for head, count in ((None, bare), ("pretraining", pretraining)):
        with torch.device("meta"):
            model = build("bert", size=size, head=head)
        assert sum(p.numel() for p in model.parameters()) == count


def test_base_and_large_are_the_papers_110_and_340_million():
    for size, millions in (("base", 110), ("large", 340)):
        with torch.device("meta"):
            count = sum(p.numel() for p in build("bert", size=size).parameters())
        assert round(count / 1e7) * 10 == millions
    assert set(SIZES) == {"tiny", "mini", "small", "medium", "base", "large", "minilm"}


@pytest.mark.parametrize("name", VARIANTS)
def test_batch_equals_singles(double, name):
    model = small(**VARIANTS[name])
    tokens, segments, lengths = inputs()
    whole = answers(model, tokens, segments, lengths)
    for row, length in enumerate(lengths.tolist()):
        single = answers(model, tokens[row : row + 1, :length], segments[row : row + 1, :length])
        for mine, theirs in zip(whole, single, strict=True):
            mine = mine[row : row + 1, :length] if mine.ndim == 3 else mine[row : row + 1]
            torch.testing.assert_close(mine, theirs, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", VARIANTS)
def test_every_parameter_gets_a_gradient(name):
    model = small(**VARIANTS[name])
    tokens, segments, _ = inputs()
    sum(each.square().sum() for each in answers(model, tokens, segments)).backward()
    silent = ("pool.weight", "pool.bias") if VARIANTS[name].get("head", "") is None else ()
    missing = [n for n, p in model.named_parameters() if p.grad is None or not p.grad.abs().sum() > 0]
    assert set(missing) == set(silent)  # without a head nothing asks for one vector of the text


def test_outputs_of_heads():
    tokens, segments, lengths = inputs()
    shapes = {"pretraining": [(3, 7, 17), (3, 2)], "masked": [(3, 7, 17)], "classes": [(3, 3)], "tags": [(3, 7, 5)]}
    for name, shape in (shapes | {"span": [(3, 7, 2)]}).items():
        assert [tuple(a.shape) for a in answers(small(head=HEADS[name]), tokens, segments, lengths)] == shape
    bare = small(head=None)
    assert torch.equal(bare(tokens, segments, lengths), bare.hidden(tokens, segments, lengths))


def test_words_are_predicted_at_the_given_positions(double):
    tokens, segments, lengths = inputs()
    at = torch.tensor([[1, 4, 6], [0, 1, 0], [3, 0, 2]])
    for head in ("masked", "pretraining"):
        model = small(head=head)
        everywhere = answers(model, tokens, segments, lengths)
        there = answers(model, tokens, segments, lengths, at=at.int())
        torch.testing.assert_close(there[0], everywhere[0].gather(1, at[..., None].expand(-1, -1, 17)))
        for mine, theirs in zip(there[1:], everywhere[1:], strict=True):
            torch.testing.assert_close(mine, theirs)


@pytest.mark.parametrize("head", ["masked", "pretraining"])
def test_language_modelling_loss_is_computed_inside_forward(double, head):
    model = small(head=head)
    tokens, segments, lengths = inputs()
    at, targets = torch.tensor([[1, 4], [0, 1], [3, 0]]), torch.tensor([[3, 9], [16, -100], [0, -100]])
    logits = answers(model, tokens, segments, lengths, at=at)[0]
    expected = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="sum")
    found = answers(model, tokens, segments, lengths, at=at, targets=targets, loss=fused_linear_cross_entropy)
    torch.testing.assert_close(found[0], expected)
    wanted = torch.autograd.grad(expected, [model.embed.weight, model.head.words.bias])
    for mine, theirs in zip(
        torch.autograd.grad(found[0], [model.embed.weight, model.head.words.bias]), wanted, strict=True
    ):
        torch.testing.assert_close(mine, theirs)
    if head == "pretraining":
        assert found[1].shape == (3, 2)


def test_padding_is_never_predicted():
    scores = small(head="span")(*inputs())
    for row, length in enumerate([7, 2, 4]):
        assert scores[row, :length].isfinite().all()
        assert (scores[row, length:] == float("-inf")).all()


def test_missing_segments_mean_segment_0(double):
    model = small()
    tokens, segments, lengths = inputs()
    for mine, theirs in zip(
        model(tokens, None, lengths), model(tokens, torch.zeros_like(segments), lengths), strict=True
    ):
        torch.testing.assert_close(mine, theirs)
    assert not torch.allclose(model(tokens)[0], model(tokens, torch.ones_like(segments))[0])


def test_pooled_is_a_function_of_the_first_token(double):
    model = small(head=None)
    hidden = model.hidden(*inputs())
    torch.testing.assert_close(model.pooled(hidden), torch.tanh(F.linear(hidden[:, 0], *model.pool.parameters())))
    with pytest.raises(Unsupported, match="no pooler"):
        small(head="tags(2)").pooled(hidden)


def test_watch_captures_every_layer_and_does_not_change_the_output(double):
    model = small()
    tokens, segments, lengths = inputs()
    plain = model(tokens, segments, lengths)
    with watch(model) as seen:
        for mine, theirs in zip(model(tokens, segments, lengths), plain, strict=True):
            assert torch.equal(mine, theirs)
    assert list(seen) == ["encoder.blocks.0.mix", "encoder.blocks.1.mix"]
    for trace in seen.values():
        assert trace.weights.shape == (3, 4, 7, 7)
        assert trace.weights[1, :, :, 2:].abs().max() == 0  # padding
        torch.testing.assert_close(trace.weights.sum(-1), torch.ones(3, 4, 7))


def test_initial_weights_follow_bert():
    model = build("bert", vocab=500, width=128, heads=4, layers=4)
    for name, parameter in model.named_parameters():
        if parameter.ndim == 2 and not name.startswith(("segment", "head.next")):  # too few to measure
            assert float(parameter.detach().std()) == pytest.approx(0.02, rel=0.05), name
        if name.endswith("bias"):
            assert parameter.abs().max() == 0
    assert model.head.words.weight is model.embed.weight


@pytest.mark.long
def test_compiles_to_one_graph_for_many_shapes(python):
    """In a child process: dynamo cannot trace through the shape checks that tests switch on."""
    code = """
import torch
from torch._dynamo.testing import CompileCounterWithBackend
from regard.models import build
for head in ("pretraining", "classes(3)", None):
    model = build("bert", vocab=17, width=16, heads=2, layers=1, head=head).eval()
    counter = CompileCounterWithBackend("aot_eager")
    run = torch.compile(model, backend=counter, fullgraph=True, dynamic=True)
    for n in (6, 9, 16, 11):
        given = torch.randint(17, (2, n)), torch.randint(2, (2, n)), torch.tensor([n, n - 2])
        torch.testing.assert_close(run(*given), model(*given))
        graphs = counter.frame_count if n == 6 else graphs
    assert counter.frame_count == graphs, "a new shape was compiled anew"
"""
    python(code)


@pytest.mark.parametrize(
    ("tokens", "segments", "said"),
    [
        ([[3, 17]], None, "token ids must be from 0 to 16, got 17"),
        ([[3, -1]], None, "got -1"),
        ([[3, 4]], [[0, 2]], "segment ids must be from 0 to 1, got 2"),
        ([[3] * 25], None, "24 were learned"),
    ],
    ids=["unknown token", "below zero", "unknown segment", "beyond the context"],
)
def test_invalid_inputs_raise(tokens, segments, said):
    with pytest.raises(BadInput, match=said):
        small()(torch.tensor(tokens), None if segments is None else torch.tensor(segments))


def test_unknown_heads_raise():
    with pytest.raises(UnknownName, match="did you mean 'classes'"):
        small(head="clases(3)")
    with pytest.raises(RegardError, match="needs classes"):
        small(head="classes")
    with pytest.raises(RegardError, match="too many"):
        small(head="span(1, 2, 3)")
    with pytest.raises(Unsupported, match="predicts no tokens"):
        small(head="span")(torch.tensor([[3, 4]]), at=torch.tensor([[1]]))


def test_a_mean_pooled_class_head_ignores_padding_and_has_no_pooler():
    torch.manual_seed(0)
    model = build("bert", vocab=20, width=16, heads=2, layers=1, length=12, head="classes(3, pool='mean')").eval()
    assert model.pool is None
    tokens = torch.randint(20, (1, 7))
    padded = torch.cat([tokens, torch.randint(20, (1, 5))], 1)
    torch.testing.assert_close(model(padded, None, torch.tensor([7])), model(tokens))
    hidden = model.hidden(tokens)
    torch.testing.assert_close(model(tokens), model.head.out(hidden.mean(1)))

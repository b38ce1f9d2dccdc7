import pytest
import torch

from regard.attention import MECHANISMS
from regard.attention.capture.watch import watch
from regard.core.errors import BadInput, UnknownName
from regard.core.spec import resolve
from regard.decoding.beam_search import beam_search, greedy_search, sample
from regard.models import build
from regard.models.gpt import SIZES
from regard.positions import POSITIONS
from tests.long_params import rest_is_long

SMALL = {"vocab": 17, "width": 16, "heads": 4, "ffn": 24, "layers": 2, "length": 24}


def small(**settings):
    """Away from its initial weights, which are so small that attention is nearly uniform."""
    model = build("gpt", **(SMALL | settings)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    return model


STRICT = [name for name in MECHANISMS if resolve(MECHANISMS, name, "attention").traits.causality == "strict"]
VARIANTS = (
    {
        "gpt2": {},
        "rms": {"norm_kind": "rms"},
        "swiglu": {"feedforward": "swiglu"},
        "qk-norm": {"qk_norm": "rms"},
        "qk-norm and rotary": {"qk_norm": "layer", "positions": "rotary"},
        "modern": {"norm_kind": "rms", "positions": "rotary", "feedforward": "swiglu", "qk_norm": "rms", "bias": False},
        "no bias": {"bias": False},
        "grouped": {"kv_heads": 2},
        "multi-query": {"kv_heads": 1, "qk_norm": "rms"},
        "untied": {"tied": False},
        "plain backend": {"attention": "softmax(backend='eager')"},
        "one a layer": {"attention": ["softmax", "softmax(scale=0.5)"]},
        "experts": {"feedforward": "moe(num_experts=3, top_k=2)"},
    }
    | {name: {"positions": name} for name in POSITIONS}
    | {name: {"attention": name} for name in STRICT}
)


@pytest.mark.parametrize(
    ("size", "parameters"),
    [("gpt2", 124_439_808), ("medium", 354_823_168), ("large", 774_030_080), ("xl", 1_557_611_200)],
)
def test_sizes_have_the_published_parameters(size, parameters):
    with torch.device("meta"):
        model = build("gpt", size=size, vocab=50257)
    assert sum(p.numel() for p in model.parameters()) == parameters


def test_char_and_tiny_are_nanogpts():
    # its own count leaves the positions out: 10.65 M and 0.80 M
    for size, body in (("char", 10_646_784), ("tiny", 795_904)):
        with torch.device("meta"):
            model = build("gpt", size=size, vocab=65)
        count = sum(p.numel() for p in model.parameters()) - model.decoder.positions.table.weight.numel()
        assert count == body
    assert set(SIZES) == {"gpt2", "medium", "large", "xl", "char", "tiny"}


@pytest.mark.parametrize("name", VARIANTS)
def test_batch_equals_singles(double, name):
    model = small(**VARIANTS[name])
    tokens, lengths = torch.randint(17, (3, 7)), torch.tensor([7, 2, 4])
    for whole in (model(tokens), model(tokens, lengths)):
        for row, length in enumerate(lengths.tolist()):
            single = model(tokens[row : row + 1, :length])
            torch.testing.assert_close(whole[row : row + 1, :length], single, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", VARIANTS)
def test_the_future_has_no_influence(double, name):
    model = small(**VARIANTS[name])
    tokens = torch.randint(17, (2, 6))
    changed = tokens.clone()
    changed[:, 3:] = (changed[:, 3:] + 5) % 17
    torch.testing.assert_close(model(tokens)[:, :3], model(changed)[:, :3], rtol=1e-10, atol=1e-10)
    assert not torch.allclose(model(tokens)[:, 3:], model(changed)[:, 3:])


@pytest.mark.parametrize("name", VARIANTS)
def test_every_parameter_gets_a_gradient(name):
    model = small(**VARIANTS[name])
    model(torch.randint(17, (2, 6))).square().sum().backward()
    missing = [n for n, p in model.named_parameters() if p.grad is None or not p.grad.abs().sum() > 0]
    assert not missing


@pytest.mark.parametrize("name", VARIANTS)
def test_prompts_and_steps_equal_one_forward(double, name):
    """Right-padded prompts of different lengths, each row then goes on from its own place."""
    model = small(**VARIANTS[name])
    texts, lengths = torch.randint(17, (4, 12)), torch.tensor([6, 1, 4, 2])
    whole = model(texts)
    prompts = texts[:, :6].masked_fill(torch.arange(6) >= lengths[:, None], 16)
    first, state = model.start(prompts, lengths, capacity=6)
    tokens, rows = first, torch.arange(4)
    for t in range(6):
        at = lengths - 1 + t
        assert torch.equal(tokens[:, 0], texts[rows, at])
        logits, state = model.step(tokens, state)
        torch.testing.assert_close(logits[:, 0], whole[rows, at], rtol=1e-9, atol=1e-9)
        tokens = texts[rows, at + 1][:, None]


@pytest.mark.parametrize("lengths", [None, [5, 1, 3]])
def test_frozen_steps_equal_growing_ones(double, lengths):
    """What a GPU records: counters as tensors, static shapes; beams reordered, and one input dropped."""
    model = small(positions="rotary")
    prompts, target = torch.randint(17, (3, 5)), torch.randint(17, (3, 2, 6))
    inputs = (prompts,) if lengths is None else (prompts, torch.tensor(lengths))
    results = []
    for freeze in (False, True):
        first, state = model.start(*inputs, capacity=13)
        seen = []
        logits, state = model.step(first, state)
        state = model.select(state, None, torch.zeros(3, 2, dtype=torch.long))
        state = model.freeze(state) if freeze else state
        for t in range(3):
            logits, state = model.step(target[..., t], state)
            state = model.select(state, None, torch.tensor([[1, 0], [0, 0], [1, 1]]))
            seen.append(logits)
        state = model.select(state, torch.tensor([0, 2]), torch.tensor([[0, 1], [1, 0]]))
        for t in range(3, 6):
            logits, state = model.step(target[[0, 2], :, t], state)
            seen.append(logits)
        results.append(torch.cat([s.flatten() for s in seen]))
    torch.testing.assert_close(*results, rtol=1e-10, atol=1e-10)


SEARCHES = {
    "greedy": lambda model, *inputs, seed: greedy_search(model, *inputs, max_length=6),
    "beam": lambda model, *inputs, seed: beam_search(model, *inputs, max_length=6, beam_size=3, num_candidates=2),
    "sample": lambda model, *inputs, seed: sample(model, *inputs, max_length=6, num_samples=2, top_k=9, seed=seed),
}


@pytest.mark.parametrize("name", SEARCHES)
@pytest.mark.parametrize("positions", ["learned", "rotary", "alibi"])
def test_search_over_a_ragged_batch_equals_singles(double, name, positions):
    model = small(positions=positions)
    prompts, lengths = torch.randint(17, (5, 6)), torch.tensor([6, 1, 4, 2, 6])
    whole = SEARCHES[name](model, prompts, lengths, seed=[3, 4, 5, 6, 7])
    for row, length in enumerate(lengths.tolist()):
        single = SEARCHES[name](model, prompts[row : row + 1, :length], seed=[3 + row])[0]
        for a, b in zip(*([found] if name == "greedy" else found for found in (whole[row], single)), strict=True):
            assert a.tokens == b.tokens
            assert a.score == pytest.approx(b.score)


def test_greedy_equals_decoding_without_a_cache(double):
    model = small()
    prompts, lengths = torch.randint(17, (3, 5)), torch.tensor([5, 2, 3])
    found = greedy_search(model, prompts, lengths, max_length=7)
    for row, length in enumerate(lengths.tolist()):
        text = prompts[row, :length].tolist()
        for _ in range(7):
            text.append(int(model(torch.tensor([text]))[0, -1].argmax()))
            if text[-1] == model.eos:
                break
        assert [*found[row].tokens, *([0] if found[row].finished else [])] == text[length:]


def test_search_does_not_change_the_prompts(double):
    model = small()
    for width in (1, 3):
        prompts, lengths = torch.randint(17, (2, width)), torch.tensor([width, 1])
        before = prompts.clone(), lengths.clone()
        greedy_search(model, prompts, max_length=4)
        greedy_search(model, prompts, lengths, max_length=4)
        assert torch.equal(prompts, before[0])
        assert torch.equal(lengths, before[1])


def test_int32_tokens_are_accepted(double):
    model = small()
    prompts, lengths = torch.randint(17, (3, 5)), torch.tensor([5, 2, 3])
    wide, narrow = (
        greedy_search(model, prompts, lengths, max_length=4),
        greedy_search(model, prompts.int(), lengths.int(), max_length=4),
    )
    assert [h.tokens for h in wide] == [h.tokens for h in narrow]


def test_watch_captures_every_layer_and_does_not_change_the_output(double):
    model = small(qk_norm="rms")
    tokens = torch.randint(17, (2, 5))
    plain = model(tokens)
    with watch(model) as seen:
        assert torch.equal(model(tokens), plain)
    assert list(seen) == ["decoder.blocks.0.mix", "decoder.blocks.1.mix"]
    for trace in seen.values():
        assert trace.weights.shape == (2, 4, 5, 5)
        assert trace.weights.triu(1).abs().max() == 0
        torch.testing.assert_close(trace.weights.sum(-1), torch.ones(2, 4, 5))


def test_watch_captures_the_alignment_of_every_step(double):
    model = small()
    prompts, lengths = torch.randint(17, (2, 4)), torch.tensor([4, 2])
    with watch(model, only="decoder.blocks.1.mix") as seen:
        greedy_search(model, prompts, lengths, max_length=3, banned_tokens=[0])
    calls = seen.calls("decoder.blocks.1.mix")
    assert [call.weights.shape[2:] for call in calls] == [(3, 3), (1, 4), (1, 5), (1, 6)]  # the prompts, then steps
    assert calls[1].weights[1, :, 0, 1:3].abs().max() == 0  # the padding of the shorter prompt
    torch.testing.assert_close(calls[-1].weights.sum(-1), torch.ones(2, 4, 1))


def test_initial_weights_follow_gpt2():
    model = build("gpt", vocab=500, width=128, heads=4, layers=8)
    stds = {name: float(p.detach().std()) for name, p in model.named_parameters() if p.ndim == 2}
    for name, std in stds.items():
        wanted = 0.02 / 4 if name.endswith(("join.out.weight", "feed.down.weight")) else 0.02
        assert std == pytest.approx(wanted, rel=0.05), name
    assert model.head.weight is model.embed.weight
    assert all(p.abs().max() == 0 for name, p in model.named_parameters() if name.endswith("bias"))
    untied = build("gpt", **SMALL, tied=False)
    assert untied.head.weight is not untied.embed.weight


def test_loss_inside_forward_equals_loss_of_the_logits():
    model = small()
    tokens, targets = torch.randint(17, (2, 6)), torch.randint(17, (2, 6))

    def loss(x, weight, wanted):
        return torch.nn.functional.cross_entropy((x @ weight.T).flatten(0, 1), wanted.flatten(), reduction="sum")

    expected = torch.nn.functional.cross_entropy(model(tokens).flatten(0, 1), targets.flatten(), reduction="sum")
    torch.testing.assert_close(model(tokens, targets=targets, loss=loss), expected)


MODERN = {"positions": "rotary", "qk_norm": "rms", "feedforward": "swiglu", "norm_kind": "rms"}


@pytest.mark.parametrize("more", rest_is_long([{}, MODERN], MODERN), ids=["plain", "modern"])
def test_compiles_to_one_graph_for_many_shapes(python, more):
    """In a child process: dynamo cannot trace through the shape checks that tests switch on."""
    code = f"""
import torch
from torch._dynamo.testing import CompileCounterWithBackend
from regard.models import build
model = build("gpt", size="tiny", vocab=17, width=16, heads=2, layers=1, **{more}).eval()
counter = CompileCounterWithBackend("aot_eager")
run = torch.compile(model, backend=counter, fullgraph=True, dynamic=True)
for n in (6, 9, 16, 11):
    tokens = torch.randint(17, (2, n))
    torch.testing.assert_close(run(tokens), model(tokens))
    graphs = counter.frame_count if n == 6 else graphs
assert counter.frame_count == graphs, "a new shape was compiled anew"
"""
    python(code)


@pytest.mark.parametrize(
    ("prompts", "lengths", "said"),
    [
        (torch.zeros(2, 0, dtype=torch.long), None, "empty"),
        (torch.zeros(2, 3, dtype=torch.long), torch.tensor([2, 0]), "from 1 to 3, got 0 to 2"),
        (torch.zeros(2, 3, dtype=torch.long), torch.tensor([2, 4]), "from 1 to 3, got 2 to 4"),
        (torch.tensor([[3, 17]]), None, "token ids must be from 0 to 16, got 17"),
        (torch.tensor([[3, -1]]), None, "got -1"),
        (torch.zeros(1, 26, dtype=torch.long), None, "24 were learned"),
    ],
    ids=["no token", "no length", "too long a length", "unknown token", "below zero", "beyond the context"],
)
def test_invalid_prompts_raise(prompts, lengths, said):
    with pytest.raises(BadInput, match=said):
        small().start(prompts, lengths, capacity=4)


def test_unknown_parts_suggest_the_nearest():
    with pytest.raises(UnknownName, match="did you mean 'gelu_tanh'"):
        build("gpt", **SMALL, feedforward="gelu_tan")
    with pytest.raises(UnknownName, match="did you mean 'rms'"):
        build("gpt", **SMALL, qk_norm="rsm")

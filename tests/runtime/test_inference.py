from types import SimpleNamespace

import pytest
import torch
from torch import nn

from regard.core.errors import Unsupported
from regard.decoding.beam_search import beam_search, greedy_search
from regard.models import build
from regard.runtime import cuda_graph, inference

int8 = pytest.mark.skipif(
    "fbgemm" not in torch.backends.quantized.supported_engines, reason="no int8 products on this processor"
)
WAYS = [
    pytest.param(inference.pack_weights, id="prepare"),
    pytest.param(inference.quantize_int8, id="quantize_int8", marks=int8),
]


@pytest.fixture(autouse=True)
def _small_is_large(monkeypatch):
    monkeypatch.setattr(inference, "MIN_WEIGHTS", 0)


def model(name="transformer", **settings):
    settings = {"vocab": 50, "width": 32, "dropout": 0.1, "head_bias": True} | settings
    if name == "transformer":
        settings |= {"heads": 4, "ffn": 64, "encoder_layers": 2, "decoder_layers": 2}
    else:
        settings.pop("head_bias")
    built = build(name, **settings).eval()
    with torch.no_grad():
        for parameter in built.parameters():
            if parameter.dim() == 1:
                parameter.add_(torch.randn_like(parameter) * 0.1)
    return built


def inputs():
    lengths = torch.tensor([7, 3, 5])
    return torch.randint(3, 50, (3, 7)), lengths


@pytest.mark.parametrize("feed", ["relu", "gelu", "swiglu"])
def test_prepared_model_gives_the_same_outputs(feed):
    plain = model(feedforward=feed)
    source, lengths = inputs()
    target = torch.randint(3, 50, (3, 6))
    before = plain(source, target, lengths)
    words = [one.tokens for one in greedy_search(plain, source, lengths, max_length=8)]
    beams = [[one.tokens for one in row] for row in beam_search(plain, source, lengths, max_length=8, num_candidates=2)]
    ready = inference.pack_weights(plain)
    with torch.inference_mode():
        assert torch.allclose(ready(source, target, lengths), before, atol=1e-5)
    assert [one.tokens for one in greedy_search(ready, source, lengths, max_length=8)] == words
    assert [
        [one.tokens for one in row] for row in beam_search(ready, source, lengths, max_length=8, num_candidates=2)
    ] == beams


@pytest.mark.skipif(not inference._can_pack(), reason="no oneDNN on this processor")
@pytest.mark.parametrize("then", [("none", ""), ("relu", ""), ("gelu", "none")], ids=lambda then: then[0])
def test_few_rows_equal_the_same_rows_in_a_batch(then):
    linear = nn.Linear(48, 40)
    ready, x = inference._PackedLinear(linear, then), torch.randn(9, 48)
    exact = ready.activated(linear(x))
    for rows in (1, 2, 5, 6, 9):
        for some in (x[:rows], x[:rows, None], x[None, :rows]):
            out = ready(some)
            assert out.shape == (*some.shape[:-1], 40)
            torch.testing.assert_close(out.view(rows, 40), exact[:rows], rtol=1e-5, atol=1e-5)
    assert ready(x[:0]).shape == (0, 40)


@pytest.mark.parametrize("rows", [1, inference.PACK_ROWS])
def test_column_major_outputs_are_equal(rows, monkeypatch):
    """For one row at a time without a kernel for it, and where there is no oneDNN."""
    monkeypatch.setattr(inference.few_rows, "load_library", lambda: None)
    if rows > 1:
        monkeypatch.setattr(inference, "_can_pack", lambda: False)
    plain = model()
    source, lengths = inputs()
    before = plain(source, source, lengths)
    ready = inference.pack_weights(plain, rows=rows)
    assert any(isinstance(part, inference._ColumnMajorLinear) for part in ready.modules())
    assert torch.allclose(ready(source, source, lengths), before, atol=1e-5)


@int8
def test_int8_model_gives_nearly_the_same_outputs():
    plain = model()
    source, lengths = inputs()
    before = plain(source, source, lengths)
    with torch.inference_mode():
        after = inference.quantize_int8(plain)(source, source, lengths)
    assert (after - before).norm() / before.norm() < 0.05


@int8
def test_int8_rows_are_independent():
    linear = nn.Linear(48, 40)
    ready = inference._Int8Linear(linear)
    x = torch.randn(9, 48) * torch.logspace(-3, 3, 9)[:, None]
    x[4] = 0
    together = ready(x)
    for row in range(9):
        assert torch.equal(ready(x[row : row + 1])[0], together[row])
    exact = linear(x)
    assert ((together - exact).norm(dim=1) <= 0.02 * exact.norm(dim=1)).all()
    assert torch.equal(together[4], linear.bias)
    assert (ready.weight - linear.weight).abs().max() < linear.weight.abs().max() / 200


@pytest.mark.parametrize("way", WAYS)
def test_packing_twice_changes_nothing(way):
    ready = way(model())
    parts = dict(ready.named_modules())
    assert way(ready) is ready
    assert dict(ready.named_modules()) == parts
    assert not any(type(part) is nn.Linear for part in parts.values())


@pytest.mark.parametrize("way", WAYS)
def test_embedding_is_unchanged_and_tied_head_is_copied(way):
    plain = model()
    assert plain.head.weight is plain.embed.weight
    table, copy = plain.embed.weight, plain.embed.weight.detach().clone()
    ready = way(plain)
    assert ready.embed.weight is table
    assert torch.equal(table, copy)
    assert table.is_contiguous()
    assert not isinstance(ready.head, nn.Linear)


@pytest.mark.parametrize("way", WAYS)
def test_shared_module_stays_shared(way):
    shared = nn.Linear(8, 8)
    ready = way(nn.ModuleDict({"a": nn.Sequential(shared), "b": nn.Sequential(shared)}))
    assert ready["a"][0] is ready["b"][0]


@pytest.mark.parametrize("name", ["vit", "swin", "swinv2", "mvit"])
def test_image_models_can_be_packed(name, monkeypatch):
    monkeypatch.setattr(inference, "MIN_WEIGHTS", 0)
    torch.manual_seed(0)
    model, images = build(name, "tiny").eval(), torch.randn(2, 3, 32, 32)
    with torch.no_grad():
        for weight in model.parameters():  # a norm of zero would hide everything
            weight += 0.02 * torch.randn_like(weight)
        expected = model(images)
        inference.pack_weights(model)
        assert any(isinstance(part, inference._InferenceLinear) for part in model.modules())
        torch.testing.assert_close(model(images), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("way", WAYS)
def test_recurrent_models_can_be_packed(way):
    plain = model("rnnsearch")
    source, lengths = inputs()
    ready = way(plain)
    assert len(greedy_search(ready, source, lengths, max_length=5)) == 3


@pytest.mark.parametrize("way", WAYS)
def test_inference_models_can_be_neither_trained_nor_saved(way):
    ready = way(model())
    with pytest.raises(Unsupported, match="trained"):
        ready.train()
    with pytest.raises(Unsupported, match="saved"):
        ready.state_dict()
    assert not any(part.training for part in ready.eval().modules())


@pytest.mark.parametrize("way", WAYS)
def test_a_gradient_through_an_inference_model_raises(way):
    ready, (source, lengths) = way(model()), inputs()
    out = ready(source, torch.randint(3, 50, (3, 6)), lengths)
    with pytest.raises(Unsupported, match="no gradients"):
        out.sum().backward()


@pytest.mark.parametrize("way", WAYS)
def test_other_dtypes_are_left_alone(way):
    plain = model().double()
    ready = way(plain)
    assert type(ready.head) is nn.Linear
    assert ready.head.weight is ready.embed.weight


@pytest.mark.parametrize("way", WAYS)
def test_inference_models_can_be_watched(way):
    from regard.attention.capture.watch import watch

    ready = way(model())
    source, lengths = inputs()
    with torch.no_grad(), watch(ready) as seen:
        ready(source, source, lengths)
    assert len(list(seen)) == 6


@int8
def test_packing_and_quantising_exclude_each_other():
    ready = inference.pack_weights(model())
    with pytest.raises(Unsupported, match="another way"):
        inference.quantize_int8(ready)


def test_small_matrices_are_left_alone(monkeypatch):
    monkeypatch.setattr(inference, "MIN_WEIGHTS", 32 * 50)
    ready = inference.pack_weights(model())
    assert isinstance(ready.head, inference._InferenceLinear)
    assert type(ready.encoder.blocks[0].mix.join.out) is nn.Linear


@int8
def test_weight_format():
    model = build("transformer", size="small", vocab=600).eval()
    assert inference.weight_format(model) == "float32"
    assert inference.weight_format(inference.quantize_int8(model)) == "int8"


def test_compiled_steps_equal_eager_steps(python):
    """In a child process: dynamo cannot trace through the shape checks that tests switch on.

    A CUDA graph reads and writes the memory it was captured with, so a compiled step must leave its results where the
    eager one does; and it must not be recompiled after the first two steps, when the third is captured.
    """
    code = """
import torch
from torch._dynamo.testing import CompileCounterWithBackend
from regard.attention.capture.watch import watch
from regard.models import build
from regard.runtime import cuda_graph, inference
modern = {"positions": "rotary", "qk_norm": "rms", "feedforward": "swiglu", "norm_kind": "rms", "bias": False}
for parts in ({}, modern):
    model = build("gpt", size="tiny", vocab=17, width=16, heads=2, layers=2, **parts).eval()
    counter, found = CompileCounterWithBackend("aot_eager"), []
    with torch.inference_mode():
        compiled = lambda m: inference.compile_step(inference.compile_step(m, backend=counter, fullgraph=True))
        for way in (lambda m: m, compiled):
            way(model)
            tokens, state = model.start(torch.tensor([[3, 4, 5], [6, 7, 0]]), torch.tensor([3, 2]), capacity=9)
            logits, state = model.step(tokens, state)
            state, seen = model.freeze(state), [logits]
            memory = [x.data_ptr() for x in cuda_graph._tensors(state)]
            for t in range(6):
                tokens.copy_(logits.argmax(-1))
                logits, state = model.step(tokens, state)
                seen.append(logits)
                assert [x.data_ptr() for x in cuda_graph._tensors(state)] == memory
                if t == 1:
                    before = counter.frame_count
            assert counter.frame_count == before
            found.append(torch.cat(seen))
        assert counter.frame_count > 0
        torch.testing.assert_close(*found, rtol=1e-4, atol=1e-5)
        with watch(model) as maps:
            model.step(tokens, state)
        assert len(maps) == 2
"""
    python(code)


class Steps(nn.Module):
    """A model whose step says how it ran, on states that say whether their shapes are static."""

    def freeze(self, state):
        return state

    def step(self, tokens, state):
        return "eager", state


def frozen(is_frozen=True):
    filled = torch.zeros(()) if is_frozen else 3
    return SimpleNamespace(beam_table=SimpleNamespace(filled=filled))


def test_steps_are_compiled_once_searches_of_their_shape_took_long(monkeypatch):
    monkeypatch.setattr(torch, "compile", lambda step, **options: lambda tokens, state: ("compiled", state))
    model = inference.compile_step(Steps(), after=30.0)
    search = SimpleNamespace(model=model, shape_key="16 rows")

    def run(**how):
        return model.step(None, frozen(**how))[0]

    assert not cuda_graph.choose_compiled(model, "16 rows")
    assert run() == "eager"
    cuda_graph.add_seconds(search, 29.0)
    assert not cuda_graph.choose_compiled(model, "16 rows")
    cuda_graph.add_seconds(search, 1.5)
    assert cuda_graph.choose_compiled(model, "16 rows")  # from now on, so that its graph is captured anew
    assert not cuda_graph.choose_compiled(model, "16 rows")
    assert run() == "compiled"
    assert run(is_frozen=False) == "eager"
    assert not cuda_graph.choose_compiled(model, "4 rows")
    assert run() == "eager"
    for number in range(inference.MAX_COMPILED + 3):
        model.step.seconds[number] = 31.0
        cuda_graph.choose_compiled(model, number)
    assert len(model.step.compiled) == inference.MAX_COMPILED


def test_steps_are_compiled_at_once_where_that_was_asked(monkeypatch):
    monkeypatch.setattr(torch, "compile", lambda step, **options: lambda tokens, state: ("compiled", state))
    model = inference.compile_step(Steps())
    assert model.step(None, frozen())[0] == "compiled"
    assert not cuda_graph.choose_compiled(model, "any")
    assert model.step(None, frozen())[0] == "compiled"


def test_a_step_runs_uncompiled_where_the_compiler_fails(monkeypatch):
    failure = type("BackendCompilerFailed", (Exception,), {"__module__": "torch._dynamo.exc"})

    def fail(tokens, state):
        raise failure("no compiler here")

    monkeypatch.setattr(torch, "compile", lambda step, **options: fail)
    model = inference.compile_step(Steps())
    with pytest.warns(UserWarning, match="runs uncompiled: no compiler here"):
        assert model.step(None, frozen())[0] == "eager"
    assert model.step(None, frozen())[0] == "eager"


def test_only_models_on_a_gpu_are_prepared_for_compiling():
    model = build("gpt", size="tiny", vocab=17, width=16, heads=2, layers=1).eval()
    assert "step" not in vars(inference.prepare_step(model))


def test_model_without_static_shapes_is_not_compiled():
    with pytest.raises(Unsupported, match="no static shapes"):
        inference.compile_step(nn.Linear(2, 2))

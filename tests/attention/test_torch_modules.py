"""Models of other libraries are watched too: their fused kernels stay on, and the maps are those they would give."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import regard
from regard.attention.capture.watch import watch
from regard.core.errors import RegardError

transformers = pytest.importorskip("transformers")
timm = pytest.importorskip("timm")

TINY = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 24}
SEQ2SEQ = {
    "vocab_size": 20, "d_model": 16, "encoder_layers": 1, "decoder_layers": 2, "encoder_attention_heads": 2,
    "decoder_attention_heads": 2, "encoder_ffn_dim": 24, "decoder_ffn_dim": 24, "max_position_embeddings": 16,
    "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2, "decoder_start_token_id": 2,
}  # fmt: skip
TEXT = {"input_ids": torch.tensor([[3, 4, 5, 6, 7], [8, 9, 10, 1, 1]])}
PADDED = TEXT | {"attention_mask": torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]])}
THEIRS = {  # what makes one with a given implementation, what it is given, and where its answer keeps the maps
    "bert": (lambda **how: transformers.BertModel(transformers.BertConfig(vocab_size=20, **TINY, **how)), PADDED),
    "gpt2": (
        lambda **how: transformers.GPT2Model(
            transformers.GPT2Config(vocab_size=20, n_embd=16, n_layer=2, n_head=2, n_positions=8, **how)
        ),
        PADDED,
    ),
    "llama": (
        lambda **how: transformers.LlamaModel(
            transformers.LlamaConfig(vocab_size=20, num_key_value_heads=2, **TINY, **how)
        ),
        PADDED,
    ),
    "vit": (
        lambda **how: transformers.ViTModel(transformers.ViTConfig(image_size=8, patch_size=4, **TINY, **how)),
        {"pixel_values": torch.linspace(-1, 1, 2 * 3 * 64).view(2, 3, 8, 8)},
    ),
    "bart": (
        lambda **how: transformers.BartModel(transformers.BartConfig(**SEQ2SEQ, **how)),
        PADDED | {"decoder_input_ids": torch.tensor([[2, 3, 4], [2, 5, 6]])},
    ),
}


def theirs(name, how):
    torch.manual_seed(3)
    make, given = THEIRS[name]
    return make(attn_implementation=how).eval(), given


def first(output):
    return output if torch.is_tensor(output) else output[0]


@pytest.mark.parametrize("how", ["sdpa", "eager"])
@pytest.mark.parametrize("name", THEIRS)
def test_the_maps_are_those_that_transformers_gives_without_its_kernels(name, how):
    eager, given = theirs(name, "eager")
    model, _ = theirs(name, how)
    with torch.no_grad():
        plain = model(**given)
        with watch(model) as seen:
            watched = model(**given)
        wanted = eager(**given, output_attentions=True)
    assert torch.equal(first(plain), first(watched))
    if name == "bart":
        every = [*wanted.encoder_attentions]
        for own, cross in zip(wanted.decoder_attentions, wanted.cross_attentions, strict=True):
            every += [own, cross]
        assert [trace.kind for trace in seen.traces()] == ["self", "self", "cross", "self", "cross"]
    else:
        every = wanted.attentions
    assert len(seen) == len(every)
    for trace, matrix in zip(seen.traces(), every, strict=True):
        seen_rows = matrix.sum(-1) > 0  # of padded queries everyone makes something else
        torch.testing.assert_close(trace.weights[seen_rows], matrix[seen_rows], rtol=1e-5, atol=1e-6)


def test_names_are_paths_of_modules_and_choices_are_kept():
    model, given = theirs("bert", "sdpa")
    with torch.no_grad():
        with watch(model) as whole:
            model(**given)
        with watch(model, only="encoder.layer.1.*", heads=[2, 0], queries=[4, 1]) as seen:
            model(**given)
    assert list(whole) == ["encoder.layer.0.attention.self", "encoder.layer.1.attention.self"]
    assert list(seen) == ["encoder.layer.1.attention.self"]
    trace = seen["encoder.layer.1.attention.self"]
    torch.testing.assert_close(trace.weights, whole[trace.name].weights[:, [2, 0]][:, :, [4, 1]])
    assert (trace.heads, trace.queries) == ((2, 0), (4, 1))
    assert trace.weights[1, :, :, 3:].abs().max() == 0  # padding


@pytest.mark.parametrize("name", ["bert", "llama", "bart"])
def test_gradients_of_weights_are_the_same_fused_and_written_out(name):
    found = []
    for how in ("sdpa", "eager"):
        model, given = theirs(name, how)
        model = model.double()
        with watch(model, gradients=True) as seen:
            model(**given).last_hidden_state[0, -1, 3].backward()
        found.append(seen)
    for fused, written in zip(found[0].traces(), found[1].traces(), strict=True):
        near = (
            {"rtol": 1e-7, "atol": 1e-10} if written.gradient.dtype == torch.float64 else {"rtol": 1e-4, "atol": 1e-7}
        )
        torch.testing.assert_close(fused.gradient[:1].to(written.gradient), written.gradient[:1], **near)
    assert max(float(trace.gradient.abs().max()) for trace in found[0].traces()) > 1e-6


def test_gradients_are_those_of_autograd():
    torch.manual_seed(1)
    q, k, v = (torch.randn(2, 4, 5, 3, dtype=torch.float64, requires_grad=True) for _ in "qkv")

    class Mine(nn.Module):
        def forward(self, q, k, v):
            return F.scaled_dot_product_attention(q, k, v, scale=0.7)

    model, asked = Mine(), torch.randn(2, 4, 5, 3, dtype=torch.float64)
    with watch(model, gradients=True) as seen:
        (model(q, k, v) * asked).sum().backward()
    weights = (q @ k.mT * 0.7).softmax(-1).detach().requires_grad_()
    ((weights @ v) * asked).sum().backward()
    torch.testing.assert_close(seen[""].weights, weights.detach())
    torch.testing.assert_close(seen[""].gradient, weights.grad)


@pytest.mark.parametrize("name", ["vit_tiny_patch16_224", "swin_tiny_patch4_window7_224", "mvitv2_tiny"])
def test_timm(name):
    torch.manual_seed(0)
    size = {"mvitv2_tiny": 64}.get(name, 224)
    model = timm.create_model(name, img_size=size).eval()
    images = torch.randn(1, 3, size, size)
    parts = [path for path, module in model.named_modules() if type(module).__name__.endswith("Attention")]
    parts += [path for path, module in model.named_modules() if type(module).__name__ == "MultiScaleAttention"]
    with torch.no_grad():
        plain = model(images)
        with watch(model) as seen:
            watched = model(images)
    assert torch.equal(plain, watched)
    assert set(seen) == set(parts)
    for trace in seen.traces():
        torch.testing.assert_close(trace.weights.sum(-1), torch.ones(trace.weights.shape[:-1]))


@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("batch_first", [True, False])
def test_multihead_attention_of_pytorch(need_weights, training, batch_first):
    torch.manual_seed(0)
    model = nn.MultiheadAttention(12, 3, batch_first=batch_first).train(training)
    x, y = torch.randn(2, 4, 12), torch.randn(2, 6, 12)
    lost = torch.tensor([[False] * 6, [False] * 3 + [True] * 3])
    x, y = (x, y) if batch_first else (x.transpose(0, 1), y.transpose(0, 1))
    given = {"key_padding_mask": lost, "need_weights": need_weights}
    _, wanted = model(x, y, y, key_padding_mask=lost, average_attn_weights=False)
    plain, mean = model(x, y, y, **given)
    with watch(model, gradients=True) as seen:
        watched, also = model(x, y, y, **given)
        watched.sum().backward()
    torch.testing.assert_close(plain, watched)
    torch.testing.assert_close(seen[""].weights, wanted.detach())
    assert seen[""].gradient.shape == wanted.shape
    assert seen[""].gradient.abs().max() > 0
    if need_weights:
        torch.testing.assert_close(also, mean)


def test_a_transformer_of_pytorch():
    torch.manual_seed(0)
    model = nn.Transformer(16, 2, 1, 2, 24, batch_first=True).eval()
    source, target = torch.randn(2, 5, 16), torch.randn(2, 4, 16)
    mask = nn.Transformer.generate_square_subsequent_mask(4)
    with torch.no_grad():
        plain = model(source, target, tgt_mask=mask)
        with watch(model) as seen:
            watched = model(source, target, tgt_mask=mask)
    torch.testing.assert_close(plain, watched)
    assert {name: (trace.kind, tuple(trace.weights.shape)) for name, trace in seen.items()} == {
        "encoder.layers.0.self_attn": ("self", (2, 2, 5, 5)),
        "decoder.layers.0.self_attn": ("self", (2, 2, 4, 4)),
        "decoder.layers.0.multihead_attn": ("cross", (2, 2, 4, 5)),
        "decoder.layers.1.self_attn": ("self", (2, 2, 4, 4)),
        "decoder.layers.1.multihead_attn": ("cross", (2, 2, 4, 5)),
    }
    assert seen["decoder.layers.1.self_attn"].weights.triu(1).abs().max() == 0


SHAPES = {  # q, k, mask: whatever PyTorch's function takes
    "two axes": ((4, 3), (5, 3), (4, 5)),
    "three axes": ((2, 4, 3), (2, 5, 3), (2, 4, 5)),
    "five axes": ((2, 3, 2, 4, 3), (2, 3, 2, 5, 3), (2, 1, 1, 1, 5)),
    "a mask for each head": ((2, 3, 4, 3), (2, 3, 5, 3), (3, 4, 5)),
    "grouped heads": ((2, 4, 4, 3), (2, 2, 5, 3), (4, 5)),
}


@pytest.mark.parametrize("added", [True, False])
@pytest.mark.parametrize("shapes", SHAPES.values(), ids=SHAPES)
def test_weights_times_values_are_the_output(shapes, added):
    torch.manual_seed(4)
    q, k = (torch.randn(shape, dtype=torch.float64) for shape in shapes[:2])
    v, mask = torch.randn_like(k), torch.randn(shapes[2], dtype=torch.float64)
    mask = mask if added else mask > -1.5
    if not added:
        mask[..., 0] = True

    class Mine(nn.Module):
        def forward(self):
            return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=q.shape[:-2] != k.shape[:-2])

    model = Mine()
    with watch(model, gradients=False) as seen:
        out = model()
    assert torch.equal(out, model())
    weights = seen[""].weights
    four = v.flatten(0, -4) if v.ndim > 3 else v.view(-1, 1, *v.shape[-2:])
    found = weights @ four.repeat_interleave(weights.shape[1] // four.shape[1], dim=1)
    torch.testing.assert_close(found.view(out.shape), out)


def test_causal_and_blind_rows():
    q = torch.randn(1, 2, 4, 3)

    class Mine(nn.Module):
        def forward(self, **how):
            return F.scaled_dot_product_attention(q, q, q, **how)

    model = Mine()
    with watch(model) as seen:
        model(is_causal=True)
    assert seen[""].weights.triu(1).abs().max() == 0
    nothing = torch.zeros(4, 4).index_fill(0, torch.tensor([2]), float("-inf"))
    with watch(model, queries=[2, 3]) as seen:
        model(attn_mask=nothing)
    assert seen[""].weights[:, :, 0].abs().max() == 0
    torch.testing.assert_close(seen[""].weights[:, :, 1].sum(-1), torch.ones(1, 2))


def test_the_random_state_is_left_alone_in_training():
    model, given = theirs("bert", "sdpa")
    model.train()
    torch.manual_seed(5)
    plain, after = first(model(**given)), torch.get_rng_state()
    torch.manual_seed(5)
    with watch(model):
        watched = first(model(**given))
    assert torch.equal(plain, watched)
    assert torch.equal(torch.get_rng_state(), after)


class Mixed(nn.Module):
    """One layer of ours, one of theirs, and a head that has a softmax of its own."""

    def __init__(self):
        super().__init__()
        self.ours = regard.build("vit", size="tiny", image_size=8, patch_size=4, num_classes=0)
        self.theirs = nn.MultiheadAttention(self.ours.config.width, 2, batch_first=True)

    def forward(self, images):
        tokens = self.ours(images)[:, None]
        return self.theirs(tokens, tokens, tokens, need_weights=False)[0].softmax(-1)


def test_parts_of_ours_within_others_are_seen_once():
    model = Mixed().eval()
    with torch.no_grad(), watch(model.ours) as alone:
        model.ours(torch.zeros(1, 3, 8, 8))
    with torch.no_grad(), watch(model) as seen:
        model(torch.zeros(1, 3, 8, 8))
    assert list(seen) == [*(f"ours.{name}" for name in alone), "theirs"]
    assert all(len(seen.calls(name)) == 1 for name in seen)


def test_keeping_what_maps_are_made_of():
    for how in ("sdpa", "eager"):
        model, given = theirs("bart", how)
        with torch.no_grad(), regard.watch_lazy(model) as store, watch(model) as seen:
            model(**given)
        assert store.names() == list(seen)
        for name, held in store.items():
            assert torch.equal(held.weights(heads=[1], queries=[2]), seen[name].weights[:, [1]][:, :, [2]])


def test_nothing_that_attends_is_an_error_and_hooks_are_gone():
    class Mine(nn.Module):
        def forward(self, x):
            return x.softmax(-1)  # of a classifier: no map

    model = Mine()
    with pytest.raises(RegardError, match="no map was recorded; or nothing in it attends"), watch(model):
        model(torch.zeros(2, 3))
    with pytest.raises(RegardError, match="nothing in it that matches 'x'"), watch(model, only="x"):
        model(torch.zeros(2, 3))
    with pytest.raises(RegardError, match="nothing attends in this Linear"), watch(nn.Linear(2, 2)):
        pass
    assert not model._forward_hooks
    assert not model._forward_pre_hooks
    assert not torch.overrides._get_current_function_mode_stack()


def test_an_error_inside_leaves_names_in_order():
    class Fails(nn.Module):
        def forward(self, q, fail):
            if fail:
                raise ZeroDivisionError
            return F.scaled_dot_product_attention(q, q, q)

    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = Fails()

        def forward(self, q, fail=False):
            return self.inner(q, fail)

    model, q = Outer(), torch.randn(1, 2, 3, 4)
    with watch(model) as seen:
        with pytest.raises(ZeroDivisionError):
            model(q, fail=True)
        model(q)
    assert list(seen) == ["inner"]


def test_a_compiled_model_of_others(unchecked):
    model, given = theirs("vit", "sdpa")
    compiled = torch.compile(model, backend="eager")
    with torch.no_grad():
        plain = compiled(**given)
        with pytest.warns(UserWarning, match="eagerly"), watch(compiled) as seen:
            watched = compiled(**given)
    assert len(seen) == 2
    torch.testing.assert_close(first(plain), first(watched))

"""What other libraries call attention is shown as what it is, or refused by the name of the module."""

import threading

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import regard
from regard import see
from regard.attention.capture.watch import watch
from regard.core.errors import Unsupported

transformers = pytest.importorskip("transformers")
timm = pytest.importorskip("timm")

TINY = {
    "vocab_size": 20, "hidden_size": 16, "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 24,
}  # fmt: skip
IDS = torch.tensor([[3, 4, 5, 6, 7, 8, 9, 10], [11, 12, 13, 14, 15, 16, 17, 18]])
SMALL = {
    "hiera": lambda: timm.models.Hiera(
        (64, 64), embed_dim=8, stages=(1, 1, 1, 1), mask_unit_size=(8, 8), num_classes=3
    ),
    "nest": lambda: timm.models.Nest(
        64, num_levels=2, embed_dims=(16, 32), num_heads=(2, 4), depths=(1, 1), num_classes=3
    ),
    "xcit": lambda: timm.models.Xcit(64, embed_dim=32, depth=1, num_heads=4, cls_attn_layers=2, num_classes=3),
    "davit": lambda: timm.models.DaVit(depths=(1, 1), embed_dims=(16, 32), num_heads=(2, 4), num_classes=3),
    "edgenext": lambda: timm.models.EdgeNeXt(
        dims=(8, 16, 16, 16), depths=(1, 2, 1, 1), global_block_counts=(0, 1, 0, 0), heads=(2, 2, 2, 2), num_classes=3
    ),
    "convit": lambda: timm.models.ConVit(32, 8, embed_dim=32, depth=3, num_heads=4, local_up_to_layer=2, num_classes=3),
    "cait": lambda: timm.models.Cait(32, 8, embed_dim=32, depth=1, num_heads=4, num_classes=3),
    "volo": lambda: timm.models.VOLO(
        (1, 1, 1, 2), 64, embed_dims=(16, 32, 32, 32), num_heads=(2, 4, 4, 4), mlp_ratio=2.0, stem_hidden_dim=8,
        num_classes=3,
    ),
}  # fmt: skip


@pytest.fixture(params=["fused", "eager"])
def timm_model(request):
    """Make models of timm with or without fused attention."""
    torch.manual_seed(0)
    timm.layers.set_fused_attn(request.param == "fused")
    yield lambda name: SMALL[name]().eval()
    timm.layers.set_fused_attn(True)


def images(size=64):
    return torch.randn(2, 3, size, size, generator=torch.Generator().manual_seed(1))


def run(model, *given, only="*", **named):
    """Return the traces of a pass, after a check that the output is that of a pass without a watch."""
    with torch.no_grad():
        plain = model(*given, **named)
        with watch(model, only=only) as seen:
            watched = model(*given, **named)
    one, other = (x if torch.is_tensor(x) else x[0] for x in (plain, watched))
    assert torch.equal(one, other)
    return seen


def inputs_of(model, kind, *given):
    """Return what each module of a kind reads, and the module, by its path."""
    found, handles = {}, []
    for path, module in model.named_modules():
        if type(module).__name__ == kind:
            handles.append(
                module.register_forward_pre_hook(
                    lambda module, args, path=path: found.update({path: (module, args[0])})
                )
            )
    with torch.no_grad():
        model(*given)
    for handle in handles:
        handle.remove()
    return found


# -- layers that run several times -------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["sdpa", "eager"])
def test_a_layer_shared_by_all_depths_has_a_map_for_each_of_its_calls(how):
    torch.manual_seed(0)
    config = transformers.AlbertConfig(embedding_size=8, attn_implementation=how, **TINY)
    config.attention_probs_dropout_prob = config.hidden_dropout_prob = 0.0
    model = transformers.AlbertModel(config).eval()
    seen = run(model, IDS)
    model.set_attn_implementation("eager")
    with torch.no_grad():
        wanted = model(IDS, output_attentions=True).attentions
    assert len(wanted) == len(seen.traces()) == len(seen.last_pass()) == 4
    for trace, matrix in zip(seen.traces(), wanted, strict=True):
        torch.testing.assert_close(trace.weights, matrix, rtol=1e-5, atol=1e-6)
    whole = torch.eye(8)
    for matrix in wanted:
        whole = (0.5 * torch.eye(8) + 0.5 * matrix.mean(1)) @ whole
    torch.testing.assert_close(see.rollout(seen.traces()).weights[:, 0], whole, rtol=1e-5, atol=1e-6)
    with torch.no_grad(), regard.watch_lazy(model) as store:
        model(IDS)
        model(IDS)  # of several passes the latest is stored
    assert len(store.steps()) == 4
    assert store.bytes == sum(step.bytes for step in store.steps())
    for step, matrix in zip(store.last_pass(), wanted, strict=True):
        torch.testing.assert_close(step.weights, matrix, rtol=1e-5, atol=1e-6)


def test_steps_of_decoding_are_no_pass_and_the_latest_counts():
    model = regard.build("transformer", size="tiny", vocab=20).eval()
    with torch.no_grad(), watch(model) as seen:
        model.encode(IDS)
        model.encode(IDS[:1])
    assert [len(seen.calls(name)) for name in seen] == [2] * len(seen)
    assert [trace.weights.shape[0] for trace in seen.traces()] == [1] * len(seen)
    assert len(seen.last_pass()) == len(seen)


# -- bands and blocks --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("with_global", [False, True])
def test_longformer_is_refused_since_its_weights_are_bands(with_global):
    config = transformers.LongformerConfig(attention_window=4, pad_token_id=1, **TINY)
    model = transformers.LongformerModel(config).eval()
    mask = torch.zeros_like(IDS)
    mask[:, 0] = int(with_global)
    wanted = r"'encoder.layer.0.attention.self' \(.*LongformerSelfAttention\) rearranges its weights"
    with pytest.raises(Unsupported, match=wanted), watch(model):
        model(IDS, global_attention_mask=mask)


@pytest.mark.parametrize("kind", ["local", "transient-global"])
def test_longt5_is_refused_in_the_encoder_and_seen_in_the_decoder(kind):
    torch.manual_seed(0)
    config = transformers.LongT5Config(
        vocab_size=20, d_model=16, d_kv=4, d_ff=24, num_layers=1, num_heads=4, local_radius=3, global_block_size=4,
        encoder_attention_type=kind,
    )  # fmt: skip
    model = transformers.LongT5Model(config).eval()
    given = {"input_ids": IDS, "decoder_input_ids": IDS[:, :5]}
    with pytest.raises(Unsupported, match=r"GlobalAttention|LocalAttention\) attends in blocks whose keys overlap"):
        run(model, **given)
    seen = run(model, only="decoder*", **given)
    assert [tuple(trace.weights.shape) for trace in seen.traces()] == [(2, 4, 5, 5), (2, 4, 5, 8)]


@pytest.mark.parametrize("batch", [1, 2])
def test_halo_attention_is_refused_since_its_blocks_overlap(batch):
    """Blocks of 4 x 4 queries read 6 x 6 keys; with one image, heads and blocks could pass for heads and images."""
    module = timm.layers.halo_attn.HaloAttn(16, num_heads=8, block_size=4, halo_size=1, feat_size=(8, 8)).eval()
    with pytest.raises(Unsupported, match=r"keys overlap|8 heads"), watch(module):
        module(torch.randn(batch, 16, 8, 8))


# -- windows -----------------------------------------------------------------------------------------------------------


def test_windows_of_hiera_are_inputs_and_not_heads(timm_model):
    model = timm_model("hiera")
    seen = run(model, images())
    for path, (module, x) in inputs_of(model, "MaskUnitAttention", images()).items():
        windows = x.shape[1] // (module.q_stride * module.window_size) if module.use_mask_unit_attn else 1
        qkv = module.qkv(x).unflatten(1, (-1, windows)).unflatten(-1, (3, module.heads, -1))  # B N W 3 H D
        q, k, _ = qkv.permute(3, 0, 2, 4, 1, 5).flatten(1, 2)  # (B W) H N D
        q = q.unflatten(2, (module.q_stride, -1)).amax(2)
        wanted = (q @ k.mT * module.scale).softmax(-1)
        torch.testing.assert_close(seen[path].weights, wanted, rtol=1e-5, atol=1e-6)


def test_windows_of_nest_are_inputs_and_not_heads(timm_model):
    model = timm_model("nest")
    seen = run(model, images())
    for path, (module, x) in inputs_of(model, "Attention", images()).items():
        q, k, _ = module.qkv(x).unflatten(-1, (3, module.num_heads, -1)).permute(3, 0, 1, 4, 2, 5).flatten(1, 2)
        wanted = (q @ k.mT * module.scale).softmax(-1)
        torch.testing.assert_close(seen[path].weights, wanted, rtol=1e-5, atol=1e-6)


def test_heads_are_told_from_as_many_windows_by_the_memory_of_the_values():
    class Windowed(nn.Module):
        num_heads = 3

        def forward(self, x):  # B W N C
            q, k, v = x.unflatten(-1, (3, 3, -1)).permute(3, 0, 4, 1, 2, 5)  # B H W N D, with H = W = 3
            return F.scaled_dot_product_attention(q, k, v)

    x = torch.randn(2, 3, 5, 36)
    q, k, _ = x.unflatten(-1, (3, 3, -1)).permute(3, 0, 1, 4, 2, 5).flatten(1, 2)  # (B W) H N D
    seen = run(Windowed(), x)
    torch.testing.assert_close(seen[""].weights, (q @ k.mT / 2).softmax(-1))


def test_gradients_of_windows_have_the_layout_of_their_weights():
    class Windowed(nn.Module):
        num_heads = 2

        def forward(self, q, fused):  # B H W N D
            return F.scaled_dot_product_attention(q, q, q) if fused else (q @ q.mT / q.shape[-1] ** 0.5).softmax(-1) @ q

    q, found = torch.randn(1, 2, 3, 4, 5, dtype=torch.float64, requires_grad=True), []
    for fused in (True, False):
        model = Windowed()
        with watch(model, gradients=True) as seen:
            (model(q, fused) * torch.arange(5)).pow(2).sum().backward()
        found.append(seen[""])
    assert found[0].gradient.shape == found[0].weights.shape == (3, 2, 4, 4)
    torch.testing.assert_close(found[0].weights, found[1].weights)
    torch.testing.assert_close(found[0].gradient, found[1].gradient)


# -- channels ----------------------------------------------------------------------------------------------------------

CHANNELS = {  # refused module, modules that attend over tokens, how many of them
    "xcit": ("'blocks.0.attn' .*XCA", "cls_attn_blocks.*", 2),
    "davit": ("'stages.0.blocks.0.1.attn' .*ChannelAttention", "stages.?.blocks.?.0.attn", 2),
    "edgenext": ("'stages.1.blocks.1.xca' .*CrossCovarianceAttn", None, 0),
}


@pytest.mark.parametrize("name", CHANNELS)
def test_attention_over_channels_is_refused(timm_model, name):
    refused, only, many = CHANNELS[name]
    model = timm_model(name)
    with pytest.raises(Unsupported, match=f"{refused}.* attends over channels.*only="), watch(model):
        model(images())
    if only:
        assert len(run(model, images(), only=only)) == many


@pytest.mark.parametrize("tokens", [4, 7])
def test_attention_over_channels_is_refused_even_with_as_many_tokens_as_channels(tokens):
    class Channels(nn.Module):
        num_heads = 2

        def forward(self, x):  # B N C
            q = x.unflatten(-1, (2, -1)).permute(0, 2, 3, 1)  # B H D N
            return (q @ q.mT).softmax(-1) @ q

    class Tokens(nn.Module):
        num_heads = 2

        def forward(self, x):
            q = x.unflatten(-1, (2, -1)).transpose(1, 2)  # B H N D
            return (q @ q.mT).softmax(-1) @ q

    x = torch.randn(2, tokens, 8)
    with pytest.raises(Unsupported, match="over channels"), watch(model := Channels()):
        model(x)
    assert run(Tokens(), x)[""].weights.shape == (2, 2, tokens, tokens)


# -- what multiplies the values ----------------------------------------------------------------------------------------


def test_convit_shows_the_mixture_that_multiplies_the_values(timm_model):
    model = timm_model("convit")
    seen = run(model, images(32))
    reads = inputs_of(model, "GPSA", images(32))
    assert len(reads) == 2
    for path, (module, x) in reads.items():
        with torch.no_grad():
            torch.testing.assert_close(seen[path].weights, module.get_attention(x))
    assert all(len(seen.calls(name)) == 1 for name in seen)


def test_talking_heads_are_shown_mixed(timm_model):
    model = timm_model("cait")
    block = model.blocks[0].attn
    seen = run(model, images(32))
    _, x = inputs_of(model, "TalkingHeadAttn", images(32))["blocks.0.attn"]
    with torch.no_grad():
        q, k, _ = block.qkv(x).unflatten(-1, (3, block.num_heads, -1)).permute(2, 0, 3, 1, 4)
        scores = block.proj_l((q * block.scale @ k.mT).permute(0, 2, 3, 1))
        wanted = block.proj_w(scores.softmax(2)).permute(0, 3, 1, 2)
    torch.testing.assert_close(seen["blocks.0.attn"].weights, wanted, rtol=1e-5, atol=1e-6)


def test_sink_columns_of_gpt_oss_are_no_keys():
    torch.manual_seed(0)
    config = transformers.GptOssConfig(
        num_key_value_heads=2, head_dim=4, num_local_experts=2, num_experts_per_tok=1, attn_implementation="eager",
        **TINY,
    )  # fmt: skip
    model = transformers.GptOssModel(config).eval()
    for block in model.layers:
        nn.init.normal_(block.self_attn.sinks)
    seen = run(model, IDS)
    with torch.no_grad():
        wanted = model(IDS, output_attentions=True).attentions
    for trace, matrix in zip(seen.traces(), wanted, strict=True):
        assert torch.equal(trace.weights, matrix)
        assert trace.weights.shape == (2, 4, 8, 8)
        assert trace.weights.sum(-1).max() < 1  # the sink has the rest


def test_outlook_attention_is_refused_and_what_follows_is_seen(timm_model):
    model = timm_model("volo")
    with pytest.raises(
        Unsupported, match=r"'network.0.0.attn' .*OutlookAttention.* without scores of queries and keys"
    ):
        run(model, images())
    seen = run(model, images(), only="network.[2-9].*")
    assert {type(model.get_submodule(name)).__name__ for name in seen} == {"Attention"}
    assert len(seen) == 4


class Written(nn.Module):
    """Attention written out, in one of many ways."""

    num_heads = 2

    def __init__(self, way):
        super().__init__()
        self.way = getattr(self, way)

    def forward(self, q, k, v):
        return self.way(q, k, v)

    def merged(self, q, k, v):  # softmax and product of (B H) N M
        q, k, v = (x.flatten(0, 1) for x in (q, k, v))
        return torch.bmm(torch.bmm(q, k.mT).softmax(-1), v)

    def merged_late(self, q, k, v):  # softmax of B H N M, product of (B H) N M
        weights = torch.matmul(q, k.transpose(-1, -2)).softmax(dim=3)
        return torch.bmm(weights.reshape(-1, *weights.shape[2:]), v.flatten(0, 1))

    def dropped(self, q, k, v):
        return F.dropout((q @ k.mT).softmax(-1, dtype=torch.float64).to(q.dtype), 0.5) @ v

    def einsum(self, q, k, v):  # heads between queries and keys
        weights = torch.einsum("bhnd,bhmd->bnhm", q, k).softmax(-1)
        return torch.einsum("bnhm,bhmd->bhnd", weights, v)

    def ellipsis(self, q, k, v):
        return torch.einsum("...nm,...md->...nd", torch.einsum("...nd,...md->...nm", q, k).softmax(-1), v)

    def values_first(self, q, k, v):  # as timm's Attention2d
        return (v.mT @ (q @ k.mT).softmax(-1).transpose(-2, -1)).mT

    def keys_before_queries(self, q, k, v):
        return (k @ q.mT).softmax(2).mT @ v

    def module(self, q, k, v):
        return nn.Softmax(-1)(q @ k.mT) @ v

    def heads_first(self, q, k, v):  # H B N M
        q, k, v = (x.transpose(0, 1) for x in (q, k, v))
        return ((q @ k.mT).softmax(-1) @ v).transpose(0, 1)


@pytest.mark.parametrize("way", [name for name in vars(Written) if not name.startswith(("_", "f", "num"))])
def test_weights_are_those_that_multiply_the_values_however_they_are_written(way):
    torch.manual_seed(2)
    q, k, v = torch.randn(3, 2, 5, 4), torch.randn(3, 2, 7, 4), torch.randn(3, 2, 7, 4)
    if way == "merged":
        q, k, v = q[:1], k[:1], v[:1]
    q.requires_grad_()
    model = Written(way)
    with watch(model, gradients=True) as seen:
        model(q, k, v).sum().backward()
    torch.testing.assert_close(seen[""].weights.to(q.dtype), (q @ k.mT).softmax(-1).detach())
    assert seen[""].gradient.shape == seen[""].weights.shape
    if way != "dropped":
        torch.testing.assert_close(seen[""].gradient, v.sum(-1)[:, :, None].expand_as(seen[""].weights))


def test_batch_and_heads_in_one_axis_are_refused_where_they_cannot_be_told_apart():
    q = torch.randn(3, 2, 5, 4)
    with pytest.raises(Unsupported, match=r"Written\) joins batch and heads in one axis.*one input at a time"):
        run(Written("merged"), q, q, q)


def test_heads_that_multiply_values_one_by_one_are_refused():
    class Cascade(nn.Module):
        num_heads = 3

        def forward(self, x):  # B N C, with as many inputs as heads
            parts = x.unflatten(-1, (3, -1)).unbind(2)
            return torch.cat([(part @ part.mT).softmax(-1) @ part for part in parts], -1)

    with pytest.raises(Unsupported, match="head by head"), watch(model := Cascade()):
        model(torch.randn(3, 5, 12))


def test_one_head_without_an_axis_is_seen():
    class Single(nn.Module):
        def forward(self, x):  # B N C
            return (x @ x.mT).softmax(-1) @ x

    x = torch.randn(3, 5, 4)
    torch.testing.assert_close(run(Single(), x)[""].weights[:, 0], (x @ x.mT).softmax(-1))
    assert run(Single(), x[0])[""].weights.shape == (1, 1, 5, 5)


def test_linear_attention_is_refused():
    class Linear(nn.Module):
        def forward(self, x):  # B H N D: a softmax of four axes, and its product with values, but no map
            return x.softmax(-1) @ (x.mT.softmax(-1) @ x)

    with pytest.raises(Unsupported, match="without scores of queries and keys"), watch(model := Linear()):
        model(torch.randn(2, 3, 5, 4))


def test_a_softmax_that_multiplies_no_values_is_named_and_not_recorded():
    class Mine(nn.Module):
        def forward(self, q):
            return F.scaled_dot_product_attention(q, q, q), (q @ q.mT).softmax(-1).amax(-1)

    model, q = Mine(), torch.randn(1, 2, 3, 4)
    warned = pytest.warns(UserWarning, match=r"no map of '' \(.*Mine\): a softmax .* not seen to multiply")
    with warned, watch(model) as seen:
        model(q)
    assert len(seen.calls("")) == 1


def test_a_softmax_of_four_axes_that_is_no_attention_is_passed_over(recwarn):
    class Mine(nn.Module):
        def __init__(self):
            super().__init__()
            self.experts = nn.Parameter(torch.randn(4, 4))

        def forward(self, q):
            return F.scaled_dot_product_attention(q, q, q) @ self.experts, (q @ self.experts).softmax(-1).sum(1)

    model, q = Mine(), torch.randn(1, 2, 3, 4)
    with watch(model) as seen:
        model(q)
    assert len(seen.calls("")) == 1
    assert not recwarn.list


@pytest.mark.parametrize("way", ["einsum", "matmul"])
def test_gates_that_mix_experts_are_no_attention(way, recwarn):
    class Mixture(nn.Module):
        def __init__(self):
            super().__init__()
            self.gate, self.experts = nn.Linear(4, 3), nn.ModuleList(nn.Linear(4, 4) for _ in range(3))

        def forward(self, x):  # B N C
            x = F.scaled_dot_product_attention(x[:, None], x[:, None], x[:, None])[:, 0]
            gates, outs = self.gate(x).softmax(-1), torch.stack([expert(x) for expert in self.experts], 2)
            return torch.einsum("bne,bnec->bnc", gates, outs) if way == "einsum" else gates @ self.experts[0](x)[:, :3]

    model = Mixture()
    with watch(model) as seen:
        model(torch.randn(2, 5, 4))
    assert len(seen.calls("")) == 1
    assert not recwarn.list


# -- threads -----------------------------------------------------------------------------------------------------------


class External(nn.Module):
    """Attention of another library, in two modules."""

    def __init__(self):
        super().__init__()
        self.inner = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, x):
        return self.inner(x, x, x, need_weights=False)[0]


@pytest.mark.parametrize("kind", ["ours", "theirs"])
def test_only_passes_of_the_thread_that_opened_the_block_are_recorded(kind):
    torch.manual_seed(0)
    if kind == "ours":
        model, given = regard.build("bert", size="tiny", vocab=20).eval(), [IDS, IDS[:, :5]]
    else:
        model, given = External().eval(), [torch.randn(2, 8, 8), torch.randn(2, 5, 8)]
    passed, opened, errors = threading.Event(), threading.Event(), []

    def other():
        try:
            opened.wait(20)
            with torch.no_grad():
                model(given[1])
        except Exception as error:
            errors.append(error)
        passed.set()

    thread = threading.Thread(target=other)
    thread.start()
    with torch.no_grad(), watch(model) as seen, regard.watch_lazy(model) as store:
        model(given[0])
        opened.set()
        assert passed.wait(20)
        assert all(len(seen.calls(name)) == 1 for name in seen)
        assert {trace.weights.shape[2] for trace in seen.traces()} == {8}
        assert {step.rows for step in store.steps()} == {8}
        model(given[0])
    thread.join(20)
    assert not errors
    assert all(len(seen.calls(name)) == 2 for name in seen)


def test_a_pass_in_another_thread_alone_is_none_of_this_block():
    model = External().eval()

    def elsewhere():
        thread = threading.Thread(target=model, args=(torch.randn(2, 5, 8),))
        thread.start()
        thread.join(20)

    with pytest.raises(regard.RegardError, match="did not run inside the block, in its thread"), watch(model):
        elsewhere()
    assert not model._forward_hooks

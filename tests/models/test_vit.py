"""ViT and DeiT: the published sizes, the lecture's pseudocode, images of any size, and what the parts promise."""

import pytest
import torch
from torch import nn

import regard
from regard.core.errors import RegardError
from regard.models.deit import SIZES as DEIT_SIZES
from regard.models.deit import Config as DeiTConfig
from regard.models.deit import DeiT
from regard.models.vit import SIZES, Config, ViT

SMALL = {"num_classes": 5, "image_size": (12, 18), "patch_size": 6, "width": 24, "heads": 3, "layers": 3, "ffn": 40}


def small(**settings):
    torch.manual_seed(0)
    return ViT(Config(**SMALL | settings)).double().eval()


def images(*size, batch=2, channels=3):
    return torch.randn(batch, channels, *(size or (12, 18)), dtype=torch.float64)


def millions(name, size):
    with torch.device("meta"):
        return sum(p.numel() for p in regard.build(name, size=size).parameters()) / 1e6


# Without the head where the paper counts so; table 1 of DeiT, of ViT and table 2 of Zhai et al., timm's table for /32.
PUBLISHED = {"ti16": 5.7, "s16": 22.1, "s32": 22.9, "b32": 88.2, "b16": 86.6, "l32": 306.5, "l16": 304.3, "h14": 632.0}
HEADLESS = {"g14": 1011, "G14": 1843}


@pytest.mark.parametrize("size", PUBLISHED)
def test_parameters_are_as_many_as_published(size):
    assert millions("vit", size) == pytest.approx(PUBLISHED[size], abs=0.06)


@pytest.mark.parametrize("letters", ["ti", "s", "b", "l", "h"])
@pytest.mark.parametrize("patch", [32, 16, 14, 8])
def test_every_size_exists_with_every_patch(letters, patch):
    """Another patch changes the first map and the positions, and nothing else."""
    width, known = SIZES[f"{letters}16"]["width"], {"ti": 5_717_416, "s": 22_050_664, "b": 86_567_656}
    known |= {"l": 304_326_632, "h": 632_045_800 + (3 * (16**2 - 14**2) + 196 - 256) * 1280}  # of /16; H/14 is timm's
    more = (3 * (patch**2 - 16**2) + (224 // patch) ** 2 - 196) * width
    assert millions("vit", f"{letters}{patch}") * 1e6 == known[letters] + more


@pytest.mark.parametrize("size", HEADLESS)
def test_the_largest_sizes_have_the_published_parameters_without_heads(size):
    with torch.device("meta"):
        model = regard.build("vit", size=size, num_classes=0)
    assert round(sum(p.numel() for p in model.parameters()) / 1e6) == HEADLESS[size]


@pytest.mark.parametrize(("size", "many"), [("ti16", 5.9), ("s16", 22.4), ("b16", 87.3), ("b16_384", 87.6)])
def test_distilled_models_have_one_more_token_and_head(size, many):
    assert millions("deit", size) == pytest.approx(many, abs=0.06)
    assert set(DEIT_SIZES) - {"b16_384"} <= set(SIZES)


def test_numbers_of_the_lecture():
    """An image of 224 pixels a side is a matrix of 196 patches with 768 values, and 197 tokens with the class."""
    model = ViT(Config(**SIZES["b16"] | {"layers": 1}))
    x = torch.randn(1, 3, 224, 224)
    patches = model.stem(x)
    assert patches.flatten(1, 2).shape == (1, 196, 768)
    assert model.sequence(patches).shape == (1, 197, 768)
    with torch.no_grad(), regard.watch(model.eval()) as seen:
        model(x)
    assert seen["encoder.blocks.0.mix"].weights[..., 1:, 1:].numel() == 12 * 14**4


def test_forward_equals_the_pseudocode_of_the_lecture():
    """def ViT(input), with the names of the lecture, by torch's own attention."""
    model, x = small(), images()
    b, width, heads = 2, 24, 3

    def Create_Patches(image):
        return torch.nn.functional.unfold(image, 6, stride=6).mT

    def Transformer(x):
        for block in model.encoder.blocks:
            y = block.mix_norm(x)
            weight, bias = (t.unflatten(0, (heads, 3, -1)).transpose(0, 1).flatten(0, 2)
                for t in (block.mix.project.qkv.weight, block.mix.project.qkv.bias))  # fmt: skip
            y, _ = nn.functional.multi_head_attention_forward(*(y.transpose(0, 1),) * 3, width, heads, weight, bias,
                None, None, False, 0.0, block.mix.join.out.weight, block.mix.join.out.bias, False)  # fmt: skip
            x = x + y.transpose(0, 1)
            y = block.feed_norm(x)
            x = x + block.feed.down(nn.functional.gelu(block.feed.up(y)))
        return model.encoder.norm(x)

    patches = Create_Patches(x)
    patch_embed = patches @ model.stem.embed.weight.flatten(1).mT + model.stem.embed.bias
    class_token = model.prefix_tokens.expand(b, 1, width)
    sequence = torch.cat([class_token, patch_embed], 1) + model.positions.table
    hidden_states = Transformer(sequence)
    class_output = model.head(hidden_states[:, 0])
    torch.testing.assert_close(model(x), class_output, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"num_prefix_tokens": 0, "pool": "mean"},
        {"pool": "mean_norm", "num_prefix_tokens": 3},
        {"layer_scale": 0.5},
        {"representation_size": 7},
        {"channels": 1},
        {"stem": "normed"},
        {"attention": ["softmax", "softmax(backend='eager')"]},
        {"positions": "learned(prefix=0)"},
        {"patch_size": (4, 9)},
    ],
    ids=str,
)
def test_every_variant_takes_any_size_and_every_parameter_gets_a_gradient(settings):
    model = small(**settings)
    for size in ((12, 18), (18, 12), (31, 6), (5, 5)):
        x = images(*size, channels=model.config.channels)
        assert model(x).shape == (2, 5)
        assert model.pooled(x).shape == (2, settings.get("representation_size", 24))
        y, x_ = (-(-n // p) for n, p in zip(size, model.stem.stride, strict=True))
        assert model.grid(x).shape == (2, y, x_, 24)
        maps = model.features(x)
        assert [m.shape[1:] for m in maps] == [(24, -(-size[0] // s), -(-size[1] // s)) for s in (4, 8, 16, 32)]
    model(images(channels=model.config.channels)).square().sum().backward()
    assert [name for name, p in model.named_parameters() if p.grad is None or not p.grad.any()] == []


def test_the_head_reads_pooled_and_without_a_head_it_is_returned():
    model, x = small(), images()
    torch.testing.assert_close(model.head(model.pooled(x)), model(x), rtol=0, atol=0)
    bare = small(num_classes=0)
    assert torch.equal(bare(x), bare.pooled(x))


def test_the_mean_excludes_prefix_tokens():
    model, x = small(pool="mean"), images()
    torch.testing.assert_close(model.pooled(x), model.grid(x).mean((1, 2)))


def test_the_coarsest_features_are_the_deepest_tokens():
    model, x = small(image_size=64, patch_size=32), images(64, 64)
    torch.testing.assert_close(model.features(x)[-1], model.grid(x).permute(0, 3, 1, 2))


def test_other_images_of_a_batch_have_no_influence():
    model, x = small(), images(batch=5)
    together = model(x)
    for one in range(5):
        torch.testing.assert_close(model(x[one : one + 1]), together[one : one + 1], rtol=1e-12, atol=1e-12)


def test_without_positions_a_vit_is_permutation_invariant():
    model, x = small(image_size=24), images(24, 24)
    shuffled = x.unflatten(3, (4, 6)).unflatten(2, (4, 6))[:, :, [2, 0, 3, 1]][:, :, :, :, [1, 3, 0, 2]]
    shuffled = shuffled.flatten(4, 5).flatten(2, 3)
    assert not torch.allclose(model(shuffled), model(x))
    with torch.no_grad():
        model.positions.table.zero_()
    torch.testing.assert_close(model(shuffled), model(x), rtol=1e-10, atol=1e-10)


def test_a_module_can_be_passed_as_stem():
    class Halves(nn.Module):
        stride = (6, 9)

        def __init__(self):
            super().__init__()
            self.embed = nn.Linear(3, 24)

        def forward(self, images):
            return self.embed(nn.functional.avg_pool2d(images, self.stride).permute(0, 2, 3, 1))

    model = ViT(Config(**SMALL | {"stem": Halves()})).double()
    assert model.positions.grid == (2, 2)
    assert model.grid(images()).shape == (2, 2, 2, 24)


def test_a_hybrid_reads_the_grid_of_a_resnet():
    model = small(stem="hybrid(layers=(1, 1), base=32)", patch_size=1, image_size=48)
    x = images(48, 64)
    assert model.stem.stride == (8, 8)
    assert model.grid(x).shape == (2, 6, 8, 24)
    assert model(x).shape == (2, 5)


def test_drop_path_grows_with_depth():
    model = small(drop_path=0.4)
    assert [block.path.p for block in model.encoder.blocks] == [0.0, 0.2, 0.4]
    x = images(batch=64)
    torch.manual_seed(1)
    whole = small()
    torch.testing.assert_close(model(x), whole(x))  # nothing is left out when it is asked
    last = model.encoder.blocks[-1].train()
    tokens = torch.randn(400, 7, 24, dtype=torch.float64)
    left = (last(tokens) == tokens).all(-1).all(-1).double().mean()
    assert 0.05 < left < 0.3  # of 0.16: both of its halves


def test_layer_scale_starts_near_the_identity():
    model = small(layer_scale=1e-6)
    tokens = torch.randn(2, 7, 24, dtype=torch.float64)
    torch.testing.assert_close(model.encoder.blocks[0](tokens), tokens, rtol=0, atol=1e-4)


def test_maps_cover_class_and_patches_and_rows_sum_to_one():
    model, x = small(), images(24, 18)
    with torch.no_grad(), regard.watch(model) as seen:
        watched = model(x)
    assert torch.equal(watched, model(x))
    assert [trace.weights.shape for trace in seen.values()] == [(2, 3, 13, 13)] * 3
    assert torch.allclose(seen["encoder.blocks.1.mix"].weights.sum(-1), torch.ones(1, dtype=torch.float64))


def test_invalid_settings_raise():
    with pytest.raises(RegardError, match="num_prefix_tokens=1"):
        ViT(Config(num_prefix_tokens=0))
    with pytest.raises(RegardError, match="not divisible by 7 heads"):
        ViT(Config(heads=7))
    with pytest.raises(RegardError, match="did you mean 'normed'"):
        ViT(Config(stem="norm"))
    with pytest.raises(RegardError, match="DeiT needs num_prefix_tokens=2"):
        DeiT(DeiTConfig(num_prefix_tokens=1))


# -- DeiT --------------------------------------------------------------------------------------------------------------


def deit(**settings):
    torch.manual_seed(0)
    return DeiT(DeiTConfig(**SMALL | settings)).double().eval()


def test_deit_logits_are_the_mean_of_its_heads():
    model, x = deit(), images()
    one, other = model.logits_per_head(x)
    assert not torch.allclose(one, other)
    torch.testing.assert_close(model(x), (one + other) / 2)
    assert model.num_prefix_tokens == 2
    assert model.grid(x).shape == (2, 2, 3, 24)


def test_deit_without_classes_returns_the_mean_of_its_tokens():
    model, x = deit(num_classes=0), images()
    torch.testing.assert_close(model(x), model.pooled(x))
    assert model.pooled(x).shape == (2, 24)


def test_a_deit_is_a_vit_with_a_distillation_token():
    """Its class token's answer is that of a ViT with the same weights."""
    model, twin = deit(), small(num_prefix_tokens=2)
    twin.load_state_dict({name: value for name, value in model.state_dict().items() if "distilled" not in name})
    x = images(18, 18)
    torch.testing.assert_close(model.logits_per_head(x)[0], twin(x), rtol=0, atol=0)

"""DETR of transformers and of the original repository's names, and ours, from the same weights."""

import pytest
import torch
from torch import nn

import regard
from regard.attention.capture.watch import watch
from regard.core.errors import BadInput, Unsupported
from regard.models.detr import DETR, SIZES, Config
from regard.weights.hf import detr as hf_detr
from regard.weights.other import detr as original_detr
from regard.weights.table import export_state_dict, import_state_dict
from tests.long_params import rest_is_long

from .harness import exported_gradients, round_trip, shaken

transformers = pytest.importorskip("transformers")
pytest.importorskip("timm")

CLASSES = 5
SIZES_OF_BATCH = torch.tensor([[70, 101], [45, 64], [33, 97]])  # the last two are padded


def peer(kind="DetrForObjectDetection", **settings):
    """A tiny random DETR of transformers in float64 with timm's ResNet-18 or -50 as it is."""
    config = transformers.DetrConfig(
        **{
            "backbone": "resnet18",
            "use_pretrained_backbone": False,
            "num_labels": CLASSES,
            "num_queries": 6,
            "d_model": 32,
            "encoder_layers": 2,
            "decoder_layers": 2,
            "encoder_ffn_dim": 24,
            "decoder_ffn_dim": 24,
            "encoder_attention_heads": 8,
            "decoder_attention_heads": 8,
            "dropout": 0.0,
        }
        | settings
    )
    config._attn_implementation = "eager"
    theirs = shaken(getattr(transformers, kind)(config), by=0.02)  # a ResNet shaken more would explode
    with torch.no_grad():
        for name, parameter in theirs.named_parameters():
            if "backbone" not in name:
                parameter.add_(torch.randn_like(parameter) * 0.2)
    for name, buffer in theirs.named_buffers():
        if name.endswith("running_var"):
            buffer.uniform_(0.5, 1.5)
        elif name.endswith("running_mean"):
            buffer.normal_(std=0.2)
    return theirs


def pair(kind="DetrForObjectDetection", **settings):
    theirs = peer(kind, **settings)
    config = hf_detr.import_config(theirs.config.to_dict() | {"architectures": [kind]})
    ours = DETR(config).double().eval()
    import_state_dict(hf_detr.table(config), hf_detr.normalize_keys(theirs.state_dict()), ours)
    return theirs, ours


def batch():
    """Images padded at the right and the bottom, and the mask of their own pixels."""
    images, there = torch.zeros(3, 3, 70, 101, dtype=torch.float64), torch.zeros(3, 70, 101, dtype=torch.long)
    for n, (y, x) in enumerate(SIZES_OF_BATCH.tolist()):
        images[n, :, :y, :x] = torch.randn(3, y, x, dtype=torch.float64)
        there[n, :y, :x] = 1
    return images, there


def close(found, expected, far=1e-9):
    torch.testing.assert_close(found, expected, rtol=far, atol=far)


def test_logits_and_boxes_of_every_layer_equal_those_of_transformers():
    theirs, ours = pair()
    images, there = batch()
    with torch.no_grad():
        for sizes, mask in ((SIZES_OF_BATCH, there), (None, None)):
            expected = theirs(images, pixel_mask=mask, output_hidden_states=True)
            found = ours(images, sizes)
            close(found.logits[-1], expected.logits)
            close(found.boxes[-1], expected.pred_boxes)
            assert expected.logits.std() > 0.1
            assert len(expected.decoder_hidden_states) == 3
            for layer, hidden in enumerate(expected.decoder_hidden_states[1:]):
                hidden = hidden if layer == 1 else theirs.model.decoder.layernorm(hidden)  # the last is normed
                close(found.logits[layer], theirs.class_labels_classifier(hidden))
                close(found.boxes[layer], theirs.bbox_predictor(hidden).sigmoid())


def test_padding_changes_nothing():
    """The first image of a batch, and the same image alone."""
    _, ours = pair()
    images, _ = batch()
    y, x = SIZES_OF_BATCH[1].tolist()
    y, x = y - y % 32, x - x % 32  # a backbone does see the zeros beyond an edge that its strides do not divide
    padded = torch.zeros(1, 3, 96, 128, dtype=torch.float64)
    padded[0, :, :y, :x] = images[1, :, :y, :x]
    with torch.no_grad():
        ours.stem.backbone = nn.Identity()
        ours.stem.backbone.features = lambda images: [images.repeat(1, 171, 1, 1)[:, :512, ::32, ::32]]
        alone, found = ours(images[1:2, :, :y, :x]), ours(padded, torch.tensor([[y, x]]))
    close(found.logits, alone.logits)
    close(found.boxes, alone.boxes)


def test_dilated_backbone_equals_timms():
    theirs, ours = pair(backbone="resnet50", dilation=True, encoder_layers=1, decoder_layers=1)
    assert ours.config.backbone.dilated
    images = torch.randn(1, 3, 40, 60, dtype=torch.float64)
    with torch.no_grad():
        close(ours(images).logits[-1], theirs(images).logits, 1e-8)
    assert ours.stem(images)[-1].shape[-2:] == (3, 4)


def test_backbone_of_transformers_is_read_too(tmp_path):
    images, _ = batch()
    for block, e, kind in (("basic", 1, "DetrForObjectDetection"), ("bottleneck", 4, "DetrForSegmentation")):
        backbone = transformers.ResNetConfig(
            embedding_size=16,
            hidden_sizes=[16 * e, 32 * e, 64 * e, 128 * e],
            depths=[1, 2, 1, 1],
            layer_type=block,
            out_features=["stage1", "stage2", "stage3", "stage4"],
        )
        settings = {"use_timm_backbone": False, "backbone": None, "backbone_config": backbone}
        theirs, ours = pair(kind, **settings, encoder_layers=1, decoder_layers=1)
        with torch.no_grad():
            expected, found = theirs(images), ours(images)
        close(found.logits[-1], expected.logits)
        if ours.config.masks:
            close(found.masks, expected.pred_masks)
        theirs.float().save_pretrained(tmp_path / block)
        assert hf_detr.load(tmp_path / block)[0].config == ours.config
    raw = theirs.config.to_dict()
    for change in (
        {"hidden_act": "gelu"},
        {"layer_type": "odd"},
        {"downsample_in_bottleneck": True},
        {"downsample_in_first_stage": True},
        {"hidden_sizes": [64, 64, 64, 64]},
        {"out_features": ["stage4"]},  # the masks need all
    ):
        with pytest.raises(Unsupported, match=next(iter(change))):
            hf_detr.import_config(raw | {"backbone_config": raw["backbone_config"] | change})


@pytest.mark.parametrize("kind", rest_is_long(hf_detr.ARCHITECTURES, "DetrForSegmentation"))
def test_gradients_equal_those_of_transformers(kind):
    theirs, ours = pair(kind)
    frozen = [name for name, p in ours.named_parameters() if not p.requires_grad]
    assert frozen
    assert all(name.startswith(("stem.backbone.stem.", "stem.backbone.stages.0.")) for name in frozen)
    ours.requires_grad_(True)  # transformers 5 freezes no stage of timm's backbones, contrary to the paper's code
    images, there = batch()
    expected, found = theirs(images, pixel_mask=there), ours(images, SIZES_OF_BATCH)
    total = 0
    for a, b in ((expected.logits, found.logits[-1]), (expected.pred_boxes, found.boxes[-1])):
        pull = torch.randn_like(a)
        (a * pull).sum().backward(retain_graph=True)
        total = total + (b * pull).sum()
    if ours.config.masks:
        pull = torch.randn_like(expected.pred_masks)
        (expected.pred_masks * pull).sum().backward()
        total = total + (found.masks * pull).sum()
    total.backward()
    mapped = exported_gradients(hf_detr.table(ours.config), ours)
    wanted = hf_detr.normalize_keys({name: p.grad for name, p in theirs.named_parameters() if p.grad is not None})
    assert len(wanted) == sum(p.grad is not None for p in theirs.parameters()) > 60
    for name, gradient in wanted.items():
        torch.testing.assert_close(mapped[name], gradient, rtol=1e-7, atol=1e-8, msg=name)


def test_masks_equal_those_of_transformers():
    theirs, ours = pair("DetrForSegmentation")
    images, there = batch()
    with torch.no_grad():
        for sizes, mask in ((SIZES_OF_BATCH, there), (None, None)):
            expected, found = theirs(images, pixel_mask=mask), ours(images, sizes)
            close(found.masks, expected.pred_masks)
            close(found.logits[-1], expected.logits)
            assert found.masks.shape[-2:] == (18, 26)
            assert expected.pred_masks.std() > 0.01


def test_maps_equal_those_of_transformers():
    theirs, ours = pair()
    images, there = batch()
    with torch.no_grad(), watch(ours) as seen:
        ours(images, SIZES_OF_BATCH)
        expected = theirs(images, pixel_mask=there, output_attentions=True)
    real = hf_real_cells(there)
    for layer in range(2):
        found = seen[f"encoder.blocks.{layer}.mix"].weights
        for n in range(3):  # padded cells ask too, but nobody reads what they get
            close(found[n][:, real[n]], expected.encoder_attentions[layer][n][:, real[n]])
        close(seen[f"decoder.blocks.{layer}.mix"].weights, expected.decoder_attentions[layer])
        close(seen[f"decoder.blocks.{layer}.cross"].weights, expected.cross_attentions[layer])
    assert len(seen) == 6


def hf_real_cells(there):
    return nn.functional.interpolate(there[None].float(), size=(3, 4))[0].bool().flatten(1)


@pytest.mark.parametrize("kind", rest_is_long(hf_detr.ARCHITECTURES, "DetrForSegmentation"))
def test_folders_of_transformers_there_and_back(kind, tmp_path):
    theirs, ours = pair(kind)
    round_trip(hf_detr.normalize_keys(theirs.state_dict()), hf_detr.table(ours.config), ours)
    theirs.float().save_pretrained(tmp_path / "theirs")
    loaded, about = hf_detr.load(tmp_path / "theirs")
    assert loaded.config == ours.config
    assert about["labels"] == [f"LABEL_{n}" for n in range(CLASSES)]
    assert about["preprocess"]["size"] == (800, 1333)
    hf_detr.save(tmp_path / "ours", loaded)
    back = getattr(transformers, kind).from_pretrained(tmp_path / "ours").eval()
    images, there = (x.float() for x in batch())
    with torch.no_grad():
        expected, found = back(images, pixel_mask=there), loaded(images, SIZES_OF_BATCH)
    close(found.logits[-1], expected.logits, 1e-4)
    if ours.config.masks:
        close(found.masks, expected.pred_masks, 1e-3)


def test_what_transformers_alone_has_is_refused():
    raw = peer().config.to_dict()
    for change, why in (
        ({"position_embedding_type": "learned"}, "position_embedding_type"),
        ({"backbone_config": {"model_type": "swin"}}, "a 'swin' of transformers"),
        ({"backbone_config": {"model_type": "timm_backbone", "backbone": "convnext"}}, "convnext"),
        ({"decoder_ffn_dim": 8}, "ffn_dim"),
        ({"architectures": ["DetrModel"]}, "DetrModel"),
        ({"auxiliary_loss": True}, "auxiliary_loss"),
    ):
        with pytest.raises(Unsupported, match=why):
            hf_detr.import_config(raw | change)
    for settings in ({"query_groups": 2}, {"denoising": True}):
        with pytest.raises(Unsupported, match=next(iter(settings))):
            hf_detr.table(Config(**settings))
    with pytest.raises(Unsupported, match="frozen"):
        hf_detr.table(Config(backbone=regard.build("resnet", size="tiny").config))


class OriginalTransformer(nn.Module):
    """Encoder and decoder of the original repository, by torch's layers: positions are added to q and k only."""

    def __init__(self, width, heads, ffn, layers):
        super().__init__()
        body = nn.Transformer(width, heads, layers, layers, ffn, dropout=0.0, batch_first=True)
        self.encoder, self.decoder = body.encoder, body.decoder
        self.encoder.norm = None

    def forward(self, x, places, queries, padding):
        for layer in self.encoder.layers:
            at = x + places
            x = layer.norm1(x + layer.self_attn(at, at, x, key_padding_mask=padding)[0])
            x = layer.norm2(x + layer.linear2(layer.linear1(x).relu()))
        out, found = torch.zeros_like(queries), []
        for layer in self.decoder.layers:
            at = out + queries
            out = layer.norm1(out + layer.self_attn(at, at, out)[0])
            seen = layer.multihead_attn(out + queries, x + places, x, key_padding_mask=padding)[0]
            out = layer.norm2(out + seen)
            out = layer.norm3(out + layer.linear2(layer.linear1(out).relu()))
            found.append(self.decoder.norm(out))
        return torch.stack(found)


class OriginalDETR(nn.Module):
    """The modules of the original repository, by their names there."""

    def __init__(self, width=32, heads=8, queries=6):
        super().__init__()
        from torchvision.models import resnet18
        from torchvision.ops import FrozenBatchNorm2d

        body = resnet18(norm_layer=FrozenBatchNorm2d)
        del body.fc, body.avgpool
        self.backbone = nn.ModuleList([nn.ModuleDict({"body": body})])
        self.input_proj = nn.Conv2d(512, width, 1)
        self.transformer = OriginalTransformer(width, heads, 24, 2)
        self.query_embed = nn.Embedding(queries, width)
        self.class_embed = nn.Linear(width, CLASSES + 1)
        self.bbox_embed = nn.Module()
        self.bbox_embed.layers = nn.ModuleList([nn.Linear(width, width), nn.Linear(width, width), nn.Linear(width, 4)])

    def forward(self, images, places, padding):
        body = self.backbone[0]["body"]
        x = body.maxpool(body.relu(body.bn1(body.conv1(images))))
        x = body.layer4(body.layer3(body.layer2(body.layer1(x))))
        x = self.input_proj(x).flatten(2).mT
        queries = self.query_embed.weight.expand(len(images), -1, -1)
        hidden = self.transformer(x, places, queries, padding)
        first, second, last = self.bbox_embed.layers
        return self.class_embed(hidden), last(second(first(hidden).relu()).relu()).sigmoid()


def test_names_and_outputs_of_the_original_repository():
    theirs = shaken(OriginalDETR(), by=0.02)
    state = theirs.state_dict()
    config = original_detr.import_config(state, heads=8)
    ours = DETR(config).double().eval()
    import_state_dict(original_detr.table(config), state, ours)
    images, there = batch()
    places = transformers.models.detr.modeling_detr.DetrSinePositionEmbedding(16, normalize=True)
    real = hf_real_cells(there)
    vectors = places((3, 32, 3, 4), images.device, images.dtype, mask=real.view(3, 3, 4)).flatten(2).mT
    with torch.no_grad():
        logits, boxes = theirs(images, vectors, ~real)
        found = ours(images, SIZES_OF_BATCH)
    close(found.logits, logits)
    close(found.boxes, boxes)
    round_trip(state, original_detr.table(config), ours)


def test_panoptic_names_of_the_original_repository():
    """Its panoptic state dict is that of transformers' files by other names of the body; the heads' are the same."""
    with torch.device("meta"):
        model = DETR(Config(**SIZES["r50-panoptic"] | {"encoder_layers": 1, "decoder_layers": 1}))
        state = export_state_dict(original_detr.table(model.config), model)
    assert {
        "detr.backbone.0.body.layer4.2.bn3.running_var",
        "detr.transformer.decoder.layers.0.multihead_attn.in_proj_weight",
        "detr.transformer.decoder.norm.weight",
        "detr.bbox_embed.layers.2.bias",
        "bbox_attention.k_linear.weight",
        "mask_head.gn5.bias",
        "mask_head.adapter3.weight",
        "mask_head.out_lay.weight",
    } <= set(state)
    config = original_detr.import_config(state)
    assert (config.heads, config.masks, config.num_classes, config.backbone) == (8, True, 250, model.config.backbone)
    with pytest.raises(BadInput, match="query_embed"):
        original_detr.import_config({"x": torch.zeros(1)})


def test_published_sizes_have_the_published_numbers_of_parameters():
    """41.3 and 60.2 million in table 1 of the paper (without frozen norms' factors); DC5 adds none."""
    for size, million in (("r50", 41.3), ("r50-dc5", 41.3), ("r101", 60.2), ("r101-dc5", 60.2)):
        with torch.device("meta"):
            count = sum(p.numel() for p in regard.build("detr", size=size).parameters())
        assert count / 1e6 == pytest.approx(million, abs=0.3), size


@pytest.mark.long
def test_a_published_shape_equals_transformers():
    theirs = transformers.DetrForObjectDetection(transformers.DetrConfig(use_pretrained_backbone=False)).eval()
    config = hf_detr.import_config(theirs.config.to_dict() | {"num_labels": theirs.config.num_labels})
    ours = DETR(config).eval()
    import_state_dict(hf_detr.table(config), hf_detr.normalize_keys(theirs.state_dict()), ours)
    images = torch.randn(1, 3, 320, 416)
    with torch.no_grad():
        expected, found = theirs(images), ours(images)
    close(found.logits[-1], expected.logits, 1e-4)
    close(found.boxes[-1], expected.pred_boxes, 1e-4)

"""torchvision's MViT for clips and ours, the first and the second version, from the same weights."""

import pytest
import torch

from regard.core.errors import Unsupported
from regard.models import build
from regard.models.mvit import SIZES, Config, MViT
from regard.weights.other import torchvision_mvit
from regard.weights.table import export_state_dict, import_state_dict
from tests.parity.image_models import gradients_agree, maps_agree

video = pytest.importorskip("torchvision.models.video")
from torchvision.models.video.mvit import MSBlockConfig  # noqa: E402
from torchvision.models.video.mvit import MViT as Theirs  # noqa: E402

SMALL = {"width": 6, "layers": (1, 2, 2, 1), "image_size": 32, "num_frames": 4, "num_classes": 5}
KINDS = {
    "v1": SIZES["v1-b-clips"] | SMALL,
    "v2": SIZES["s-clips"] | SMALL,
    "v2, not square": SIZES["s-clips"] | SMALL | {"image_size": (32, 64)},
    "v1, not square": SIZES["v1-b-clips"] | SMALL | {"image_size": (64, 32), "num_frames": 6},
}


def peer(config):
    blocks, first = [], config.positions == "added"
    for stage, layers in enumerate(config.layers):
        for layer in range(layers):
            own, halves = config.width * 2**stage, stage and not layer
            wider = 2 * own if first and layer == layers - 1 and stage < len(config.layers) - 1 else own
            every = [3, 3, 3]
            blocks.append(
                MSBlockConfig(
                    num_heads=config.heads * 2**stage,
                    input_channels=own // 2 if halves and not first else own,
                    output_channels=wider,
                    kernel_q=every if halves or not first else [],
                    kernel_kv=every,
                    stride_q=[1, 2, 2] if halves else [] if first else [1, 1, 1],
                    stride_kv=[1, *[max(config.kv_stride >> stage, 1)] * 2],
                )
            )
    sides = (config.image_size,) * 2 if isinstance(config.image_size, int) else config.image_size
    theirs = Theirs(
        sides,
        config.num_frames,
        blocks,
        residual_pool=not first,
        residual_with_cls_embed=False,
        rel_pos_embed=not first,
        proj_after_attn=not first,
        num_classes=config.num_classes,
    )
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    return theirs.double().eval()


def pair(kind):
    ours = MViT(Config(**KINDS[kind])).double().eval()
    theirs = peer(ours.config)
    import_state_dict(torchvision_mvit.table(ours.config), theirs.state_dict(), ours)
    return theirs, ours


def clips(ours):
    sides = (ours.config.image_size,) * 2 if isinstance(ours.config.image_size, int) else ours.config.image_size
    return torch.randn(2, 3, ours.config.num_frames, *sides, dtype=torch.float64)


@pytest.mark.parametrize("kind", KINDS)
def test_logits_equal_those_of_torchvision(kind):
    theirs, ours = pair(kind)
    given = clips(ours)
    with torch.no_grad():
        torch.testing.assert_close(ours(given), theirs(given), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_of_all_parameters_equal_those_of_torchvision(kind):
    theirs, ours = pair(kind)
    given = clips(ours)
    gradients_agree(theirs, theirs(given), ours, ours(given), torchvision_mvit.table(ours.config))


@pytest.mark.parametrize("kind", KINDS)
def test_maps_equal_those_of_torchvision(kind, monkeypatch):
    theirs, ours = pair(kind)
    maps_agree(theirs, ours, clips(ours), monkeypatch)


@pytest.mark.parametrize("kind", KINDS)
def test_import_then_export_is_exact(kind):
    theirs, ours = pair(kind)
    state = export_state_dict(torchvision_mvit.table(ours.config), ours)
    assert state.keys() == theirs.state_dict().keys()
    for name, value in theirs.state_dict().items():
        assert torch.equal(state[name], value), name


def test_published_sizes_have_the_tensors_of_torchvision():
    with torch.device("meta"):
        for size, name in (("v1-b-clips", "mvit_v1_b"), ("s-clips", "mvit_v2_s")):
            theirs, ours = getattr(video, name)(), build("mvit", size=size)
            wanted = {n: v.shape for n, v in theirs.state_dict().items()}
            assert {
                n: v.shape for n, v in export_state_dict(torchvision_mvit.table(ours.config), ours).items()
            } == wanted


@pytest.mark.long
@pytest.mark.parametrize(("size", "name"), [("v1-b-clips", "mvit_v1_b"), ("s-clips", "mvit_v2_s")])
def test_the_published_models_equal_torchvision_in_float32(size, name):
    theirs, ours = getattr(video, name)().eval(), build("mvit", size=size).eval()
    import_state_dict(torchvision_mvit.table(ours.config), theirs.state_dict(), ours)
    given = torch.randn(1, 3, 16, 224, 224)
    with torch.no_grad():
        torch.testing.assert_close(ours(given), theirs(given), rtol=1e-4, atol=1e-5)


def test_models_that_torchvision_cannot_represent_raise():
    for settings in ({"num_frames": None}, {"class_token": False}, {"residual_pooling": "all"}, {"pooling": "mean"}):
        with pytest.raises(Unsupported, match=next(iter(settings))):
            torchvision_mvit.table(Config(**KINDS["v2"] | settings))

"""ResNets of timm and torchvision and ours, from the same weights: values, gradients, statistics, folders."""

import pytest
import torch

from regard.attention.capture.watch import watch
from regard.core.errors import BadInput, Unsupported
from regard.models.resnet import SIZES, Config, ResNet
from regard.weights.table import export_state_dict, import_state_dict
from regard.weights.timm import resnet as timm_resnet
from tests.long_params import rest_is_long

from .harness import round_trip, shaken
from .image_models import same, there_and_back

timm = pytest.importorskip("timm")
torchvision = pytest.importorskip("torchvision")
from timm.models import resnet as timms  # noqa: E402
from torchvision.models import resnet as torchvisions  # noqa: E402

LAYERS = {"basic": (1, 2, 1, 1), "bottleneck": (1, 1, 2, 1)}
PEERS = [(whose, block) for whose in ("timm", "torchvision", "timm-se") for block in LAYERS]


def peer(whose, block, classes=5):
    module = torchvisions if whose == "torchvision" else timms
    kind = {"basic": module.BasicBlock, "bottleneck": module.Bottleneck}[block]
    more = {"block_args": {"attn_layer": "se"}} if whose == "timm-se" else {}
    theirs = shaken(module.ResNet(kind, LAYERS[block], num_classes=classes, **more), by=0.05)
    for name, buffer in theirs.named_buffers():
        if name.endswith("running_var"):
            buffer.uniform_(0.5, 1.5)
        elif name.endswith("running_mean"):
            buffer.normal_(std=0.2)
    return theirs


def pair(whose, block, classes=5):
    theirs = peer(whose, block, classes)
    config = Config(num_classes=classes, block=block, layers=LAYERS[block], squeeze_excitation=whose == "timm-se")
    ours = ResNet(config).double().eval()
    import_state_dict(timm_resnet.table(ours.config), theirs.state_dict(), ours)
    return theirs, ours


def images(*size):
    return torch.randn(3, 3, *size, dtype=torch.float64)


@pytest.mark.parametrize(("whose", "block"), PEERS)
def test_logits_equal_the_peers_at_any_size(whose, block):
    theirs, ours = pair(whose, block)
    for size in ((64, 64), (37, 70)):
        x = images(*size)
        with torch.no_grad():
            expected = theirs(x)
            same(ours(x), expected)
        assert expected.std() > 0.01


def test_features_equal_those_of_torchvisions_stages():
    theirs, ours = pair("torchvision", "basic")
    x = images(50, 66)
    with torch.no_grad():
        grid = theirs.maxpool(theirs.relu(theirs.bn1(theirs.conv1(x))))
        for n, found in enumerate(ours.features(x), 1):
            grid = getattr(theirs, f"layer{n}")(grid)
            same(found, grid)
        same(ours.grid(x), grid.permute(0, 2, 3, 1))
        same(ours.pooled(x), grid.mean((2, 3)))


@pytest.mark.parametrize(("whose", "block"), PEERS)
def test_batch_norm_statistics_equal_the_peers(whose, block):
    theirs, ours = pair(whose, block)
    x = images(40, 48)
    with torch.no_grad():
        same(ours.train()(x), theirs.train()(x), 1e-8)
        found, expected = export_state_dict(timm_resnet.table(ours.config), ours), theirs.state_dict()
    assert expected["bn1.num_batches_tracked"] == 1
    for name, value in expected.items():
        same(found[name], value, 1e-8)


@pytest.mark.parametrize("whose", rest_is_long(["torchvision", "timm-se"], "timm-se"))
@pytest.mark.parametrize("block", LAYERS)
def test_gradients_of_all_parameters_equal_the_peers(block, whose):
    theirs, ours = pair(whose, block)
    x, pull = images(40, 48), torch.randn(3, 5, dtype=torch.float64)
    (theirs(x) * pull).sum().backward()
    (ours(x) * pull).sum().backward()
    held = ResNet(ours.config).double()
    with torch.no_grad():
        for mine, parameter in zip(held.parameters(), ours.parameters(), strict=True):
            mine.copy_(parameter.grad)
    mapped = export_state_dict(timm_resnet.table(ours.config), held)
    for name, parameter in theirs.named_parameters():
        torch.testing.assert_close(mapped[name], parameter.grad, rtol=1e-7, atol=1e-9, msg=name)


@pytest.mark.parametrize(("whose", "block"), PEERS)
def test_import_then_export_is_exact(whose, block):
    theirs, ours = pair(whose, block)
    round_trip(theirs.state_dict(), timm_resnet.table(ours.config), ours)


@pytest.mark.parametrize("size", ["18", "34", "50", "101"])
def test_sizes_have_as_many_parameters_as_the_peers(size):
    with torch.device("meta"):
        ours, theirs = ResNet(Config(**SIZES[size])), getattr(torchvision.models, f"resnet{size}")()
    assert sum(p.numel() for p in ours.parameters()) == sum(p.numel() for p in theirs.parameters())


@pytest.mark.parametrize("size", ["18", "34", "50", "101"])
def test_sizes_with_squeeze_excitation_have_as_many_parameters_as_timms(size):
    with torch.device("meta"):
        ours, theirs = ResNet(Config(**SIZES[f"se-{size}"])), timm.create_model(f"seresnet{size}")
    assert sum(p.numel() for p in ours.parameters()) == sum(p.numel() for p in theirs.parameters())


def test_watch_sees_the_gates_that_timm_computes():
    theirs, ours = pair("timm-se", "bottleneck")
    gates, x = {}, images(40, 48)
    for name, module in theirs.named_modules():
        if name.endswith(".se.gate"):
            module.register_forward_hook(lambda module, args, out, name=name: gates.__setitem__(name, out))
    with torch.no_grad(), watch(ours) as seen:
        expected = theirs(x)
        same(ours(x), expected)
    assert len(seen) == len(gates) == 5
    for (name, trace), gate in zip(seen.items(), gates.values(), strict=True):
        assert name.endswith(".gate")
        assert trace.kind == "gate"
        same(trace.weights[:, 0, 0], gate[:, :, 0, 0])
    assert seen.last_pass() == []  # no map of the image


@pytest.mark.parametrize("name", ["resnet18", "seresnet18"])
def test_folder_round_trip(tmp_path, name):
    theirs = timm.create_model(name, num_classes=5, in_chans=1).eval()
    model, shown = there_and_back(theirs, {"in_chans": 1}, timm_resnet, torch.randn(2, 1, 64, 64), tmp_path)
    assert (model.config.num_classes, model.config.channels, len(shown["labels"])) == (5, 1, 5)


def test_models_that_the_format_cannot_represent_raise():
    with pytest.raises(Unsupported, match="stem='large'"):
        timm_resnet.table(Config(stem="small"))
    with pytest.raises(Unsupported, match="non_local"):
        timm_resnet.table(Config(non_local=(1,)))
    with pytest.raises(Unsupported, match="none of timm's"):
        timm_resnet.export_config(Config(width=32))
    with pytest.raises(Unsupported, match="not supported; choose one of resnet18"):
        timm_resnet.import_config({"architecture": "resnet26d"}, {})
    with pytest.raises(BadInput, match=r"layer1\.0\.conv3"):
        import_state_dict(timm_resnet.table(Config()), peer("timm", "bottleneck", 1000).state_dict(), ResNet(Config()))

"""Estimates: memory and communication by hand, what fits, and models outside the package."""

from dataclasses import dataclass, replace

import pytest
import torch
from torch import nn

from regard import models
from regard.core.errors import BadInput, RegardError, UnknownName, Unsupported
from regard.cost import meta_model, report
from regard.cost.devices import DEVICES, EXPECTED, Device, find_device
from regard.cost.estimate import Scenario, estimate, largest_batch, suggestions, with_recomputation
from regard.cost.meta_model import InputShape, resolve_config

CONFIG = resolve_config("gpt", "tiny", ["vocab=300", "layers=2"])
SMALL = Device("small", 2**30, 1e12, 1e11, 1e11, 1e10, 8, 1e9)


def scenario(**changes):
    return Scenario(**({"config": CONFIG, "shape": InputShape(batch=8, length=64)} | changes))


# -- memory ------------------------------------------------------------------------------------------------------------


def test_fsdp_shards_weights_gradients_and_moments():
    one, eight = estimate(scenario()), estimate(scenario(devices=8, parallel="fsdp"))
    n = one.parameters
    assert one.memory["weights"] == 4 * n
    assert eight.memory["weights"] == n // 2
    assert eight.memory["optimizer"] == one.memory["optimizer"] // 8
    assert eight.memory["gradients"] == n // 2
    block = max(eight.passes.blocks)
    rest = n - sum(eight.passes.blocks)
    assert eight.memory["gathered"] == 2 * (3 * block + rest) + 6 * block + 2 * rest


def test_fsdp_with_accumulation_stores_unsharded_gradients():
    assert estimate(scenario(devices=8, parallel="fsdp", accumulate=4)).memory["gradients"] == 4 * CONFIG_PARAMETERS


CONFIG_PARAMETERS = 2 * 12 * 128 * 128 + 300 * 128 + 64 * 128 + 5 * 128  # blocks, words, positions, norms


def test_parameters_by_hand():
    assert estimate(scenario()).parameters == CONFIG_PARAMETERS


def test_ddp_memory_includes_buckets():
    two = estimate(scenario(devices=2, parallel="ddp"))
    assert two.memory["weights"] == two.memory["gradient buckets"] == 4 * two.parameters
    assert two.parallel == "ddp"


def test_batch_is_divided_among_devices():
    one, eight = estimate(scenario()), estimate(scenario(devices=8, parallel="fsdp"))
    assert one.items == eight.items == 8 * 64
    assert eight.passes.items == 64


def test_auto_parallel_choice():
    assert estimate(scenario(devices=2)).parallel == "ddp"
    tiny = replace(SMALL, memory=20 * CONFIG_PARAMETERS)
    assert estimate(scenario(devices=2, device=tiny)).parallel == "fsdp"
    assert estimate(scenario(devices=4, tensor_parallel=2)).parallel == "fsdp"
    assert estimate(scenario(devices=2, tensor_parallel=2)).parallel == "one"


# -- communication -----------------------------------------------------------------------------------------------------


def test_ddp_bytes_sent():
    (flow,) = estimate(scenario(devices=4, parallel="ddp")).flows
    assert flow.bytes_sent == 2 * 3 / 4 * 4 * CONFIG_PARAMETERS
    assert not flow.blocking


def test_fsdp_bytes_sent():
    gathered, summed = estimate(scenario(devices=4, parallel="fsdp")).flows
    assert gathered.bytes_sent == 2 * 3 / 4 * 2 * CONFIG_PARAMETERS  # twice, in bfloat16
    assert summed.bytes_sent == 3 / 4 * 4 * CONFIG_PARAMETERS  # once, in float32
    thrice = estimate(scenario(devices=4, parallel="fsdp", accumulate=3)).flows
    assert (thrice[0].bytes_sent, thrice[1].bytes_sent) == (3 * gathered.bytes_sent, summed.bytes_sent)


def test_tensor_parallel_bytes_sent_block_computing():
    cost = estimate(scenario(devices=2, tensor_parallel=2))
    (flow,) = cost.flows
    stream = 8 * 64 * 128 * 2
    assert flow.bytes_sent == 2 * 1 / 2 * (2 + 2) * 2 * stream  # two sums a block each way, two blocks
    assert flow.blocking
    assert cost.seconds == pytest.approx(cost.computing + flow.seconds)
    again = estimate(scenario(devices=2, tensor_parallel=2, recompute=True)).flows[0]
    assert again.bytes_sent == 2 * 1 / 2 * (2 * 2 + 2) * 2 * stream


def test_network_between_machines_is_shared():
    from regard.cost.estimate import _speed

    h = DEVICES["h200"]
    assert _speed(scenario(devices=8), 8, 1) == h.link * EXPECTED.link
    assert _speed(scenario(devices=16), 16, 1) == 8 * h.network * EXPECTED.link  # eight ways out of a machine
    assert (
        _speed(scenario(devices=64, tensor_parallel=8), 8, 8) == h.network * EXPECTED.link
    )  # one device of each machine


def test_communication_overlaps_with_computing():
    slow = replace(DEVICES["h200"], link=1e6)
    cost = estimate(scenario(devices=2, parallel="ddp", device=slow))
    assert cost.seconds == pytest.approx(cost.computing + cost.flows[0].seconds - EXPECTED.overlap * cost.computing)
    fast = estimate(
        scenario(devices=2, parallel="ddp", device=replace(slow, link=1e15), efficiency=replace(EXPECTED, latency=0.0))
    )
    assert fast.seconds == fast.computing


# -- time --------------------------------------------------------------------------------------------------------------


def test_kernel_time_is_the_larger_of_compute_and_memory():
    slow = Device("slow", 2**40, 1e9, 1e9, 1e20, 1, 1, 1)
    cost = estimate(scenario(device=slow))
    products = sum(k.operations * n for p in cost.passes.kernels.values() for k, n in p.items() if k.kind == "product")
    attention = cost.operations - products
    expected = products / EXPECTED.matmul + attention / EXPECTED.attention
    assert cost.computing == pytest.approx(expected / 1e9, rel=0.01)
    memory_bound = estimate(scenario(device=replace(slow, bfloat16=1e20, float32=1e20, bandwidth=1e9)))
    moved = cost.passes.moved("forward", "loss", "backward") + cost.passes.moved("update", fused=False)
    assert memory_bound.computing == pytest.approx(moved / 1e9 / EXPECTED.bandwidth, rel=0.01)


def test_run_length_from_tokens():
    cost = estimate(scenario(tokens_per_parameter=20.0))
    tokens, updates, seconds = cost.run
    assert tokens == 20 * CONFIG_PARAMETERS
    assert updates == -(-tokens // (8 * 64))
    assert seconds == updates * cost.seconds
    assert estimate(scenario(tokens=1e6)).run[0] == 1e6
    assert estimate(scenario()).run is None


def test_decoding_step_reads_all_weights_and_the_cache():
    cost = estimate(scenario(mode="decode", shape=InputShape(batch=4, length=60)))
    cached = 2 * 2 * 4 * 64 * 128 * 2
    weights = 2 * CONFIG_PARAMETERS
    assert 0.9 * (cached + weights) < cost.passes.moved("step") < 1.6 * (cached + weights)


# -- what fits ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("recompute", [False, True])
def test_largest_batch_fits_and_one_more_row_does_not(recompute):
    efficiency = replace(EXPECTED, reserved=0.0)
    cost = estimate(
        scenario(
            device=replace(SMALL, memory=3e7),
            shape=InputShape(batch=64, length=64),
            recompute=recompute,
            efficiency=efficiency,
        )
    )
    assert not cost.fits
    largest = largest_batch(cost)
    assert 1 <= largest < 64
    assert estimate(replace(cost.scenario, shape=InputShape(batch=largest, length=64))).fits
    assert not estimate(replace(cost.scenario, shape=InputShape(batch=largest + 1, length=64))).fits


def test_largest_batch_is_none_if_nothing_fits():
    cost = estimate(scenario(device=replace(SMALL, memory=1e6)))
    assert largest_batch(cost) is None


def test_suggestions_are_estimated():
    cost = estimate(
        scenario(
            device=replace(SMALL, memory=4e7),
            efficiency=replace(EXPECTED, reserved=0.0),
            shape=InputShape(batch=64, length=64),
        )
    )
    found = dict(suggestions(cost))
    assert {"--recompute", "--devices 8 --parallel fsdp"} <= set(found)
    assert found["--recompute"].required_bytes < cost.required_bytes
    assert found["--devices 8 --parallel fsdp"].required_bytes < cost.required_bytes
    text = [title for title, _, _ in report.sections(cost)]
    assert "It does not fit. What would help" in text


def test_required_field_can_be_set():
    with pytest.raises(RegardError, match=r"state_dim=\.\.\., action_dim=\.\.\."):
        resolve_config("decision_transformer", None, [])
    config = resolve_config("decision_transformer", None, ["state_dim=3", "action_dim=1"])
    assert (config.state_dim, config.action_dim) == (3, 1)


def test_saved_bytes_with_recompute_toggled():
    without = with_recomputation(estimate(scenario()))
    with_ = with_recomputation(estimate(scenario(recompute=True)))
    assert (without.passes.saved_for_backward, without.saved_with_recompute_toggled) == (
        with_.saved_with_recompute_toggled,
        with_.passes.saved_for_backward,
    )
    recurrent = scenario(config=resolve_config("rnnsearch", "tiny", []), shape=InputShape(batch=1, length=3))
    assert with_recomputation(estimate(recurrent)).saved_with_recompute_toggled is None


# -- bad input ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"devices": 3}, BadInput, "use --batch-size 9"),
        ({"devices": 8, "tensor_parallel": 3}, BadInput, "does not divide the 8 devices"),
        ({"devices": 4, "tensor_parallel": 2, "parallel": "ddp"}, Unsupported, "fsdp, not ddp"),
        ({"devices": 0}, BadInput, "at least 1"),
        ({"shape": InputShape(batch=0)}, BadInput, "--batch-size must be at least 1, got 0"),
        ({"shape": InputShape(batch=1, length=65)}, BadInput, "65 positions are needed,? but 64 "),
        ({"shape": InputShape(batch=1, length=-1)}, BadInput, "--length must be at least 1, got -1"),
        ({"shape": InputShape(batch=1, length=0)}, BadInput, "--length must be at least 1, got 0"),
        ({"shape": InputShape(batch=1, source=0, target=4)}, BadInput, "--source must be at least 1, got 0"),
        ({"shape": InputShape(batch=1, target=0)}, BadInput, "--target must be at least 1, got 0"),
        ({"config": resolve_config("rnnsearch", "tiny", []), "recompute": True}, Unsupported, "no repeated blocks"),
        ({"optimizer": "adaw"}, UnknownName, "adamw"),
    ],
)
def test_impossible_scenario_is_refused_in_one_line(changes, error, message):
    with pytest.raises(error, match=message) as caught:
        estimate(scenario(**changes))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["width=100", "heads=3"], "width 100 is not divisible by 3 heads"),
        (["heads=0"], "at least 1"),
        (["layers=-1"], "at least 1"),
        (["widht=64"], "width"),
        (["width=wide"], "must be int, got"),
        (["vocab"], "key=value"),
    ],
)
def test_impossible_config_is_refused_in_one_line(settings, message):
    with pytest.raises(RegardError, match=message) as caught, meta_model.fake_tensors():
        meta_model.build(resolve_config("gpt", "tiny", settings))
    assert "\n" not in str(caught.value)


def test_names():
    assert meta_model.parse_model_name("gpt:xl") == ("gpt", "xl")
    assert meta_model.parse_model_name("gpt") == ("gpt", None)
    assert meta_model.parse_model_name("transformer-base") == ("transformer", "base")
    for word, message in (("gtp", "did you mean 'gpt'"), ("gpt:xxl", "did you mean 'xl'"), ("gpt2", "gpt:gpt2")):
        with pytest.raises(UnknownName, match=message):
            meta_model.parse_model_name(word)
    with pytest.raises(UnknownName, match="h200"):
        find_device("h201")


# -- a new model -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Config:
    """A Vision Transformer in twenty lines."""

    width: int = 48
    heads: int = 4
    layers: int = 6
    patch_size: int = 16
    image_size: int = 224
    num_classes: int = 10


SIZES = {"b16": {}, "b14": {"patch_size": 14}}


class Patches(nn.Module):
    def __init__(self, config):
        super().__init__()
        from regard.attention.multihead import MultiHeadAttention
        from regard.blocks.encoder import Encoder, EncoderBlock
        from regard.blocks.feedforward import GeluFeedForward
        from regard.positions.none import NoPositions

        self.config = config
        self.patches = nn.Conv2d(3, config.width, config.patch_size, config.patch_size)
        self.token = nn.Parameter(torch.zeros(1, 1, config.width))
        blocks = [
            EncoderBlock(
                MultiHeadAttention(config.width, config.heads),
                GeluFeedForward(config.width, 4 * config.width),
                [nn.LayerNorm(config.width), nn.LayerNorm(config.width)],
                True,
                0.0,
            )
            for _ in range(config.layers)
        ]
        self.encoder = Encoder(blocks, NoPositions(), nn.LayerNorm(config.width), 0.0)
        self.head = nn.Linear(config.width, config.num_classes)

    def forward(self, images):
        x = self.patches(images).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(len(x), -1, -1), x], 1)
        return self.head(self.encoder(x)[:, 0])


@pytest.fixture
def vit(monkeypatch):
    monkeypatch.setitem(models.MODELS, "vit", (__name__, "Patches"))


def test_new_image_model_is_estimated(vit):
    name, size = meta_model.parse_model_name("vit-b16")
    config = resolve_config(name, size, [])
    cost = with_recomputation(estimate(Scenario(config, InputShape(batch=4, image=(224, 224)))))
    assert cost.passes.unit == "images"
    assert cost.items == 4
    assert cost.passes.maps == {"encoder.blocks.*.mix": 4 * 4 * 6 * 197 * 197}
    assert cost.passes.work["patches"] == 2 * 4 * 196 * 768 * 48
    assert cost.saved_with_recompute_toggled < cost.passes.saved_for_backward
    tall = estimate(Scenario(config, InputShape(batch=1, image=(448, 224))))
    assert tall.passes.maps == {"encoder.blocks.*.mix": 4 * 6 * 393 * 393}


def test_patch_model_matches_the_lectures(vit):
    cost = estimate(
        Scenario(resolve_config("vit", "b16", ["layers=48", "heads=16"]), InputShape(batch=1), mode="infer")
    )
    *_, (title, _, rows) = report.sections(cost)
    assert "lectures" in title
    assert [cells[1] for cells in rows] == ["(196, 768)", "38,416", "150 KiB", "113 MiB"]
    cost = estimate(
        Scenario(resolve_config("vit", "b14", ["layers=48", "heads=16"]), InputShape(batch=1), mode="infer")
    )
    *_, (_, _, rows) = report.sections(cost)
    assert [cells[1] for cells in rows][1:] == ["65,536", "256 KiB", "192 MiB"]


def test_unknown_input_is_named(vit, monkeypatch):
    monkeypatch.setattr(Patches, "forward", lambda self, sound: sound)
    with pytest.raises(Unsupported, match="takes 'sound'"):
        estimate(Scenario(resolve_config("vit", "b16", []), InputShape(batch=1)))


def test_number_formats():
    assert [report.count(n) for n in (0, 999, 1000, 123_456, 1.0e9, 2.04e12)] == ["0", "999", "1.00 k", "123 k", "1.00 G", "2.04 T"]  # fmt: skip  # noqa: E501
    assert report.count(70e9, "B") == "70.0 B"
    assert [report.size(n) for n in (12, 2048, 1.5 * 2**30, 2**40)] == ["12 B", "2.00 KiB", "1.50 GiB", "1.00 TiB"]
    spans = (3e-6, 0.02, 1.5, 200.0, 5 * 86400.0)
    assert [report.span(s) for s in spans] == ["3.00 µs", "20.0 ms", "1.50 s", "3.33 min", "5.00 days"]


def test_device_here_uses_doctor_measurements(monkeypatch):
    from regard.cost.devices import MEASURED_EFFICIENCY, efficiency_of
    from regard.doctor import measure
    from regard.doctor.hardware import Compiler, Dtype, Machine
    from regard.doctor.hardware import Device as Found

    kinds = Dtype("float32", True, gflops=50.0), Dtype("bfloat16", True, gflops=750e3), Dtype("float16", False)
    found = Found("cuda:0", "Some GPU", 2**36, 4, kinds, copy=3000.0)
    machine = Machine("Linux", "3", "2", 8, (Found("cpu", "Some CPU", 2**35), found), (), Compiler())
    monkeypatch.setattr(measure, "load_measured", lambda: machine)
    device = find_device("here")
    assert (device.name, device.per_node, device.bfloat16, device.float32) == ("Some GPU", 4, 750e12, 50e9)
    assert (device.bandwidth, device.memory, device.is_cpu) == (3e12, 2**36, False)
    assert efficiency_of(device) == MEASURED_EFFICIENCY
    assert efficiency_of(DEVICES["h200"]) == EXPECTED
    assert efficiency_of(device, 0.5).matmul == 0.5
    cost = estimate(scenario(device=device, efficiency=efficiency_of(device)))
    assert "products reach 90% of the peak" in report.assumptions(cost)
    assert "measured by regard doctor" in report.assumptions(cost)


def test_sharded_muon_gathers_full_matrices():
    """Every device gathers all matrices of the blocks and computes all their products: sharding saves none of it."""
    one, eight = (estimate(scenario(devices=n, parallel="fsdp", optimizer="muon")) for n in (1, 8))
    assert one.passes.operations("update") == eight.passes.operations("update") > 0
    flow = eight.flows[-1]
    assert flow.what.startswith("steps, gathered")
    assert flow.bytes_sent == 7 / 8 * 4 * sum(eight.passes.blocks)
    assert flow.blocking
    small = estimate(scenario(devices=8, parallel="fsdp", optimizer="muon", shape=InputShape(batch=8, length=4)))
    assert small.memory["update"] == small.passes.update_bytes > 4 * sum(small.passes.blocks)
    plain = estimate(scenario(devices=8, parallel="fsdp", shape=InputShape(batch=8, length=4)))
    assert "update" not in plain.memory

"""Image models: counts equal torch's, the allocator's, the papers' and the lectures'."""

from dataclasses import replace
from functools import cache

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from regard import cli
from regard.cost import lectures, meta_model, report
from regard.cost.estimate import Scenario, estimate
from regard.cost.meta_model import InputShape, parse_model_name, resolve_config
from regard.cost.meter import Meter
from regard.cost.passes import ExecutionPlan, forward_pass, training_step
from tests.long_params import rest_is_long

from .real import Real

NO_DROPOUT = ["dropout=0", "drop_path=0"]
NO_ATTENTION_DROPOUT = ["attention_dropout=0"]  # a CPU has no fused attention with dropout
MODELS = {
    "vit:b16": (
        [
            "width=48",
            "heads=4",
            "layers=6",
            "image_size=56",
            "patch_size=8",
            "num_classes=7",
            *NO_DROPOUT,
            *NO_ATTENTION_DROPOUT,
        ],
        InputShape(batch=3),
    ),
    "cct:7-3x1": (["width=40", "heads=4", *NO_DROPOUT, *NO_ATTENTION_DROPOUT], InputShape(batch=3, image=(20, 28))),
    "resnet:18": (["width=12", "num_classes=7", *NO_DROPOUT], InputShape(batch=2, image=(64, 96))),
    "resnet:50-cifar": (["width=8", *NO_DROPOUT], InputShape(batch=3)),
    "swin:tiny": ([*NO_DROPOUT, *NO_ATTENTION_DROPOUT], InputShape(batch=3, image=(36, 44))),
    "swinv2:tiny": ([*NO_DROPOUT, *NO_ATTENTION_DROPOUT], InputShape(batch=3)),
    "mvit:tiny": ([*NO_DROPOUT], InputShape(batch=3)),
    "deit:tiny": ([*NO_DROPOUT, *NO_ATTENTION_DROPOUT], InputShape(batch=3)),
}
HYBRID = ["stem='hybrid(layers=(1, 2), base=32)'", "patch_size=1"]
SHORT = ("vit:b16", "swin:tiny")
NAMES = rest_is_long([*MODELS, "hybrid"], *SHORT)
WITHOUT_GROUPS = rest_is_long([name for name in (*MODELS, "hybrid") if name != "mvit:tiny"], *SHORT)


def case(name):
    settings, shape = MODELS["vit:b16" if name == "hybrid" else name]
    more = HYBRID if name == "hybrid" else []
    return resolve_config(*parse_model_name("vit:b16" if name == "hybrid" else name), [*settings, *more]), shape


@cache
def update(name):
    """Return the cost of one update, computed once for all tests."""
    return training_step(*case(name), ExecutionPlan("float32", is_cpu=True))


@pytest.mark.parametrize("name", NAMES)
def test_forward_operations_equal_torch(name):
    config, shape = case(name)
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH):
        counted = Real(config, shape, ExecutionPlan("float32")).operations(backward=False)
    found = forward_pass(config, shape, ExecutionPlan("float32", is_cpu=True))
    assert found.operations("forward") == pytest.approx(counted, rel=0.01)


@pytest.mark.parametrize("name", WITHOUT_GROUPS)  # of convolutions; see the test after this
def test_training_operations_equal_torch(name):
    counted = Real(*case(name), ExecutionPlan("float32")).operations()
    assert update(name).operations("forward", "loss", "backward") == pytest.approx(counted, rel=0.01)


def test_grouped_convolution_backward_operations():
    """torch's counter takes the weight gradient of a grouped convolution as if there were one group."""

    def counted(channels, groups):
        conv, x = torch.nn.Conv2d(channels, channels, 3, groups=groups), torch.zeros(2, channels, 9, 7)
        with Meter() as meter, meter.during("here"):
            conv(x.requires_grad_()).sum().backward()
        return sum(kernel.operations * n for kernel, n in meter.op_log.kernels()["here"].items())

    assert counted(12, groups=4) == 4 * counted(3, groups=1)
    assert counted(12, groups=12) == 12 * counted(1, groups=1)
    assert counted(1, groups=1) == 3 * 2 * (2 * 7 * 5) * 9


def test_gpu_window_attention_is_one_kernel_with_equal_work():
    config, shape = (
        resolve_config("swin", "tiny", [*NO_DROPOUT, *NO_ATTENTION_DROPOUT]),
        InputShape(batch=3, image=(64, 64)),
    )  # windows divide 64
    cpu, gpu = (training_step(config, shape, ExecutionPlan("float32", is_cpu=host)) for host in (True, False))
    assert gpu.operations("forward") == cpu.operations("forward")
    kinds = [{kernel.kind for kernel in found.kernels["forward"]} for found in (cpu, gpu)]
    assert "attention" in kinds[1] - kinds[0]
    assert sum(found.kernels["forward"].total() for found in (gpu,)) < cpu.kernels["forward"].total()
    assert gpu.saved_for_backward < cpu.saved_for_backward
    assert gpu.maps == cpu.maps
    wide = resolve_config(
        "swinv2", "tiny", ["window_size=16", "image_size=64", *NO_DROPOUT, *NO_ATTENTION_DROPOUT]
    )  # 256 cells are too many for it
    assert forward_pass(wide, shape, ExecutionPlan("float32")).operations("forward") > 0


@pytest.mark.parametrize("name", NAMES)
def test_peak_memory_is_what_a_real_update_allocates(name):
    measured = Real(*case(name), ExecutionPlan("float32")).peak()
    assert sum(update(name).peak.values()) == pytest.approx(measured, rel=0.15)


# Parameters in millions and multiply-adds in thousands of millions, as the papers have them (quoted, not looked up
# again). ResNet-50 is the one of today, which halves the grid a convolution later than the paper's.
PUBLISHED = {
    "resnet-18": (11.7, 1.8),
    "resnet-34": (21.8, 3.6),
    "resnet-50": (25.6, 4.1),
    "lr_net-50": (23.3, 4.1),  # the paper says 4.3 for both; ResNet-50 has 4.1 by this count
    "vit-b16": (86, 17.6),
    "vit-l16": (304, 61.6),
    "swin-t": (28.3, 4.5),
    "swin-s": (49.6, 8.7),
    "swinv2-t": (28.3, 5.9),
    "mvit-t": (24, 4.7),
    "mvit-s": (35, 7.0),
    "cct-7-3x1": (3.76, 1.19),
    "cct-14-7x2": (22.36, 5.53),
}


SECOND_SIZES = ("resnet-18", "resnet-34", "vit-l16", "swin-s", "mvit-s", "cct-14-7x2")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.long) if name in SECOND_SIZES else name for name in PUBLISHED]
)
def test_parameters_and_multiply_adds_match_papers(name):
    found = forward_pass(resolve_config(*parse_model_name(name), []), InputShape(batch=1), ExecutionPlan())
    parameters, work = PUBLISHED[name]
    assert found.total / 1e6 == pytest.approx(parameters, rel=0.01)
    assert found.operations("forward") / 2e9 == pytest.approx(work, rel=0.03)


def last_table(name, settings=(), shape=None):
    cost = estimate(
        Scenario(resolve_config(*parse_model_name(name), list(settings)), shape or InputShape(batch=2), mode="infer")
    )
    *_, table = report.sections(cost)
    return table


def test_vit_matches_the_lectures():
    title, _, rows = last_table("vit-b16", ["layers=48", "heads=16"])
    assert "lectures" in title
    assert [cells[1] for cells in rows] == ["(196, 768)", "38,416", "150 KiB", "113 MiB"]  # slides round down: 112
    _, _, rows = last_table("vit-b14", ["layers=48", "heads=16"])
    assert [cells[1] for cells in rows][1:] == ["65,536", "256 KiB", "192 MiB"]
    _, _, rows = last_table("vit-b16", ["patch_size=4", "width=48"])
    assert rows[1][1] == f"{56**4:,}"  # 9.8 million


def test_pixel_maps_take_768_gib():
    settings = ["patch_size=1", "image_size=128", "layers=48", "heads=16", "width=16", "num_classes=2"]
    _, _, rows = last_table("vit-b16", settings, InputShape(batch=1))
    assert rows[-1] == ("all maps, 48 layers, 16 heads", "768 GiB")


def test_convolutional_tokens_are_counted_by_stride():
    _, _, rows = last_table("cct-7-3x1")
    assert rows[0] == ("tokens", "256")
    _, _, rows = last_table("vit-b16", HYBRID, InputShape(batch=1, image=(64, 96)))
    assert rows[0] == ("tokens", f"{8 * 12}")


@pytest.mark.parametrize("image", [(224, 224), pytest.param((448, 224), marks=pytest.mark.long), (200, 310)])
def test_window_map_entries(image):
    config, batch = resolve_config("swin", "t", []), 2
    found = forward_pass(config, InputShape(batch=batch, image=image), ExecutionPlan()).maps
    for stage, (layers, heads) in enumerate(zip(config.layers, config.heads, strict=True)):
        cells = [-(-side // (config.patch_size * 2**stage)) for side in image]
        padded = [
            -(-side // config.window_size) * config.window_size for side in cells
        ]  # windows at the edge are whole ones
        expected = lectures.window_entries(*padded, config.window_size)
        assert found[f"stages.{stage}.blocks.*.mix"] == batch * layers * heads * expected


def test_window_maps_are_compared_with_global_attention():
    title, _, rows = last_table("swin-t")
    assert "one image" in title
    first, total, global_row = rows[0], rows[-2], rows[-1]
    assert first[1] == f"{2 * 3 * lectures.window_entries(56, 56, 7):,}"
    assert global_row[0] == "with global attention"
    assert int(global_row[1].replace(",", "")) > 2 * 3 * lectures.map_entries(56 * 56)
    assert int(total[1].replace(",", "")) == sum(int(cells[1].replace(",", "")) for cells in rows[:-2])


def test_model_without_attention_has_no_map_table():
    title, _, _ = last_table("resnet-18", [], InputShape(batch=1, image=(64, 64)))
    assert title == "Time"


def test_work_is_assigned_to_its_part():
    for name in ("swin:tiny", "resnet:18"):
        config, shape = case(name)
        found = forward_pass(config, shape, ExecutionPlan("float32"))
        assert "" not in found.work
        assert sum(found.work.values()) == found.operations("forward")
        assert found.work.keys() <= found.parameters.keys()


def test_optional_sizes_may_be_zero_but_not_negative():
    config = resolve_config("vit", "b16", ["num_classes=0", "num_prefix_tokens=0", "pool=mean", "layers=1"])
    assert "head" not in forward_pass(config, InputShape(batch=1), ExecutionPlan()).parameters
    with pytest.raises(meta_model.BadInput, match="num_classes must be at least 0, got -1"):
        forward_pass(replace(config, num_classes=-1), InputShape(batch=1), ExecutionPlan())


def test_command_takes_image_models(capsys):
    assert cli.main(["cost", "vit-b16", "--image", "224", "--infer"]) == 0
    out = capsys.readouterr().out
    assert "86.6 M parameters" in out
    assert "(196, 768)" in out
    assert cli.main(["cost", "resnet-18", "--image", "64x96", "--batch-size", "4"]) == 0
    assert "4 images" in capsys.readouterr().out
    assert cli.main(["cost", "mvit-v1-b-clips", "--batch-size", "2", "--infer"]) == 0
    out = capsys.readouterr().out
    assert "2 clips;" in out
    assert "clips/s" in out
    assert "Maps of one clip," in out
    assert "image" not in out

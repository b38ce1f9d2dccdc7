"""Devices: what they can do at most, and what of that a training run may hope for.

    a product       takes  max(operations / speed of products,  bytes / speed of memory,  the time to start it)
    anything else   takes  max(bytes / speed of memory,  the time to start it)
    a collective    takes  bytes sent / speed of the slowest link on the way  +  steps · delay

Peaks are the makers' (dense, without sparsity); memory is what PyTorch finds, a little less than is printed on the box.
No program reaches the peaks. `Efficiency` says which share of each is expected, in one place, and every report repeats it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from regard.core.errors import UnknownName, did_you_mean

GB, GIB, TERA = 1e9, 2**30, 1e12


@dataclass(frozen=True)
class Device:
    """Speeds in operations (two a multiply-add) and bytes a second; links count one direction."""

    name: str
    memory: float  # bytes
    bfloat16: float  # of matrix products, sums in float32
    float32: float  # of matrix products, without TF32
    bandwidth: float  # of its memory
    link: float  # to the other devices of its machine
    per_node: int  # devices in a machine
    network: float  # to other machines, for each device
    source: str = ""
    is_cpu: bool = False  # a CPU
    measured: bool = False  # peaks that were reached, not those on a data sheet

    def speed(self, precision: str) -> float:
        """The peak of matrix products."""
        return self.bfloat16 if precision == "bfloat16" else self.float32


DEVICES: dict[str, Device] = {
    "h200": Device(
        "H200 SXM", 139.8 * GIB, 989.4 * TERA, 66.9 * TERA, 4800 * GB, 450 * GB, 8, 50 * GB,
        "NVIDIA data sheet; NVLink 900 GB/s both ways; 400 Gb/s network for each device assumed",
    ),
    "h100": Device(
        "H100 SXM", 79.1 * GIB, 989.4 * TERA, 66.9 * TERA, 3350 * GB, 450 * GB, 8, 50 * GB,
        "NVIDIA data sheet; NVLink 900 GB/s both ways; 400 Gb/s network for each device assumed",
    ),
    "a100": Device(
        "A100 SXM 80 GB", 79.1 * GIB, 312 * TERA, 19.5 * TERA, 2039 * GB, 300 * GB, 8, 25 * GB,
        "NVIDIA data sheet; NVLink 600 GB/s both ways; 200 Gb/s network for each device assumed",
    ),
    "4090": Device(
        "GeForce RTX 4090", 23.6 * GIB, 165.2 * TERA, 82.6 * TERA, 1008 * GB, 25 * GB, 2, 1.25 * GB,
        "Ada white paper, float32 sums; no NVLink: PCIe 4.0 x16, 25 GB/s of 32; 10 Gb/s network assumed",
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Efficiency:
    """The share of each peak that is expected."""

    matmul: float = 0.70  # of the peak: one large product alone reached 0.76 on an H200
    attention: float = 0.40  # of the peak: fused kernels, forward and backward together
    bandwidth: float = 0.80
    launch: float = 3e-6  # seconds that even the smallest kernel takes: what recurrent models spend their time on
    link: float = 0.75
    overlap: float = 0.80  # of the computing time, communication that may run beside it can hide behind
    latency: float = 10e-6  # seconds for each step of a ring
    reserved: float = (
        1.0 * GIB
    )  # memory the device keeps for itself: context, kernels' workspace, buffers of collectives
    fragmentation: float = 0.05  # of the memory, lost between tensors


EXPECTED = Efficiency()
MEASURED_EFFICIENCY = replace(
    EXPECTED, matmul=0.90, attention=0.50, bandwidth=0.95
)  # of what one product, one copy reached here


def efficiency_of(device: Device, products: float | None = None) -> Efficiency:
    """What may be hoped of a device; `bmm` is the share of the peak that products reach, where that is known."""
    efficiency = MEASURED_EFFICIENCY if device.measured else EXPECTED
    return efficiency if products is None else replace(efficiency, matmul=products)


def find_device(name: str) -> Device:
    """A device by name; ``this_machine`` is this machine, as `regard doctor` found it (else measured now, some seconds)."""
    if name == "here":
        return this_machine()
    if name.lower() not in DEVICES:
        raise UnknownName(f"no device is called '{name}'; {did_you_mean(name.lower(), [*DEVICES, 'here'])}")
    return DEVICES[name.lower()]


def this_machine() -> Device:
    """This machine's GPU where it has one, else its CPU, with the peaks that the doctor measured."""
    from regard.doctor.measure import load_measured, measure

    found = (load_measured() or measure(quick=True)).best
    speed = {kind.name: 1e9 * kind.gflops for kind in found.dtypes if kind.works and kind.gflops}
    float32 = speed.get("float32", 1e9)
    link, network = 25 * GB, 1.25 * GB  # not measured: PCIe and 10 Gb/s
    return Device(
        found.what, float(found.memory), speed.get("bfloat16", float32), float32, 1e9 * (found.copy or 1.0), link,
        found.count, network, "measured by regard doctor; links are not", is_cpu=found.name == "cpu", measured=True,
    )  # fmt: skip

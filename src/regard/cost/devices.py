"""Devices: their peak speeds, and the share of each peak that a training run is expected to reach.

    matrix product    max(operations / peak,  bytes / bandwidth,  launch time)
    other kernel      max(bytes / bandwidth,  launch time)
    collective        bytes sent / speed of the slowest link  +  steps · latency

Peaks are the vendors' (dense, without sparsity); memory is what PyTorch reports, a little less than the nominal size.
`Efficiency` holds the expected share of each peak; every report prints it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from regard.core.errors import UnknownName, did_you_mean

GB, GIB, TERA = 1e9, 2**30, 1e12


@dataclass(frozen=True)
class Device:
    """Speeds in operations per second (two per multiply-add) and bytes per second; links count one direction."""

    name: str
    memory: float  # bytes
    bfloat16: float  # of matrix products, sums in float32
    float32: float  # of matrix products, without TF32
    bandwidth: float  # of its memory
    link: float  # to the other devices of its machine
    per_node: int  # devices in a machine
    network: float  # to other machines, for each device
    source: str = ""
    is_cpu: bool = False
    measured: bool = False  # peaks measured by `regard doctor`, not from a data sheet

    def speed(self, precision: str) -> float:
        """Return the peak of matrix products in operations per second."""
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
    """Expected share of each peak, and fixed overheads."""

    matmul: float = 0.70  # of the peak: one large product alone reached 0.76 on an H200
    attention: float = 0.40  # of the peak: fused kernels, forward and backward together
    bandwidth: float = 0.80
    launch: float = 3e-6  # seconds that the smallest kernel takes; dominates in recurrent models
    link: float = 0.75
    overlap: float = 0.80  # share of the computing time that can hide communication
    latency: float = 10e-6  # seconds for each step of a ring
    reserved: float = 1.0 * GIB  # context, workspace of kernels, buffers of collectives
    fragmentation: float = 0.05  # of the memory


EXPECTED = Efficiency()
MEASURED_EFFICIENCY = replace(EXPECTED, matmul=0.90, attention=0.50, bandwidth=0.95)  # of the measured peaks


def efficiency_of(device: Device, matmul: float | None = None) -> Efficiency:
    """Return the expected efficiency of a device; `matmul`, if given, replaces the share that products reach."""
    efficiency = MEASURED_EFFICIENCY if device.measured else EXPECTED
    return efficiency if matmul is None else replace(efficiency, matmul=matmul)


def find_device(name: str) -> Device:
    """Return a device by name; ``here`` is this machine, measured by `regard doctor` or now (some seconds)."""
    if name == "here":
        return this_machine()
    if name.lower() not in DEVICES:
        raise UnknownName(f"no device is called '{name}'; {did_you_mean(name.lower(), [*DEVICES, 'here'])}")
    return DEVICES[name.lower()]


def this_machine() -> Device:
    """Return this machine's GPU, or its CPU if it has none, with the peaks that `regard doctor` measured."""
    from regard.doctor.measure import load_measured, measure

    found = (load_measured() or measure(quick=True)).best
    speed = {kind.name: 1e9 * kind.gflops for kind in found.dtypes if kind.works and kind.gflops}
    float32 = speed.get("float32", 1e9)
    link, network = 25 * GB, 1.25 * GB  # not measured: PCIe and 10 Gb/s
    return Device(
        found.what, float(found.memory), speed.get("bfloat16", float32), float32, 1e9 * (found.copy or 1.0), link,
        found.count, network, "measured by regard doctor; links are not", is_cpu=found.name == "cpu", measured=True,
    )  # fmt: skip

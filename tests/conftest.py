"""What every test needs: one thread, safe bf16, jaxtyping checked at run time."""

import gc
import os
import tempfile

# bfloat16 on a CPU that advertises AMX and lacks it ends the process; this must stand before torch is imported.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")
os.environ.setdefault("OMP_NUM_THREADS", "1")  # xdist runs several processes
os.environ.setdefault("REGARD_CACHE", tempfile.mkdtemp(prefix="regard-cache-"))  # not the user's own

gc.disable()  # until all is imported: nearly nothing of that is garbage, and it is looked through again and again
os.fsync = os.fstat  # a file must be open as before; nobody cuts the power, and disks take longer than most tests

from jaxtyping import install_import_hook  # noqa: E402

# Shapes in signatures are checked wherever attention, blocks and models are called (see core/shapes.py).
CHECKED = ["regard.attention", "regard.blocks", "regard.models", "regard.core.trace"]
install_import_hook(CHECKED, "tests.shape_checks.check_first_calls")

import pytest  # noqa: E402
import torch  # noqa: E402

from tests import shape_checks  # noqa: E402
from tests.warm_python import WarmPython  # noqa: E402


def pytest_collection_finish():
    """Look for garbage again, but not among millions of objects that live as long as the process."""
    gc.collect()
    gc.freeze()
    gc.enable()


def pytest_unconfigure():
    """Let the interpreter take everything down as usual."""
    gc.unfreeze()


@pytest.fixture(autouse=True)
def _seed():
    """Every test draws the same numbers, whatever ran before it."""
    shape_checks.restart()
    torch.manual_seed(0)
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))


def pytest_terminal_summary(terminalreporter):
    """Say what missing data cost."""
    skipped = terminalreporter.stats.get("skipped", [])
    if missing := sum("REGARD_DATA" in str(report.longrepr) for report in skipped):
        terminalreporter.write_line(f"{missing} tests skipped because data are missing: set REGARD_DATA")


@pytest.fixture
def double():
    """Equalities are tested in float64."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.fixture
def unchecked():
    """Shape checks off: dynamo cannot trace through them."""
    import jaxtyping

    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.fixture(scope="session")
def python(tmp_path_factory):
    """Run a program in a process of its own, without shape checks, whose imports are done."""
    programs = WarmPython(tmp_path_factory.mktemp("programs"))
    yield programs
    programs.close()

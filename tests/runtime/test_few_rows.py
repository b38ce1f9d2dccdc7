"""The kernel for few rows: equal to PyTorch's product, and never in the way where it cannot be had."""

import os
import subprocess
from contextlib import suppress

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from regard.runtime import few_rows, inference
from regard.runtime.few_rows import MAX_ROWS, PANEL, few_rows_linear, find_matrix, load_library

SIZES = [(48, 40), (64, PANEL), (100, 3 * PANEL + 7), (17, 130)]  # inputs, outputs


@pytest.fixture
def kernel():
    if load_library() is None:
        pytest.skip("no AVX-512, or no C compiler")


@pytest.fixture
def fresh(monkeypatch, tmp_path):
    """Load the kernel anew, with an empty cache."""
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path))
    load_library.cache_clear()
    yield tmp_path
    load_library.cache_clear()


def packed(inputs, outputs, bias=True):
    linear = nn.Linear(inputs, outputs, bias=bias)
    return linear, inference._PackedLinear(linear)


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_kernel_equals_the_plain_product(kernel, threads):
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        for inputs, outputs in SIZES:
            linear, ready = packed(inputs, outputs, bias=outputs != 40)
            x = torch.randn(MAX_ROWS, inputs)
            expected = nn.functional.linear(
                x.double(), linear.weight.double(), None if linear.bias is None else linear.bias.double()
            )
            for rows in (1, 2, 3, 4, 5, 6, 7, 13, MAX_ROWS):
                found = few_rows_linear(x[:rows], ready.matrix)
                torch.testing.assert_close(found.double(), expected[:rows], rtol=1e-5, atol=1e-5)
    finally:
        torch.set_num_threads(before)


def test_a_row_does_not_depend_on_the_others(kernel):
    _, ready = packed(100, 70)
    x = torch.randn(MAX_ROWS, 100)
    together = few_rows_linear(x, ready.matrix)
    for rows in (1, 4, 6, 11):
        assert torch.equal(few_rows_linear(x[:rows], ready.matrix), together[:rows])


def test_few_rows_use_it_and_many_do_not(kernel, monkeypatch):
    linear, ready = packed(48, 40)
    calls = []
    monkeypatch.setattr(
        few_rows, "few_rows_linear", lambda x, *rest: calls.append(x.shape) or few_rows_linear(x, *rest)
    )
    with torch.inference_mode():
        for shape in ((1, 48), (2, 3, 48), (MAX_ROWS + 1, 48), (0, 48), (4, 48, 5)):
            x = torch.randn(shape) if shape[-1] == 48 else torch.randn(shape).mT  # not contiguous
            torch.testing.assert_close(ready(x), linear(x), rtol=1e-5, atol=1e-5)
    assert [tuple(shape) for shape in calls] == [(1, 48), (2, 3, 48), (0, 48), (4, 5, 48)]


def test_a_matrix_in_another_layout_is_refused(kernel):
    linear, ready = packed(64, 2 * PANEL)
    assert find_matrix(ready.weight, linear) is not None
    assert find_matrix(ready.weight, nn.Linear(64, 2 * PANEL)) is None  # other weights
    assert find_matrix(linear.weight.detach().to_mkldnn(), nn.Linear(32, PANEL)) is None  # another size


def test_library_is_compiled_once(kernel, fresh, monkeypatch):
    assert load_library() is not None
    (file,) = fresh.glob("few_rows-*.so")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: pytest.fail("compiled again"))
    load_library.cache_clear()
    assert load_library() is not None
    assert [file] == list(fresh.iterdir())


def test_a_damaged_library_is_compiled_again(kernel, fresh):
    load_library()
    (file,) = fresh.glob("few_rows-*.so")
    content = file.read_bytes()
    file.unlink()  # not overwritten: it is in use
    file.write_bytes(content[:100])
    load_library.cache_clear()
    assert load_library() is not None
    assert len(file.read_bytes()) == len(content)


@pytest.mark.parametrize("compiler", ["false", "a-compiler-that-is-not-there"])
def test_without_a_compiler_onednn_multiplies(fresh, monkeypatch, compiler):
    monkeypatch.setenv("CC", compiler)
    assert load_library() is None
    if inference._can_pack():
        linear, ready = packed(48, 40)
        assert ready.matrix is None
        x = torch.randn(3, 48)
        torch.testing.assert_close(ready(x), linear(x), rtol=1e-5, atol=1e-5)


def test_a_cache_that_cannot_be_written_is_no_error(kernel, fresh, monkeypatch):
    (fresh / "file").touch()
    monkeypatch.setenv("REGARD_CACHE", str(fresh / "file" / "inside"))
    assert load_library() is not None
    assert os.listdir(fresh) == ["file"]


def test_rows_of_another_width_are_an_error_and_no_memory_is_touched(kernel):
    _, ready = packed(48, 40)
    with torch.inference_mode():
        for shape in ((2, 100), (2, 96), (3, 47), (1, 0)):
            with pytest.raises(RuntimeError):
                ready(torch.randn(shape))


@pytest.mark.filterwarnings("ignore:.*torch.jit.*:FutureWarning")
def test_what_records_operations_gets_those_of_pytorch(kernel):
    _, ready = packed(48, 40)
    x = torch.randn(3, 48)
    with pytest.raises(RuntimeError):  # packed matrices cannot be traced
        torch.jit.trace(ready, (x,), check_trace=False)
    with FakeTensorMode(allow_non_fake_inputs=True), suppress(NotImplementedError):
        assert type(ready(torch.randn(3, 48))) is FakeTensor


def test_a_library_that_others_can_write_is_not_loaded(kernel, fresh, monkeypatch):
    load_library()
    (file,) = fresh.glob("few_rows-*.so")
    assert file.stat().st_mode & 0o777 == 0o600
    compiled, run = [], subprocess.run
    monkeypatch.setattr(subprocess, "run", lambda *args, **others: compiled.append(1) or run(*args, **others))
    for path, mode in ((file, 0o620), (file, 0o602), (fresh, 0o770), (fresh, 0o777)):
        before, number = path.stat().st_mode, len(compiled)
        path.chmod(mode)
        load_library.cache_clear()
        assert load_library() is not None
        assert len(compiled) == number + 1
        path.chmod(before)
    file.rename(fresh / "elsewhere")
    file.symlink_to(fresh / "elsewhere")
    load_library.cache_clear()
    assert load_library() is not None
    assert len(compiled) == 5


def test_without_a_home_folder_onednn_multiplies(kernel, monkeypatch):
    monkeypatch.setattr(few_rows, "cache_dir", lambda: (_ for _ in ()).throw(RuntimeError("no home")))
    load_library.cache_clear()
    assert load_library() is None
    load_library.cache_clear()

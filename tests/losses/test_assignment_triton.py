"""The kernel of the assignment finds what scipy finds: in Triton's interpreter on a CPU, compiled on a GPU."""

import os
import subprocess
import sys

import numpy as np
import pytest
import torch

from regard.losses.set_matching import assign

CODE = """
import sys, torch
torch.library.wrap_triton = lambda kernel: kernel  # as it is: interpreted
from regard.losses.assignment_triton import assign_columns
torch.save([assign_columns(*case) for case in torch.load(sys.argv[1])], sys.argv[2])
"""


def problems():
    """Costs P M Q and counts: one object, as many as queries, none, costs that are equal, and one that is huge."""
    generator = torch.Generator().manual_seed(3)
    for rows, columns in ((1, 1), (3, 5), (5, 5), (6, 40)):
        for scale in (None, 2):
            cost = torch.randn(4, rows, columns, generator=generator)
            cost = cost if scale is None else (cost * scale).round()
            if rows == 5:
                cost[0, 2] = torch.finfo(torch.float32).max
            yield cost, torch.tensor([rows, 0, max(1, rows // 2), rows])
    yield torch.randn(3, 4, 6, generator=generator), torch.tensor([4, 5, -1])  # counts beyond the rows


def check_least(cost, counts, columns):
    from scipy.optimize import linear_sum_assignment

    for costs, count, found in zip(cost.double().numpy(), counts.tolist(), columns.tolist(), strict=True):
        count = min(max(count, 0), len(costs))
        chosen = found[:count]
        assert len(set(chosen)) == count
        assert found[count:] == [0] * (len(found) - count)
        least = costs[:count][linear_sum_assignment(costs[:count])].sum()
        np.testing.assert_allclose(costs[np.arange(count), chosen].sum(), least, rtol=1e-12, atol=1e-12)


def test_interpreted_kernel_finds_the_least_cost(tmp_path):
    pytest.importorskip("triton")
    cases = [*problems()]
    torch.save(cases, tmp_path / "cases.pt")
    command = [sys.executable, "-c", CODE, str(tmp_path / "cases.pt"), str(tmp_path / "found.pt")]
    subprocess.run(command, check=True, env=os.environ | {"TRITON_INTERPRET": "1"}, timeout=600)
    for case, found in zip(cases, torch.load(tmp_path / "found.pt"), strict=True):
        check_least(*case, found)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu_matches_what_the_host_matches():
    cost, counts = torch.randn(3, 4, 60, 9), torch.tensor([9, 0, 4, 1])
    host, device = assign(cost, counts, groups=3), assign(cost.cuda(), counts.cuda(), groups=3)
    for layer in range(3):
        kept = device.real[layer].cpu()
        pairs = [set(zip(*(x[layer].cpu()[kept].tolist() for x in device[:3]), strict=True))]
        pairs.append(set(zip(*(x[layer].tolist() for x in host[:3]), strict=True)))
        assert pairs[0] == pairs[1]
    for case in problems():
        from regard.losses.assignment_triton import assign_columns

        check_least(*case, assign_columns(case[0].cuda(), case[1].cuda()).cpu())

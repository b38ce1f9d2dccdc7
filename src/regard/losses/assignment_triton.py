"""Assignment on the device: the Hungarian algorithm with shortest augmenting paths, a problem a program.

    for each row                    find the cheapest path of alternating free and used pairs to a free column:
        until it is free            the column of least reduced cost C[i, j] - u_i - v_j joins the tree,
                                    potentials move by that least cost
        flip the pairs of the path

O(M² Q) a problem, as on the host, but all problems (layers, groups, images) at once, and nothing waits: the update can
be captured as a CUDA graph. The columns of a problem (queries) lie in registers; column 0 is a root that stands for the
row being added. The potential of a row is kept at the column that the row is matched with. In float64, as scipy does.

Registering an operator made of Triton kernels imports PyTorch's compiler; so this file is imported only when it runs
(losses/set_matching.py).

Jonker, Volgenant: A Shortest Augmenting Path Algorithm for Dense and Sparse Linear Assignment Problems. Computing 1987;
Kuhn: The Hungarian Method for the Assignment Problem. Naval Research Logistics Quarterly 1955
"""

from __future__ import annotations

from typing import no_type_check

import torch

from regard.core.shapes import Float, Int, Tensor

try:
    import triton
    import triton.language as tl
except ImportError:  # PyTorch for CPUs comes without it
    triton = None


if triton is not None:  # no_type_check: Triton compiles from the source and must not be wrapped

    @triton.jit
    @no_type_check
    def _assignment_kernel(cost_at, count_at, out_at, rows, columns, BLOCK: tl.constexpr):
        problem = tl.program_id(0).to(tl.int64)
        j = tl.arange(0, BLOCK)
        real = (j >= 1) & (j <= columns)
        v = tl.zeros([BLOCK], tl.float64)  # potentials of the columns
        u = tl.zeros([BLOCK], tl.float64)  # potentials of the rows, at the columns that they are matched with
        row_of = tl.zeros([BLOCK], tl.int32)  # the row, from 1, that a column is matched with; 0: free
        count = tl.minimum(tl.load(count_at + problem).to(tl.int32), rows)  # more would read the next problem
        for i in range(count):
            row_of = tl.where(j == 0, i + 1, row_of)
            u = tl.where(j == 0, 0.0, u)
            least = tl.where(real, 1e300, 1e301).to(tl.float64)  # reduced cost of the cheapest edge from the tree
            came = tl.zeros([BLOCK], tl.int32)  # the column of the tree that this edge starts from
            in_tree = tl.zeros([BLOCK], tl.int32)
            at = tl.sum(tl.zeros([BLOCK], tl.int32), 0)  # the column that joined last; first the root
            row = at + i + 1
            while row > 0:
                in_tree = tl.where(j == at, 1, in_tree)
                costs = tl.load(cost_at + (problem * rows + row - 1) * columns + j - 1, mask=real, other=0.0).to(
                    tl.float64
                )
                reduced = costs - tl.sum(tl.where(j == at, u, 0.0), 0) - v
                open_ = real & (in_tree == 0)
                better = open_ & (reduced < least)
                came = tl.where(better, at, came)
                least = tl.where(better, reduced, least)
                outside = tl.where(open_, least, 1e302)
                step = tl.min(outside, 0)
                at = tl.min(tl.where(outside == step, j, BLOCK), 0)  # the first of equal ones
                u = tl.where(in_tree == 1, u + step, u)
                v = tl.where(in_tree == 1, v - step, v)
                least = tl.where(open_, least - step, least)
                row = tl.sum(tl.where(j == at, row_of, 0), 0)
            while at > 0:  # each column of the path takes over the row of the one before
                before = tl.sum(tl.where(j == at, came, 0), 0)
                row_of = tl.where(j == at, tl.sum(tl.where(j == before, row_of, 0), 0), row_of)
                u = tl.where(j == at, tl.sum(tl.where(j == before, u, 0.0), 0), u)
                at = before
        matched = real & (row_of > 0)
        tl.store(out_at + problem * rows + row_of - 1, (j - 1).to(tl.int64), mask=matched)

    @torch.library.triton_op("regard::assignment", mutates_args={})
    @no_type_check
    def _assign(cost: Tensor, counts: Tensor) -> Tensor:
        problems, rows, columns = cost.shape
        out = torch.zeros((problems, rows), dtype=torch.int64, device=cost.device)
        block = max(32, triton.next_power_of_2(columns + 1))
        torch.library.wrap_triton(_assignment_kernel)[(problems,)](
            cost, counts, out, rows, columns, BLOCK=block, num_warps=max(1, min(4, block // 64))
        )
        return out


def assign_columns(cost: Float[Tensor, "P M Q"], counts: Int[Tensor, " P"]) -> Int[Tensor, "P M"]:
    """Return the column of each of the first `counts` rows of every problem, where the total cost is least.

    Costs are finite, and rows at most as many as columns. Rows behind the count get column 0; a count beyond the rows
    means all of them.
    """
    found: Tensor = _assign(cost.contiguous(), counts.contiguous())
    return found

"""Fused linear map and cross-entropy: the full logits are never materialised.

    plain     Z = X Wᵀ            T × V, stored until the backward pass        L = Σ_t logsumexp(Z_t) - Z_t[y_t]
    fused     a chunk of rows of Z at a time
              G = softmax(Z) - onehot(y)        dX = G W        dW = Σ Gᵀ X         then the chunk is freed

The gradient of a summed loss is known in the forward pass up to one factor, the incoming gradient. So all three
products are computed there, chunk by chunk, and backward only scales them: nothing is computed twice, and only one
chunk of the T × V logits exists at a time. With V = 50,257 those are the largest tensor of a GPT.

Under autocast the products run in its dtype, everything between them and all sums in float32. On a GPU the matrix is
padded to a multiple of 64 rows while it is cast (a copy that is made anyway), since odd shapes run slower kernels; the
padded logits are -inf. A target of -100 is ignored. On CUDA a Triton kernel (losses.cross_entropy_triton) computes
loss and G of a chunk in one pass; elsewhere PyTorch operations do.

Hsu et al.: Liger Kernel: Efficient Triton Kernels for LLM Training. 2024. arXiv:2410.10989
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import torch
import torch.nn.functional as F
from torch.autograd.function import once_differentiable

from regard.core.precision import compute_dtype
from regard.core.shapes import Float, Int, Tensor

CUDA_CHUNK_ROWS = 16384  # rows of logits per chunk on a GPU
CPU_CHUNK_ELEMENTS = 2**24  # logits per chunk on a CPU
PAD_MULTIPLE = 64
IGNORE_INDEX = -100  # targets left out of the loss
HAS_TRITON = find_spec("triton") is not None  # the CPU build of PyTorch does not include it


def fused_linear_cross_entropy(
    x: Float[Tensor, "*B C"],
    weight: Float[Tensor, "V C"],
    targets: Int[Tensor, "*B"],
    chunk_size: int | None = None,
    label_smoothing: float = 0.0,
    bias: Float[Tensor, " V"] | None = None,
) -> Float[Tensor, ""]:
    """Return the cross-entropy of ``x @ weight.T + bias`` summed over all targets but -100."""
    x, weight, targets = x.flatten(0, -2), _full_tensor(weight), targets.flatten().long()
    dtype, chunk_size = compute_dtype(x), _chunk_size(x, weight, chunk_size)
    bias = None if bias is None else _full_tensor(bias)
    if torch.is_grad_enabled() and any(p is not None and p.requires_grad for p in (x, weight, bias)):
        loss: Tensor = _FusedLinearCrossEntropy.apply(x, weight, bias, targets, chunk_size, label_smoothing, dtype)
        return loss
    padded, added = _pad_rows(weight, dtype), None if bias is None else _pad_rows(bias, dtype)
    parts = [
        _chunk_loss(F.linear(rows.to(dtype), padded, added), target, len(weight), label_smoothing)[0]
        for rows, target in zip(x.split(chunk_size), targets.split(chunk_size), strict=True)
    ]
    return torch.stack(parts).sum()


@torch.no_grad()
def fused_linear_loss_and_correct(
    x: Float[Tensor, "*B C"],
    weight: Float[Tensor, "V C"],
    targets: Int[Tensor, "*B"],
    chunk_size: int | None = None,
    bias: Float[Tensor, " V"] | None = None,
) -> Float[Tensor, "2"]:
    """Return the summed cross-entropy and the number of targets that were the most likely token."""
    x, weight, targets = x.flatten(0, -2), _full_tensor(weight), targets.flatten().long()
    dtype, chunk_size = compute_dtype(x), _chunk_size(x, weight, chunk_size)
    padded, total = _pad_rows(weight, dtype), x.new_zeros(2, dtype=torch.float64)
    added = None if bias is None else _pad_rows(_full_tensor(bias), dtype)
    for rows, target in zip(x.split(chunk_size), targets.split(chunk_size), strict=True):
        loss, logp = _chunk_loss(F.linear(rows.to(dtype), padded, added), target, len(weight), 0.0)
        total += torch.stack([loss.double(), (logp.argmax(-1) == target).sum().double()])
    return total


class _FusedLinearCrossEntropy(torch.autograd.Function):
    """Loss and gradients in one pass."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        targets: Tensor,
        chunk_size: int,
        label_smoothing: float,
        dtype: torch.dtype,
    ) -> Tensor:
        vocab, padded, added = len(weight), _pad_rows(weight, dtype), None if bias is None else _pad_rows(bias, dtype)
        losses, dx, db = [], [], []
        dw: Tensor | None = None
        for rows, target in zip(x.split(chunk_size), targets.split(chunk_size), strict=True):
            rows = rows.to(dtype)
            loss, g = _loss_and_grad(F.linear(rows, padded, added), target, vocab, label_smoothing)
            if bias is not None:
                db.append(g.sum(0, dtype=torch.promote_types(g.dtype, torch.float32)))
            losses.append(loss)
            dx.append(g @ padded)
            dw = _accumulate_product(dw, g.mT, rows)
        assert dw is not None
        last = None if bias is None else torch.stack(db).sum(0)[:vocab].to(bias.dtype)
        ctx.save_for_backward(torch.cat(dx), dw[:vocab].to(weight.dtype), last)
        ctx.kind = x.dtype
        return torch.stack(losses).sum()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, factor: Tensor) -> Any:
        dx, dw, db = ctx.saved_tensors
        db = None if db is None else db * factor.to(db.dtype)
        return dx.to(ctx.kind) * factor.to(ctx.kind), dw * factor.to(dw.dtype), db, None, None, None, None


def can_use_triton(z: Tensor) -> bool:
    """Return whether the Triton kernel supports these logits."""
    return HAS_TRITON and z.is_cuda and z.dtype in (torch.bfloat16, torch.float16, torch.float32)


def cross_entropy_with_grad(z: Tensor, target: Tensor, vocab: int, label_smoothing: float) -> tuple[Tensor, Tensor]:
    """Run the Triton kernel, imported here because it brings in PyTorch's compiler."""
    from regard.losses.cross_entropy_triton import cross_entropy_with_grad as kernel

    return kernel(z, target, vocab, label_smoothing)


def _loss_and_grad(z: Tensor, target: Tensor, vocab: int, label_smoothing: float) -> tuple[Tensor, Tensor]:
    """Return the summed loss of rows of logits, and its gradient."""
    if can_use_triton(z):
        losses, g = cross_entropy_with_grad(z, target, vocab, label_smoothing)
        return losses.sum(), g
    loss, logp = _chunk_loss(z, target, vocab, label_smoothing)
    return loss, _logit_grad(logp, target, vocab, label_smoothing).to(z.dtype)


def _chunk_loss(z: Tensor, target: Tensor, vocab: int, label_smoothing: float) -> tuple[Tensor, Tensor]:
    """Return the summed loss of rows of logits, and their log-probabilities in at least float32."""
    exact = torch.promote_types(z.dtype, torch.float32)
    if z.shape[1] > vocab:
        z[:, vocab:] = float("-inf")
    logp = z.log_softmax(-1, dtype=exact)
    loss = -logp.gather(1, target.clamp(min=0)[:, None]).squeeze(1)
    if label_smoothing:
        loss = (1 - label_smoothing) * loss - label_smoothing * logp[:, :vocab].mean(-1)
    return torch.where(target != IGNORE_INDEX, loss, 0).sum(), logp


def _logit_grad(logp: Tensor, target: Tensor, vocab: int, label_smoothing: float) -> Tensor:
    """Return the gradient of the loss with respect to the logits: softmax minus the smoothed one-hot target."""
    if torch.compiler.is_compiling():  # one fused pass
        index = torch.arange(logp.shape[1], device=logp.device)
        g = torch.where(index == target[:, None], logp.exp() - (1 - label_smoothing), logp.exp())
        g = torch.where(index < vocab, g - label_smoothing / vocab, g) if label_smoothing else g
        return torch.where((target != IGNORE_INDEX)[:, None], g, 0)
    g = logp.exp_()
    g.scatter_add_(1, target.clamp(min=0)[:, None], g.new_full((len(g), 1), label_smoothing - 1))
    if label_smoothing:
        g[:, :vocab] -= label_smoothing / vocab
    return g.mul_((target != IGNORE_INDEX)[:, None])


def _accumulate_product(total: Tensor | None, a: Tensor, b: Tensor) -> Tensor:
    """Return total + a @ b, accumulated in at least float32."""
    exact = torch.promote_types(a.dtype, torch.float32)
    if total is None:
        return (a @ b).to(exact)
    if a.dtype == exact and not torch.compiler.is_compiling():
        return total.addmm_(a, b)
    return total + a @ b


def _pad_rows(weight: Tensor, dtype: torch.dtype) -> Tensor:
    """Cast the matrix (or bias) to `dtype`; on a GPU also pad its rows to a multiple of 64."""
    more = -len(weight) % PAD_MULTIPLE if weight.is_cuda else 0
    return F.pad(weight.to(dtype), (0, 0) * (weight.ndim - 1) + (0, more)) if more else weight.to(dtype)


def _full_tensor(weight: Tensor) -> Tensor:
    """Gather a sharded matrix."""
    whole: Tensor = weight.full_tensor() if hasattr(weight, "full_tensor") else weight
    return whole


def _chunk_size(x: Tensor, weight: Tensor, chunk_size: int | None) -> int:
    """Return the number of rows per chunk, so that chunks are of about equal size."""
    most = chunk_size or (CUDA_CHUNK_ROWS if x.is_cuda else max(64, CPU_CHUNK_ELEMENTS // len(weight)))
    return max(1, -(-len(x) // max(1, -(-len(x) // most))))

"""Updates wait for nothing on the host, so that a GPU can replay them: run on fake CUDA tensors, which no GPU holds.

An operation whose result the host must read, and a copy between host and device, are found with the line that does it.
What fake tensors cannot run (FlexAttention, a teacher that is loaded late) is left out.
"""

import traceback
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

import regard
from regard.core.errors import BadInput
from regard.data.batching import StreamPosition
from regard.training.recipe import build, list_recipes, load_recipe, quick_recipe

# recipe -> what the host must read in every update; train.graph=auto says so and trains without graphs
WAITS = {
    "gpt_shakespeare_moe": "the sizes of the experts' batches",
    "word2vec_tatoeba": "the number of pairs",
    "word2vec_cbow": "the number of pairs",
    "word2vec_english": "the number of pairs",
}
GPU_ONLY = {
    "deit_cifar10",
    "an4_ctc",
    "an4_ctc_unidirectional",
    "digits_ctc",
    "image_transformer_mnist",
    "image_transformer_superres",
}
READS = (
    "aten.nonzero",
    "aten._local_scalar_dense",
    "aten.masked_select",
    "aten.unique",
    "aten.is_nonzero",
    "aten.equal.",
)
DEFAULT = (
    "copy",
    "memn2n_babi",
    "ntm_copy",
    "ram_mnist",
    "scenes_detr_cpu",
    "transformer_conll2000",
)  # the others in the long run


class Device:
    """A generator of a GPU that does not exist."""

    device = torch.device("cuda")


class HostReads(TorchDispatchMode):
    """Collect copies between host and device, and results that the host reads, by the line of Regard that asked."""

    def __init__(self):
        super().__init__()
        self.found = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        tensors = [x for x in args if isinstance(x, torch.Tensor)]
        if str(func).startswith(READS) and any(x.is_cuda for x in tensors):
            self.note(func)
        out = func(*args, **(kwargs or {}))
        if "copy" in str(func) and len({x.device.type for x in (*tensors, out) if isinstance(x, torch.Tensor)}) > 1:
            self.note(func)
        return out

    def note(self, func):
        self.found.add(f"{func} at {own_line(traceback.extract_stack())}")


def own_line(stack):
    """Return the innermost line of Regard on a stack."""
    package = Path(regard.__file__).parent
    frame = [f for f in stack if package in Path(f.filename).parents][-1]
    return f"{Path(frame.filename).relative_to(package).as_posix()}:{frame.lineno}: {frame.line}"


def accept_fake_generators(monkeypatch):
    for name in ("rand", "randn", "randint", "randperm", "bernoulli", "multinomial", "normal", "_standard_gamma"):
        monkeypatch.setattr(torch, name, _without_generator(getattr(torch, name)))
    for name in ("uniform_", "normal_", "exponential_", "bernoulli_", "random_"):
        monkeypatch.setattr(torch.Tensor, name, _without_generator(getattr(torch.Tensor, name)))


def _without_generator(call):
    def called(*inputs, generator=None, **named):
        if generator is not None and not isinstance(generator, Device):
            named["generator"] = generator
        return call(*inputs, **named)

    return called


def launch_no_kernels(monkeypatch):
    """Let Triton kernels do nothing: they wait for nothing, and fake tensors hold no numbers for them."""
    if find_spec("triton") is not None:  # PyTorch for CPUs comes without it
        from triton.runtime.jit import JITFunction

        monkeypatch.setattr(JITFunction, "run", lambda self, *args, **settings: None)


def to_fake(module, fake, seen):
    for part in module.modules():
        for name, p in part._parameters.items():
            if p is not None:
                seen.setdefault(p, nn.Parameter(fake(p), requires_grad=p.requires_grad))
                part._parameters[name] = seen[p]
        part._buffers = {name: None if x is None else fake(x) for name, x in part._buffers.items()}


def waiting_gradients(total):
    """Return the operations below a loss whose gradient looks for zeros on the host, which fake tensors do not run."""
    ahead, seen = [total.grad_fn], set()
    while ahead:
        node = ahead.pop()
        if node is not None and node not in seen:
            seen.add(node)
            ahead += [each for each, _ in node.next_functions]
    return {f"the gradient of {name}" for node in seen if (name := node.name()).startswith(("ProdBackward", "Cumprod"))}


def host_reads(name, monkeypatch):
    """Return what the host reads in an update of a recipe's task."""
    recipe = quick_recipe(load_recipe(name))
    task = recipe.task.build(recipe.data, seed=1, folder=None)
    model = build(task.fit(recipe.model)).train()
    task.initialize(model)
    batch = next(iter(task.batches().start(StreamPosition(), 0, 1))).batch.to("cpu")
    accept_fake_generators(monkeypatch)
    launch_no_kernels(monkeypatch)
    monkeypatch.setattr(torch.backends.cudnn, "enabled", False)
    mode, reads = FakeTensorMode(allow_non_fake_inputs=True), HostReads()
    with mode:

        def fake(x):
            return torch.empty(x.shape, dtype=x.dtype, device="cuda")

        seen = {}
        for module in (model, *task.modules().values()):
            to_fake(module, fake, seen)
        inputs = type(batch)(*(fake(x) if isinstance(x, torch.Tensor) else x for x in batch))
        step = torch.zeros((), device="cuda", dtype=torch.float64)
        task.loss(model, inputs, step, Device())  # what is computed once and kept
        with reads:
            total, _ = task.loss(model, inputs, step, Device())
            reads.found |= waiting_gradients(total)
            for part in (*model.modules(), task):
                if hasattr(part, "after_update"):
                    part.after_update(*((model, step + 1) if part is task else ()))
    return reads.found


@pytest.mark.parametrize(
    "name",
    [
        name if name in DEFAULT else pytest.param(name, marks=pytest.mark.long)
        for name in sorted(set(list_recipes()) - GPU_ONLY)
    ],
)
def test_an_update_reads_nothing_from_the_device(name, monkeypatch):
    try:
        found = host_reads(name, monkeypatch)
    except BadInput as error:
        pytest.skip(str(error))
    except RuntimeError as error:  # fake tensors have no numbers to read
        if not type(error).__name__.startswith(("DataDependent", "DynamicOutput")):
            raise
        found = {f"{error} at {own_line(traceback.extract_tb(error.__traceback__))}"}
    assert bool(found) == (name in WAITS), found

"""A compiled run makes few graphs: one for each kind of block, however many layers, and one more for evaluation."""

import pytest

# In a child process, without shape checks. The backend generates no code; it counts the graphs it is given.
COUNTING = """
import torch
from torch import nn
from torch._dynamo.testing import CompileCounterWithBackend
from regard.models import build
from regard.training.compilation import compile_blocks, is_mostly_blocks
from regard.training.parallel.parallelize import enable_gradient_checkpointing

counter, real = CompileCounterWithBackend("{backend}"), torch.compile
torch.compile = lambda call, **options: real(call, backend=counter, **options)

def made():
    return sum(bool(graph.graph.nodes) for graph in counter.graphs)

def graphs(call):
    before = made()
    call()
    return made() - before

def tokens(b, n):
    return torch.randint(3, 17, (b, n))
"""

GPT = '"gpt", size="tiny", vocab=17, width=16, heads=2, dropout=0.0'
MODELS = {
    "transformer": (
        '"transformer", vocab=17, width=16, heads=2, ffn=32, dropout=0.1, encoder_layers=3, decoder_layers=3',
        "m(tokens(b, n), tokens(b, n + 1), torch.full((b,), n - 1))",
        2,  # kinds of blocks
    ),
    "gpt": (GPT + ", layers=4", "m(tokens(b, n))", 1),
    "rotary": (GPT + ', layers=3, positions="rotary", qk_norm="rms", norm_kind="rms"', "m(tokens(b, n))", 1),
    "t5": (
        '"t5", vocab=17, width=16, heads=2, ffn=32, encoder_layers=3, decoder_layers=3',
        "m(tokens(b, n), tokens(b, n + 1))",
        2,
    ),
    "drop path": (
        '"cct", num_classes=3, image_size=8, kernel=3, convolutions=1, width=32, heads=2, layers=4, drop_path=0.3',
        "m(torch.rand(b, 3, 8, 8))",
        1,
    ),
}


def counting(backend="eager"):
    return COUNTING.replace("{backend}", backend)


@pytest.mark.parametrize("name", MODELS)
def test_layers_of_one_kind_share_a_graph_in_each_mode(python, name):
    settings, call, kinds = MODELS[name]
    python(f"""{counting()}
m = build({settings}).train()
assert is_mostly_blocks(m)
compile_blocks(m, True)
run = lambda b, n: {call}
assert graphs(lambda: run(4, 7).sum().backward()) == {kinds}
assert graphs(lambda: run(5, 9).sum().backward()) <= {kinds}, "a second shape"
assert graphs(lambda: run(3, 6).sum().backward()) == 0, "a third shape"
with torch.no_grad():
    m.eval()
    assert graphs(lambda: run(4, 8)) <= {kinds}, "evaluation"
    assert graphs(lambda: run(5, 6)) == 0, "evaluation of another shape"
m.train()
assert graphs(lambda: run(4, 7).sum().backward()) == 0, "training again"
""")


def test_compiled_blocks_compute_what_eager_ones_do_also_recomputed(python):
    python(f"""{counting("aot_eager")}
def gradients(model, recompute):
    torch.manual_seed(2)
    if recompute:
        enable_gradient_checkpointing(model)
    forwards = compile_blocks(model, True)
    out = model(text)
    out.square().sum().backward()
    found = [out.detach(), *(p.grad.clone() for p in model.parameters())]
    for block, forward in forwards.items():
        block.forward = forward
    model.zero_grad()
    return found

text = tokens(3, 7)
model = build({GPT}, layers=3).double()
model(text).square().sum().backward()
expected = [model(text).detach(), *(p.grad.clone() for p in model.parameters())]
model.zero_grad()
found = []
for recompute in (False, True):
    assert graphs(lambda: found.extend(gradients(model, recompute))) == 1
    for own, wanted in zip(found, expected, strict=True):
        torch.testing.assert_close(own, wanted)
    found.clear()
""")


def test_drop_path_keeps_its_rate_in_compiled_blocks(python):
    python(f"""{counting("aot_eager")}
from regard.blocks.residual import DropPath

class Doubled(nn.Module):
    def __init__(self, rate):
        super().__init__()
        self.path, self.weight = DropPath(rate), nn.Parameter(torch.ones(1))

    def forward(self, x):
        return self.path(x * self.weight)

model = nn.Module()
model.blocks = nn.ModuleList(map(Doubled, (0.0, 0.25, 0.5)))
compile_blocks(model)
x = torch.ones(8000, 2)
found = [block(x) for block in model.blocks]
assert made() == 1
assert torch.equal(found[0], x)
for out, rate in zip(found[1:], (0.25, 0.5)):
    assert torch.equal(out[:, 0], out[:, 1])
    assert {{round(v, 4) for v in out.flatten().tolist()}} == {{0.0, round(1 / (1 - rate), 4)}}
    assert abs(out.mean().item() - 1) < 0.06
model.eval()
assert torch.equal(model.blocks[2](x), x)
""")


def test_blocks_of_another_width_are_another_kind_with_sizes_of_their_own(python):
    """Else the compiler would take the width for a size that changes."""
    python(f"""{counting()}
from regard.blocks.feedforward import ReluFeedForward

model = nn.Module()
model.blocks = nn.ModuleList([ReluFeedForward(n, n) for n in (8, 8, 12, 12, 16, 16)])
compile_blocks(model)
x = {{n: torch.rand(4, n) for n in (8, 12, 16)}}
assert graphs(lambda: [block(x[block.up.in_features]) for block in model.blocks]) == 3
for graph in counter.graphs:
    for node in graph.graph.find_nodes(op="placeholder"):
        value = node.meta["example_value"]
        assert isinstance(value, torch.Tensor), "a size is an input"
        assert all(isinstance(size, int) for size in value.shape)
""")


def test_models_without_repeated_blocks_are_compiled_whole(python):
    python(f"""{counting()}
for name, settings in (("rnnsearch", dict(vocab=17)), ("resnet", dict(num_classes=3))):
    assert not is_mostly_blocks(build(name, **settings)), name
assert not is_mostly_blocks(build({GPT}, layers=1))
""")

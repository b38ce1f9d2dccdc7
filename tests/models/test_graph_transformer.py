"""Graph Transformer, GAT and GCN: padding and the order of nodes change nothing, and the layers are the formulas."""

import pytest
import torch

import regard
from regard.attention.edge_attention import EdgeMask
from regard.attention.mechanisms.softmax import SoftmaxAttention
from regard.core.errors import RegardError
from regard.core.positions import TensorBias
from regard.models import build
from regard.models.gcn import normalized_adjacency
from regard.positions.graph.laplacian import laplacian_positions

LENGTHS = torch.tensor([7, 4, 1])


@pytest.fixture(autouse=True)
def _double(double):
    pass


def graphs():
    nodes, positions = torch.randn(3, 7, 5), torch.randn(3, 7, 2)
    edges = torch.randint(0, 3, (3, 7, 7)) * (torch.rand(3, 7, 7) < 0.5)
    return nodes, edges.maximum(edges.mT), positions


def models(head):
    for name, settings in (
        ("graph_transformer", {"attend": "neighbors"}),
        ("graph_transformer", {"attend": "all"}),
        ("gcn", {"layers": 3, "residual": True}),
        ("gat", {"layers": 3, "output_heads": 2}),
    ):
        more = {"edge_types": 2} if name == "graph_transformer" else {}
        model = build(name, size="tiny", input_dim=5, position_dim=2, head=head, **settings, **more).eval()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.1 * torch.randn_like(parameter))
        yield model


@pytest.mark.parametrize("head", ["graph", "nodes"])
def test_the_order_of_the_nodes_changes_nothing_or_permutes_the_result(head):
    (nodes, edges, positions), order = graphs(), torch.randperm(7)
    for model in models(head):
        out = model(nodes, edges, positions)
        moved = model(nodes[:, order], edges[:, order][:, :, order], positions[:, order])
        torch.testing.assert_close(moved, out if head == "graph" else out[:, order])
        for changed in (
            (nodes + 1, edges, positions),
            (nodes, torch.zeros_like(edges), positions),
            (nodes, edges, positions + 1),
        ):
            assert not torch.allclose(model(*changed), out)


@pytest.mark.parametrize("head", ["graph", "nodes"])
def test_a_batch_of_graphs_equals_its_singles_whatever_the_padding(head):
    nodes, edges, positions = graphs()
    real = torch.arange(7) < LENGTHS[:, None]
    loud = torch.where(real[..., None], nodes, 1e3), torch.where(real[:, None] & real[..., None], edges, 2), positions
    for model in models(head):
        out = model(*loud, LENGTHS)
        for b, n in enumerate(LENGTHS.tolist()):
            single = model(nodes[b : b + 1, :n], edges[b : b + 1, :n, :n], positions[b : b + 1, :n])[0]
            torch.testing.assert_close(out[b] if head == "graph" else out[b, :n], single)
        assert torch.isfinite(model(*loud, torch.tensor([7, 0, 2]))).all()


def test_along_edges_a_node_reads_its_neighbours_and_itself_only():
    nodes, edges, positions = graphs()
    along, _, _, gat = models("nodes")
    traces = []
    for model in (along, gat):
        with torch.no_grad(), regard.watch(model) as seen:
            model(nodes, edges, positions, LENGTHS)
        traces += seen.traces()
    assert len(traces) == 2 + 3
    for trace in traces:
        assert trace.weights.shape == (3, 2, 7, 7)
        for b, n in enumerate(LENGTHS.tolist()):
            allowed = (edges[b, :n, :n] > 0) | torch.eye(n, dtype=torch.bool)
            weights = trace.weights[b, :, :n, :n]
            assert ((weights > 0) == allowed).all()
            torch.testing.assert_close(weights.sum(-1), torch.ones_like(weights[..., 0]))


def test_attention_is_a_loop_over_edges_with_a_bias_for_each_type_in_value_and_gradient():
    nodes, edges, _ = graphs()
    model = build("graph_transformer", size="tiny", input_dim=5, edge_types=2, head="nodes").eval()
    torch.nn.init.normal_(model.edge_bias)
    block, x = model.blocks[0], torch.randn(7, 16, requires_grad=True)
    normed = block.mix_norm(x)
    q, k, v = block.mix.project.qkv(normed).unflatten(-1, (2, 3, 8)).unbind(-2)
    rows = []
    for n in range(7):
        heads = []
        for h in range(2):
            near = [m for m in range(7) if edges[0, n, m] > 0 or m == n]
            kind = [3 if m == n else int(edges[0, n, m]) for m in near]
            bias = [model.edge_bias[each, h] for each in kind]
            score = torch.stack([q[n, h] @ k[m, h] / 8**0.5 + b for m, b in zip(near, bias, strict=True)])
            heads.append(score.softmax(0) @ v[near, h])
        rows.append(torch.cat(heads))
    expected = block.mix.join.out(torch.stack(rows))
    caught = []
    block.mix.register_forward_hook(lambda module, args, out: caught.append(out))
    block.mix.register_forward_pre_hook(lambda module, args: (normed[None],))
    model(nodes[:1], edges[:1])
    torch.testing.assert_close(caught[0][0], expected)
    of = [x, model.edge_bias]
    seed = torch.randn_like(expected)
    for a, b in zip(
        *(torch.autograd.grad((y * seed).sum(), of, retain_graph=True) for y in (caught[0][0], expected)), strict=True
    ):
        torch.testing.assert_close(a, b)


def test_attention_over_a_list_of_edges_equals_the_masked_matrix_in_value_and_gradient(monkeypatch):
    nodes, edges, positions = graphs()
    assert not EdgeMask.is_sparse(edges > 0)  # too many for a list
    along, _, _, gat = models("nodes")
    for model in (along, gat):
        found = []
        for listed in (False, True):
            monkeypatch.setattr(EdgeMask, "is_sparse", staticmethod(lambda allowed, listed=listed: listed))
            model.zero_grad()
            out = model(nodes, edges, positions, LENGTHS)
            (out.sin() * (torch.arange(7) < LENGTHS[:, None])[..., None]).sum().backward()
            gradients = [parameter.grad.clone() for parameter in model.parameters()]
            with torch.no_grad(), regard.watch(model) as seen:
                model(nodes, edges, positions, LENGTHS)
            found.append([out.detach(), *gradients, *(trace.weights for trace in seen.traces())])
        for dense, listed in zip(*found, strict=True):
            torch.testing.assert_close(listed, dense)


def test_graph_attention_is_that_of_the_paper():
    nodes, edges, _ = graphs()
    model = build("gat", size="tiny", input_dim=5, num_outputs=3, output_heads=2, head_dim=4).eval()
    x = nodes[0]
    for last, layer in enumerate(model.layers):
        torch.nn.init.normal_(layer.bias)
        heads = []
        for h, (a, b, bias) in enumerate(zip(layer.query[:, 0], layer.key[:, 0], layer.bias[:, 0], strict=True)):
            rows, size = [], len(a)
            value = x @ layer.project.weight[h * size : (h + 1) * size].T
            for n in range(7):
                near = [m for m in range(7) if edges[0, n, m] > 0 or m == n]
                score = torch.stack([torch.cat([a, b]) @ torch.cat([value[n], value[m]]) for m in near])
                rows.append(torch.where(score > 0, score, 0.2 * score).softmax(0) @ value[near] + bias)
            heads.append(torch.stack(rows))
        x = torch.stack(heads).mean(0) if last else torch.nn.functional.elu(torch.cat(heads, 1))
    torch.testing.assert_close(model(nodes[:1], edges[:1])[0], x)


def test_a_graph_of_few_edges_is_attended_edge_by_edge_with_any_bias_and_none():
    allowed = torch.eye(20, dtype=torch.bool).repeat(2, 1, 1)
    allowed[0, 3, 3], allowed[1, 5, 9] = False, True  # a query that sees nothing, and one that sees two
    q, k, v = torch.randn(3, 2, 4, 20, 8).unbind()
    assert EdgeMask.is_sparse(allowed)
    mask = EdgeMask(allowed)
    attend = SoftmaxAttention()
    for bias in (None, TensorBias(torch.randn(1, 4, 20, 20))):
        found = attend(q, k, v, mask, bias)
        torch.testing.assert_close(found, attend.weights(q, k, mask, bias) @ v)
        assert (found[0, :, 3] == 0).all()
    dropped = SoftmaxAttention(dropout=0.5).train()(q, k, v, mask)
    assert set(torch.where(dropped[0, 0, 0] == 0, 0, dropped[0, 0, 0] / v[0, 0, 0]).round().tolist()) <= {0.0, 2.0}


def test_the_convolution_is_that_of_the_paper():
    _, edges, _ = graphs()
    average = normalized_adjacency(edges, None)[1]
    adjacency = (edges[1] > 0).double().fill_diagonal_(1)
    degree = adjacency.sum(1)
    torch.testing.assert_close(average, adjacency / (degree[:, None] * degree).sqrt())
    model = build("gcn", size="tiny", input_dim=5, layers=2, num_outputs=3).eval()
    nodes = torch.randn(1, 7, 5)
    first, second = model.layers
    expected = average @ second(torch.relu(average @ first(nodes[0])))
    torch.testing.assert_close(model(nodes, edges[1:2])[0], expected)


def cycles():
    """Two graphs that message passing cannot tell apart: a ring of six nodes and two triangles."""
    ring = torch.tensor([[0, 1], [1, 2], [2, 3], [3, 4], [4, 5], [5, 0]]).T
    triangles = torch.tensor([[0, 1], [1, 2], [2, 0], [3, 4], [4, 5], [5, 3]]).T
    return [torch.cat([each, each.flip(0)], 1) for each in (ring, triangles)]


def test_positions_tell_apart_what_message_passing_cannot():
    edges = torch.zeros(2, 6, 6, dtype=torch.long)
    places = []
    for b, pairs in enumerate(cycles()):
        edges[b, pairs[0], pairs[1]] = 1
        places.append(laplacian_positions(pairs, 6, 3)[0].double())
    for name in ("graph_transformer", "gcn", "gat"):
        model = build(name, size="tiny", input_dim=5, position_dim=3, head="graph").eval()
        with torch.no_grad():
            plain = model(torch.ones(2, 6, 5), edges)
            placed = model(torch.ones(2, 6, 5), edges, torch.stack(places))
        torch.testing.assert_close(plain[0], plain[1])
        assert not torch.allclose(placed[0], placed[1])


def test_settings_that_do_not_fit_are_refused():
    with pytest.raises(RegardError, match="attend"):
        build("graph_transformer", attend="some")

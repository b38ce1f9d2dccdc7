import torch

from regard.core.layer_state import PassState
from regard.core.trace import Geometry, Slots, Trace, regrouping_trace


def windows(batch, width, size):
    """Tokens 0..width-1 cut into windows of `size`, the last one padded."""
    cells = torch.arange(-(-width // size) * size)
    cells[cells >= width] = -1
    return cells.view(1, -1, size, 1).expand(batch, -1, -1, -1)


def test_operator_puts_windows_back_on_the_grid(double):
    cells = windows(2, 7, 3)  # 3 windows, two cells of padding
    slots = Slots(cells, (7,))
    weights = torch.rand(2 * 3, 4, 3, 3).softmax(-1)
    values = torch.randn(2, 7)
    operator = Geometry(slots, slots).operator(weights)
    assert operator.shape == (2, 4, 7, 7)
    padded = torch.cat([values, torch.zeros(2, 2)], 1).view(2, 3, 3)
    expected = torch.einsum("bghnm,bgm->bhgn", weights.view(2, 3, 4, 3, 3), padded).flatten(2)[..., :7]
    torch.testing.assert_close(torch.einsum("bhom,bm->bho", operator, values), expected)


def test_operator_of_pooled_keys_is_the_mean_of_their_cells(double):
    queries = Slots(torch.arange(6).view(1, 1, 6, 1), (6,))
    keys = Slots(torch.arange(6).view(1, 1, 3, 2), (6,))
    weights, values = torch.rand(1, 1, 6, 3).softmax(-1), torch.randn(6)
    operator = Geometry(queries, keys).operator(weights)
    torch.testing.assert_close(operator[0, 0] @ values, weights[0, 0] @ values.view(3, 2).mean(1))


def test_one_input_of_a_batch_keeps_its_windows():
    slots = Slots(windows(2, 6, 3), (6,))
    trace = Trace("swin", torch.rand(4, 2, 3, 3), geometry=Geometry(slots, slots))
    assert torch.equal(trace.batch_item(1).operator(), trace.operator()[1:2])
    assert trace.with_labels(["a"], ["b"]).weights.shape == trace.weights.shape


def test_labels_cut_padding_off():
    trace = Trace("x", torch.rand(1, 2, 5, 6)).with_labels("abc", "wxyz")
    assert trace.weights.shape == (1, 2, 3, 4)
    assert trace.to_json()["columns"] == ("w", "x", "y", "z")


def test_a_pass_state_is_keyed_by_depth_so_that_recomputing_overwrites():
    pass_state = PassState()
    for _ in range(2):  # the second time as activation checkpointing would
        for depth in range(3):
            layer_state = pass_state.layer(depth)
            layer_state.publish("scores", depth)
            layer_state.add_loss("balance", torch.tensor(float(depth)))
    assert pass_state.layer(2).previous("scores") == 1
    assert pass_state.layer(0).previous("scores") is None
    assert pass_state.total_loss("balance") == 3
    assert pass_state.total_loss("other") is None


def _overlapping(batch=2):
    """Three groups of two queries and three keys over 7 cells, keys of up to two cells, some of them padding."""
    torch.manual_seed(3)
    keys = Slots(torch.randint(-1, 7, (1, 3, 3, 2)), (7,))
    queries = Slots(torch.tensor([[[[0], [3]], [[1], [-1]], [[4], [2]]]]), (5,))
    weights = torch.rand(batch * 3, 4, 2, 3, dtype=torch.float64).softmax(-1)
    return Geometry(queries, keys), weights


def test_left_multiply_is_rows_times_the_operator():
    geometry, weights = _overlapping()
    rows = torch.rand(2, 4, 6, 5, dtype=torch.float64)
    torch.testing.assert_close(
        geometry.left_multiply(weights, rows), rows @ geometry.operator(weights), rtol=0, atol=1e-14
    )
    torch.testing.assert_close(geometry.row_sums(weights), geometry.operator(weights).sum(-1), rtol=0, atol=1e-14)
    one = torch.rand(2, 1, 6, 5, dtype=torch.float64)  # the same rows for every head
    torch.testing.assert_close(
        geometry.left_multiply(weights, one), one @ geometry.operator(weights), rtol=0, atol=1e-14
    )


def test_gather_is_the_transpose_of_scatter():
    slots = Slots(torch.tensor([[[[0, 1, 2], [2, -1, -1]], [[3, 4, -1], [-1, -1, -1]]]]), (5,))
    values = torch.tensor([[3.0, 6.0, 9.0, 1.0, 5.0]])
    assert slots.gather(values).tolist() == [[[6.0, 9.0], [3.0, 0.0]]]
    scatter = slots.scatter(torch.tensor([[[3.0, 7.0], [4.0, 100.0]]]))  # what padding holds is lost
    assert scatter.tolist() == [[1.0, 1.0, 8.0, 2.0, 2.0]]


def test_a_regrouping_trace_takes_the_mean_of_its_cells():
    trace = regrouping_trace(
        "merge", Slots(torch.tensor([[[[0, 1], [2, 3], [4, -1]]]]), (5,)), 2, torch.zeros(2, dtype=torch.float64)
    )
    expected = torch.tensor([[0.5, 0.5, 0, 0, 0], [0, 0, 0.5, 0.5, 0], [0, 0, 0, 0, 1]], dtype=torch.float64)
    assert torch.equal(trace.operator(), expected.expand(2, 1, 3, 5))
    assert (trace.num_inputs, trace.num_outputs, trace.kind) == (5, 3, "move")

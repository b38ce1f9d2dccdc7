import torch

from regard.core.memo import Memo
from regard.core.trace import Geometry, Slots, Trace


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
    assert torch.equal(trace.only(1).operator(), trace.operator()[1:2])
    assert trace.label(["a"], ["b"]).weights.shape == trace.weights.shape


def test_labels_cut_padding_off():
    trace = Trace("x", torch.rand(1, 2, 5, 6)).label("abc", "wxyz")
    assert trace.weights.shape == (1, 2, 3, 4)
    assert trace.to_json()["columns"] == ("w", "x", "y", "z")


def test_a_memo_is_keyed_by_depth_so_that_recomputing_overwrites():
    memo = Memo()
    for _ in range(2):  # the second time as activation checkpointing would
        for depth in range(3):
            place = memo.at(depth)
            place.leave("scores", depth)
            place.loss("balance", torch.tensor(float(depth)))
    assert memo.at(2).below("scores") == 1
    assert memo.at(0).below("scores") is None
    assert memo.loss("balance") == 3
    assert memo.loss("other") is None

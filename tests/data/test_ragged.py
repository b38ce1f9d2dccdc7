import torch

from regard.data.ragged import RaggedTensor, round_up

ROWS = [[5, 6, 7], [], [8], [9, 10], [11, 12, 13, 14]]


def test_pad_puts_padding_after_each_sequence():
    flat = RaggedTensor.from_rows(ROWS)
    actual, lengths = flat.pad(torch.tensor([4, 1, 0, 2]), pad=0)
    assert lengths.tolist() == [4, 0, 3, 1]
    assert actual.tolist() == [[11, 12, 13, 14], [0, 0, 0, 0], [5, 6, 7, 0], [8, 0, 0, 0]]
    assert actual.dtype == torch.int64


def test_padded_width_is_a_multiple():
    actual, _ = RaggedTensor.from_rows(ROWS).pad(torch.tensor([0, 2]), pad=1, multiple=8)
    assert actual.shape == (2, 8)
    assert actual[0].tolist() == [5, 6, 7, 1, 1, 1, 1, 1]


def test_row_returns_one_sequence():
    flat = RaggedTensor.from_rows(ROWS)
    assert [flat.row(i) for i in range(len(flat))] == ROWS
    assert flat.select(torch.tensor([3, 0])).row(1) == ROWS[0]


def test_only_empty_sequences_give_empty_rows():
    actual, lengths = RaggedTensor.from_rows([[], []]).pad(torch.tensor([0, 1]), pad=0)
    assert actual.shape == (2, 0)
    assert lengths.tolist() == [0, 0]


def test_round_up():
    assert [round_up(n, 8) for n in (0, 1, 8, 9)] == [0, 8, 8, 16]

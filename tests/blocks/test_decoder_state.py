"""What decoders carry: beams are picked by indexing, a frozen state stays where it is."""

import torch

from regard.blocks.decoder_state import (
    CapturableDecodable,
    DecoderState,
    TensorMemory,
    gather_beams,
    initial_time,
    tree_map,
)


def state(**more):
    rings = torch.randn(2, 3, 4, 5), torch.randn(2, 3, 1, 5)
    return DecoderState(
        TensorMemory(torch.randn(2, 7)), (rings, torch.randn(2, 3)), time=initial_time(rings[0]), **more
    )


def test_beams_are_picked_in_every_tensor_however_deep():
    old, beams = state(), torch.tensor([[2, 2, 0], [1, 0, 1]])
    (rings, last), nothing = gather_beams((old.hidden, None), None, beams)
    assert nothing is None
    for new, was in zip((*rings, last), (*old.hidden[0], old.hidden[1]), strict=True):
        for row in range(2):
            assert torch.equal(new[row], was[row, beams[row]])


def test_a_frozen_state_is_written_in_place_as_long_as_its_shapes_stay():
    old, beams = CapturableDecodable().freeze(state()), torch.tensor([[2, 2, 0], [1, 0, 1]])
    hidden = gather_beams(old.hidden, None, beams)
    now = old.updated(hidden, time=old.time + 1)
    assert now is old
    assert int(old.time) == 1
    assert torch.equal(now.hidden[0][1], hidden[0][1])
    fewer = CapturableDecodable().select(old, None, beams[:, :2])  # other shapes: other memory
    assert fewer is not old
    assert fewer.hidden[0][0].shape == (2, 2, 4, 5)
    assert int(fewer.time) == 1


def test_only_dropping_inputs_moves_the_memory():
    old, beams = state(), torch.tensor([[2, 2, 0], [1, 0, 1]])
    assert CapturableDecodable().select(old, None, beams).memory is old.memory
    kept = CapturableDecodable().select(old, torch.tensor([1]), beams[1:])
    assert torch.equal(kept.memory.values, old.memory.values[1:])
    assert torch.equal(kept.hidden[1], old.hidden[1][1, beams[1]][None])


def test_several_states_are_gone_through_side_by_side():
    ones, twos = (torch.ones(2), (torch.ones(1), None)), (torch.full((2,), 2.0), (torch.full((1,), 2.0), None))
    total = tree_map(torch.add, ones, twos)
    assert total[0].tolist() == [3, 3]
    assert total[1][0].tolist() == [3]
    assert total[1][1] is None

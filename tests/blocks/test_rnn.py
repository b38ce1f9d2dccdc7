"""Recurrent networks and cells: PyTorch's in value and gradient, padding changes nothing, steps equal one call."""

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from regard.blocks import CELLS, RNN_ENCODERS
from regard.blocks.rnn import IdentityEncoder, InitialState, RNNCellStack, StackedRNN
from regard.core.errors import RegardError, UnknownName
from regard.core.spec import build_part, resolve
from tests.long_params import rest_is_long

pytestmark = pytest.mark.usefixtures("double")


def packed_twin(ours):
    """PyTorch's own network of as many layers and directions with the same weights."""
    network, both = resolve(CELLS, ours.cell, "cell").network, bool(len(ours.backward_layers))
    theirs = network(
        ours.forward_layers[0].input_size, ours.hidden, len(ours.forward_layers), batch_first=True, bidirectional=both
    )
    with torch.no_grad():
        for suffix, parts in (("", ours.forward_layers), ("_reverse", ours.backward_layers)):
            for depth, part in enumerate(parts):
                for name, value in part.named_parameters():
                    getattr(theirs, name.replace("_l0", f"_l{depth}{suffix}")).copy_(value)
    return theirs


def cell_twin(ours):
    """PyTorch's own cell over both inputs side by side."""
    inputs = ([ours.input_gates.weight] if ours.input_gates is not None else []) + [ours.context_gates.weight]
    kinds = {"RNNCell": nn.RNNCell, "GRUCell": nn.GRUCell, "LSTMCell": nn.LSTMCell}
    weight = torch.cat(inputs, 1)
    theirs = kinds[type(ours).__name__](weight.shape[1], ours.state.in_features).to(weight.dtype)
    with torch.no_grad():
        theirs.weight_ih.copy_(weight)
        theirs.bias_ih.copy_((ours.input_gates or ours.context_gates).bias)
        theirs.weight_hh.copy_(ours.state.weight)
        theirs.bias_hh.copy_(ours.state.bias)
    return theirs


def shaken(module):
    """Biases that are not zero, so that padding could be heard."""
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return module


# -- reading -----------------------------------------------------------------------------------------------------------

SPECS = [f"{cell}(layers={n}, directions={d})" for cell in ("rnn", "lstm", "gru") for n, d in ((1, 2), (3, 2), (2, 1))]


@pytest.mark.parametrize("spec", SPECS)
def test_a_reader_is_pytorchs_network_over_packed_sequences_in_value_and_gradient(spec):
    ours = shaken(build_part(RNN_ENCODERS, spec, "encoder", width=5, hidden=4))
    theirs, lengths = packed_twin(ours), torch.tensor([9, 1, 6, 9, 3])
    x = torch.randn(5, 9, 5, requires_grad=True)
    y = x.detach().clone().requires_grad_()
    found = ours(x, lengths)
    packed = pack_padded_sequence(y, lengths, batch_first=True, enforce_sorted=False)
    states, last = theirs(packed)
    expected, _ = pad_packed_sequence(states, batch_first=True, total_length=9)
    torch.testing.assert_close(found, expected)
    assert found.shape[-1] == ours.width
    last = last[0] if isinstance(last, tuple) else last
    directions = 2 if len(ours.backward_layers) else 1
    torch.testing.assert_close(ours.final_states(found, lengths), last[-directions:].transpose(0, 1))
    (found.square().sum() + ours.final_states(found, lengths).sum()).backward()
    (expected.square().sum() + last[-directions:].sum()).backward()
    torch.testing.assert_close(x.grad, y.grad)
    for suffix, parts in (("", ours.forward_layers), ("_reverse", ours.backward_layers)):
        for depth, part in enumerate(parts):
            for name, value in part.named_parameters():
                twin = getattr(theirs, name.replace("_l0", f"_l{depth}{suffix}"))
                torch.testing.assert_close(value.grad, twin.grad)


@pytest.mark.parametrize("spec", SPECS)
def test_without_lengths_everything_is_read(spec):
    ours, x = shaken(build_part(RNN_ENCODERS, spec, "encoder", width=5, hidden=4)), torch.randn(3, 7, 5)
    expected, _ = packed_twin(ours)(x)
    torch.testing.assert_close(ours(x), expected)
    torch.testing.assert_close(ours(x, torch.tensor([7, 7, 7])), expected)
    torch.testing.assert_close(ours.final_states(ours(x)), ours.final_states(ours(x), torch.tensor([7, 7, 7])))


@pytest.mark.parametrize("spec", [*SPECS, "none"])
def test_padding_is_zero_and_an_empty_row_ends_in_nothing(spec):
    ours, x = shaken(build_part(RNN_ENCODERS, spec, "encoder", width=5, hidden=4)), torch.randn(3, 7, 5)
    lengths = torch.tensor([4, 0, 1])
    states = ours(x, lengths)
    assert not states[torch.arange(7) >= lengths[:, None]].any()
    assert not ours.final_states(states, lengths)[1].any()
    loud = torch.where((torch.arange(7) < lengths[:, None])[..., None], x, 100.0)
    torch.testing.assert_close(ours(loud, lengths), states, rtol=0, atol=0)
    nothing = x[:, :0]
    assert ours(nothing).shape == (3, 0, ours.width)
    assert ours.final_states(ours(nothing)).shape == (3, ours.width // ours.hidden, ours.hidden)


def test_a_reader_of_one_direction_goes_step_by_step_too(double):
    for cell, parts in (("rnn", 1), ("gru", 1), ("lstm", 2)):
        reader = build_part(RNN_ENCODERS, f"{cell}(directions=1)", "encoder", width=3, hidden=4, layers=2)
        x = torch.randn(5, 6, 3)
        states = tuple((torch.zeros(5, 1, 4),) * parts for _ in range(2))
        for t, wanted in enumerate(reader(x).split(1, 1)):
            states = reader.step(x[:, t : t + 1], states)
            torch.testing.assert_close(states[-1][0], wanted)
    with pytest.raises(RegardError, match="directions=1"):
        build_part(RNN_ENCODERS, "gru", "encoder", width=3, hidden=4).step(x, states)


def test_no_reader_gives_the_vectors_themselves_and_their_mean():
    ours, x, lengths = IdentityEncoder(5), torch.randn(2, 4, 5), torch.tensor([4, 2])
    torch.testing.assert_close(ours(x, lengths)[1, :2], x[1, :2])
    torch.testing.assert_close(ours.final_states(ours(x, lengths), lengths)[1, 0], x[1, :2].mean(0))


def test_what_there_is_not_is_refused():
    with pytest.raises(RegardError, match="must be 1 or 2, got 3"):
        build_part(RNN_ENCODERS, "gru(directions=3)", "encoder", width=5, hidden=4)
    with pytest.raises(UnknownName, match="did you mean 'lstm'"):
        RNNCellStack("lstn", 3, 4, 5)


# -- writing -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CELLS)
def test_a_cell_is_pytorchs_over_both_inputs_in_value_and_gradient(name):
    ours = shaken(resolve(CELLS, name, "cell")(3, 4, 5))
    theirs = cell_twin(ours)
    word, seen = torch.randn(2, 6, 3), torch.randn(2, 6, 4, requires_grad=True)
    state = tuple(torch.randn(2, 6, 5, requires_grad=True) for _ in range(ours.parts))
    found = torch.stack(ours(ours.input_gates(word), seen, state))
    flat = tuple(part.flatten(0, 1) for part in state)
    given = torch.cat([word, seen], -1).flatten(0, 1)
    expected = theirs(given, flat if name == "lstm" else flat[0])
    expected = torch.stack(expected if name == "lstm" else (expected,)).unflatten(1, (2, 6))
    torch.testing.assert_close(found, expected)
    push = torch.randn_like(found)
    ours_by = torch.autograd.grad((found * push).sum(), [seen, *state, ours.state.weight, ours.input_gates.bias])
    theirs_by = torch.autograd.grad((expected * push).sum(), [seen, *state, theirs.weight_hh, theirs.bias_ih])
    torch.testing.assert_close(ours_by, theirs_by)


@pytest.mark.parametrize("name", CELLS)
def test_stacked_cells_are_pytorchs_stacked_network(name):
    ours, start = shaken(RNNCellStack(name, 3, 4, 5, layers=3)), shaken(InitialState(name, 6, 5, layers=3))
    theirs = StackedRNN(name, 7, 5, layers=3)
    with torch.no_grad():
        for cell, weights in zip(ours.cells, theirs.network.all_weights, strict=True):
            for mine, yours in zip(cell_twin(cell).parameters(), weights, strict=True):
                yours.copy_(mine)
    word, seen, states = torch.randn(2, 8, 3), torch.randn(2, 8, 4), start(torch.randn(2, 6))
    expected = theirs(torch.cat([word, seen], -1), states)
    stepped = states
    for t, (known, given) in enumerate(zip(ours.input_gates(word).split(1, 1), seen.split(1, 1), strict=True)):
        states = ours(known, given, states)
        stepped = theirs.step(torch.cat([word, seen], -1)[:, t : t + 1], stepped)
        torch.testing.assert_close(states[-1][0][:, 0], expected[:, t])
        torch.testing.assert_close(stepped, states)


@pytest.mark.parametrize("name", CELLS)
def test_the_first_states_have_a_place_for_every_layer_and_part(name):
    states = InitialState(name, 6, 5, layers=2)(torch.randn(4, 6))
    parts = resolve(CELLS, name, "cell").parts
    assert [[part.shape for part in layer] for layer in states] == [[(4, 1, 5)] * parts] * 2


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("name", rest_is_long(("rnn", "gru", "lstm"), "lstm"))
def test_a_program_of_torch_export_reads_sequences_of_all_lengths(name):
    """A network of PyTorch's would be unrolled for the length of the example."""
    model = build_part(RNN_ENCODERS, name, "encoder", width=5, hidden=3, layers=2, directions=1).eval()
    free = torch.export.Dim.DYNAMIC
    example = (torch.randn(2, 4, 5), torch.tensor([4, 2]))
    with torch.no_grad():
        run = torch.export.export(model, example, dynamic_shapes=({0: free, 1: free}, {0: free})).module()
        for rows, n in ((1, 3), (3, 7)):
            x, lengths = torch.randn(rows, n, 5), torch.randint(1, n + 1, (rows,))
            torch.testing.assert_close(run(x, lengths), model(x, lengths))

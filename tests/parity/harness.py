"""What comparisons with a peer, from the same weights, have in common."""

import copy

import torch

from regard.attention.capture.watch import watch
from regard.decoding.beam_search import beam_search, greedy_search
from regard.weights.table import export_state_dict, import_state_dict


def shaken(model, by=0.3):
    """A model in float64, every tensor of it away from its initial value."""
    model = model.double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.add_(torch.randn_like(parameter) * by)
    return model


def hf_peer(cls, config):
    """A random model of transformers in float64, which gives its maps."""
    config._attn_implementation = "eager"
    return shaken(cls(config))


def with_weights_of(theirs, ours, module):
    """Ours, with the peer's weights read through the module's table."""
    import_state_dict(module.table(ours.config), theirs.state_dict(), ours)
    return ours


def exported_gradients(table, ours):
    """The gradients of ours by the peer's names."""
    held = copy.deepcopy(ours)  # a model that holds the gradients, so that the table can carry them over
    with torch.no_grad():
        for mine, parameter in zip(held.parameters(), ours.parameters(), strict=True):
            mine.copy_(torch.zeros_like(parameter) if parameter.grad is None else parameter.grad)
    return export_state_dict(table, held)


def gradients_equal(theirs, table, ours, rtol=1e-8, atol=1e-9, unused=()):
    """The gradients of all parameters of the peer that have one equal ours; return how many were compared."""
    mapped = exported_gradients(table, ours)
    wanted = {name: p.grad for name, p in theirs.named_parameters() if p.grad is not None and name not in unused}
    for name, gradient in wanted.items():
        torch.testing.assert_close(mapped[name], gradient, rtol=rtol, atol=atol, msg=name)
    return len(wanted)


def round_trip(theirs, table, ours, close=()):
    """Their tensors, read into ours and written again, are the same to the bit; those in `close` to 1e-7."""
    back = export_state_dict(table, ours)
    assert back.keys() == theirs.keys()
    for name, value in theirs.items():
        if name.endswith(tuple(close)):
            torch.testing.assert_close(back[name], value, rtol=0, atol=1e-7, msg=name)
        else:
            assert torch.equal(back[name], value), name


def maps_equal(maps, ours, *inputs, far=1e-10):
    """The peer's maps, by the names of ours, are those that `watch` sees, and all of them."""
    with torch.no_grad(), watch(ours) as seen:
        ours(*inputs)
    assert set(seen) == set(maps)
    for name, expected in maps.items():
        torch.testing.assert_close(seen[name].weights, expected, rtol=far, atol=far, msg=name)


def maps_of(attentions, stack):
    """The maps of one stack of the peer, by the names of ours."""
    return {f"{stack}.blocks.{n}.mix": found for n, found in enumerate(attentions)}


def encoder_decoder_maps(out):
    """All maps of the peer's encoder and decoder, by the names of ours."""
    cross = {f"decoder.blocks.{n}.cross": found for n, found in enumerate(out.cross_attentions)}
    return maps_of(out.encoder_attentions, "encoder") | maps_of(out.decoder_attentions, "decoder") | cross


def searched(ours, source, lengths, beams, steps):
    """What our greedy or beam search finds: hypotheses of every input."""
    if beams == 1:
        return [[one] for one in greedy_search(ours, source, lengths, max_length=steps)]
    return beam_search(ours, source, lengths, max_length=steps, beam_size=beams, num_candidates=beams)


def outputs(hypotheses):
    return [[h.tokens for h in row] for row in hypotheses]

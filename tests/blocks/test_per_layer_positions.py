"""Position vectors added to the inputs of q and k in every layer, and a decoder that is not causal: what DETR needs."""

import pytest
import torch
from torch import nn

from regard.attention.kv_cache import BeamTable
from regard.attention.mask import CausalMask, PaddingMask
from regard.attention.mixers import build_mixer
from regard.blocks.decoder import Decoder, DecoderBlock
from regard.blocks.encoder import Encoder, EncoderBlock
from regard.blocks.feedforward import ReluFeedForward
from regard.core.errors import Unsupported
from regard.core.positions import PositionInfo
from regard.models import build
from regard.positions.none import NoPositions

WIDTH, HEADS = 12, 3


@pytest.fixture(autouse=True)
def _double(double):
    pass


def mixer(**settings):
    return build_mixer("softmax", width=WIDTH, heads=HEADS, **settings).eval()


def attention_by_hand(mix, q_input, k_input, v_input):
    """torch's own function on projections taken one by one."""
    if mix.kind == "self":
        w, b = (x.unflatten(0, (HEADS, 3, -1)) for x in (mix.project.qkv.weight, mix.project.qkv.bias))
        parts = [(w[:, i].flatten(0, 1), b[:, i].flatten()) for i in range(3)]
    else:
        w, b = (x.unflatten(0, (HEADS, 2, -1)) for x in (mix.project.kv.weight, mix.project.kv.bias))
        parts = [(mix.project.q.weight, mix.project.q.bias)]
        parts += [(w[:, i].flatten(0, 1), b[:, i].flatten()) for i in range(2)]
    inputs = zip((q_input, k_input, v_input), parts, strict=True)
    q, k, v = (nn.functional.linear(x, *p).unflatten(-1, (HEADS, -1)).transpose(1, 2) for x, p in inputs)
    return mix.join(nn.functional.scaled_dot_product_attention(q, k, v))


def test_positions_enter_q_and_k_but_not_v_in_self_attention():
    mix, x, p = mixer(), torch.randn(2, 5, WIDTH), torch.randn(1, 5, WIDTH)
    index = torch.arange(5)[None]
    found = mix(x, positions=PositionInfo(index, index, query_vectors=p))
    torch.testing.assert_close(found, attention_by_hand(mix, x + p, x + p, x))


def test_positions_of_both_sides_enter_cross_attention():
    mix, x, memory = mixer(cross=True), torch.randn(2, 5, WIDTH), torch.randn(2, 7, WIDTH)
    p, r = torch.randn(2, 5, WIDTH), torch.randn(1, 7, WIDTH)
    positions = PositionInfo(torch.arange(5)[None], torch.arange(7)[None], query_vectors=p, key_vectors=r)
    found = mix(x, memory, None, positions)
    torch.testing.assert_close(found, attention_by_hand(mix, x + p, memory + r, memory))


def encoder(layers=2):
    def block():
        norms = [nn.LayerNorm(WIDTH) for _ in range(2)]
        return EncoderBlock(mixer(), ReluFeedForward(WIDTH, 16), norms, False, 0.0)

    return Encoder([block() for _ in range(layers)], NoPositions(), None, 0.0).eval()


def decoder(causal, layers=2):
    def block():
        norms = [nn.LayerNorm(WIDTH) for _ in range(3)]
        parts = mixer(causal=causal), mixer(cross=True), ReluFeedForward(WIDTH, 16)
        return DecoderBlock(*parts, norms, False, 0.0)

    return Decoder([block() for _ in range(layers)], NoPositions(), nn.LayerNorm(WIDTH), 0.0, causal=causal).eval()


def test_an_encoder_adds_them_in_every_layer():
    stack, x, p = encoder(), torch.randn(2, 5, WIDTH), torch.randn(1, 5, WIDTH)
    y = x
    for block in stack.blocks:
        y = block.mix_norm(y + attention_by_hand(block.mix, y + p, y + p, y))
        y = block.feed_norm(y + block.feed(y))
    torch.testing.assert_close(stack(x, position_vectors=p), y)
    order = torch.randperm(5)  # tokens and their positions reordered together: the same outputs, reordered
    torch.testing.assert_close(stack(x[:, order], position_vectors=p[:, order]), y[:, order])


def test_a_decoder_that_is_not_causal_reads_all_queries_at_once():
    """DETR's decoder: zeros as targets, learned queries and the memory's positions in every layer."""
    stack, memory = decoder(causal=False), torch.randn(2, 7, WIDTH)
    queries, places = torch.randn(1, 5, WIDTH), torch.randn(2, 7, WIDTH)
    y = x = torch.zeros(2, 5, WIDTH)
    for block in stack.blocks:
        y = block.mix_norm(y + attention_by_hand(block.mix, y + queries, y + queries, y))
        y = block.cross_norm(y + attention_by_hand(block.cross, y + queries, memory + places, memory))
        y = block.feed_norm(y + block.feed(y))
    found = stack(x, memory, query_positions=queries, memory_positions=places)
    torch.testing.assert_close(found, stack.norm(y))
    lengths = PaddingMask(torch.tensor([7, 4]))
    short = stack(x[1:], memory[1:, :4], query_positions=queries, memory_positions=places[1:, :4])
    padded = stack(x, memory, memory_mask=lengths, query_positions=queries, memory_positions=places)
    torch.testing.assert_close(padded[1:], short)
    with pytest.raises(Unsupported, match="not causal"):
        stack.start(memory, None, capacity=8)


def test_a_later_token_changes_earlier_ones_only_without_causality():
    for causal in (True, False):
        stack, x, memory = decoder(causal), torch.randn(1, 5, WIDTH), torch.randn(1, 3, WIDTH)
        changed = torch.cat([x[:, :4], x[:, 4:] + 1], 1)
        same = torch.allclose(stack(x, memory)[:, :4], stack(changed, memory)[:, :4])
        assert same is causal


@pytest.mark.parametrize("base", ["sinusoidal", "learned"])
def test_as_a_part_they_step_as_they_read(base):
    model = build("gpt", size="tiny", vocab=11, positions=f"per_layer(base='{base}')").eval()
    tokens = torch.randint(11, (2, 7))
    whole = model(tokens)
    _, state = model.start(tokens[:, :4], capacity=8)
    for t in range(3, 7):
        logits, state = model.step(tokens[:, t : t + 1], state)
        torch.testing.assert_close(logits[:, 0], whole[:, t])
    assert not torch.allclose(model(tokens.flip(1)).flip(1), whole)
    with pytest.raises(Unsupported, match="base='sinusoidal'"):
        build("gpt", size="tiny", vocab=11, positions="per_layer(base='rotary')")


def test_stepping_adds_the_vectors_of_the_newest_token():
    mix, x, p = mixer(), torch.randn(1, 4, WIDTH), torch.randn(1, 4, WIDTH)
    index = torch.arange(4)[None]
    whole = mix(x, mask=CausalMask(), positions=PositionInfo(index, index, query_vectors=p))
    state, table = mix.start(1, 8), BeamTable.start(1, 8, x.device)
    for t in range(4):
        table.add_step(1)
        positions = PositionInfo(*table.positions(), query_vectors=p[:, t : t + 1])
        out, state = mix.step(x[:, t : t + 1], state, table, table.mask(), positions)
        torch.testing.assert_close(out, whole[:, t : t + 1])

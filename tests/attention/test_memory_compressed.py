"""Memory-compressed attention against a loop over queries, and its decoding with ragged prompts and beams."""

import pytest
import torch

from regard.attention.kv_cache import BeamTable
from regard.attention.mask import CausalMask, PaddingMask, WindowMask
from regard.attention.mixers import build_mixer
from regard.core.errors import Unsupported
from regard.core.layer_state import PassState
from regard.models import build

SIZES = {"width": 12, "heads": 4, "kv_heads": 2, "length": 16, "causal": True}


@pytest.fixture(autouse=True)
def _double(double):
    pass


def loop(mixer, x, causal):
    """Every query by itself: the first token, and the blocks that ended before it (all, if not causal)."""
    taps, out = mixer.compress.weight, []
    blocks = [
        sum(taps[:, :, i] @ token for i, token in enumerate(x[j : j + 3])) + mixer.compress.bias
        for j in range(0, len(x), 3)
    ]
    for n in range(len(x)):
        memory = torch.stack([x[0], *(block for j, block in enumerate(blocks) if not causal or 3 * (j + 1) <= n)])
        k, v = mixer.attend.project_kv(memory[None])
        q = mixer.attend.project.project_q(x[None, n : n + 1])
        weights = (q @ k.repeat_interleave(2, 1).mT / 3**0.5).softmax(-1)
        out.append(mixer.attend.join(weights @ v.repeat_interleave(2, 1))[0, 0])
    return torch.stack(out)


def test_it_equals_the_loop_in_value_and_gradient():
    mixer = build_mixer("memory_compressed", **SIZES)
    for n in (1, 3, 8):
        x = torch.randn(n, 12, requires_grad=True)
        for mask in (None, CausalMask()):
            found, expected = mixer(x[None], mask=mask)[0], loop(mixer, x, mask is not None)
            torch.testing.assert_close(found, expected)
            probe = torch.randn_like(found)
            wanted = (x, *mixer.parameters())
            ours, theirs = (
                torch.autograd.grad((out * probe).sum(), wanted, allow_unused=True, materialize_grads=True)
                for out in (found, expected)
            )
            for one, other in zip(ours, theirs, strict=True):
                torch.testing.assert_close(one, other)


def steps(mixer, x, state, table):
    out = []
    for token in x.unbind(2):
        table.add_step(token.shape[1])
        heads, state = mixer.step(token, state, table, table.mask(), None, PassState().layer(0))
        out.append(heads)
    return torch.stack(out, 2), state


def test_steps_after_prompts_of_different_lengths_equal_one_forward():
    mixer = build_mixer("memory_compressed", **SIZES).eval()
    x, lengths = torch.randn(4, 14, 12), torch.tensor([4, 1, 3, 6])
    table, state = BeamTable.start(4, 32, x.device), mixer.start(4, 32)
    table.add_prompt(6, lengths)
    out, state = mixer.prefill(x[:, :6], state, table, CausalMask(), None, PassState().layer(0))
    rest = torch.stack([x[b, n : n + 7] for b, n in enumerate(lengths.tolist())])
    found, _ = steps(mixer, rest[:, None], state, table)
    for b, n in enumerate(lengths.tolist()):
        whole = mixer(x[b : b + 1, : n + 7], mask=CausalMask())[0]
        torch.testing.assert_close(out[b, :n], whole[:n])
        torch.testing.assert_close(found[b, 0], whole[n:])


@pytest.mark.parametrize("frozen", [False, True])
def test_beams_follow_their_ancestors(frozen):
    mixer = build_mixer("memory_compressed", **SIZES).eval()
    x, first = torch.randn(3, 2, 8, 12), torch.zeros(3, 2, dtype=torch.long)
    table, state = BeamTable.start(3, 64, x.device).select(None, first), mixer.start(3, 64).select(None, first)
    _, state = steps(mixer, x[:, :, :4], state, table)
    if frozen:
        table.freeze()
        state = state.freeze()
    swap = torch.tensor([[1, 0], [1, 1], [0, 1]])
    state, table = state.select(None, swap), table.select(None, swap)
    found, _ = steps(mixer, x[:, :, 4:], state, table)
    history = torch.cat([x[:, :, :4][torch.arange(3)[:, None], swap], x[:, :, 4:]], 2)
    whole = mixer(history.flatten(0, 1), mask=CausalMask()).unflatten(0, (3, 2))
    torch.testing.assert_close(found, whole[:, :, 4:])


def test_rotary_positions_turn_blocks_by_their_last_token_in_steps_too():
    model = build("gpt", size="tiny", vocab=11, positions="rotary", attention="memory_compressed").eval()
    tokens = torch.randint(11, (2, 10))
    whole = model(tokens)
    _, state = model.start(tokens[:, :4], capacity=12)
    for t in range(3, 10):
        logits, state = model.step(tokens[:, t : t + 1], state)
        torch.testing.assert_close(logits[:, 0], whole[:, t])


def test_padding_and_what_it_refuses():
    mixer = build_mixer("memory_compressed", **SIZES).eval()
    x = torch.randn(3, 7, 12)
    out = mixer(x, mask=PaddingMask(torch.tensor([7, 4, 0])))
    loud = x + 1e3 * (torch.arange(7)[None, :, None] >= torch.tensor([7, 4, 0])[:, None, None])
    assert torch.equal(mixer(loud, mask=PaddingMask(torch.tensor([7, 4, 0])))[1, :4], out[1, :4])
    assert out[2].abs().max() == 0
    with pytest.raises(Unsupported, match="takes no context"):
        mixer(x, x)
    with pytest.raises(Unsupported, match="causal and padding masks only"):
        mixer(x, mask=WindowMask(3))

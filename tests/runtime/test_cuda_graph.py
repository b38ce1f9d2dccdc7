"""Steps captured as CUDA graphs: the same tokens as on the CPU, on the first call and on replays."""

import pytest
import torch

from regard.attention.capture.watch import watch
from regard.blocks import autoregressive
from regard.decoding.beam_search import beam_search, greedy_search, sample
from regard.runtime import cuda_graph
from tests.decoding.test_beam_search import ragged, tiny

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")]

WAYS = {
    "greedy": lambda m, *x: [[h] for h in greedy_search(m, *x, max_length=24)],
    "beam": lambda m, *x: beam_search(m, *x, beam_size=4, num_candidates=3, max_length=24),
    "diverse": lambda m, *x: beam_search(m, *x, beam_size=4, groups=2, num_candidates=3, max_length=24),
    "sample": lambda m, *x: sample(m, *x, num_samples=3, top_p=0.9, seed=1, max_length=24),
}


@pytest.mark.parametrize("way", WAYS)
def test_replayed_search_equals_cpu_search(way):
    for seed in range(3):
        on_cpu, on_gpu = tiny(seed), tiny(seed).cuda()
        for number in range(4):  # the later calls replay what the first recorded
            source, lengths = ragged(9, seed=number)
            source = torch.nn.functional.pad(source, (0, 9 - source.shape[1]))
            expected = WAYS[way](on_cpu, source, lengths)
            found = WAYS[way](on_gpu, source.cuda(), lengths.cuda())
            assert [[h.tokens for h in one] for one in found] == [[h.tokens for h in one] for one in expected]
        assert 0 < len(cuda_graph._captured[on_gpu]) <= cuda_graph.MAX_GRAPHS


def test_changed_weights_and_hooks_disable_replay():
    model, (source, lengths) = tiny(0).cuda(), ragged(4)
    batch = source.cuda(), lengths.cuda()
    first = greedy_search(model, *batch, max_length=12)
    with watch(model, only="decoder.*.cross") as seen:
        assert greedy_search(model, *batch, max_length=12) == first
    assert len(seen.calls("decoder.blocks.0.cross")) > 2
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1.3)  # in place: a replay reads the new values
    changed = greedy_search(model, *batch, max_length=12)
    assert changed == greedy_search(model.cpu(), source, lengths, max_length=12) or [h.tokens for h in changed] == [
        h.tokens for h in greedy_search(model, source, lengths, max_length=12)
    ]


def test_odd_vocabulary_head_is_equal() -> None:
    head = torch.nn.Linear(256, 50257, bias=False, device="cuda", dtype=torch.bfloat16)
    x = torch.randn(16, 1, 256, device="cuda", dtype=torch.bfloat16)
    assert autoregressive._prefers_transposed(head, x)
    torch.testing.assert_close(autoregressive.transposed_linear(head, x), head(x), rtol=1e-2, atol=1e-2)

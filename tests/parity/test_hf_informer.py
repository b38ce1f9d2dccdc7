"""ProbSparse attention equals transformers' InformerProbSparseAttention: same weights, same sampled keys."""

import pytest
import torch

from regard.attention.mask import CausalMask
from regard.attention.mixers import build_mixer

pytest.importorskip("transformers")


@pytest.mark.parametrize("causal", [False, True])
def test_values_and_gradients_are_those_of_transformers(double, causal, monkeypatch):
    from transformers.models.informer.modeling_informer import InformerProbSparseAttention

    theirs = InformerProbSparseAttention(12, 3, is_decoder=causal, sampling_factor=1)
    ours = build_mixer("informer(factor=1)", width=12, heads=3)
    parts = (theirs.q_proj, theirs.k_proj, theirs.v_proj)
    with torch.no_grad():
        ours.project.qkv.weight.copy_(torch.stack([p.weight.view(3, 4, 12) for p in parts], 1).reshape(36, 12))
        ours.project.qkv.bias.copy_(torch.stack([p.bias.view(3, 4) for p in parts], 1).flatten())
    ours.join.out.load_state_dict(theirs.out_proj.state_dict())

    x, seed = torch.randn(2, 17, 12), 5
    allowed = torch.ones(17, 17, dtype=torch.bool).tril() if causal else torch.ones(17, 17, dtype=torch.bool)
    torch.manual_seed(seed)
    expected, _ = theirs(x, attention_mask=torch.where(allowed, 0.0, -torch.inf).expand(2, 1, 17, 17))
    torch.manual_seed(seed)
    keys = torch.randint(0, 17, (17,))  # theirs samples as many keys as there are, the same for all queries
    monkeypatch.setattr(ours.attend, "sample", lambda n, lengths: keys.expand(len(lengths), n, -1))
    found = ours(x, mask=CausalMask() if causal else None)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)  # theirs has cumulative sums in float32
    found.square().sum().backward()
    expected.square().sum().backward()
    gradient = torch.stack([p.weight.grad.view(3, 4, 12) for p in parts], 1).reshape(36, 12)
    torch.testing.assert_close(ours.project.qkv.weight.grad, gradient, rtol=1e-5, atol=1e-5)

"""RealFormer: scores handed from layer to layer, in a whole pass, under recomputation and while decoding."""

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from regard.attention.capture.watch import watch
from regard.attention.mask import CausalMask
from regard.attention.mechanisms.realformer import RealFormerAttention
from regard.core.errors import Unsupported
from regard.core.layer_state import PassState
from regard.models import build

SIZES = {"vocab": 13, "width": 16, "heads": 2, "ffn": 24, "length": 16, "dropout": 0.0, "attention_dropout": 0.0}


def test_scores_of_all_layers_add_up(double):
    attend, pass_state, total = RealFormerAttention(), PassState(), 0
    for depth in range(3):
        q, k, v = torch.randn(3, 2, 4, 7, 6).unbind(0)
        total = total + q @ k.mT * 6**-0.5
        allowed = torch.ones(7, 7, dtype=torch.bool).tril()
        expected = total.masked_fill(~allowed, -torch.inf).softmax(-1) @ v
        torch.testing.assert_close(attend(q, k, v, CausalMask(), layer_state=pass_state.layer(depth)), expected)


def test_a_stack_hands_them_on_and_watch_sees_the_maps(double):
    model = build("gpt", layers=3, attention="realformer", **SIZES).eval()
    softmax = build("gpt", layers=3, attention="softmax", **SIZES).eval()
    softmax.load_state_dict(model.state_dict())
    tokens, pass_state = torch.randint(13, (2, 6)), PassState()
    with watch(model) as seen:
        model(tokens, pass_state=pass_state)
    with watch(softmax) as plain:
        softmax(tokens)
    first = "decoder.blocks.0.mix"
    torch.testing.assert_close(seen[first].weights, plain[first].weights)
    allowed = torch.ones(6, 6, dtype=torch.bool).tril()
    for depth, scores in enumerate(pass_state.collect("scores")):
        found = scores.masked_fill(~allowed, -torch.inf).softmax(-1)
        torch.testing.assert_close(seen[f"decoder.blocks.{depth}.mix"].weights, found)
    assert not torch.allclose(seen["decoder.blocks.2.mix"].weights, plain["decoder.blocks.2.mix"].weights)


def test_gradients_are_the_same_with_activation_checkpointing(double):
    model = build("gpt", layers=3, attention="realformer", **SIZES)
    tokens, grads = torch.randint(13, (2, 6)), []
    for recompute in (False, True):
        if recompute:
            for block in model.decoder.blocks:
                block.forward = lambda *args, call=block.forward: checkpoint(call, *args, use_reentrant=False)
        model.zero_grad()
        model(tokens).square().sum().backward()
        grads.append([p.grad.clone() for p in model.parameters()])
    for one, other in zip(*grads, strict=True):
        assert torch.equal(one, other)


def test_without_a_layer_state_it_refuses():
    q = torch.randn(1, 2, 3, 4)
    with pytest.raises(Unsupported, match="layer_state="):
        RealFormerAttention()(q, q, q)


def test_layers_of_other_sizes_are_refused():
    attend, pass_state, q = RealFormerAttention(), PassState(), torch.randn(1, 2, 3, 4)
    attend(q, q, q, layer_state=pass_state.layer(0))
    longer = torch.randn(1, 2, 5, 4)
    with pytest.raises(Unsupported, match=r"\(1, 2, 3, 3\), to its own, of shape \(1, 2, 3, 5\)"):
        attend(q, longer, longer, layer_state=pass_state.layer(1))


@pytest.mark.parametrize("name", ["vit", "deit", "cct", "swin", "swinv2"])
def test_image_models_hand_scores_on(name):
    model = build(name, size="tiny", attention="realformer").eval()
    images, pass_state = torch.randn(1, 3, 32, 32), PassState()
    with torch.no_grad(), watch(model) as seen:
        model(images, pass_state=pass_state)
    scores = pass_state.collect("scores")
    assert len(scores) == sum("mix" in trace.name for trace in seen.traces())
    assert all(x.shape[-1] == x.shape[-2] for x in scores)


def test_dropout_zeroes_weights_while_training_and_at_no_other_time(double):
    attend, (q, k) = RealFormerAttention(dropout=0.5), torch.randn(2, 2, 4, 7, 6).unbind(0)
    v = torch.eye(7).expand(2, 4, 7, 7)  # the output is the matrix itself
    weights = attend.weights(q, k, layer_state=PassState().layer(0))
    assert torch.equal(attend.eval()(q, k, v, layer_state=PassState().layer(0)), weights)
    dropped = attend.train()(q, k, v, layer_state=PassState().layer(0))
    kept = dropped != 0
    assert 0.3 < kept.double().mean() < 0.7
    torch.testing.assert_close(dropped[kept], 2 * weights[kept])

"""Blocks of packed models run as one call of the kernel, and hand back every call that asks for more."""

import dataclasses

import pytest
import torch

import regard
from regard.attention.mask import PaddingMask
from regard.decoding.beam_search import beam_search, greedy_search, sample
from regard.models import build
from regard.runtime import direct_blocks, few_rows, inference
from regard.runtime.direct_blocks import DirectBlocks, DirectDecoderBlocks, DirectEncoderBlocks


@pytest.fixture(autouse=True)
def _small_is_large(monkeypatch):
    monkeypatch.setattr(inference, "MIN_WEIGHTS", 0)
    if few_rows.load_library() is None:
        pytest.skip("no AVX-512, or no C compiler")


@pytest.fixture
def calls(monkeypatch):
    """Count the calls that the kernel did."""
    found, library = [], few_rows.load_library()[0]

    class Counting:
        def __getattr__(self, name):
            return lambda *arguments: (found.append(name), getattr(library, name)(*arguments))[1]

    monkeypatch.setattr(direct_blocks, "load_library", lambda: (Counting(), few_rows.load_library()[1]))
    return found


def built(name, **settings):
    torch.manual_seed(3)
    model = build(name, **settings).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    return model


def bert(**settings):
    sizes = {"vocab": 50, "width": 48, "heads": 3, "ffn": 40, "layers": 2, "length": 400}
    return built("bert", **sizes | settings)


def transformer(**settings):
    sizes = {"vocab": 50, "width": 48, "heads": 3, "ffn": 70, "encoder_layers": 2, "decoder_layers": 3}
    return built("transformer", **sizes | {"head_bias": True} | settings)


def direct_stacks(model):
    found = [getattr(part, name, None) for part in model.modules() for name in ("apply_blocks", "step_blocks")]
    return [type(each) for each in found if isinstance(each, DirectBlocks)]


@pytest.mark.parametrize("feedforward", ["gelu", "relu"])
def test_encoder_blocks_give_the_same_outputs(calls, feedforward):
    for length, number in ((1, 2), (7, 2), (17, 2), (200, 0)):  # the last has more rows than are few
        model, tokens = bert(feedforward=feedforward), torch.randint(3, 50, (3, length))
        lengths = torch.tensor([length, max(1, length - 3), 1])
        expected = [model.hidden(tokens), model.hidden(tokens, None, lengths)]
        packed = inference.pack_weights(model)
        assert direct_stacks(packed) == [DirectEncoderBlocks]
        calls.clear()
        with torch.inference_mode():
            found = [packed.hidden(tokens), packed.hidden(tokens, None, lengths)]
        assert calls == ["encoder_blocks"] * number
        is_token = torch.arange(length) < lengths[:, None]
        torch.testing.assert_close(found[0], expected[0], atol=2e-5, rtol=1e-5)
        torch.testing.assert_close(found[1][is_token], expected[1][is_token], atol=2e-5, rtol=1e-5)


def test_blocks_with_the_norm_first_do_too(calls):
    model = built("vit", image_size=12, patch_size=4, width=48, heads=3, layers=2, ffn=40, num_classes=5)
    images = torch.rand(2, 3, 12, 12)
    expected = model(images)
    with torch.inference_mode():
        torch.testing.assert_close(inference.pack_weights(model)(images), expected, atol=2e-5, rtol=1e-5)
    assert calls == ["encoder_blocks"]


def test_concatenated_texts_stay_apart(calls):
    model, lengths = bert(), torch.tensor([3, 5, 4])
    tokens = torch.randint(3, 50, (12,))
    expected = model.hidden_packed(tokens, lengths)
    with torch.inference_mode():
        found = inference.pack_weights(model).hidden_packed(tokens, lengths)
    torch.testing.assert_close(found, expected, atol=2e-5, rtol=1e-5)
    assert calls == ["encoder_blocks"]


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_decoding_gives_the_same_outputs(calls, norm):
    model = transformer(norm=norm)
    source, lengths = torch.randint(3, 50, (4, 9)), torch.tensor([9, 2, 5, 7])

    def results():
        found = beam_search(model, source, lengths, max_length=12, beam_size=3, num_candidates=2)
        found += beam_search(model, source[:1], max_length=12, beam_size=4)
        found += sample(model, source, lengths, max_length=12, num_samples=2, seed=4)
        return [*found, greedy_search(model, source[:1], max_length=12), greedy_search(model, source, max_length=12)]

    expected = results()
    inference.pack_weights(model)
    assert direct_stacks(model) == [DirectEncoderBlocks, DirectDecoderBlocks]
    found = results()
    assert "decoder_steps" in calls
    for some, others in zip(found, expected, strict=True):
        assert [one.tokens for one in some] == [one.tokens for one in others]
        assert [one.score for one in some] == pytest.approx([one.score for one in others], abs=1e-5)


def test_an_input_alone_equals_itself_in_a_batch():
    model = inference.pack_weights(transformer())
    source = torch.randint(3, 50, (4, 9))
    together = beam_search(model, source, max_length=12, beam_size=3)
    for row, found in zip(source, together, strict=True):
        alone = beam_search(model, row[None], max_length=12, beam_size=3)[0]
        assert alone[0].tokens == found[0].tokens
        assert alone[0].score == found[0].score  # to the bit


def test_watched_and_hooked_parts_are_called():
    for model, attentions, inputs in (
        (inference.pack_weights(bert()), 2, (torch.randint(3, 50, (2, 9)),)),
        (inference.pack_weights(transformer()), 5, (torch.randint(3, 50, (2, 9)),) * 2),
    ):
        with torch.inference_mode():
            plain = model(*inputs)
            with regard.watch(model) as seen:
                watched = model(*inputs)
            assert len(seen.traces("self")) == attentions
            torch.testing.assert_close(watched, plain, atol=2e-5, rtol=1e-5)
            block, count = model.encoder.blocks[1], []
            for part in (block.mix_norm, block.feed, block.mix.attend):
                with part.register_forward_hook(lambda *_, count=count: count.append(1)):
                    model(*inputs)
            assert len(count) == 3


def test_steps_with_a_hook_and_without_share_a_cache():
    model = inference.pack_weights(transformer())
    source = torch.randint(3, 50, (1, 9))
    expected = beam_search(model, source, max_length=12, beam_size=3)[0][0].tokens
    with model.decoder.blocks[0].cross.attend.register_forward_hook(lambda *_: None):  # the decoder runs as modules
        assert beam_search(model, source, max_length=12, beam_size=3)[0][0].tokens == expected


def test_gradients_are_refused_as_before():
    model = inference.pack_weights(bert())
    with pytest.raises(regard.core.errors.Unsupported, match="no gradients"):
        model.hidden(torch.randint(3, 50, (1, 5))).sum().backward()


def test_a_norm_with_new_weights_is_used():
    model, tokens = bert(), torch.randint(3, 50, (1, 9))
    inference.pack_weights(model)
    model.encoder.blocks[0].mix_norm.weight = torch.nn.Parameter(torch.full((48,), 3.0))
    with torch.inference_mode():
        found = model.hidden(tokens)
        hook = model.encoder.blocks[0].feed.register_forward_hook(lambda *_: None)
        torch.testing.assert_close(found, model.hidden(tokens), atol=2e-5, rtol=1e-5)
        hook.remove()


def test_blocks_with_more_in_them_are_left_alone(calls):
    for settings in ({"positions": "rotary"}, {"positions": "alibi"}):
        model = bert(**settings)
        tokens = torch.randint(3, 50, (2, 9))
        expected = model.hidden(tokens)
        with torch.inference_mode():
            torch.testing.assert_close(inference.pack_weights(model).hidden(tokens), expected, atol=2e-5, rtol=1e-5)
    assert not calls
    others = ({"attention": "linear"}, {"feedforward": "swiglu"}, {"norm_kind": "rms"}, {"heads": 6})
    for settings in others:
        assert not direct_stacks(inference.pack_weights(bert(**settings)))


def test_activations_and_weights_far_from_zero_are_exact():
    """The kernel's own exp and erf."""
    x = torch.cat([torch.linspace(-12, 12, 95 * 64), torch.tensor([0.0, -0.0, 1e-30, -1e-30, 50, -50, 1e5, -1e5])])
    x = torch.nn.functional.pad(x, (0, -len(x) % 64)).view(-1, 64)  # 96 rows
    linear = torch.nn.Linear(64, 64, bias=False)
    with torch.no_grad():
        linear.weight.copy_(torch.eye(64))
    with torch.inference_mode():
        for activation in (("gelu", "none"), ("relu", "")):
            ready = inference._PackedLinear(linear, activation)
            torch.testing.assert_close(ready(x), ready.activated(x.clone()), atol=2e-6, rtol=1e-6)
            assert ready(torch.full((1, 64), float("nan"))).isnan().all()


def test_parts_that_were_exchanged_are_used():
    def shorten(model):
        model.encoder.blocks = model.encoder.blocks[:1]

    def exchange(model):
        model.encoder.blocks[0].feed = torch.nn.Identity()

    def new_bias(model):
        model.encoder.blocks[0].mix_norm.bias = torch.nn.Parameter(torch.full((48,), 3.0))

    for change in (shorten, exchange, new_bias):
        model, tokens = inference.pack_weights(bert()), torch.randint(3, 50, (1, 9))
        change(model)
        with torch.inference_mode():
            found = model.hidden(tokens)
            with model.encoder.blocks[0].mix.register_forward_hook(lambda *_: None):  # runs as modules
                torch.testing.assert_close(found, model.hidden(tokens), atol=2e-5, rtol=1e-5)


def test_dropout_that_was_turned_on_drops():
    model = inference.pack_weights(transformer(dropout=0.5))
    drops = [part for part in model.encoder.blocks.modules() if isinstance(part, torch.nn.Dropout)]
    assert drops
    for part in drops:
        part.train()
    source = torch.randint(3, 50, (1, 9))
    with torch.inference_mode():
        assert not torch.equal(model.encode(source)[0], model.encode(source)[0])


def test_lengths_beyond_the_row_read_nothing_beyond_it(calls):
    model = inference.pack_weights(bert())
    x = torch.randn(3, 5, 48)
    with torch.inference_mode():
        found = model.encoder(x, PaddingMask(torch.tensor([5, 6, 90])))
        torch.testing.assert_close(found, model.encoder(x), atol=2e-5, rtol=1e-5)
        with pytest.raises(IndexError):  # too few lengths: as without packed weights
            model.encoder(x, PaddingMask(torch.tensor([5])))
    assert calls == ["encoder_blocks"] * 2


def test_keys_in_another_dtype_are_for_the_modules(calls):
    model = transformer()
    decoder = inference.pack_weights(model).decoder
    state = decoder.start(torch.randn(2, 6, 48), None, 4)
    state = dataclasses.replace(state, keys=[(k.bfloat16(), v.bfloat16()) for k, v in state.keys])
    with torch.inference_mode(), pytest.raises(RuntimeError):  # as without packed weights
        decoder.step(torch.randn(2, 1, 48), state)
    assert not calls

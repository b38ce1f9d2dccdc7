"""Writing on: the same text alone and in company, as it is written and at once, sliding or not."""

import logging
from itertools import pairwise

import pytest
import torch

import regard
from regard.attention.capture.watch import watch
from regard.core.errors import BadInput, RegardError, UnknownName
from regard.decoding.incremental_detokenizer import IncrementalDetokenizer
from regard.models.gpt import GPT, Config
from regard.runtime import inference
from regard.tasks.text.language_modeling import TextGenerator
from regard.tokens.tokenizer import KINDS, Tokenizer
from tests.long_params import rest_is_long

LINES = ["two dogs play in the snow, and a cat sleeps.", "über Äpfel — naïve café 🐕 日本", "no one is the end of it."]
PARTS = {
    "gpt2": {},
    "modern": {"norm_kind": "rms", "positions": "rotary", "feedforward": "swiglu", "qk_norm": "rms", "bias": False},
    "alibi": {"positions": "alibi", "kv_heads": 1},
}


def writer(kind="bytes", size=300, seed=0, **settings):
    torch.manual_seed(seed)
    text = Tokenizer.train(LINES * 3, kind=kind, size=size)
    sizes = {"width": 16, "heads": 2, "layers": 2, "length": 48, "eos": text.eos} | settings
    model = GPT(Config(vocab=settings.pop("vocab", text.size), **{k: v for k, v in sizes.items() if k != "vocab"}))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return TextGenerator(model, text)


def freely(write, ids, tokens, context=None):
    """The twin: greedy without a cache, without a batch; `context(ids)` is what the model is shown."""
    ids, start = list(ids), len(ids)
    for _ in range(tokens):
        shown = ids if context is None else context(ids)
        logits = write.model(torch.tensor([shown]))[0, -1]
        logits[write.banned_tokens] = float("-inf")
        if (best := int(logits.argmax())) == write.text.eos:
            break
        ids.append(best)
    return ids[start:]


# -- alone and in company ----------------------------------------------------------------------------------------------

WAYS = {
    "greedy": {"temperature": 0},
    "sampled": {"top_k": 9, "temperature": 0.8},
    "everything": {"top_p": 0.9, "min_p": 0.02, "repetition_penalty": 1.2, "num_candidates": 2, "stop": ["e", "a c"]},
    "beam_size": {"beam_size": 3, "num_candidates": 2},
    "sliding": {"slide": True, "max_new_tokens": 42, "repetition_penalty": 1.1},
}


@pytest.mark.parametrize("parts", rest_is_long(PARTS, "modern"))
@pytest.mark.parametrize("way", WAYS)
def test_a_text_is_the_same_alone_and_in_any_batch(parts, way):
    write = writer(**PARTS[parts])
    prompts = ["two dogs", "n", "a cat sleeps. no one", "über"]
    how = {"max_new_tokens": 12, "seed": 4} | WAYS[way]
    together = write.candidates(prompts, **how)
    assert len({each[0].text for each in together}) > 1
    for number, prompt in enumerate(prompts):
        (alone,) = write.candidates([prompt], numbers=[number], **how)
        for a, b in zip(together[number], alone, strict=True):
            assert (a.text, a.tokens, a.finish_reason) == (b.text, b.tokens, b.finish_reason)
            assert a.score == pytest.approx(b.score, rel=1e-4)
    few_at_a_time = write.write(write.text.encode(prompts), batch_tokens=40, **how)
    assert [[w.text for w in each] for each in few_at_a_time] == [[w.text for w in each] for each in together]


def test_padding_left_or_right_or_both_is_the_same():
    write = writer()
    ids = write.text.encode(["two dogs play", "n", "a cat"])
    plain = [each[0].tokens for each in write.write(ids, max_new_tokens=9, temperature=0)]
    for shift in (lambda n, room: 0, lambda n, room: room, lambda n, room: room // 2):
        rows = torch.full((3, 24), 7)  # padding that is a token like any other
        real = torch.zeros(3, 24, dtype=torch.bool)
        for row, numbers in enumerate(ids):
            at = shift(len(numbers), 24 - len(numbers))
            rows[row, at : at + len(numbers)] = torch.tensor(numbers)
            real[row, at : at + len(numbers)] = True
        assert [each[0].tokens for each in write.write(rows, real, max_new_tokens=9, temperature=0)] == plain
    assert [list(tokens) for tokens in plain] == [freely(write, numbers, 9) for numbers in ids]


def test_it_writes_what_transformers_writes_after_left_padding():
    transformers = pytest.importorskip("transformers")
    from regard.weights.hf import gpt2

    write = writer(length=40)
    theirs = transformers.GPT2LMHeadModel(transformers.GPT2Config(**gpt2.export_config(write.model.config)))
    from regard.weights.table import export_state_dict as states

    theirs.load_state_dict(states(gpt2.table(write.model.config), write.model))
    ids = write.text.encode(["two dogs play", "n", "a cat"])
    width = max(map(len, ids))
    rows = torch.tensor([[write.text.pad] * (width - len(row)) + row for row in ids])
    real = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in ids])
    quiet = {"suppress_tokens": write.banned_tokens, "pad_token_id": write.text.pad, "do_sample": False}
    for penalty in (1.0, 1.5):
        found = theirs.eval().generate(
            rows, attention_mask=real, max_new_tokens=11, repetition_penalty=penalty, **quiet
        )[:, width:]
        ours = write.write(rows, real.bool(), max_new_tokens=11, temperature=0, repetition_penalty=penalty)
        if penalty != 1:  # theirs counts the padding as said, which is banned anyway
            assert write.text.pad in write.banned_tokens
        for mine, row in zip(ours, found.tolist(), strict=True):
            row = row[: row.index(write.text.eos)] if write.text.eos in row else row
            assert list(mine[0].tokens) == row


@pytest.mark.parametrize("way", ["greedy", "sampled", "beam_size"])
def test_texts_repeat_no_bigram_and_are_long_enough(way):
    write = writer()
    how = {"no_repeat_ngram_size": 2, "min_new_tokens": 12, "max_new_tokens": 20}
    (found,) = write.write(torch.tensor([write.text.encode_one("two dogs")]), **WAYS[way], **how)
    ids = [*write.text.encode_one("two dogs"), *found[0].tokens]
    bigrams = [*pairwise(ids)]
    assert len(found[0].tokens) >= 12
    assert len({*bigrams}) == len(bigrams)


# -- as it is written --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_pieces_are_the_text_and_never_half_a_character(kind):
    """Any tokens whatever, of every kind of vocabulary."""
    text = Tokenizer.train(LINES * 3, kind=kind, size=330)
    draw = torch.Generator().manual_seed(1)
    for many in (1, 3, 30, 200):
        prompt = text.encode_one(LINES[0])[:5]
        ids = torch.randint(4, text.size, (many,), generator=draw).tolist() + text.encode_one(LINES[1])
        speech = IncrementalDetokenizer(text, prompt)
        pieces = [speech.push([i]) for i in ids]
        assert not any(piece.endswith("\ufffd") for piece in pieces)
        whole, before = text.decode([[*prompt, *ids], prompt])
        assert "".join(pieces) + speech.push([], final=True) == whole[len(before) :]


def test_a_character_of_several_tokens_comes_whole():
    text = Tokenizer.train(["abc"], kind="bytes", size=260)
    ids = text.encode_one("é🐕")
    assert len(ids) > 6
    speech = IncrementalDetokenizer(text)
    assert [piece for i in ids if (piece := speech.push([i]))] == ["é", "🐕"]


@pytest.mark.parametrize("parts", PARTS)
@pytest.mark.parametrize(
    "how", [{"temperature": 0}, {"top_p": 0.9, "stop": ["s", "ü"]}, {"slide": True, "max_new_tokens": 60}]
)
def test_a_stream_is_what_a_call_gives(parts, how):
    write = writer(**PARTS[parts])
    how = {"max_new_tokens": 30, "seed": 3} | how
    pieces = list(write.stream("two dogs", **how))
    assert all(pieces)
    assert "".join(pieces) == write(["two dogs"], **how)[0]
    if "slide" in how:
        assert len(pieces) > 9


def test_between_pieces_the_caller_is_left_alone():
    for _ in writer().stream("two", max_new_tokens=3):
        assert not torch.is_inference_mode_enabled()
        x = torch.ones(2, requires_grad=True)
        x.sum().backward()


# -- stop strings ------------------------------------------------------------------------------------------------------


def test_a_text_ends_before_the_first_stop_string():
    write = writer(kind="char")
    whole = write(["two"], max_new_tokens=40, seed=2)[0]
    assert len(whole) > 15
    for stop in (whole[5:8], whole[11], whole[12:15]):
        (found,) = write.candidates(["two"], max_new_tokens=40, seed=2, stop=["never this", stop])[0]
        assert found.text == whole[: whole.index(stop)]
        assert found.finish_reason == "stop"
        assert len(found.tokens) <= len(found.text) + len(stop)
        assert "".join(write.stream("two", max_new_tokens=40, seed=2, stop=[stop])) == found.text
    assert write.candidates(["two"], max_new_tokens=40, seed=2, stop=["never this"])[0][0].text == whole


def test_what_might_become_a_stop_string_waits():
    text = Tokenizer.train(["the END of it EN"], kind="char", size=40)
    speech = IncrementalDetokenizer(text, stop=["END", "Nx"])
    said = [speech.push([i]) for i in text.encode_one("it EN of EN")]
    assert "".join(said) == "it EN of "
    assert said[3:6] == ["", "", "EN "]
    assert speech.push([], final=True) == "EN"
    speech = IncrementalDetokenizer(text, stop=["END"])
    assert "".join(speech.push([i]) for i in text.encode_one("of it END of")) == "of it "
    assert speech.stopped


def test_an_output_that_stops_leaves_the_others_alone():
    write = writer(kind="char")
    plain = write(["two", "no", "a cat"], max_new_tokens=30)
    stop = plain[1][4:6]
    found = write(["two", "no", "a cat"], max_new_tokens=30, stop=[stop])
    assert found == [text[: text.index(stop)] if stop in text else text for text in plain]
    assert found[1] == plain[1][:4] or len(found[1]) < 4


# -- sliding -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("parts", PARTS)
def test_sliding_shows_the_model_the_last_seven_eighths_and_what_came_since(parts):
    write = writer(length=24, **PARTS[parts])
    hop, keep = 3, 21
    for prompt in ("two dogs play in the snow, and a cat sleeps. no one is the end", "n"):
        ids = write.text.encode_one(prompt)

        def shown(text, prompt=ids):
            begun = (len(text) - len(prompt)) // hop * hop + len(prompt)  # where this round began
            return text[max(0, begun - keep) :]

        (found,) = write.write([ids], max_new_tokens=40, temperature=0, slide=True)[0]
        assert list(found.tokens) == freely(write, ids, 40, shown)


def test_sliding_changes_nothing_while_it_fits():
    write = writer()
    for how in ({"temperature": 0}, {"seed": 5, "num_candidates": 3}):
        assert write.candidates(["two", "no one"], max_new_tokens=20, slide=True, **how) == write.candidates(
            ["two", "no one"], max_new_tokens=20, **how
        )


def test_without_a_length_a_short_model_writes_what_its_positions_have_room_for():
    write = writer(length=16, kind="char")
    assert len(write.candidates(["two dogs"], temperature=0)[0][0].tokens) <= 8
    assert write.fill_options({}).max_new_tokens == 8
    assert (
        write.fill_options({"slide": True}).max_new_tokens == write.fill_options({"max_new_tokens": 200}).max_new_tokens
    )
    assert writer(length=16, positions="rotary").fill_options({}).max_new_tokens == 200


def test_what_does_not_fit_is_refused_and_never_cut():
    write = writer(length=16, kind="char")
    with pytest.raises(BadInput, match="a prompt of 8 tokens and 10 more do not fit the model's 16: ask for at most 9"):
        write(["two dogs"], max_new_tokens=10)
    assert len(write.candidates(["two dogs"], max_new_tokens=9, temperature=0)[0][0].tokens) <= 9
    with pytest.raises(BadInput, match="shorten it by 5"):
        write(["two dogs play in the"[:20] + "."], max_new_tokens=1)
    with pytest.raises(BadInput, match="do not fit"):
        list(write.stream("two dogs", max_new_tokens=10))
    endless = writer(length=16, kind="char", positions="rotary")
    assert endless.candidates(["two dogs"], max_new_tokens=30, temperature=0)[0][0].finish_reason in ("length", "end")


# -- what cannot be --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("prompts", "how", "said"),
    [
        (["two", ""], {}, "prompt 2 is empty"),
        (["two", 7], {}, "text 2: Expected a text"),
        (["two"], {"max_new_tokens": 0}, "max_new_tokens must be at least 1, got 0"),
        (["two"], {"temperature": -1}, "temperature must be at least 0, got -1"),
        (["two"], {"temperature": 0, "num_candidates": 2}, "at temperature 0 all samples are the same"),
        (["two"], {"beam_size": 2, "num_candidates": 3}, r"num_candidates must be at most beam_size \(2\), got 3"),
        (["two"], {"beam_size": 2, "stop": ["a"]}, "stop does not work with beam search"),
        (["two"], {"stop": "a"}, "'stop' must be a list of str, got 'a'"),
        (["two"], {"repetition_penalty": 0}, "repetition_penalty must be above 0"),
        (["two"], {"stop": [""]}, "a string of stop is empty"),
        (["two"], {"length_penalty": 2.0}, "length_penalty needs beam search"),
        (["two"], {"beam_size": 2, "length_penalty": float("nan")}, "length_penalty must be a finite number, got nan"),
    ],
    ids=str,
)
def test_what_cannot_be_asked_for_is_one_clear_line(prompts, how, said):
    with pytest.raises(RegardError, match=said) as caught:
        writer()(prompts, **{"max_new_tokens": 5} | how)
    assert "\n" not in str(caught.value)


def test_unknown_settings_offer_the_nearest():
    with pytest.raises(UnknownName, match="'top_k'"):
        writer()(["two"], topk=4)


def test_token_numbers_out_of_range_are_refused():
    write = writer()
    for number in (-1, write.text.size, 10**6):
        with pytest.raises(BadInput, match=f"token ids must be from 0 to {write.text.size - 1}, got {number}"):
            write.write([[5, number]], max_new_tokens=2)


def test_a_vocabulary_that_does_not_fit_the_weights_is_refused():
    with pytest.raises(BadInput, match="use the tokenizer that the model"):
        writer(vocab=100)
    with pytest.raises(BadInput, match="use the tokenizer that the model"):
        writer(vocab=500)
    padded = writer(vocab=320)  # rows to spare, as many tables have
    with torch.no_grad():
        padded.model.embed.weight[padded.text.size :] *= 50
    found = padded.write([[5, 6]], max_new_tokens=40, num_candidates=8)[0]
    assert max(i for one in found for i in one.tokens) < padded.text.size


def test_characters_that_the_vocabulary_lacks_are_said(caplog):
    with caplog.at_level(logging.WARNING, "regard"):
        writer(kind="char")(["two Xylophones"], max_new_tokens=2)
    assert "lacks: read as unknown" in caplog.text


# -- looking and saving ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ready", [lambda m: m, inference.pack_weights], ids=["plain", "served"])
def test_watching_sees_the_prompt_and_every_step(ready, monkeypatch):
    monkeypatch.setattr(inference, "MIN_WEIGHTS", 0)
    write = writer()
    plain = write(["two dogs", "n"], max_new_tokens=4, temperature=0)
    ready(write.model)
    with watch(write.model) as seen:
        assert write(["two dogs", "n"], max_new_tokens=4, temperature=0) == plain
    first = len(write.text.encode_one("two dogs")) - 1
    for name in ("decoder.blocks.0.mix", "decoder.blocks.1.mix"):
        calls = seen.calls(name)
        assert calls[0].weights.shape == (2, 2, first, first)
        assert [c.weights.shape[2:] for c in calls[1:]] == [(1, first + 1 + t) for t in range(len(calls) - 1)]
        for call in calls[1:]:
            torch.testing.assert_close(call.weights.sum(-1), torch.ones(call.weights.shape[:3]))
            assert call.weights[-1, :, 0, 1:first].abs().max() == 0  # the padding of the shorter prompt


def test_attention_is_that_of_each_step():
    """One pass over the finished text shows what each step saw while it was written."""
    write = writer()
    with watch(write.model) as seen:
        (found,) = write.candidates(["two dogs"], max_new_tokens=5, temperature=0)[0]
    traces = write.attention("two dogs", max_new_tokens=5)
    assert [t.name for t in traces] == ["decoder.blocks.0.mix", "decoder.blocks.1.mix"]
    assert found.finish_reason == "end"  # which is a token like the others
    ids = [*write.text.encode_one("two dogs"), *found.tokens, write.text.eos]
    for trace in traces:
        assert trace.weights.shape[2:] == (len(ids) - 1, len(ids) - 1)
        assert list(trace.rows) == write.text.pieces(ids[1:])
        assert list(trace.columns) == write.text.pieces(ids[:-1])
        steps = seen.calls(trace.name)[1:]
        assert len(steps) == 3
        for step in steps:
            at = step.weights.shape[3]
            torch.testing.assert_close(trace.weights[0, :, at - 1, :at], step.weights[0, :, 0], rtol=1e-4, atol=1e-5)
    given = write.attention("two", " dogs")
    assert given[0].weights.shape[-1] == len(write.text.encode_one("two dogs")) - 1
    with pytest.raises(BadInput, match="do not fit"):
        write.attention("two dogs " * 12, "play")


def test_it_comes_back_as_it_was(tmp_path):
    write = writer()
    regard.save(write, tmp_path / "m")
    found = regard.load(tmp_path / "m")
    assert isinstance(found, TextGenerator)
    assert found(["two"], max_new_tokens=9, seed=1) == write(["two"], max_new_tokens=9, seed=1)

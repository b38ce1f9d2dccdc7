"""Predictors that write tokens: translation, text to text, pronunciation, language modelling, captions."""

from __future__ import annotations

from typing import Any

import torch

from regard.blocks.causal import CausalStack
from regard.blocks.decoder_state import StatefulDecodable
from regard.core.errors import Unsupported
from regard.core.shapes import Tensor
from regard.export.decoding import Decoding
from regard.export.image import LOAD_PICTURE, picture_lines, picture_values
from regard.export.plan import Graph, Plan
from regard.export.text import TOKENIZER, TOKENIZERS, random_lengths

MAX_CAPACITY = 256  # tokens of an output: the cache has this many slots, which every step reads
CONTINUED = 64  # tokens by which run.py continues a prompt
GREEDY = "it writes greedily, one text at a time: Regard's default is a beam search, which finds better texts"

# while the likeliest token is not the end: write it, read it
WRITE = """\
    while (token := int(logits[0].argmax())) != config["eos"] and len(written) < limit:
        written.append(token)
        logits, *changed = step(np.array([token]), *state)
        state[: len(changed)] = changed
"""


def freeze(model: Any, state: Any) -> Any:
    """Return a state of which every shape is static: that of recurrent decoders always is."""
    return state if isinstance(model, StatefulDecodable) else model.freeze(state)


def decode_graphs(
    model: Any, inputs: tuple[str, ...], example: Any, capacity: int, banned: list[int], longest: int, prepare: Any
) -> tuple[Graph, Graph]:
    """Return the graphs of a model that reads its input at once; `prepare` turns the inputs into those of `start`."""

    start = getattr(model, "start_masked", model.start)  # the same state for rows with and without padding

    def begin(*given: Tensor) -> tuple[Tensor, Any]:
        first, state = start(*prepare(*given), capacity=capacity + 1)  # the first token is none of the output
        logits, state = model.step(first, freeze(model, state))
        return logits[:, 0], state

    return Decoding(model, begin, banned).graphs(inputs, example, longest)


def plan_translation(predictor: Any, name: str) -> Plan:
    """Return the plan of a model that maps one text to another."""
    model, text = predictor.model, predictor.text
    if getattr(predictor, "style", "raw") == "moses":
        raise Unsupported(
            "a model of tokenised text (style 'moses') is not exported, since run.py would need the Moses scripts; "
            "serve it (regard serve), or export its network (--network)"
        )
    limited = name != "text_to_text"  # by the length of the source too
    capacity = min(predictor.max_new_tokens, 2 * predictor.max_length + 18 if limited else 10**6, MAX_CAPACITY)
    capacity = min(capacity, int(getattr(model.config, "length", capacity + 1)) - 1)  # learned positions

    def example(rows: int, length: int) -> tuple[Tensor, ...]:
        return torch.randint(4, min(text.size, model.config.vocab), (rows, length)), random_lengths(rows, length)

    graphs = decode_graphs(
        model, ("source", "lengths"), example, capacity, list(predictor._banned()), predictor.max_length + 1,
        lambda source, lengths: (source, lengths),
    )  # fmt: skip
    examples = list(predictor.examples)
    if name == "pronunciation":
        examples = [word for word in examples if {*word} <= {*predictor.letters}] or [predictor.letters[:4]]
    spelled = '" ".join(text.lower())' if name == "pronunciation" else "text"
    limit = 'min(config["max_new_tokens"], 2 * source.shape[1] + 16)' if limited else 'config["max_new_tokens"]'
    script = f"""\
start, step = load("start"), load("step")
{TOKENIZER if limited else TOKENIZER.splitlines()[0]}
for text in sys.argv[1:]:
    source = np.array([[*tokenizer.encode({spelled}, add_special_tokens=False).ids, config["eos"]]])
    if source.shape[1] > config["max_length"] + 1:
        sys.exit(f"The text has {{source.shape[1] - 1}} tokens, the model takes {{config['max_length']}}; cut it.")
    logits, *state = start(source, np.array([source.shape[1]]))
    written, limit = [], {limit}
{WRITE}\
    print(tokenizer.decode(written).strip())
"""
    return Plan(
        graphs,
        script,
        "WORD..." if name == "pronunciation" else "TEXT...",
        {"eos": text.eos, "max_length": predictor.max_length, "max_new_tokens": capacity},
        TOKENIZERS,
        ("tokenizers",),
        text,
        [(example,) for example in examples],
        lambda line: str(
            predictor.predict([line], predictor.make_options({"beam_size": 1, "max_new_tokens": capacity}))[0]
        ),
        note=f"{GREEDY}; it writes at most {capacity} tokens",
    )


def plan_language_modeling(predictor: Any, name: str) -> Plan:
    """Return the plan of a model that continues a text."""
    model, text = predictor.model, predictor.text
    stack = getattr(model, "decoder", None)
    if not isinstance(stack, CausalStack):
        raise Unsupported(
            f"{type(model).__name__} is not exported: its prompt is not read by a causal stack; serve it "
            f"(regard serve), or export its network (--network)"
        )
    length = int(model.config.length)

    def begin(tokens: Tensor) -> tuple[Tensor, Any]:
        x, state = stack.read_prompt(model.embed(tokens), None, length - tokens.shape[1])
        return model.logits(x[:, -1]), freeze(model, state)

    def example(rows: int, length: int) -> tuple[Tensor, ...]:
        return (torch.randint(4, text.size, (rows, length)),)

    def answer(line: str) -> str:
        room = length - len(text.encode_one(line))
        return f"{line}{predictor(line, temperature=0.0, max_new_tokens=min(CONTINUED, room))}"

    graphs = Decoding(model, begin, predictor.banned_tokens).graphs(("tokens",), example, length)
    script = f"""\
start, step = load("start"), load("step")
{TOKENIZER}
for text in sys.argv[1:]:
    prompt = tokenizer.encode(text, add_special_tokens=False).ids
    logits, *state = start(np.array([prompt]))
    written, limit = [], min({CONTINUED}, config["length"] - len(prompt))
{WRITE}\
    print(text + tokenizer.decode(prompt + written)[len(tokenizer.decode(prompt)) :])
"""
    return Plan(
        graphs,
        script,
        "PROMPT...",
        {"eos": text.eos, "length": length},
        TOKENIZERS,
        ("tokenizers",),
        text,
        [(example,) for example in predictor.examples if "\n" not in example],
        answer,
        note="it takes the most likely token each time, and prints at most 64 of them; Regard samples",
    )


def plan_captioning(predictor: Any, name: str) -> Plan:
    """Return the plan of a model that describes a picture."""
    model, text, capacity = predictor.model, predictor.text, predictor.max_words + 1
    values, example = picture_values(predictor)
    graphs = decode_graphs(
        model, ("pixels",), example, capacity, [text.pad, text.bos, text.unk], 10**6,
        lambda pixels: (predictor.preprocess.normalize(pixels),),
    )  # fmt: skip
    script = f"""\
start, step = load("start"), load("step")
{TOKENIZER}
for file in sys.argv[1:]:
{picture_lines(predictor.preprocess)}
    logits, *state = start(pixels)
    written, limit = [], config["max_new_tokens"]
{WRITE}\
    print(tokenizer.decode(written))
"""
    return Plan(
        graphs,
        script,
        "PICTURE...",
        values | {"eos": text.eos, "max_new_tokens": capacity},
        (*LOAD_PICTURE, *TOKENIZERS),
        ("pillow", "tokenizers"),
        text,
        [("picture.png",)],
        lambda file: str(predictor(file, beam_size=1)),
        note=GREEDY,
    )

"""OpenAI's completions, asked in the shapes that their clients send and read in those that they expect."""

import json

import pytest

import regard

ASKED = {"model": "shakespeare", "prompt": "ROMEO:", "max_tokens": 12, "temperature": 0, "seed": 1}


def chunks(response):
    """As a client of theirs reads a stream: data lines, the last of them [DONE]."""
    assert response.headers["content-type"].startswith("text/event-stream")
    lines = [line for line in response.text.split("\n\n") if line]
    assert all(line.startswith("data: ") for line in lines)
    *some, last = (line[6:] for line in lines)
    assert last == "[DONE]"
    return [json.loads(each) for each in some]


def test_a_completion_is_what_the_model_writes(client):
    found = client.post("/v1/completions", json=ASKED).json()
    assert found["object"] == "text_completion"
    assert found["id"].startswith("cmpl-")
    assert isinstance(found["created"], int)
    wanted = regard.load("shakespeare")(["ROMEO:"], max_new_tokens=12, temperature=0)[0]
    assert found["choices"] == [{"text": wanted, "index": 0, "logprobs": None, "finish_reason": "length"}]
    assert found["usage"] == {"prompt_tokens": 6, "completion_tokens": 12, "total_tokens": 18}


def test_a_stream_holds_the_same_text_and_ends_as_clients_expect(client):
    asked = ASKED | {"stream": True, "stream_options": {"include_usage": True}}
    *pieces, usage = chunks(client.post("/v1/completions", json=asked))
    whole = client.post("/v1/completions", json=ASKED).json()
    assert "".join(piece["choices"][0]["text"] for piece in pieces) == whole["choices"][0]["text"]
    assert len(pieces) > 6
    assert [piece["choices"][0]["finish_reason"] for piece in pieces] == [None] * (len(pieces) - 1) + ["length"]
    assert len({piece["id"] for piece in pieces}) == 1
    assert usage["choices"] == []
    assert usage["usage"] == whole["usage"]


def test_several_prompts_and_texts_have_their_index(client):
    asked = ASKED | {"prompt": ["ROMEO:", "JULIET:"], "n": 2, "temperature": 1, "echo": True}
    found = client.post("/v1/completions", json=asked).json()["choices"]
    assert [choice["index"] for choice in found] == [0, 1, 2, 3]
    assert [choice["text"].partition(":")[0] for choice in found] == ["ROMEO", "ROMEO", "JULIET", "JULIET"]
    assert found[0]["text"] != found[1]["text"]
    streamed = ["", "", "", ""]
    for piece in chunks(client.post("/v1/completions", json=asked | {"stream": True})):
        for choice in piece["choices"]:
            streamed[choice["index"]] += choice["text"]
    assert streamed == [choice["text"] for choice in found]


def test_a_prompt_may_be_tokens(client):
    ids = regard.load("shakespeare").text.encode_one("ROMEO:")
    plain = client.post("/v1/completions", json=ASKED).json()["choices"]
    assert client.post("/v1/completions", json=ASKED | {"prompt": ids}).json()["choices"] == plain
    assert client.post("/v1/completions", json=ASKED | {"prompt": [ids]}).json()["choices"] == plain
    assert client.post("/v1/completions", json=ASKED | {"prompt": [10**9]}).status_code == 422


def test_stop_strings_end_a_text_for_the_reason_stop(client):
    found = client.post("/v1/completions", json=ASKED | {"stop": "e", "max_tokens": 60}).json()["choices"][0]
    assert found["finish_reason"] == "stop"
    assert "e" not in found["text"]


def test_without_a_seed_texts_differ_and_with_one_they_do_not(client):
    asked = {"model": "shakespeare", "prompt": "A", "max_tokens": 24}
    drawn = {client.post("/v1/completions", json=asked).json()["choices"][0]["text"] for _ in range(3)}
    assert len(drawn) > 1
    same = {client.post("/v1/completions", json=asked | {"seed": -5}).json()["choices"][0]["text"] for _ in range(2)}
    assert len(same) == 1


@pytest.mark.parametrize(
    "more", [{"logprobs": 2}, {"presence_penalty": 1}, {"suffix": "x"}, {"best_of": 3}, {"logit_bias": {"5": 1}}]
)
def test_what_is_not_offered_and_would_change_the_text_is_refused(client, more):
    found = client.post("/v1/completions", json=ASKED | more)
    assert found.status_code == 422
    assert f"{next(iter(more))} is not supported" in found.json()["error"]["message"]


def test_fields_of_clients_that_change_nothing_are_taken(client):
    more = {"user": "somebody", "presence_penalty": 0, "best_of": 1, "logit_bias": None, "suffix": None, "store": False}
    assert client.post("/v1/completions", json=ASKED | more | {"temperature": None}).status_code == 200


def test_errors_have_what_their_clients_read(client):
    found = client.post("/v1/completions", json=ASKED | {"model": "gpt-4"})
    assert found.status_code == 404
    assert {"type", "message"} <= set(found.json()["error"])
    assert client.post("/v1/completions", json=ASKED | {"model": "en-de"}).status_code == 422

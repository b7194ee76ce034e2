"""Tests a running server with the official clients: clients.py URL. Exits with 77 if they are not installed."""

import json
import sys

try:
    import anthropic
    import ollama
    import openai
except ImportError as missing:
    print(f"not installed: {missing.name}")
    sys.exit(77)

url = sys.argv[1]
story = [{"role": "user", "content": "Tell me a story about an owl, a fox and a bear who live in a deep green forest by the sea."}]
tool = {"name": "weather", "description": "Tells it", "parameters": {"type": "object", "properties": {}}}


def fails(error, call):
    try:
        call()
    except error as caught:
        return caught
    raise AssertionError(f"no {error.__name__}")


def ask_openai():
    client = openai.OpenAI(base_url=url + "/v1", api_key="none", max_retries=0)
    model = client.models.list().data[0].id
    assert client.models.retrieve(model).id == model
    fails(openai.NotFoundError, lambda: client.models.retrieve("other"))
    asked = {"model": model, "messages": story, "max_tokens": 40, "seed": 3}
    whole = client.chat.completions.create(**asked)
    said = whole.choices[0].message.content
    assert said and whole.choices[0].finish_reason in ("stop", "length")
    pieces, usage = [], None
    for chunk in client.chat.completions.create(**asked, stream=True, stream_options={"include_usage": True}):
        usage = chunk.usage or usage
        pieces += [choice.delta.content or "" for choice in chunk.choices]
    assert "".join(pieces) == said
    assert usage.completion_tokens == whole.usage.completion_tokens
    assert usage.prompt_tokens_details.cached_tokens > 0
    likely = client.chat.completions.create(**asked, logprobs=True, top_logprobs=2).choices[0].logprobs.content
    assert len(likely) == usage.completion_tokens and len(likely[0].top_logprobs) == 2
    text = client.completions.create(model=model, prompt="Once upon a time", max_tokens=8, echo=True, logprobs=1, seed=1)
    assert text.choices[0].text.startswith("Once upon a time")
    assert text.choices[0].logprobs.token_logprobs[0] is None
    stopped = client.completions.create(model=model, prompt="Once upon a time", max_tokens=99, stop=["."], seed=1)
    assert "." not in stopped.choices[0].text and stopped.choices[0].finish_reason == "stop"
    wrong = fails(openai.BadRequestError, lambda: client.chat.completions.create(**{**asked, "seed": "x"}))
    assert wrong.param == "seed"
    vectors = client.embeddings.create(model=model, input=["a", "b"], dimensions=8).data
    plain = client.embeddings.create(model=model, input="b", dimensions=8, encoding_format="float").data[0].embedding
    assert [row.index for row in vectors] == [0, 1] and max(abs(x - y) for x, y in zip(vectors[1].embedding, plain)) < 1e-6
    assert fails(openai.BadRequestError, lambda: client.embeddings.create(model=model, input=[])).param == "input"
    long = [{"role": "user", "content": "owl " * 600}]
    assert fails(openai.BadRequestError, lambda: client.chat.completions.create(model=model, messages=long)).code == (
        "context_length_exceeded"
    )
    # The demo model's template has no tool calls; a request with tools still gets an answer.
    tools = [{"type": "function", "function": tool}]
    assert client.chat.completions.create(**asked, tools=tools).choices[0].message.content


def ask_responses():
    client = openai.OpenAI(base_url=url + "/v1", api_key="none", max_retries=0)
    asked = {"model": "demo", "input": story, "max_output_tokens": 40, "extra_body": {"seed": 3}}
    whole = client.responses.create(**asked)
    assert whole.output_text and whole.status in ("completed", "incomplete")
    kinds = [event.type for event in client.responses.create(**asked, stream=True)]
    assert kinds[0] == "response.created" and kinds[-1] == "response." + whole.status
    brief = {"model": "demo", "input": "Who are you?", "temperature": 0}
    with client.responses.stream(**brief) as stream:
        text = "".join(event.delta for event in stream if event.type == "response.output_text.delta")
        final = stream.get_final_response()
    assert text == final.output_text
    choice = {"type": "object", "properties": {"a": {"enum": ["x", "y"]}}, "required": ["a"]}
    form = {"format": {"type": "json_schema", "name": "a", "schema": choice}}
    assert json.loads(client.responses.create(**brief, text=form).output_text)["a"] in ("x", "y")
    more = client.responses.create(model="demo", input="And you?", previous_response_id=final.id, max_output_tokens=9)
    assert more.usage.input_tokens > final.usage.total_tokens - 2
    assert client.responses.retrieve(more.id) == more
    client.responses.delete(more.id)
    fails(openai.NotFoundError, lambda: client.responses.retrieve(more.id))
    assert fails(openai.BadRequestError, lambda: client.responses.create(model="demo", input=5)).param == "input"


def ask_anthropic():
    client = anthropic.Anthropic(base_url=url, api_key="none", max_retries=0)
    asked = {"model": "demo", "max_tokens": 40, "messages": story, "extra_body": {"seed": 3}}
    whole = client.messages.create(**asked)
    assert whole.role == "assistant" and whole.content[0].text
    assert whole.stop_reason in ("end_turn", "max_tokens")
    with client.messages.stream(**asked) as stream:
        assert "".join(stream.text_stream) == whole.content[0].text
        final = stream.get_final_message()
    assert final.usage.output_tokens == whole.usage.output_tokens
    counted = client.messages.count_tokens(model="demo", messages=story).input_tokens
    assert counted == final.usage.input_tokens + final.usage.cache_read_input_tokens
    stopped = client.messages.create(**asked, stop_sequences=["."], system="Answer briefly.")
    assert stopped.stop_reason == "stop_sequence" and stopped.stop_sequence == "."
    thought = client.messages.create(**asked, thinking={"type": "enabled", "budget_tokens": 1024})
    assert thought.content[0].text
    signed = {"type": "thinking", "thinking": "An owl.", "signature": "0123456789abcdef"}
    turns = [*story, {"role": "assistant", "content": [signed, *whole.content]}, {"role": "user", "content": "Go on."}]
    assert client.messages.create(**{**asked, "messages": turns}).content
    fails(anthropic.BadRequestError, lambda: client.messages.create(model="demo", max_tokens=0, messages=story))


def ask_ollama():
    client = ollama.Client(host=url)
    model = client.list().models[0].model
    assert "completion" in client.show(model).capabilities
    options = {"seed": 3, "num_predict": 40}
    whole = client.chat(model=model, messages=story, options=options)
    assert whole.message.content and whole.done and whole.eval_count > 0
    pieces = [part.message.content for part in client.chat(model=model, messages=story, options=options, stream=True)]
    assert "".join(pieces) == whole.message.content
    raw = client.generate(model=model, prompt="Once upon a time", raw=True, options=options)
    assert raw.response and raw.done_reason in ("stop", "length")
    assert client.generate(model=model, prompt=story[0]["content"], options=options).response == whole.message.content
    assert client.chat(model=model, messages=[]).done_reason == "load"
    assert client.generate(model=model).done_reason == "load"
    assert client.generate(model=model, prompt=story[0]["content"], think="low", options=options).response
    assert client.ps().models[0].model == model
    picture = [{"role": "user", "content": "What is it?", "images": ["iVBORw0KGgo="]}]
    assert fails(ollama.ResponseError, lambda: client.chat(model=model, messages=picture)).status_code == 400
    assert [len(vector) for vector in client.embed(model=model, input=["a", "b"], dimensions=8).embeddings] == [8, 8]
    assert client.embeddings(model=model, prompt="a").embedding


ask_openai()
ask_responses()
ask_anthropic()
ask_ollama()
print("all three clients work")

"""OpenAI Responses in tests: a chat history as this API has it, a judge of requests written from its rules, answers."""

import json
import re

KINDS = {
    **{
        f"{kind}_call": f"{kind}_call_output"
        for kind in ("function", "custom_tool", "local_shell", "shell", "apply_patch", "computer")
    },
    "tool_search_call": "tool_search_output",
    "mcp_approval_request": "mcp_approval_response",
    "program": "program_output",
}
"""Items that must be answered, and what answers them."""


def _items(message, custom):
    role, text = message["role"], message.get("content")
    if role in ("tool", "function"):
        id_ = message.get("tool_call_id") or message["name"]
        kind = "custom_tool_call_output" if id_ in custom else "function_call_output"
        yield {"type": kind, "call_id": id_, "output": _parts(text, "input") if isinstance(text, list) else text or ""}
        return
    if reasoning := message.get("reasoning_content"):
        summary = [{"type": "summary_text", "text": reasoning}]
        yield {"type": "reasoning", "summary": summary, "encrypted_content": "Z0FBQUFB" * 20}
    if text:
        yield {"type": "message", "role": role, "content": _parts(text, "output" if role == "assistant" else "input")}
    for call in message.get("tool_calls") or ():
        if custom_call := call.get("custom"):
            yield {"type": "custom_tool_call", "call_id": call["id"], **custom_call}
        else:
            yield {"type": "function_call", "call_id": call["id"], **call["function"]}
    if legacy := message.get("function_call"):
        yield {"type": "function_call", "call_id": legacy["name"], **legacy}


def _parts(content, way):
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
    return [
        {"type": "input_image", "image_url": part["image_url"]["url"]}
        if part["type"] == "image_url"
        else {"type": f"{way}_text", "text": part["text"]}
        for part in parts
    ]


def request(history, **more):
    leading = next((place for place, m in enumerate(history) if m["role"] not in ("system", "developer")), 0)
    instructions = "\n".join(str(message["content"]) for message in history[:leading])
    custom = {c["id"] for m in history for c in m.get("tool_calls") or () if c.get("type") == "custom"}
    items = [item for message in history[leading:] for item in _items(message, custom)]
    head = {"instructions": instructions} if instructions else {}
    return json.dumps({"model": "gpt-5.1", **head, "input": items, "store": False, **more}).encode()


def find_faults(body):
    """What the API would refuse in this request."""
    items = [{"type": "message", **item} for item in json.loads(body)["input"]]
    return [*_pairs(items), *(fault for item in items for fault in _faults_of(item))]


def _pairs(items):
    called = {kind: [_pair_id(item) for item in items if item["type"] == kind] for kind in KINDS}
    for kind, output in KINDS.items():
        answered = [_pair_id(item) for item in items if item["type"] == output]
        yield from (f"No tool output found for function call {id_}" for id_ in called[kind] if id_ not in answered)
        yield from (f"No tool call found for output with call_id {id_}" for id_ in answered if id_ not in called[kind])
        for id_ in set(answered) & set(called[kind]):
            at = [_pair_id(item) == id_ and item["type"] for item in items]
            if at.index(kind) > at.index(output):
                yield f"the output of {id_} comes before its call"
    yield from _lonely_reasoning(items)


def _pair_id(item):
    return item.get("call_id") or item.get("approval_request_id") or item.get("id")


def _lonely_reasoning(items):
    for item, following in zip(items, [*items[1:], {"type": "nothing"}], strict=True):
        is_of_the_model = following["type"] in (*KINDS, "reasoning") or following.get("role") == "assistant"
        if item["type"] == "reasoning" and item.get("id") and not is_of_the_model:
            yield f"Item {item['id']} of type reasoning was provided without its required following item"


def _faults_of(item):
    if item["type"] == "message":
        way = "output" if item["role"] == "assistant" else "input"
        for part in item["content"] if isinstance(item["content"], list) else ():
            if not part["type"].startswith((way, "refusal")):
                yield f"{part['type']} in a message of the {item['role']}"
    for name in ("arguments", "input") if item["type"] in ("function_call", "custom_tool_call", "mcp_call") else ():
        if not isinstance(item.get(name, ""), str):
            yield f"{name} is a text"
    yield from _faults_of_output(item)


def _faults_of_output(item):
    output = item.get("output", "")
    if item["type"] == "shell_call_output":
        if not all({"stdout", "stderr", "outcome"} == set(each) for each in output):
            yield "a shell's output is a list of what each command wrote"
    elif item["type"] == "computer_call_output":
        if output["type"] != "computer_screenshot":
            yield "a computer's output is a screenshot"
    elif isinstance(output, list) and not all(part["type"].startswith("input_") for part in output):
        yield "parts of an output are those of an input"


def answer_whole(text, prompt=100, calls=(), model="gpt-5.1"):
    usage = {
        "input_tokens": prompt,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": 5,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": prompt + 5,
    }
    about = {"id": "resp_1", "object": "response", "created_at": 1, "model": model, "status": "completed"}
    return {**about, "output": _output(text, calls), "usage": usage, "tools": [], "tool_choice": "auto"}


def _output(text, calls):
    part = {"type": "output_text", "text": text, "annotations": []}
    item = {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed", "content": [part]}
    used = [
        {"id": f"fc_{call['id']}", "type": "function_call", "call_id": call["id"], "status": "completed", **called}
        for call in calls
        for called in [call["function"]]
    ]
    return [*([item] if text else []), *used]


def answer_events(text, prompt=100, calls=(), model="gpt-5.1"):
    """The same answer as events, each in its bytes."""
    return events_of(answer_whole(text, prompt, calls, model))


def events_of(whole):
    begun = {**whole, "status": "in_progress", "output": [], "usage": None}
    events = [{"type": "response.created", "response": begun}, {"type": "response.in_progress", "response": begun}]
    for index, item in enumerate(whole["output"]):
        opened = {**item, "status": "in_progress", **({"content": []} if item["type"] == "message" else {})}
        events.append({"type": "response.output_item.added", "output_index": index, "item": opened})
        events += _events_within(item, {"item_id": item["id"], "output_index": index})
        events.append({"type": "response.output_item.done", "output_index": index, "item": item})
    events.append({"type": "response.completed", "response": whole})
    return [render(event, number) for number, event in enumerate(events)]


def _events_within(item, where):
    match item["type"]:
        case "message":
            where, part = {**where, "content_index": 0}, item["content"][0]
            yield {"type": "response.content_part.added", **where, "part": {**part, "text": ""}}
            for piece in re.findall(r"\S+\s*", part["text"]):
                yield {"type": "response.output_text.delta", **where, "delta": piece}
            yield {"type": "response.output_text.done", **where, "text": part["text"]}
            yield {"type": "response.content_part.done", **where, "part": part}
        case "function_call":
            yield {"type": "response.function_call_arguments.delta", **where, "delta": item["arguments"]}
        case "reasoning":
            yield {"type": "response.reasoning_summary_text.delta", **where, "delta": "Hm."}


def refused_events(message, code="context_length_exceeded"):
    """A refusal as OpenAI sends it: behind two events that say that the request was taken."""
    begun = {"id": "resp_1", "object": "response", "status": "in_progress", "output": []}
    error = {"code": code, "message": message}
    events = [
        {"type": "response.created", "response": begun},
        {"type": "response.in_progress", "response": begun},
        {"type": "error", "error": {"type": "invalid_request_error", "param": "input", **error}},
        {"type": "response.failed", "response": {**begun, "status": "failed", "error": error}},
    ]
    return [render(event, number) for number, event in enumerate(events)]


def render(event, number):
    return f"event: {event['type']}\ndata: {json.dumps({**event, 'sequence_number': number})}\n\n".encode()

"""Anthropic Messages in tests: a chat history as this API has it, and a judge of requests written from its rules."""

import json
import re
import zlib


def as_messages(history):
    """The system prompt and the messages of this API that say what this chat history says."""
    leading = next((place for place, m in enumerate(history) if m["role"] not in ("system", "developer")), 0)
    made = []
    for place, message in enumerate(history[leading:], leading):
        role = _role_of(message, made, history[place + 1 : place + 2])
        blocks = _as_blocks(message)
        if made and made[-1]["role"] == role:
            made[-1]["content"] += blocks
        elif blocks:
            made.append({"role": role, "content": blocks})
    return [message["content"] for message in history[:leading]], made


def _role_of(message, made, following):
    """Instructions are those of a system where the API takes them: behind a user's message, and before an answer."""
    if message["role"] in ("system", "developer"):
        fits = made and made[-1]["role"] == "user" and (not following or following[0]["role"] == "assistant")
        return "system" if fits else "user"
    return "assistant" if message["role"] == "assistant" else "user"


def _as_blocks(message):
    text = _as_parts(message.get("content"))
    if message["role"] in ("tool", "function"):
        id_ = message.get("tool_call_id") or message["name"]
        return [{"type": "tool_result", "tool_use_id": id_, "content": text or ""}]
    thoughts = [
        {"type": "thinking", "thinking": each["text"], "signature": each["signature"]}
        for each in message.get("reasoning_details") or ()
    ]
    return [*thoughts, *text, *map(_as_use, message.get("tool_calls") or ()), *_as_legacy_use(message)]


def _as_parts(content):
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content or []
    return [_IMAGE if part["type"] == "image_url" else part for part in parts if part.get("text", "x").strip()]


_IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo" * 80}}


def _as_use(call):
    called = call.get("function") or {"name": call["custom"]["name"], "arguments": call["custom"]["input"]}
    try:
        value = json.loads(called["arguments"])
    except ValueError:
        value = called["arguments"]
    value = value if isinstance(value, dict) else {"value": value}
    return {"type": "tool_use", "id": call["id"], "name": called["name"], "input": value}


def _as_legacy_use(message):
    called = message.get("function_call")
    return [_as_use({"id": called["name"], "function": called})] if called else []


def request(history, **more):
    system, messages = as_messages(history)
    found = [part["text"] for content in system for part in parts_of({"content": content})]
    head = {"system": "\n".join(found)} if found else {}
    value = {"model": "claude-opus-4-8", "max_tokens": 1_000, **head, "messages": messages, **more}
    return json.dumps(value).encode()


def find_faults(body):
    """What the API would refuse in this request."""
    value = json.loads(body)
    return [*_order(value["messages"]), *_blocks(value["messages"]), *_marks(value), *_loop(value)]


def parts_of(message):
    content = message["content"]
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _order(messages):
    joined = _join(messages)
    yield from (f"unknown keys: {sorted(message)}" for message in messages if not _has_its_keys(message))
    spoken = [each for each in joined if each[0] != "system"]
    if not spoken or (spoken[0][0], spoken[-1][0]) != ("user", "user"):
        yield "the first or the last message is not a user's"
    yield from _misplaced_roles([role for role, _ in joined])
    for place, (role, parts) in enumerate(spoken):
        before = spoken[place - 1][1] if place else []
        following = spoken[place + 1][1] if place + 1 < len(spoken) else []
        yield from _pairs(role, before, parts, following)


def _has_its_keys(message):
    """Instructions amid a conversation may set the effort of what follows, as Claude Code does."""
    more = {"output_config"} if message["role"] == "system" else set()
    return {"role", "content"} <= set(message) <= {"role", "content"} | more


def _misplaced_roles(roles):
    for before, role, following in zip(["", *roles], roles, [*roles[1:], "assistant"], strict=False):
        if role == "system" and (before != "user" or following != "assistant"):
            yield f"an instruction between {before} and {following}"


def _join(messages):
    """The messages as the API reads them: those of one role that follow each other are one."""
    joined = []
    for message in messages:
        if joined and joined[-1][0] == message["role"]:
            joined[-1][1].extend(parts_of(message))
        else:
            joined.append((message["role"], list(parts_of(message))))
    return joined


def _pairs(role, before, parts, following):
    called = [part["id"] for part in parts if part["type"] == "tool_use"]
    answered = [part["tool_use_id"] for part in following if part["type"] == "tool_result"]
    if called and sorted(called) != sorted(answered):
        yield "`tool_use` ids were found without `tool_result` blocks immediately after"
    results = [part["type"] == "tool_result" for part in parts]
    if results != sorted(results, reverse=True):
        yield "tool results do not stand first"
    if any(results) and not any(part["type"] == "tool_use" for part in before):
        yield "unexpected `tool_use_id` found"
    if role == "assistant" and any(results):
        yield "a tool result of the assistant"


def _blocks(messages):
    for message in messages:
        parts = parts_of(message)
        if not parts and "output_config" not in message:
            yield "no content"
        for part in parts:
            if part["type"] == "text" and not part["text"].strip():
                yield "text content blocks must be non-empty"
            if part["type"] == "tool_use" and not isinstance(part["input"], dict):
                yield "the input of a tool is an object"


def _loop(value):
    """With thinking of the older kind, what the model said last begins with a thought, where tools answer it."""
    if value.get("thinking", {}).get("type") != "enabled" or len(value["messages"]) < 2:
        return
    text, answered = value["messages"][-2:]
    is_loop = text["role"] == "assistant" and any(part["type"] == "tool_result" for part in parts_of(answered))
    if is_loop and parts_of(text)[0]["type"] not in ("thinking", "redacted_thinking"):
        yield "Expected `thinking` or `redacted_thinking`, but found something else"


def _marks(value):
    blocks = [
        part for message in [{"content": value.get("system") or []}, *value["messages"]] for part in parts_of(message)
    ]
    marked = [block for block in [*(value.get("tools") or []), *blocks] if "cache_control" in block]
    if json.dumps(value).count('"cache_control"') > 4:
        yield "more than four cache marks"
    if any(block.get("type") in ("thinking", "redacted_thinking") for block in marked):
        yield "a cache mark on a thought"
    lives = [block["cache_control"].get("ttl", "5m") for block in marked]
    if lives != sorted(lives):  # "1h" comes before "5m"
        yield "a cache mark of one hour behind one of five minutes"


def answer_text(text, prompt=100, calls=(), model="claude-opus-4-8"):
    usage = {"input_tokens": 10, "cache_read_input_tokens": prompt - 10, "output_tokens": 5}
    # Claude Code takes answers with one id for pieces of one answer.
    id_ = f"msg_{zlib.crc32(json.dumps([text, calls]).encode()):08x}"
    message = {"id": id_, "type": "message", "role": "assistant", "model": model, "stop_sequence": None}
    words = [{"type": "text", "text": text}] if text else []
    used = [
        {
            "type": "tool_use",
            "id": each["id"],
            "name": each["function"]["name"],
            "input": json.loads(each["function"]["arguments"]),
        }
        for each in calls
    ]
    stop = "tool_use" if used else "end_turn"
    return {**message, "content": [*words, *used], "stop_reason": stop, "usage": usage}


def answer_events(text, prompt=100, calls=(), model="claude-opus-4-8"):
    """The same answer as events, each in its bytes."""
    return events_of(answer_text(text, prompt, calls, model))


def events_of(whole):
    start = {**whole, "content": [], "stop_reason": None, "usage": {**whole["usage"], "output_tokens": 1}}
    events = [{"type": "message_start", "message": start}, {"type": "ping"}]
    for index, block in enumerate(whole["content"]):
        opened, deltas = _open_block(block)
        events.append({"type": "content_block_start", "index": index, "content_block": opened})
        events += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
        events.append({"type": "content_block_stop", "index": index})
    ended = {"stop_reason": whole["stop_reason"], "stop_sequence": None}
    usage = {"output_tokens": whole["usage"]["output_tokens"]}
    events += [{"type": "message_delta", "delta": ended, "usage": usage}, {"type": "message_stop"}]
    return [f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode() for event in events]


def _open_block(block):
    """A block as it begins, and what is added to it."""
    match block["type"]:
        case "text":
            pieces = re.findall(r"\S+\s*", block["text"])
            return {**block, "text": ""}, [{"type": "text_delta", "text": piece} for piece in pieces]
        case "thinking":
            thought, signature = block["thinking"], block["signature"]
            deltas = [{"type": "thinking_delta", "thinking": thought}]
            deltas += [{"type": "signature_delta", "signature": signature}]
            return {"type": "thinking", "thinking": "", "signature": ""}, deltas
        case _:
            text = json.dumps(block["input"])
            deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in (text[:5], text[5:])]
            return {**block, "input": {}}, deltas

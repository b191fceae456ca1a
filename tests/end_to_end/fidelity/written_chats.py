"""Chat requests that no client was recorded with: every role and part, every key of the API, the extras of its
dialects, and JSON as odd as it may come.

Where the spelling matters, the body is written out; elsewhere it is made from values.
"""

import json
from collections.abc import Iterator
from typing import Any

from tests.end_to_end.fidelity.stored import RequestCase

CHAT = "/v1/chat/completions"
JSON = ("Content-Type", "application/json")
KEY = ("Authorization", "Bearer sk-made-up")
HELLO = {"role": "user", "content": "Hello."}
PNG = {"url": "https://pictures.example/heron.png"}
MARK = {"cache_control": {"type": "ephemeral"}}


def post(
    name: str, body: bytes | str, *headers: tuple[str, str], target: str = CHAT, chunk: int | None = None
) -> RequestCase:
    data = body.encode() if isinstance(body, str) else body
    return RequestCase(name, "POST", target, (KEY, JSON, *headers), data, chunk=chunk)


def chat(name: str, *messages: Any, **more: Any) -> RequestCase:
    text = {"model": "scripted-1", "messages": list(messages or [HELLO]), **more}
    return post(name, json.dumps(text, ensure_ascii=False))


def written_chats() -> Iterator[RequestCase]:
    yield from _parts()
    yield from _roles()
    yield from _rule_breakers()
    yield from _spellings()
    yield from _no_json()
    yield from _sizes()


def _function(name: str = "look", arguments: str = "{}", **more: Any) -> dict[str, Any]:
    return {"id": "call_1", "type": "function", "function": {"name": name, "arguments": arguments}, **more}


def _parts() -> Iterator[RequestCase]:
    """Every kind of part a user's message may have."""
    parts: dict[str, dict[str, Any]] = {
        "text": {"type": "text", "text": "Hi."},
        "text with a cache breakpoint": {"type": "text", "text": "Hi.", "prompt_cache_breakpoint": True},
        "image": {"type": "image_url", "image_url": {**PNG, "detail": "original"}},
        "audio": {"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}},
        "file by data": {"type": "file", "file": {"file_data": "data:text/plain;base64,YQ==", "filename": "a.txt"}},
        "file by id": {"type": "file", "file": {"file_id": "file-1"}},
        "kind of tomorrow": {"type": "hologram", "hologram": {"depth": 3, "layers": [1, [2, [3]]]}},
    }
    for name, part in parts.items():
        yield chat(f"user part: {name}", {"role": "user", "content": [part]})


def _roles() -> Iterator[RequestCase]:
    yield chat("system as parts", {"role": "system", "content": [{"type": "text", "text": "Be kind.", **MARK}]}, HELLO)
    yield chat("developer", {"role": "developer", "name": "ops", "content": "Be brief."}, HELLO)
    yield chat("system in the middle", HELLO, {"role": "system", "content": "It is late."}, HELLO)
    yield chat("assistant refusal", HELLO, {"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]})
    yield chat("assistant audio", HELLO, {"role": "assistant", "audio": {"id": "audio_1"}}, HELLO)
    yield chat(
        "assistant with nulls", HELLO, {"role": "assistant", "content": None, "refusal": None, "tool_calls": None}
    )
    yield chat("empty strings everywhere", {"role": "", "content": "", "name": ""})
    yield chat(
        "function role of old",
        HELLO,
        {"role": "assistant", "content": None, "function_call": {"name": "look", "arguments": "{}"}},
        {"role": "function", "name": "look", "content": "a heron"},
    )
    yield chat(
        "custom tool",
        HELLO,
        {"role": "assistant", "tool_calls": [{"id": "c", "type": "custom", "custom": {"name": "sh", "input": "ls\n"}}]},
        {
            "role": "tool",
            "tool_call_id": "c",
            "content": [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": PNG}],
        },
    )


def _rule_breakers() -> Iterator[RequestCase]:
    """Histories that an upstream may refuse, and no proxy may mend."""
    yield chat("a result without its call", HELLO, {"role": "tool", "tool_call_id": "call_gone", "content": "?"})
    yield chat("a call without its result", HELLO, {"role": "assistant", "tool_calls": [_function()]})
    yield chat(
        "the same id twice", HELLO, *[{"role": "assistant", "tool_calls": [_function(), _function("listen")]}] * 2
    )
    yield chat(
        "arguments that are no JSON", HELLO, {"role": "assistant", "tool_calls": [_function(arguments='{"a": ')]}
    )
    yield chat("a role nobody knows", {"role": "oracle", "content": "Perhaps."})
    yield chat("a message that is no object", "Hello.", 7, None)
    yield chat("no messages", messages=[])


def _spellings() -> Iterator[RequestCase]:
    """The same values may be spelled in many ways, and each must arrive in its own."""
    frame = '{"model":"scripted-1","messages":[{"role":"user","content":"Hi."%s}]%s}'
    for name, text in {
        "big integer": '"seed":123456789012345678901234567890',
        "big negative integer": '"seed":-99999999999999999999',
        "float with many digits": '"temperature":0.1000000000000000055511151231257827',
        "float with an exponent": '"temperature":1E+0,"top_p":1e-05',
        "float out of range": '"x":1e400,"y":-1e400',
        "trailing zeros": '"temperature":0.70,"top_p":1.0',
        "minus zero": '"presence_penalty":-0.0,"seed":-0',
        "NaN and infinities": '"x":NaN,"y":Infinity,"z":-Infinity',
        "duplicate keys": '"seed":1,"seed":2,"model":"scripted-2","messages":[]',
        "lone surrogate": '"user":"cut \\ud83d here"',
        "low surrogate first": '"user":"\\udc00\\ud800"',
        "escaped where needless": '"us\\u0065r":"\\u0061\\/\\u00e9\\u4f60"',
        "upper case escapes": '"user":"\\u00E9\\uD83D\\uDE00"',
        "raw and escaped side by side": '"user":"é\\u00e9 \u2028\\u2028 \x7f"',
        "a null character": '"user":"a\\u0000b"',
        "trailing comma": '"seed":1,',
        "a comment": '/* no JSON */ "seed":1',
        "single quotes": "'seed':1",
    }.items():
        yield post(f"spelling: {name}", frame % ("", "," + text))
    yield post("spelling: duplicate keys in a message", frame % (',"content":"Again.","role":"system"', ""))
    yield post("spelling: lone surrogate in a message", frame % (',"name":"\\ud800"', ""))
    yield post(
        "spelling: unknown keys at every level", frame % (',"x":{"y":[{"z":0}]}', ',"x":[[],{}],"tools":[{"q":{}}]')
    )
    yield post("spelling: messages last", '{"stream":false,"tools":[],"messages":[],"model":"scripted-1"}')
    yield post("spelling: indented", json.dumps(json.loads(frame % ("", "")), indent=4))
    yield post("spelling: indented with tabs and CRLF", json.dumps([HELLO], indent="\t").replace("\n", "\r\n"))
    yield post("spelling: white space around", "\r\n\t  " + frame % ("", "") + " \r\n\r\n")
    yield post("spelling: a raw line break within a string", (frame % ("", "")).replace("Hi.", "Hi.\r\nYou."))
    yield post("spelling: deep nesting", frame % ("", ',"x":' + "[" * 2000 + "]" * 2000))
    yield post("spelling: deep objects", frame % ("", ',"x":' + '{"a":' * 2000 + "0" + "}" * 2000))
    yield post("spelling: a byte order mark", b"\xef\xbb\xbf" + (frame % ("", "")).encode())
    yield post("spelling: UTF-16", (frame % ("", "")).encode("utf-16"))
    yield post("spelling: Latin-1 in the middle", (frame % ("", "")).encode().replace(b"Hi.", b"Gr\xfc\xdfe"))
    yield post("spelling: broken UTF-8", (frame % ("", "")).encode().replace(b"Hi.", b"\xf0\x9f\x98 \xc0\xaf \xff"))


def _no_json() -> Iterator[RequestCase]:
    """Whatever is in the body, the upstream judges it."""
    yield post("no body", b"")
    yield RequestCase("no body and no length", "POST", CHAT, (KEY,))
    yield post("only white space", b" \r\n")
    yield post("not JSON", "Hello, is anybody there?")
    yield post("JSON but no object", "[1, 2, 3]")
    yield post("a bare null", "null")
    yield post("half a JSON object", '{"model":"scripted-1","messages":[{"role":"us')
    yield post("two JSON objects", '{"model":"scripted-1"}\n{"model":"scripted-1"}')
    yield post("messages of the wrong kind", '{"model":"scripted-1","messages":"Hello."}')
    yield post("messages as an object", '{"model":"scripted-1","messages":{"role":"user"}}')
    yield post("model of the wrong kind", '{"model":7,"messages":[]}')
    yield post("no model", '{"messages":[]}')
    yield post("null bytes", bytes(64))
    yield post("every byte there is", bytes(range(256)))


def _sizes() -> Iterator[RequestCase]:
    long = "All work and no play. " * 20_000
    yield chat("a huge string", {"role": "user", "content": long})
    yield chat("a huge string of escapes", {"role": "user", "content": '\\"\n\t\x01' * 20_000})
    yield chat("a huge string without a space", {"role": "user", "content": "=" * 300_000})
    yield chat("two thousand messages", *[HELLO, {"role": "assistant", "content": "Hello you."}] * 1000)
    yield chat("three hundred tools", tools=[{"type": "function", "function": {"name": f"t{n}"}} for n in range(300)])
    yield chat(
        "a megabyte of results",
        *[{"role": "tool", "tool_call_id": f"c{n}", "content": f"{n}: {long[:10_000]}"} for n in range(100)],
    )

"""Requests of which one list or one text is as long as asked for, in each of the three APIs.

`SHAPES["tools"](1_000)` is a history with a thousand tools on offer, as chat completions have it; `write(api, shape)`
is its bytes in an API.
"""

import json
from dataclasses import dataclass, field, replace
from typing import Any

from proxy.history.repeats import POINTERS, PROMISE
from tests.support.apis import APIS, MESSAGES, RESPONSES
from tests.support.messages import assistant, call, calls, history, system, user

PATHS = {api.name: api.path for api in APIS}
LINE = "a line of output with some words in it\n"
REMINDER, PIN, OUTPUT = "<system-reminder>", "<pin>", "<output>"
MARKER = "MUST-KEEP"
NESTED = "@nested"
POINTER = POINTERS["Claude Code"]
BULK = "some more words of output\n" * 120


@dataclass(frozen=True, slots=True)
class Shape:
    """A history in the form of chat completions, the tools on offer, and members of the request beside them."""

    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]] = field(default_factory=list)
    members: dict[str, Any] = field(default_factory=dict)
    headers: tuple[tuple[str, str], ...] = ()
    items: list[dict[str, Any]] = field(default_factory=list)
    """Of Responses only, behind the first message."""
    depth: int = 0
    """How deep the value is nested that stands in place of `NESTED`: Python's encoder would not write it."""


def write(api, shape):
    nested = b"[" * shape.depth + b"1" + b"]" * shape.depth
    return _write(api, shape).replace(b'"@nested"', nested).replace(b'\\"@nested\\"', nested)


def _write(api, shape):
    if api == "chat":
        value = {"model": "gpt-4o", **_offer(shape.tools), **shape.members, "messages": shape.messages}
        return json.dumps(value).encode()
    if api == "messages":
        tools = [{"name": tool["name"], "input_schema": tool["parameters"]} for tool in shape.tools]
        return MESSAGES.write(shape.messages, **({"tools": tools} if tools else {}), **shape.members)
    tools = [{"type": "function", **tool} for tool in shape.tools]
    source = RESPONSES.write(shape.messages, **({"tools": tools} if tools else {}), **shape.members)
    if not shape.items:
        return source
    value = json.loads(source)
    value["input"][1:1] = shape.items
    return json.dumps(value).encode()


def _offer(tools):
    return {"tools": [{"type": "function", "function": tool} for tool in tools]} if tools else {}


def _work(*, messages=(), end=()):
    """The work of an agent, large enough to be shortened, with these messages within it and at its end."""
    reads = [message for number in range(10) for message in call("Read", path=f"/{number}.py", out=f"{number}\n{BULK}")]
    return history(system("Be good."), user("Begin."), reads, list(messages), assistant("Done."), user("Go on."), end)


def _tool(name, **properties):
    return {"name": name, "parameters": {"type": "object", "properties": properties}}


def _plain_words(count):
    return "".join(f"word{number} of {number % 97}\n" for number in range(count))


def _numbered_calls(count, *, backwards=False):
    asked, *results = calls(*(("Read", {"path": f"/{n}"}, f"{n} {LINE}") for n in range(count)))
    for number, made in enumerate(asked["tool_calls"]):
        made["id"] = results[number]["tool_call_id"] = f"c{number}"
    return [asked, *(reversed(results) if backwards else results)]


def _late_results(count):
    messages = []
    for number in range(count):
        asked, result = call("Bash", command=f"make {number}", out=f"{number} {LINE}")
        asked["tool_calls"][0]["id"] = f"late{number}"
        result["tool_call_id"] = f"late{max(0, number - 1)}"
        messages += [asked, result]
    return messages


def _many(count, *write_message):
    return [message for number in range(count) for make in write_message for message in make(number)]


def _use_and_result(number):
    use = {"type": "server_tool_use", "id": f"s{number}", "name": "web_search", "input": {"query": f"x {number}"}}
    result = {"type": "web_search_tool_result", "tool_use_id": f"s{number}", "content": []}
    return [*assistant([use]), *user("Wait."), *assistant([result, {"type": "text", "text": LINE}])]


def _computer_call(number):
    screen = {"type": "computer_screenshot", "image_url": "data:image/png;base64,AAAA"}
    return [
        {"type": "computer_call", "call_id": f"p{number}", "action": {"type": "click", "x": number, "y": 2}},
        {"type": "computer_call_output", "call_id": f"p{number}", "output": screen},
    ]


def _reasoned_call(number):
    return [
        {"type": "reasoning", "id": f"r{number}", "summary": [], "encrypted_content": "Z0FBQUFB" * 9},
        {"type": "function_call", "call_id": f"r{number}", "name": "Read", "arguments": '{"path": "/a"}'},
        {"type": "function_call_output", "call_id": f"r{number}", "output": f"{number} {LINE}"},
    ]


def _each(*write_message):
    """Work with so many of these messages in it."""
    return lambda count: Shape(_work(messages=_many(count, *write_message)))


def _one(name, **arguments):
    return Shape(_work(messages=call(name, **arguments)))


def _result(text):
    return _one("Bash", command="make", out=text)


def _words(text):
    return Shape(_work(messages=[*assistant("Well."), *user(text)]))


def _answer(text):
    return Shape(_work(messages=[*assistant(text), *user("Go on.")]))


def _arguments(**arguments):
    return _one("Write", out="ok", **arguments)


def _last_words(text):
    return Shape(_work(end=[*assistant("x"), *user(text)]))


SHAPES = {
    # Lists of the request.
    "tools": lambda n: Shape(_work(), [_tool(f"tool{number}") for number in range(n)]),
    "tools of which most are called": lambda n: replace(
        _each(lambda k: call(f"tool{k}", x=k, out=f"{k} {LINE}"))(n), tools=[_tool(f"tool{k}") for k in range(n)]
    ),
    "parameters of a tool": lambda n: Shape(_work(), [_tool("t", **{f"p{k}": {"type": "string"} for k in range(n)})]),
    "short messages": _each(lambda k: assistant(f"b{k}"), lambda k: user(f"a{k}")),
    "output in messages of the user": _each(
        lambda k: assistant(f"```bash\nls {k}\n```"), lambda k: user(f"Observation: {k} {LINE}")
    ),
    "instructions in the midst": _each(lambda k: system(f"Mind {k}."), lambda k: assistant(f"{k} {LINE}")),
    "instructions at the head": lambda n: Shape([*_many(n, lambda k: system(f"Mind {k}.")), *_work()[1:]]),
    "parts": lambda n: _words([{"type": "text", "text": f"{k} {LINE}"} for k in range(n)]),
    "parts with cache marks": lambda n: _words(
        [{"type": "text", "text": f"{k}", "cache_control": {"type": "ephemeral"}} for k in range(n)]
    ),
    "parts of a result": lambda n: _result([{"type": "text", "text": f"{k} {LINE}"} for k in range(n)]),
    "images": lambda n: _words(
        [{"type": "image_url", "image_url": {"url": f"data:image/png;base64,{k}"}} for k in range(n)]
    ),
    "calls in one message": lambda n: Shape(_work(messages=_numbered_calls(n))),
    "calls answered backwards": lambda n: Shape(_work(messages=_numbered_calls(n, backwards=True))),
    "calls without results": lambda n: Shape(_work(messages=_numbered_calls(n)[:1])),
    "results without calls": _each(lambda k: [{"role": "tool", "tool_call_id": f"no{k}", "content": f"{k} {LINE}"}]),
    "results one answer late": lambda n: Shape(_work(messages=_late_results(n))),
    "the same result again and again": _each(lambda _: call("Read", path="/a", out=LINE * 9)),
    "reads of one file": _each(lambda k: call("Read", path="/a", offset=3 * k, limit=1, out=f"{k} {LINE}")),
    "reads of many files": _each(lambda k: call("Read", path=f"/{k}.py", out=f"{k} {LINE}")),
    "files read twice": _each(
        lambda k: call("Read", path=f"/{k}.py", out=f"{k} {BULK}"),
        lambda k: call("Bash", command=f"cat /{k}.py", out=f"{k} {BULK}"),
    ),
    "one file read and changed": _each(
        lambda k: call("Read", path="/a.py", out=f"{k} {BULK}"),
        lambda k: call("Edit", path="/a.py", old_string=f"x{k}", new_string=f"x{k + 1}", out="ok"),
    ),
    "changes of one file": _each(
        lambda k: call("Edit", path="/a.py", old_string=f"x{k}", new_string=f"x{k + 1}", out="ok")
    ),
    "files that git puts back": _each(
        lambda k: call("Edit", path=f"/{k}.py", old_string="x", new_string="y", out="ok"),
        lambda k: call("Bash", command=f"git checkout {k}.py", out="ok"),
    ),
    "deleted files": _each(
        lambda k: call("Write", path=f"/{k}.py", content="x = 1", out="ok"),
        lambda k: call("Bash", command=f"rm /{k}.py", out="ok"),
    ),
    "here-documents": _each(
        lambda k: call("Bash", command=f"cat > /{k}.py <<'EOF'\nx = {k}\nEOF", out="ok"),
    ),
    "failed calls": _each(lambda k: call("Bash", command=f"make {k}", out=f"Error: no rule {k}\nexit code 2\n{LINE}")),
    "plans": _each(lambda k: call("TodoWrite", todos=[{"content": f"do {k}", "status": "pending"}], out="ok")),
    "items of a plan": lambda n: _one(
        "TodoWrite", todos=[{"content": f"do {k}", "status": "pending"} for k in range(n)], out="ok"
    ),
    "tasks": _each(lambda k: call("Task", prompt=f"look at {k}", out=f"{k} {LINE}")),
    "commands": _each(lambda k: call("Bash", command=f"cat {k}.txt | grep x", out=f"{k} {LINE}")),
    "reasoning": _each(
        lambda k: assistant(f"{k}", reasoning_content="think " * 9, signature="c2ln" * 9), lambda k: user(f"{k}")
    ),
    "members of the request": lambda n: Shape(_work(), members={f"k{number}": number for number in range(n)}),
    "texts of agents without tools": lambda n: Shape(
        history(
            user("Do it."),
            _many(
                n,
                lambda k: assistant(f"Look:\n```bash\ncat {k}\n```"),
                lambda k: user(f"Observation: {k}\n{LINE * 20}"),
            ),
        )
    ),
    # What columns react to.
    "pointers at one file": _each(lambda k: call("Read", file_path="/a.py", out=POINTER if k else BULK)),
    "pointers at many files": _each(
        lambda k: call("Read", file_path=f"/{k}/a.py", out=f"{k} {BULK}"),
        lambda k: call("Read", file_path=f"/{k}/a.py", out=POINTER),
    ),
    "pointers at nothing": _each(lambda k: call("Read", file_path=f"/{k}/a.py", out=POINTER)),
    "pointers at other lines": _each(
        lambda k: call("Read", file_path="/a.py", offset=9 * k + 1, limit=9, out=f"{k} {LINE}"),
        lambda k: call("Read", file_path="/a.py", offset=9 * k + 2, limit=9, out=POINTER),
    ),
    "promises about one file": _each(
        lambda k: call("Edit" if k else "Read", file_path="/a.py", old_string=f"x{k}", out=f"{k}.{PROMISE}")
    ),
    "promises about many files": _each(
        lambda k: call("Read", file_path=f"/{k}/a.py", out=f"{k} {LINE}"),
        lambda k: call("Edit", file_path=f"/{k}/a.py", old_string="x", new_string="y", out=f"Done.{PROMISE}"),
    ),
    "documents": _each(lambda k: call("Read", file_path=f"/{k}/AGENTS.md", out=f"# {k}\n{LINE * 9}")),
    "reads of one document": _each(lambda _: call("Read", file_path="/AGENTS.md", out=LINE * 30)),
    "names that the user gives": _each(
        lambda k: user(f"Read notes/{k}.md and #{k}."), lambda k: call("Read", file_path=f"notes/{k}.md", out=LINE)
    ),
    "long results again and again": _each(lambda _: call("Bash", command="make", out=BULK)),
    "rejections of the user": _each(
        lambda k: call(
            "Bash",
            command=f"rm {k}",
            out="The user doesn't want to proceed with this tool use. The tool use was rejected. To tell you how to "
            f"proceed, the user said:\nDo not, {k}.",
        )
    ),
    "waits for a shell": _each(lambda k: call("BashOutput", bash_id="b1", out=f"{k} {LINE}")),
    "ids that repeat": _each(
        lambda k: [
            {**assistant(None)[0], "tool_calls": [{**call("Read", path=f"/{k}")[0]["tool_calls"][0], "id": "same"}]},
            {"role": "tool", "tool_call_id": "same", "content": f"{k} {LINE}"},
        ]
    ),
    "reminders of the harness": _each(
        lambda k: assistant(f"b{k}"), lambda k: user(f"{REMINDER}The file {k}.py was changed.</system-reminder>")
    ),
    "words about compaction": _each(lambda k: assistant(f"b{k}"), lambda k: user(f"/compact now? {k}")),
    "marks in each message": _each(
        lambda k: assistant(f"b{k}"),
        lambda k: user([{"type": "text", "text": f"{k} {LINE}", "cache_control": {"type": "ephemeral"}}]),
    ),
    "escapes in each message": _each(lambda k: assistant(f"b{k}"), lambda k: user(f"\u2028 {k} \x7f")),
    # Ids, names, models.
    "an id": lambda n: Shape(
        _work(
            messages=[
                {**m, **({"tool_call_id": "i" * n} if m["role"] == "tool" else {})}
                for m in calls(("Read", {"path": "/"}, LINE))
            ]
        )
    ),
    "a tool's name": lambda n: Shape(_work(messages=call("n" * n, path="/a", out=LINE)), [_tool("n" * n)]),
    "a tool's name of words": lambda n: Shape(_work(messages=call("aB_" * n, path="/a", out=LINE)), [_tool("aB_" * n)]),
    "a tool's description": lambda n: Shape(_work(), [{**_tool("t"), "description": LINE * n}]),
    "a member's name": lambda n: Shape(_work(), members={"k" * n: 1}),
    "a user's id": lambda n: Shape(_work(), members={"user": "u" * n}),
    # Arguments.
    "arguments": lambda n: _arguments(file_path="/a.py", content=LINE * n),
    "names of arguments": lambda n: _arguments(**{f"a{number}": number for number in range(n)}),
    "nested arguments": lambda n: replace(_arguments(value=NESTED), depth=n),
    "a list of arguments": lambda n: _arguments(paths=[f"/{number}.py" for number in range(n)]),
    "a path": lambda n: _arguments(file_path="/a" * n),
    "a path of dots": lambda n: _arguments(file_path="../" * n),
    "a command line": lambda n: _one("Bash", command="cd /a && make; " * n, out=LINE),
    "lines of a command": lambda n: _one("Bash", command="".join(f"rm /{k}.py\n" for k in range(n)), out=LINE),
    "words of a command": lambda n: _one("Bash", command="rm" + "".join(f" /{k}.py" for k in range(n)), out=LINE),
    "a command of quotes": lambda n: _one("Bash", command="echo 'a \" b' \"" * n, out=LINE),
    "a command of comments": lambda n: _one("Bash", command=" # x\n" * n, out=LINE),
    "a patch": lambda n: _one(
        "apply_patch", input="*** Begin Patch\n" + "".join(f"*** Update File: {k}.py\n+x\n" for k in range(n)), out="ok"
    ),
    "arguments that are no JSON": lambda n: Shape(_work(messages=calls(("Bash", '{"command": "' + "x\\" * n, "ok")))),
    # Texts of results.
    "lines of a result": lambda n: _result(_plain_words(n)),
    "equal lines of a result": lambda n: _result(LINE * n),
    "one line of a result": lambda n: _result("word " * n),
    "a word of a result": lambda n: _result("a" * n),
    "empty lines of a result": lambda n: _result("\n" * n),
    "spaces of a result": lambda n: _result(" " * n),
    "dashes of a result": lambda n: _result("-" * n),
    "errors of a result": lambda n: _result("".join(f"Error: failed test_{k} FAILED\n" for k in range(n))),
    "stack traces": lambda n: _result(
        "".join(
            f'Traceback (most recent call last):\n  File "{k}.py", line {k}, in f\nValueError: {k}\n' for k in range(n)
        )
    ),
    "paths of a result": lambda n: _result("".join(f"src/a{k}.py:{k}: x = {k}\n" for k in range(n))),
    "tests of a result": lambda n: _result(
        "".join(f"tests/test_{k}.py::test_{k} PASSED\n" for k in range(n)) + f"= {n} passed in 3s ="
    ),
    "numbers of a result": lambda n: _result("".join(f"{k}\n" for k in range(n))),
    "json of a result": lambda n: _result(json.dumps([{"id": k, "name": f"n{k}"} for k in range(n)])),
    "nested json of a result": lambda n: _result("[" * n + "]" * n),
    "escapes of a result": lambda n: _result('\x1b[31mred\x1b[0m\\"' * n),
    "carriage returns of a result": lambda n: _result("10%\r" * n),
    "diffs of a result": lambda n: _result("".join(f"diff --git a/{k} b/{k}\n@@ -1 +1 @@\n-x\n+y\n" for k in range(n))),
    "line numbers of a result": lambda n: _result("".join(f"{k:6}\tx = {k}\n" for k in range(n))),
    "openings of output": lambda n: _result(OUTPUT * n),
    "fences of a result": lambda n: _result("```bash\nls\n" * n),
    # Texts of users and of the model.
    "words of the user": lambda n: _words(_plain_words(n)),
    "short lines of the user": lambda n: _words("<\n\n" * n),
    "reminders without an end": lambda n: _last_words(REMINDER * n),
    "reminders": lambda n: _last_words(f"{REMINDER}x</system-reminder>" * n + "/compact"),
    "pins without an end": lambda n: _words(PIN * n),
    "pins": lambda n: _words("".join(f"<pin>keep {k}</pin>\n" for k in range(n))),
    "messages with pins": _each(lambda k: assistant(f"b{k}"), lambda k: user(f"<pin>keep {k}</pin>")),
    "marked lines": lambda n: _words("".join(f"{MARKER} line {k}\n" for k in range(n))),
    "lone surrogates": lambda n: _words("\ud83d" * n),
    "fences of an answer": lambda n: _answer("```bash\nls\n" * n),
    "an answer": lambda n: _answer(_plain_words(n)),
    "an answer of observations": lambda n: _answer("Action: x\nObservation: y\n" * n),
    "an output's openings": lambda n: Shape(
        history(user("Do it."), assistant("```bash\nls\n```"), user(OUTPUT * n), assistant("ok"), user(OUTPUT * n))
    ),
    "an aside": lambda n: _last_words("summarize summary " * n),
    "a command to compact": lambda n: _last_words("/compact " + "focus " * n),
    "spaces before a command": lambda n: _last_words(" " * n + "/compact"),
    # What is nested.
    "nested parts": lambda n: replace(_words([{"type": "text", "text": "x", "y": NESTED}]), depth=n),
    "nested members": lambda n: Shape(_work(), members={"metadata": NESTED}, depth=n),
    # Headers.
    "a focus": lambda n: Shape(_work(), headers=(("x-compaction", "force"), ("x-compaction-focus", "f" * n))),
    "a conversation's name": lambda n: Shape(_work(), headers=(("x-conversation-id", "c" * n),)),
    "headers": lambda n: Shape(_work(), headers=tuple((f"x-own-{number}", "v") for number in range(n))),
    "values of a header": lambda n: Shape(
        _work(), headers=(("anthropic-beta", "b-1," * n), ("x-forwarded-for", "10.0.0.1, " * n))
    ),
    "a header": lambda n: Shape(_work(), headers=(("x-own", "v" * n), ("cookie", "a=b; " * n))),
    # What only one API has.
    "results of the provider's tools": lambda n: Shape(
        _work(
            messages=[
                *_many(n // 20, lambda k: assistant(f"{k} {LINE * 20}"), lambda k: user(f"Go on, {k}.")),
                *assistant(
                    [{"type": "web_search_tool_result", "tool_use_id": f"s{k}", "content": []} for k in range(n)]
                ),
            ]
        )
    ),
    "uses of the provider's tools": _each(_use_and_result, lambda k: user(f"Go on, {k}.")),
    "items of unknown kinds": lambda n: Shape(
        _work(), items=[{"type": f"odd_{k}", "id": f"o{k}", "value": LINE} for k in range(n)]
    ),
    "computer calls": lambda n: Shape(_work(), items=_many(n, _computer_call)),
    "reasoning between calls": lambda n: Shape(_work(), items=_many(n, _reasoned_call)),
}
ONLY_IN = {
    "results of the provider's tools": "messages",
    "uses of the provider's tools": "messages",
    "items of unknown kinds": "responses",
    "computer calls": "responses",
    "reasoning between calls": "responses",
}


def list_shapes(api):
    return [shape for shape in SHAPES if ONLY_IN.get(shape, api) == api]


MOST = {
    # The server takes no more: 128 headers, of 64 KiB each.
    "headers": 100,
    "a header": 8_000,
    "values of a header": 6_000,
    "a focus": 30_000,
    "a conversation's name": 30_000,
    # In a longer message no command is looked for.
    "reminders": 1_200,
    # Python reads no deeper JSON: `/compact` has to.
    "nested parts": 600,
    "nested members": 600,
}

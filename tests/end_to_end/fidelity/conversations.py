"""Made-up conversations in OpenAI's words, for real clients to say: the recorded half of the corpus comes from them."""

import base64
from typing import Any

Args = dict[str, Any]

PICTURE = "data:image/png;base64," + base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(range(256))).decode()


def tool(name: str, description: str, **properties: str) -> Args:
    schema = {
        "type": "object",
        "properties": {key: {"type": kind, "description": f"The {key}."} for key, kind in properties.items()},
        "required": list(properties)[:1],
        "additionalProperties": False,
    }
    return {"type": "function", "function": {"name": name, "description": description, "parameters": schema}}


def system(text: str) -> Args:
    return {"role": "system", "content": text}


def user(content: Any) -> Args:
    return {"role": "user", "content": content}


def assistant(content: str | None, *calls: Args) -> Args:
    return {"role": "assistant", "content": content} | ({"tool_calls": list(calls)} if calls else {})


def call(identity: str, name: str, arguments: str) -> Args:
    return {"id": identity, "type": "function", "function": {"name": name, "arguments": arguments}}


def result(identity: str, text: str) -> Args:
    return {"role": "tool", "tool_call_id": identity, "content": text}


READ = tool("Read", "Reads a file, whole or in part.", path="string", first="integer", last="integer")
RUN = tool("Run", "Runs a command in the shell.", command="string", seconds="number")
SEARCH = tool("Search", 'Looks for a "pattern" in all files.', pattern="string", ignore_case="boolean")
LISTING = "\n".join(f"{size:>7} src/part_{size % 17:02}/file{size % 5}.py" for size in range(100, 2400, 23))
TABLE = "name\tqty\tprice\r\n" + "\r\n".join(f"item {n}\t{n * 3}\t{n / 7:.2f}" for n in range(40))
SCRIPT = 'for x in "a b" c; do\n  printf \'%s\\n\' "$x" | sed -e "s/\\\\/\\//g"\ndone\n'


def mending(turns: int) -> list[Args]:
    """An agent at work: it reads, runs, and reads again."""
    text = [
        system("You mend programs. Today is a Tuesday."),
        user("The clock shows the wrong hour in winter. Mend it."),
    ]
    for n in range(turns):
        text += [
            assistant(None, call(f"call_r{n}", "Read", f'{{"path": "clock/zone_{n}.py", "first": {n * 40 + 1}}}')),
            result(
                f"call_r{n}",
                f"def offset(day):\n    # {n}: summer\n    return {n} if day.month in range(4, 10) else 0\n",
            ),
            assistant(
                f"Let me try that ({n}).", call(f"call_x{n}", "Run", '{"command": "pytest -q", "seconds": 2.50}')
            ),
            result(f"call_x{n}", f"{n} failed, {40 - n} passed\nexit code: {int(n < turns - 1)}"),
        ]
    return text


AGENT_TOOLS = [READ, RUN, SEARCH]

CHATS: dict[str, Args] = {
    "a greeting": {"messages": [user("Good morning!")]},
    "a greeting under a system prompt": {"messages": [system("Be brief."), user("Good morning!")]},
    "a question after an answer": {
        "messages": [user("What is a heron?"), assistant("A wading bird."), user("And a hern?")],
        "temperature": 0.0,
    },
    "many scripts": {"messages": [user("Grüße, привет, γειά, 你好、こんにちは、안녕, שלום, مرحبا, नमस्ते")]},
    "joined and invisible characters": {
        "messages": [user("👩\u200d👩\u200d👧\u200d👦 e\u0301 \u2028 \u2029 \ufeff end")]
    },
    "control characters": {
        "messages": [user("bell \a, escape \x1b[31mred\x1b[0m, delete \x7f, null \x00, next line \x85.")]
    },
    "backslashes and quotes": {
        "messages": [user(SCRIPT), assistant("```sh\n" + SCRIPT + "```"), user('C:\\new "dir"\\tab')]
    },
    "sampling settings": {
        "messages": [user("Roll a die.")],
        "temperature": 1.3,
        "top_p": 0.95,
        "seed": 20261121,
        "max_tokens": 16,
        "stop": ["\n", "END"],
    },
    "one stop word": {"messages": [user("Count to ten.")], "stop": "seven", "max_tokens": 64},
    "tools on offer": {"messages": [user("What is in a.py?")], "tools": AGENT_TOOLS},
    "a tool that must be called": {
        "messages": [user("Find the bug.")],
        "tools": [SEARCH],
        "tool_choice": {"type": "function", "function": {"name": "Search"}},
    },
    "no tool may be called": {"messages": [user("Only talk.")], "tools": AGENT_TOOLS, "tool_choice": "none"},
    "a tool's answer": {"messages": mending(1), "tools": AGENT_TOOLS},
    "an agent after four rounds": {"messages": mending(4), "tools": AGENT_TOOLS, "temperature": 0.2},
    "an agent after twelve rounds": {"messages": mending(12), "tools": AGENT_TOOLS},
    "two calls at once": {
        "messages": [
            user("Compare a.py with b.py."),
            assistant("Both.", call("call_a", "Read", '{"path":"a.py"}'), call("call_b", "Read", '{"path":"b.py"}')),
            result("call_a", SCRIPT),
            result("call_b", ""),
        ],
        "tools": [READ],
    },
    "arguments with numbers of every kind": {
        "messages": [
            user("Wait."),
            assistant(None, call("call_n", "Run", '{"command":"wait","seconds":1e3,"n":-0.0,"big":9007199254740993}')),
            result("call_n", "waited"),
            user("Longer."),
        ],
        "tools": [RUN],
    },
    "a long listing": {
        "messages": [
            user("List everything."),
            assistant(None, call("call_l", "Run", '{"command":"du -a"}')),
            result("call_l", LISTING),
        ],
        "tools": [RUN],
    },
    "a table with tabs and CRLF": {"messages": [system("You sum up tables."), user(TABLE)]},
    "parts of text": {
        "messages": [user([{"type": "text", "text": "First part."}, {"type": "text", "text": "Second part.\n"}])]
    },
    "a picture": {
        "messages": [
            user(
                [{"type": "text", "text": "Which colour is it?"}, {"type": "image_url", "image_url": {"url": PICTURE}}]
            )
        ]
    },
    "thinking hard": {"messages": [user("Is 2^61 - 1 prime?")], "reasoning_effort": "high"},
    "streamed": {"messages": [user("Tell me a story of a snail.")], "stream": True},
    "streamed with usage": {
        "messages": [system("Rhyme."), user("Tell me a story of a snail.")],
        "stream": True,
        "stream_options": {"include_usage": True},
    },
    "an agent, streamed": {
        "messages": mending(2),
        "tools": AGENT_TOOLS,
        "stream": True,
        "stream_options": {"include_usage": True},
    },
}

# What only the OpenAI libraries take as it is.
OPENAI_CHATS: dict[str, Args] = {
    "a developer's word": {"messages": [{"role": "developer", "content": "Answer in verse."}, user("Why?")]},
    "names": {
        "messages": [{"role": "user", "name": "ada", "content": "Hi."}, {"role": "assistant", "content": "Hi, Ada."}]
    },
    "settings of an account": {
        "messages": [user("Hello.")],
        "user": "user-7",
        "metadata": {"ticket": "T-19", "empty": ""},
        "store": False,
        "service_tier": "auto",
        "parallel_tool_calls": False,
        "tools": [READ],
    },
    "keys of tomorrow": {
        "messages": [user("Hello.")],
        "extra_body": {
            "prompt_cache_options": {"mode": "explicit", "ttl": "30m"},
            "top_k": 40,
            "x": [None, {"y": 1e-7}],
        },
        "extra_headers": {
            "x-session-id": "ses_0001",
            "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        },
    },
    "a shape for the answer": {
        "messages": [user("A colour as JSON.")],
        "response_format": {
            "type": "json_schema",
            "json_schema": {
                "name": "colour",
                "strict": True,
                "schema": {"type": "object", "properties": {"hue": {"type": ["integer", "null"]}}, "required": ["hue"]},
            },
        },
    },
    "probabilities": {
        "messages": [user("Yes?")],
        "logprobs": True,
        "top_logprobs": 3,
        "logit_bias": {"50256": -100},
        "n": 2,
    },
}

OTHER_CALLS: list[tuple[str, Args]] = [
    ("embeddings.create", {"model": "embed-1", "input": ["a line", "другая строка", ""], "encoding_format": "float"}),
    ("completions.create", {"model": "base-1", "prompt": "Once upon a time", "max_tokens": 5}),
    ("moderations.create", {"input": "I like geese."}),
    ("models.list", {}),
    ("images.generate", {"model": "paint-1", "prompt": "a heron at dawn", "size": "1024x1024"}),
    ("audio.speech.create", {"model": "voice-1", "voice": "alloy", "input": "Hello there."}),
    ("responses.create", {"model": "scripted-1", "input": "Hello.", "store": False}),
    ("files.list", {"limit": 2}),
    ("batches.create", {"input_file_id": "file-1", "endpoint": "/v1/chat/completions", "completion_window": "24h"}),
]

PYTHON_CALLS: list[tuple[str, Args]] = [
    ("vector_stores.create", {"name": "notes, Ω"}),
    ("models.retrieve", {"model": "org/model:tag v2"}),
    ("models.delete", {"model": "ft:scripted-1:us:7"}),
    ("files.create", {"file": {"file": "notes.jsonl", "content": '{"a": 1}\n{"b": "ü"}\n'}, "purpose": "batch"}),
    (
        "audio.transcriptions.create",
        {
            "model": "ear-1",
            "file": {"file": "silence.wav", "content": "RIFF\x00\x00\x00\x00WAVEfmt "},
            "language": "en",
        },
    ),
    ("files.delete", {"file_id": "file-1"}),
    ("responses.retrieve", {"response_id": "resp_1"}),
    ("fine_tuning.jobs.cancel", {"fine_tuning_job_id": "ftjob-1"}),
]

"""The bytes that leave for an upstream, in each API and for each way a request can go, against a stored file.

A file is named after its API. Each request begins with `# ` and what becomes of it; below stands the forwarded body,
with a line for each element of its history. An element that leaves with the bytes of the client is only its number in
the request.
"""

import re
from pathlib import Path

from proxy.recall import RECALL
from proxy.store.memory_store import MemoryStore
from proxy.upstream.client import Call
from tests.support.agent import page
from tests.support.apis import CHAT, each_api
from tests.support.completions import call_turn
from tests.support.gateway_in_process import GatewayInProcess
from tests.support.messages import assistant, call, history, system, tool, user
from tests.support.scripted_upstream import Upstream, answer, in_turn
from tests.support.written_steps import assert_file

GOLDEN = Path(__file__).parent / "golden"
LONGER = history(
    system("You are a coding agent."),
    user("Mend the tests in `src/`, and leave `src/part_3.py` as it is."),
    call(
        "Read", path="AGENTS.md", out="# Rules\n" + "\n".join(f"{rule}. Never skip step {rule}." for rule in range(30))
    ),
    call(
        "Bash", command="pytest -q", out=f"{page(1, 1_500)}\nFAILED tests/test_a.py::test_b - assert 1 == 2\n1 failed"
    ),
    *(call("Read", path=f"src/part_{number}.py", out=page(number, 1_200)) for number in range(4)),
    call("Edit", path="src/part_2.py", old="value", new="values", out="The file was changed."),
    assistant("One file was changed; the next thing is to run the tests."),
    user("Yes, do that, and then commit."),
    call("Bash", command="git commit -am 'Mend the tests'", out="[main 1a2b3c4] Mend the tests\n 1 file changed"),
    *(call("Read", path=f"src/part_{number}.py", out=page(number, 1_200)) for number in range(4, 8)),
    call("Bash", command="git status", out="nothing to commit, working tree clean"),
)
WORK = LONGER[:-2]
TOOLS = {
    "chat": [tool("Read")],
    "messages": [{"name": "Read", "input_schema": {"type": "object"}}],
    "responses": [{"type": "function", "name": "Read", "parameters": {"type": "object"}}],
}
REFUSED_BYTES = 9_000
COMMON = {"cache_marks": "off", "keep": {"tokens": 800}, "min_groups": 0, "trigger": 0, "summary": {"enabled": False}}
"""What decides in these conversations is set here, whatever the defaults are."""
CLEARED = {**COMMON, "trigger_tokens": 3_600, "target": 0.8, "when_full": [{"clear_results": {"over": 500}}]}
FOLDED = {**COMMON, "trigger_tokens": 2_500, "target": 0.2, "when_full": []}


def accept(api):
    return api.answer


def refuse_large(api):
    def reply(request):
        if len(request.body) > REFUSED_BYTES:
            return api.refuse()
        return api.answer(request)

    return reply


def read_again(api):
    """A model that first calls the tool that the proxy offers for reading originals."""
    recall = {"id": "call_again", "function": {"name": RECALL.name, "arguments": '{"messages": "5"}'}}
    called = call_turn(RECALL.name, messages="5").completion()
    if api is not CHAT:
        called = api.whole("", calls=[recall])
    return in_turn(answer(called), api.reply())


CONVERSATIONS = {
    "left alone": ({"mode": "off"}, [WORK], accept),
    "old results cleared": (CLEARED, [WORK], accept),
    "the same block applied": (CLEARED, [WORK, LONGER], accept),
    "the oldest part folded": (FOLDED, [WORK], accept),
    "an original read again": ({**CLEARED, "recall": "on"}, [WORK], read_again),
    "refused as too long and sent again": (COMMON, [WORK], refuse_large),
}


async def forward(api, policy, requests, script, place):
    """The sent body and the forwarded one of the last of these requests of one conversation."""
    policies = {"default": policy}
    async with Upstream(script(api)) as up, GatewayInProcess(up, place, MemoryStore(), policies) as served:
        for messages in requests:
            sent = api.write(messages, tools=TOOLS[api.name])
            await served.relay(Call("POST", api.path, "", (("authorization", "Bearer sk-a"),), sent))
            await served.notes.wait_idle()
        assert served.faults == []
        return sent, up.requests[-1].body


def split_elements(body):
    """The text of a body with a line for each element of its lists; nothing else in a body has a line's end in it."""
    lines = re.sub(r'(?<=\}),(?= ?\{"(?:role|type|name)")', ",\n", body.decode())
    return re.sub(r'("(?:messages|input|tools)": ?\[)', r"\1\n", lines).split("\n")


def show(sent, forwarded):
    places = {line.strip(" ,"): str(place) for place, line in enumerate(split_elements(sent))}
    shown_lines = []
    for line in split_elements(forwarded):
        element = line.strip(" ,")
        shown_lines.append(line.replace(element, places.get(element, element)))
    return "\n".join(shown_lines)


async def write_golden(api, place):
    parts = []
    for name, (policy, requests, script) in CONVERSATIONS.items():
        sent, forwarded = await forward(api, policy, requests, script, place)
        assert (sent == forwarded) is (name == "left alone"), name
        parts.append(f"# {name}: {len(sent)} bytes, {len(forwarded)} forwarded\n{show(sent, forwarded)}\n")
    return "\n".join(parts)


@each_api
async def test_the_forwarded_bytes_are_those_of_the_stored_file(api, tmp_path):
    assert_file(GOLDEN / f"{api.name}.txt", await write_golden(api, tmp_path))


def test_an_element_is_shown_by_its_number_only_if_its_bytes_are_the_client_s():
    sent = b'{"messages": [{"role": "user"}, {"role": "user", "content": "No."}]}'
    assert show(sent, sent) == "0\n1,\n 2"
    assert show(sent, sent.replace(b"No.", b"Yes.")) == '0\n1,\n {"role": "user", "content": "Yes."}]}'
    assert show(sent, sent.replace(b"}, {", b"},{")) == "0\n1,\n2"

"""`Compact` called after a thought that Anthropic's API binds to the history before it."""

import json

import pytest

from tests.end_to_end.compact_tool.apis import APIS
from tests.end_to_end.compact_tool.conftest import TOLD
from tests.end_to_end.designs.histories import chat_history
from tests.support.messages import user
from tests.support.messages_replies import blocks_reply, text, thinking_block, tool_use_block
from tests.support.proxy_client import data_of

pytestmark = pytest.mark.asyncio(loop_scope="module")

WORK = chat_history(40)
THOUGHT = thinking_block("There is little room left.")


@pytest.fixture
def api():
    return APIS["messages"]


def thoughts_of(request):
    return [block for message in request.json["messages"] for block in message["content"] if "signature" in block]


@pytest.mark.parametrize("streams", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize(("kind", "goes_back"), [("adaptive", False), ("enabled", True)])
async def test_a_bound_thought_goes_with_the_history_that_it_was_written_behind(agent, streams, kind, goes_back):
    thinking = {"type": kind, **({"budget_tokens": 1_024} if kind == "enabled" else {})}
    more = {"stream": streams, "thinking": thinking, "max_tokens": 4_000}
    first = blocks_reply(THOUGHT, text("Room."), tool_use_block("Compact", 901, focus="the parser"))
    found = await agent.send(WORK, first, blocks_reply(text("On we go.")), **more)
    assert TOLD.strip() in agent.rounds[1].body.decode()
    assert thoughts_of(agent.rounds[1]) == ([THOUGHT] if goes_back else [])
    assert THOUGHT["thinking"] in json.dumps(data_of(found.body.data) if streams else json.loads(found.body.data))
    # The client sends the thought back. It was written behind a history that is forwarded no more.
    said = {"role": "assistant", "content": "Room.On we go.", "reasoning_details": [
        {"text": THOUGHT["thinking"], "signature": THOUGHT["signature"]}]}  # fmt: skip
    await agent.send([*WORK, said, *user("Go on.")], blocks_reply(text("So.")), **more)
    assert TOLD.strip() in agent.rounds[0].body.decode()
    assert thoughts_of(agent.rounds[0]) == ([THOUGHT] if goes_back else [])

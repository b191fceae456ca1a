"""What a shortened history takes, where no answer tells: asked once, with a few tokens."""

import asyncio
import json

from tests.support.agent import Agent
from tests.support.compacting_proxy import WORK, settings
from tests.support.scripted_upstream import Upstream, answer, text_turn


def usage_only_when_short(request):
    """Reports its usage only for a whole answer of a few tokens."""
    turn = text_turn("Go on.").using(len(request.body) // 4)
    if request.json.get("max_tokens") == 16:
        return turn
    return answer({key: value for key, value in turn.completion().items() if key != "usage"})


async def test_a_policy_can_have_a_shortened_history_counted_by_a_probe(serve):
    async with Upstream(usage_only_when_short) as up:
        config = settings(default={"recount": "probe"})
        config["upstreams"][-1] = {**config["upstreams"][-1], "base_url": up.url}
        async with serve(None, config=config) as proxy:
            agent = Agent(proxy, up, "sk-a")
            step = await agent.send(WORK)
            async with asyncio.timeout(60):
                while len(up.requests) < 2 or up.requests[1].arrived is None:  # noqa: ASYNC110 (the upstream signals nothing)
                    await asyncio.sleep(0.02)
            await up.requests[1].end()
            await asyncio.sleep(0.1)
            again = await agent.send(WORK)
    probe = up.requests[1].json
    assert step.compaction == "created"
    assert probe["messages"] == json.loads(step.forwarded)["messages"]
    assert again.tokens[1] == len(up.requests[1].body) // 4
    assert len(up.requests) == 3

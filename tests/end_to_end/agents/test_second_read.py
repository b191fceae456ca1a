"""An agent reads a file, works until the proxy shortens what it read, and reads the file again: it gets the text.

Claude Code 2.1.197 and Qwen Code 0.24 answer the second read by a pointer to the first, which stands nowhere any more;
Claude Code 2.1.332 reads again. It ends an edit with the promise that the file is in the context.
"""

import json
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from proxy.history.repeats import PROMISE, find_pointer_end
from tests.end_to_end.agents.agent import Agent, require
from tests.end_to_end.agents.errands.plan import make_workspace
from tests.end_to_end.agents.model import answering, body_of, is_chat, texts
from tests.end_to_end.agents.roster.commands import CLAUDE_CODE, QWEN_CODE
from tests.support.completions import Turn, call_turn, text_turn
from tests.support.running_proxy import QUIET
from tests.support.scripted_upstream import Upstream

pytestmark = [pytest.mark.slow, pytest.mark.timeout(450), pytest.mark.asyncio(loop_scope="module")]

FIRST, EDITED = "service/selectors.py", "service/textwrap.py"
BETWEEN = ("gzip", "shlex", "queue", "csv", "tempfile", "wave", "socketserver", "random", "pprint", "calendar")
NEW = {"old_string": "Text wrapping and filling.", "new_string": "Wraps text.", "replace_all": False}
READS = [{"file_path": path} for path in (FIRST, EDITED, *(f"service/{name}.py" for name in BETWEEN))]
PLAN = (*(("Read", read) for read in READS), ("Edit", {"file_path": EDITED, **NEW}), ("Read", READS[0]))
NEWEST = replace(CLAUDE_CODE, furnish=make_workspace)
POINTING = replace(NEWEST, name="claude-code-pointing")
QWEN = replace(QWEN_CODE, furnish=make_workspace)
QWEN_TOOLS = {"Read": "read_file", "Edit": "edit"}
"""They take the same arguments, but for whole paths."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What the model read at last: the results in their order, and the text of the file that it read twice."""

    results: list[str]
    text: str
    printed: str

    @property
    def edited(self) -> str:
        return self.results[-2]

    @property
    def second(self) -> str:
        return self.results[-1]


def speak(body: dict[str, Any]) -> Turn:
    """The plan, a step for each result that is there."""
    step = len(list(texts(body, "tool")))
    if step == len(PLAN):
        return text_turn("I have read it.")
    tool, arguments = PLAN[step]
    if f'"{tool}"' not in json.dumps(body.get("tools")):
        place = re.search(r"/\S+?/repository", json.dumps(body["messages"]))[0]
        tool, arguments = QWEN_TOOLS[tool], {**arguments, "file_path": f"{place}/{arguments['file_path']}"}
    return call_turn(tool, **arguments).numbered(f"{step:03}")


async def read(agent: Agent, base_url: str, place: Path, up: Upstream) -> Reading:
    done = await agent.work(base_url, place)
    last = [request for request in up.requests if is_chat(request)][-1]
    return Reading(list(texts(body_of(last), "tool")), (done.repository / FIRST).read_text(), done.output)


@pytest.fixture(scope="module", params=[NEWEST, POINTING, QWEN], ids=lambda agent: agent.version)
def agent(request) -> Agent:
    return require(request.param)


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def direct_reading(agent: Agent, tmp_path_factory) -> Reading:
    async with Upstream(answering(speak)) as up:
        return await read(agent, up.url, tmp_path_factory.mktemp("agent"), up)


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def proxied_reading(agent: Agent, tmp_path_factory, serve) -> Reading:
    early = {"trigger_tokens": 40_000, "keep": {"tokens": 2_000}, "summary": {"enabled": False}, "fold": []}
    async with Upstream(answering(speak)) as up:
        config = {"upstreams": [{**QUIET, "base_url": up.url}], "policies": {"default": early}}
        async with serve(None, config=config) as proxy:
            return await read(agent, proxy.url, tmp_path_factory.mktemp("agent"), up)


def holds_text(result: str, text: str) -> bool:
    return all(line in result for line in text.splitlines())


async def test_by_itself_it_answers_with_the_text_or_with_words_that_are_known(agent: Agent, direct_reading: Reading):
    assert len(direct_reading.results) == len(PLAN), direct_reading.printed[-2000:]
    assert holds_text(direct_reading.results[0], direct_reading.text)
    assert (find_pointer_end(direct_reading.second) is not None) == (agent is not NEWEST)
    assert agent is not NEWEST or holds_text(direct_reading.second, direct_reading.text)
    assert (PROMISE in direct_reading.edited) == (agent is not QWEN)


async def test_once_the_first_result_is_shortened_the_second_read_brings_the_text(proxied_reading: Reading):
    assert len(proxied_reading.results) == len(PLAN), proxied_reading.printed[-2000:]
    assert re.match(rf"\[Shortened by the context proxy: \w+\(\S*{FIRST}\)", proxied_reading.results[0])
    assert holds_text(proxied_reading.second, proxied_reading.text)


async def test_an_edit_promises_nothing_about_a_file_that_was_shortened(proxied_reading: Reading):
    assert re.match(rf"\[Shortened by the context proxy: \w+\(\S*{EDITED}\)", proxied_reading.results[1])
    assert "has been updated" in proxied_reading.edited
    assert PROMISE not in proxied_reading.edited

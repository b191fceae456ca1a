"""The API asked everything that its own description allows, and what it does not: nothing makes it fail, and all that
it answers is as described.
"""

import asyncio

import pytest
import pytest_asyncio
from agent_talk import Agent, reading
from operating import Desk, configured, team_key, until_open
from serving import QUIET, serving
from upstream import Upstream

from admin import install

pytestmark = [
    pytest.mark.slow,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.timeout(300),
    pytest.mark.skipif(not install.is_installed(), reason="python tests/admin/install.py puts schemathesis here"),
]
EXAMPLES = "30"
# A path that is unknown stands in no description; everything else it checks of itself.
CHECKS = (
    "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance,"
    "negative_data_rejection,ignored_auth"
)


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def desk(tmp_path_factory):
    place = tmp_path_factory.mktemp("fuzzed")
    async with Upstream() as up:
        config = configured(up.url, policies={"default": {"clear_at_least": 3_000}, "patient": {}})
        config["upstreams"][0] |= QUIET
        async with serving(None, place=place, config=config) as proxy:
            text = team_key(proxy, "platform")
            await until_open(proxy, text)
            await Agent(proxy, up, text).works(reading(16))
            yield Desk(proxy)


async def test_no_request_makes_it_fail_and_every_answer_is_as_described(desk):
    program, origin = install.ENVIRONMENT / "bin" / "schemathesis", f"http://localhost:{desk.proxy.port}"
    command = [str(program), "run", f"{origin}/admin/api/openapi.json", "--header", f"Authorization: Bearer {desk.key}"]
    command += ["--request-timeout", "60", "--max-examples", EXAMPLES, "--checks", CHECKS, "--no-color", "--seed", "1"]
    process = await asyncio.create_subprocess_exec(
        *command, cwd=desk.proxy.place, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    said, _ = await process.communicate()
    assert process.returncode == 0, said.decode()[-6_000:]
    assert "our-fault" not in desk.proxy.output

"""Clients that compact by themselves, unmodified, with the proxy and without it.

Each reads pages, of 2,000 tokens each, from an upstream that compacts for those that ask it to.
"""

import asyncio
import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.end_to_end.agents.agent import KEY
from tests.end_to_end.agents.install import INSTALLED
from tests.end_to_end.clients.client import command_of
from tests.end_to_end.clients.paging_upstream import PagingUpstream, page_text
from tests.support.proxy_client import log_of
from tests.support.running_proxy import Proxy
from tests.support.scripted_upstream import Upstream

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

WINDOW = 128_000
SMALLER_WINDOW = 100_000
"""All pages are more."""
PAGES_UNTIL_COMPACTED = 90
"""Codex compacts four times at its limit of 60,000 tokens."""


@dataclass(frozen=True)
class Result:
    code: int
    output: str
    pages: PagingUpstream

    @property
    def cost(self) -> float:
        return self.pages.bill.cost

    @property
    def has_ended_well(self) -> bool:
        says_so = f"Pages up to {self.pages.pages} are read." in self.output
        return self.code == 0 and says_so and self.pages.faults == []


async def work(command: Sequence[str], url: str, pages: PagingUpstream, place: Path) -> Result:
    (place / "pages").mkdir(parents=True)
    for number in range(1, pages.pages + 1):
        (place / "pages" / f"{number}.txt").write_text(page_text(number))
    environment = {"PATH": os.defpath, "HOME": str(place), "CODEX_API_KEY": KEY, "LANGSMITH_TRACING": "false"}
    process = await asyncio.create_subprocess_exec(
        *(part.format(url=url) for part in command),
        cwd=place,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    try:
        output, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
    return Result(process.returncode, output.decode()[-2_000:], pages)


async def run_direct(command: Sequence[str], pages: PagingUpstream, place: Path) -> Result:
    async with Upstream(pages.reply) as up:
        return await work(command, up.url, pages, place / "direct")


async def run_proxied(command: Sequence[str], pages: PagingUpstream, place: Path, serve) -> tuple[Result, Proxy]:
    async with Upstream(pages.reply) as up, serve(up.url) as proxy:
        return await work(command, proxy.url, pages, place / "proxied"), proxy


@pytest.mark.parametrize(("limit", "window", "compactions"), [(60_000, WINDOW, 4), (120_000, 2 * WINDOW, 0)])
async def test_codex_that_compacts_by_itself_costs_no_more_with_the_proxy(serve, tmp_path, limit, window, compactions):
    """It compacts by `compaction_trigger`: <https://platform.openai.com/docs/guides/compaction>."""
    if reason := INSTALLED.missing("codex"):
        pytest.skip(reason)
    settings = ("openai_base_url='{url}'", f"model_auto_compact_token_limit={limit}", "web_search='disabled'")
    options = [part for setting in settings for part in ("-c", setting)]
    quiet = ("--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "--model", "gpt-5.6")
    node = shutil.which("node")
    command = (node, str(INSTALLED.programs_of("codex") / "codex"), "exec", *options, *quiet, "Read all pages.")
    direct, proxied = (PagingUpstream(window, pages=PAGES_UNTIL_COMPACTED, call_name="exec_command") for _ in range(2))
    without = await run_direct(command, direct, tmp_path)
    through, _ = await run_proxied(command, proxied, tmp_path, serve)
    assert without.has_ended_well, without.output
    assert through.has_ended_well, through.output
    # Below the trigger of the proxy, the client's own limit comes first.
    assert len(proxied.sealed) == compactions <= len(direct.sealed)
    assert through.cost < 1.005 * without.cost, (through.cost, without.cost)


async def test_a_session_of_the_agents_sdk_that_compacts_ends_although_its_history_does_not_fit(serve, tmp_path):
    command = (*command_of("openai-agents", "agents_session.py"), "{url}")
    direct = await run_direct(command, PagingUpstream(SMALLER_WINDOW), tmp_path)
    proxied, _ = await run_proxied(command, PagingUpstream(SMALLER_WINDOW), tmp_path, serve)
    assert not direct.has_ended_well
    assert proxied.has_ended_well, proxied.output
    assert (len(proxied.pages.sealed), proxied.pages.refused) == (1, 0)


async def test_langchain_with_summaries_of_its_own_costs_no_more_with_the_proxy(serve, tmp_path):
    command = (*command_of("langchain", "langchain_agent.py"), "summarize", "{url}")
    direct = await run_direct(command, PagingUpstream(WINDOW), tmp_path)
    proxied, _ = await run_proxied(command, PagingUpstream(WINDOW), tmp_path, serve)
    assert direct.has_ended_well, direct.output
    assert proxied.has_ended_well, proxied.output
    assert proxied.cost <= direct.cost


async def test_langchain_that_clears_results_at_every_turn_ends_and_is_told(serve, tmp_path):
    command = (*command_of("langchain", "langchain_agent.py"), "edit", "{url}")
    proxied, proxy = await run_proxied(command, PagingUpstream(WINDOW), tmp_path, serve)
    assert proxied.has_ended_well, proxied.output
    assert [line["level"] for line in log_of(proxy, "client-rewrites")] == ["warning"]

"""Codex: OpenAI's own agent, which speaks Responses."""

from tests.end_to_end.agents.agent import KEY, MODEL, Agent, Start
from tests.end_to_end.agents.model import Habits, step_after_the_last
from tests.end_to_end.agents.shell import command
from tests.end_to_end.agents.task import BRIEF, Action
from tests.support.completions import Turn, call_turn, text_turn


def _start(base_url: str) -> Start:
    provider = f'{{name="proxy",base_url="{base_url}",wire_api="responses",env_key="PROXY_KEY"}}'
    settings = ("-c", 'model_provider="proxy"', "-c", f"model_providers.proxy={provider}")
    quiet = ("-c", 'web_search="disabled"', "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox")
    return Start(("codex", "exec", *settings, *quiet, "--model", MODEL, BRIEF), {"PROXY_KEY": KEY})


def _act(action: Action) -> Turn:
    return call_turn("exec_command", cmd=command(action), max_output_tokens=10_000)


AGENT = Agent(
    "codex",
    "@openai/codex",
    "With your own provider, see [Using Codex](#using-codex).",
    _start,
    Habits(step_after_the_last, _act, text_turn),
    varies=r"(?m)^.*(?:session id|tokens used|[Ww]all time|Chunk ID|Process exited|succeeded in).*$|^[\d,]+$",
)

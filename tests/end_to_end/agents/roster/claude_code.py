"""Claude Code: Anthropic's own agent, which speaks Anthropic Messages."""

from tests.end_to_end.agents.agent import KEY, Agent, Start
from tests.end_to_end.agents.model import Habits, step_after_the_last
from tests.end_to_end.agents.shell import command
from tests.end_to_end.agents.task import BRIEF, Action
from tests.support.completions import Turn, call_turn, text_turn


def _start(base_url: str) -> Start:
    environment = {
        "ANTHROPIC_BASE_URL": base_url.removesuffix("/v1"),
        "ANTHROPIC_API_KEY": KEY,
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
    }
    return Start(("claude", "--bare", "--print", BRIEF, "--allowedTools", "Bash,Read,Edit"), environment)


def _act(action: Action) -> Turn:
    return call_turn("Bash", command=command(action))


AGENT = Agent(
    "claude-code",
    "@anthropic-ai/claude-code",
    "As in [Using Claude Code](#using-claude-code), with a key and without questions.",
    _start,
    Habits(step_after_the_last, _act, text_turn),
)

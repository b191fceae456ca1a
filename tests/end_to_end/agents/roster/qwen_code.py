"""qwen-code: a coding agent with tools of its own, streamed."""

from tests.end_to_end.agents.agent import KEY, MODEL, Agent, Start
from tests.end_to_end.agents.model import Habits, step_after_the_last
from tests.end_to_end.agents.shell import command
from tests.end_to_end.agents.task import BRIEF, Action, Search
from tests.support.completions import Turn, call_turn, text_turn


def _start(base_url: str) -> Start:
    found = ("--auth-type", "openai", "--openai-base-url", base_url, "--openai-api-key", KEY, "--model", MODEL)
    return Start(("qwen", *found, "--yolo", "--prompt", BRIEF))


def _act(action: Action) -> Turn:
    if isinstance(action, Search):
        return call_turn("grep_search", pattern=action.pattern, path=action.path)
    return call_turn("run_shell_command", command=command(action), is_background=False)


AGENT = Agent(
    "qwen-code",
    "@qwen-code/qwen-code",
    "Its own compaction depends on the reported usage, which is that of the shortened history, so it rarely starts.",
    _start,
    Habits(step_after_the_last, _act, text_turn),
)

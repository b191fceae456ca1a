"""The agents that run the errands, and how the model of each acts."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tests.end_to_end.agents.agent import KEY, MODEL, Agent, Start
from tests.end_to_end.agents.errands.model import Operator
from tests.end_to_end.agents.errands.plan import BRIEF, Act, Delegate, Read, Step, make_workspace
from tests.end_to_end.agents.model import Habits, step_after_the_last
from tests.end_to_end.agents.roster.commands import CLAUDE_CODE
from tests.support.completions import Turn, call_turn, text_turn

PROGRAMS = Path(__file__).parent / "programs"
# Login shells forget the variable, so it is in their files too.
PATHS = 'export PATH="$HOME/../repository/bin:$PATH"\n'
SHELL_FILES = {".profile": PATHS, ".bash_profile": PATHS, ".bashrc": PATHS}


def command_of(step: Step) -> str:
    return f"cat {step.path}" if isinstance(step, Read) else step.command


def by_functions(step: Step) -> Turn:
    """With the tools of `programs/shop_tools.py`."""
    match step:
        case Read(path):
            return call_turn("read_file", path=path)
        case Act(tool, arguments):
            return call_turn(tool, **arguments)
        case _:
            return call_turn("run_command", command=command_of(step))


def by_claude(step: Step) -> Turn:
    match step:
        case Read(path):
            return call_turn("Read", file_path=path)
        case Delegate(brief):
            return call_turn("Agent", description="Look through logs", prompt=brief, subagent_type="general-purpose")
        case _:
            return call_turn("Bash", command=command_of(step), description="The next errand")


def by_codex(step: Step) -> Turn:
    match step:
        case Act(tool, arguments) if tool != "push_branch":
            return call_turn(tool, **arguments)
        case Delegate(brief):
            return call_turn("spawn_agent", message=brief)
        case _:
            return call_turn("exec_command", cmd=command_of(step), max_output_tokens=10_000)


def by_copilot(step: Step) -> Turn:
    match step:
        case Delegate(brief):
            about = {"description": "Look through logs", "agent_type": "general-purpose", "name": "reader"}
            return call_turn("task", prompt=brief, mode="sync", **about)
        case _:
            return call_turn("bash", command=command_of(step), description="The next errand")


def operator(
    name: str, package: str, start: Callable[[str], Start], act: Callable[[Step], Turn], **more: Any
) -> Operator:
    habits = Habits(step_after_the_last, act, text_turn)  # type: ignore[arg-type]
    return Operator(Agent(name, package, "", start, habits, furnish=make_workspace), act, **more)


def program(file: str, *, messages: bool = False) -> Callable[[str], Start]:
    def start(base_url: str) -> Start:
        url = {"ANTHROPIC_BASE_URL": base_url.removesuffix("/v1"), "ANTHROPIC_API_KEY": KEY} if messages else {}
        return Start(("python", str(PROGRAMS / file), BRIEF), {"LITELLM_LOCAL_MODEL_COST_MAP": "True", **url})

    return start


def _claude(base_url: str) -> Start:
    """Started as for the long task, but with its own settings and with sub-agents."""
    start = CLAUDE_CODE.start(base_url)
    return Start(
        ("claude", "--print", BRIEF, "--allowedTools", "Bash,Read,Edit,Agent"),
        {**start.environment, "CLAUDE_CODE_MAX_OUTPUT_TOKENS": "32000"},
        SHELL_FILES,
    )


def _codex(base_url: str) -> Start:
    provider = f'{{name="proxy",base_url="{base_url}",wire_api="responses",env_key="PROXY_KEY"}}'
    server = f'{{command="python3",args=["{PROGRAMS / "shop_server.py"}"]}}'
    settings: Sequence[str] = (
        'model_provider="proxy"',
        f"model_providers.proxy={provider}",
        f"mcp_servers.shop={server}",
        'web_search="disabled"',
        "features.multi_agent=true",
    )
    options = [word for each in settings for word in ("-c", each)]
    quiet = ("--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox")
    return Start(("codex", "exec", *options, *quiet, "--model", MODEL, BRIEF), {"PROXY_KEY": KEY}, SHELL_FILES)


def _copilot(base_url: str) -> Start:
    environment = {
        "COPILOT_PROVIDER_BASE_URL": base_url,
        "COPILOT_PROVIDER_TYPE": "openai",
        "COPILOT_PROVIDER_API_KEY": KEY,
        "COPILOT_MODEL": MODEL,
        "COPILOT_OFFLINE": "true",
        "COPILOT_PROVIDER_MAX_PROMPT_TOKENS": "1000000",
    }
    return Start(
        ("copilot", "-p", BRIEF, "--allow-all-tools", "--model", MODEL, "--no-color"), environment, SHELL_FILES
    )


def _await_codex(id_: str) -> Turn:
    return call_turn("wait_agent", targets=[id_], timeout_ms=60_000)


OPERATORS = (
    operator("claude-code", "@anthropic-ai/claude-code", _claude, by_claude, window=200_000),
    operator("codex", "@openai/codex", _codex, by_codex, await_with=_await_codex),
    operator("copilot-cli", "@github/copilot", _copilot, by_copilot),
    operator(
        "inspect-ai",
        "inspect_ai",
        program("inspect_task.py", messages=True),
        by_functions,
        closes=lambda text: call_turn("submit", answer=text),
    ),
    operator("strands", "strands-agents", program("strands_loop.py", messages=True), by_functions),
    operator("google-adk", "google-adk", program("adk_loop.py"), by_functions),
)

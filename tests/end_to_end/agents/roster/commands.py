"""Agents that are commands, the lightest first."""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from tests.end_to_end.agents.agent import KEY, MODEL, Agent, Start
from tests.end_to_end.agents.library import PROGRAMS, WITH_TOOLS, command, in_a_block
from tests.end_to_end.agents.model import Habits, step_after_the_last, texts
from tests.end_to_end.agents.task import BRIEF, PLAN, Action, Edit, Read, Search, Write
from tests.support.completions import Turn, call_turn, text_turn


def _in_another_api(agent: Agent, api: str, how: str, start: Callable[[str], Start]) -> Agent:
    about = f"The same agent, with {how}"
    return replace(agent, name=f"{agent.name}-{api}", shares=agent.name, about=about, start=start)


# llm: a command with a loop of tools, which are functions in a file.
_MODELS = """\
- model_id: proxied
  model_name: scripted-1
  api_base: {base_url}
  supports_tools: true
"""


def _start_llm(base_url: str) -> Start:
    return Start(
        ("llm", "--model", "proxied", "--functions", str(PROGRAMS / "tools.py"), "--chain-limit", "0", BRIEF),
        files={".config/io.datasette.llm/extra-openai-models.yaml": _MODELS.format(base_url=base_url)},
    )


LLM = Agent(
    "llm", "llm", "A model with another base URL is a line in `extra-openai-models.yaml`.", _start_llm, WITH_TOOLS
)


# qwen-code: a coding agent with tools of its own, streamed.
def _start_qwen_code(base_url: str) -> Start:
    found = ("--auth-type", "openai", "--openai-base-url", base_url, "--openai-api-key", KEY, "--model", MODEL)
    return Start(("qwen", *found, "--yolo", "--prompt", BRIEF))


def _act_in_qwen_code(action: Action) -> Turn:
    if isinstance(action, Search):
        return call_turn("grep_search", pattern=action.pattern, path=action.path)
    if isinstance(action, Edit):  # it refuses `sed -i` for a file that its own tool has not read
        action = Write(action.path, action.new.rstrip())
    return call_turn("run_shell_command", command=command(action), is_background=False)


QWEN_CODE = Agent(
    "qwen-code",
    "@qwen-code/qwen-code",
    "Its own compaction depends on the reported usage, which is that of the shortened history, so it rarely starts.",
    _start_qwen_code,
    Habits(step_after_the_last, _act_in_qwen_code, text_turn),
)


# Claude Code: Anthropic's own agent, which speaks Anthropic Messages.
def _start_claude_code(base_url: str) -> Start:
    environment = {
        "ANTHROPIC_BASE_URL": base_url.removesuffix("/v1"),
        "ANTHROPIC_API_KEY": KEY,
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
    }
    return Start(("claude", "--bare", "--print", BRIEF, "--allowedTools", "Bash,Read,Edit"), environment)


CLAUDE_CODE = Agent(
    "claude-code",
    "@anthropic-ai/claude-code",
    "As in [Using Claude Code](#using-claude-code), with a key and without questions.",
    _start_claude_code,
    Habits(step_after_the_last, lambda action: call_turn("Bash", command=command(action)), text_turn),
)


# Codex: OpenAI's own agent, which speaks Responses.
def _start_codex(base_url: str) -> Start:
    provider = f'{{name="proxy",base_url="{base_url}",wire_api="responses",env_key="PROXY_KEY"}}'
    settings = ("-c", 'model_provider="proxy"', "-c", f"model_providers.proxy={provider}")
    quiet = ("-c", 'web_search="disabled"', "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox")
    return Start(("codex", "exec", *settings, *quiet, "--model", MODEL, BRIEF), {"PROXY_KEY": KEY})


CODEX = Agent(
    "codex",
    "@openai/codex",
    "With your own provider, see [Using Codex](#using-codex).",
    _start_codex,
    Habits(
        step_after_the_last,
        lambda action: call_turn("exec_command", cmd=command(action), max_output_tokens=10_000),
        text_turn,
    ),
    varies=r"(?m)^.*(?:session id|tokens used|[Ww]all time|Chunk ID|Process exited|succeeded in).*$|^[\d,]+$",
)


# pi: a small coding agent with four tools, streamed, in each of the three APIs.
def _start_pi(base_url: str, api: str = "openai-completions") -> Start:
    known = {"id": MODEL, "contextWindow": 1_000_000}
    provider = {"baseUrl": base_url, "api": api, "apiKey": KEY, "models": [known]}
    return Start(
        ("pi", "--provider", "proxied", "--model", MODEL, "--print", BRIEF),
        files={".pi/agent/models.json": json.dumps({"providers": {"proxied": provider}})},
    )


def _act_in_pi(action: Action) -> Turn:
    match action:
        case Read(path):
            return call_turn("read", path=path)
        case Search(pattern, path):
            return call_turn("bash", command=f"grep -n {pattern} {path}")
        case Write(path, text):
            return call_turn("write", path=path, content=text)
        case Edit(path, old, new):
            return call_turn("edit", path=path, edits=[{"oldText": old, "newText": new}])


PI = Agent(
    "pi",
    "@mariozechner/pi-coding-agent",
    "Its own compaction starts near `contextWindow` (default 128,000). Set a high value: it is not needed here.",
    _start_pi,
    Habits(step_after_the_last, _act_in_pi, text_turn),
)
PI_IN_RESPONSES = _in_another_api(
    PI, "responses", "`api` set to `openai-responses`.", partial(_start_pi, api="openai-responses")
)
PI_IN_MESSAGES = _in_another_api(
    PI,
    "messages",
    "`api` set to `anthropic-messages`. The base URL has no `/v1`: the client adds it.",
    lambda base_url: _start_pi(base_url.removesuffix("/v1"), "anthropic-messages"),
)


# opencode: a coding agent with tools of its own, streamed, in each of the three APIs; it also asks for a title.
# It takes its base URL from a file, where the package of a provider decides which API it uses.
def _start_opencode(base_url: str, package: str = "@ai-sdk/openai-compatible") -> Start:
    provider = {"npm": package, "options": {"baseURL": base_url, "apiKey": KEY}, "models": {MODEL: {}}}
    settings = {"provider": {"scripted": provider}, "permission": "allow"}
    return Start(
        ("opencode", "run", "--model", f"scripted/{MODEL}", BRIEF),
        {"OPENCODE_DISABLE_AUTOUPDATE": "1", "OPENCODE_DISABLE_MODELS_FETCH": "1"},
        {".config/opencode/opencode.json": json.dumps(settings)},
    )


def _act_in_opencode(action: Action) -> Turn:
    match action:
        case Read(path):
            return call_turn("read", filePath=path)
        case Search(pattern, path):
            return call_turn("bash", command=f"grep -n {pattern} {path}", description="Searches the catalogue")
        case Write(path, text):
            return call_turn("write", filePath=path, content=text)
        case Edit(path, old, new):
            return call_turn("edit", filePath=path, oldString=old, newString=new)


OPENCODE = Agent(
    "opencode",
    "opencode-ai",
    "The base URL is set in a file, as a custom provider. The model needs no `limit` here.",
    _start_opencode,
    Habits(step_after_the_last, _act_in_opencode, text_turn),
)
OPENCODE_IN_RESPONSES, OPENCODE_IN_MESSAGES = (
    _in_another_api(
        OPENCODE, api, f"the provider's `npm` set to `{package}`.", partial(_start_opencode, package=package)
    )
    for api, package in (("responses", "@ai-sdk/openai"), ("messages", "@ai-sdk/anthropic"))
)


# Kilo: a coding agent grown from opencode, with its tools and its settings under other names.
def _start_kilo(base_url: str) -> Start:
    start = OPENCODE.start(base_url)
    (settings,) = start.files.values()
    return Start(
        ("kilo", "run", "--auto", *start.command[2:]),
        {name.replace("OPENCODE", "KILO"): value for name, value in start.environment.items()},
        {".config/kilo/kilo.json": settings},
    )


KILO = replace(OPENCODE, name="kilo", package="@kilocode/cli", start=_start_kilo)


# aider: no tools. Its user runs commands and asks; the model answers in text, and edits by SEARCH/REPLACE blocks.
# Here the user is who drives: a long session, typed line by line. Everything is held in user and assistant messages,
# also what commands print, until the first edit moves it away.
_ASKED = re.compile(r"Step (\d+):")


def _start_aider(base_url: str) -> Start:
    quiet = ("--no-check-update", "--no-show-model-warnings", "--no-analytics", "--no-show-release-notes")
    return Start(
        ("aider", "--model", f"openai/{MODEL}", "--edit-format", "diff", "--yes-always", "--no-fancy-input", *quiet),
        {"LITELLM_LOCAL_MODEL_COST_MAP": "True"},
        typed="\n".join(_session()) + "\n",
    )


def _session() -> Iterator[str]:
    for step, actions in enumerate(PLAN):
        yield from (command for action in actions if (command := _command(action)))
        yield f"Step {step}: {'go on.' if step else ' '.join(BRIEF.split())}"
    yield f"Step {len(PLAN)}: that was all."


def _command(action: Action) -> str | None:
    match action:
        case Read(path):
            return f"/run cat {path}"
        case Search(pattern, path):
            return f"/run grep -n {pattern} {path}"
    return None


def _text(action: Action) -> str:
    match action:
        case Write(_, text):
            return text
        case Edit(path, old, new):
            return f"{path}\n```python\n<<<<<<< SEARCH\n{old}=======\n{new}>>>>>>> REPLACE\n```\n"
    return "I have seen it."


def _next_step(body: dict[str, Any]) -> int | None:
    asked = _ASKED.match([*texts(body, "user")][-1])
    return int(asked[1]) if asked else None


AIDER = Agent(
    "aider",
    "aider-chat",
    "Command output is sent as user messages, which the proxy recognises by their first words (`observations` in a "
    "policy). For a commit message aider sends the whole chat within one message, which cannot be shortened: once that "
    "is longer than the window, it commits without a message.",
    _start_aider,
    Habits(_next_step, lambda action: text_turn(f"{_text(action)}\n"), text_turn),
    # For its commit message it sends the whole chat within one message, which cannot be shortened: it does without.
    varies=r"Tokens: .*|Commit .*|litellm\.ContextWindowExceededError.*|Failed to generate commit message!",
)


# mini-swe-agent: a loop of bash commands, not streamed; ends when a command prints its password.
def _start_mini_swe_agent(base_url: str) -> Start:
    quiet = ("--yolo", "--exit-immediately", "--output", "/dev/null")
    return Start(
        ("mini", "--model", f"openai/{MODEL}", "--task", BRIEF, *quiet),
        {"MSWEA_CONFIGURED": "true", "MSWEA_COST_TRACKING": "ignore_errors", "LITELLM_LOCAL_MODEL_COST_MAP": "True"},
    )


def _close_mini_swe_agent(word: str) -> Turn:
    return call_turn("bash", command=f"printf 'COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT\\n{word}\\n'")


MINI_SWE_AGENT = Agent(
    "mini-swe-agent",
    "mini-swe-agent",
    "By default with the tool `bash`. `MSWEA_COST_TRACKING=ignore_errors` is for models that have no price.",
    _start_mini_swe_agent,
    Habits(step_after_the_last, lambda action: call_turn("bash", command=command(action)), _close_mini_swe_agent),
    varies=r"(?s)Loading global config from '.*?'",  # whose name it breaks in two
)


# gptme: a command with tools of its own, streamed. It puts what tools print into system messages, or into results.
def _start_gptme(base_url: str) -> Start:
    quiet = ("--non-interactive", "--no-workspace", "--system", "short", "--tools", "shell,save")
    return Start(
        ("gptme", "--model", f"openai/{MODEL}", "--tool-format", "tool", *quiet, BRIEF),
        {"GPTME_OPENAI_RESPONSES_API": "0"},
    )


def _act_in_gptme(action: Action) -> Turn:
    if isinstance(action, Write):
        return call_turn("save", path=action.path, content=action.text)
    return call_turn("shell", command=command(action))


def _close_gptme(word: str) -> Turn:
    return text_turn(f"{word}\n") + call_turn("complete")


GPTME = Agent(
    "gptme",
    "gptme",
    "With `--tool-format tool` results are tool messages; in its own format they are system messages, known for output "
    "from the third on. `GPTME_OPENAI_RESPONSES_API=0` selects Chat Completions. A model that it takes for one of 128k "
    "tokens loses its oldest messages, the task first: name a provider whose models are larger.",
    _start_gptme,
    Habits(step_after_the_last, _act_in_gptme, _close_gptme),
    # It asks for a title beside its work, and complains of it as often as it has had time to ask.
    varies=r"\d+\.\d+m?s|Session: .*|\(resume with: [^)]*\)|[\d-]+-\w+-\w+-\w+|\d+:\d+:\d+|Token usage.*"
    r"|. WARNING +LLM returned invalid title:.*\n.*",
    is_offline=True,
)


# Mistral Vibe: a command of Mistral's with any model by its settings, streamed. Its results are JSON around a text.
def _start_mistral_vibe(base_url: str) -> Start:
    settings = f"""
active_model = "{MODEL}"
enable_telemetry = false
enable_update_checks = false
enable_auto_update = false
enable_connectors = false

[[providers]]
name = "proxy"
api_base = "{base_url}"
api_key_env_var = "OPENAI_API_KEY"

[[models]]
name = "{MODEL}"
provider = "proxy"
alias = "{MODEL}"
max_context_length = 1000000
max_output_tokens = 4096
"""
    return Start(
        ("vibe", "--auto-approve", "--trust", "--output", "text", "--prompt", BRIEF),
        files={".vibe/config.toml": settings},
    )


def _act_in_mistral_vibe(action: Action) -> Turn:
    if isinstance(action, Write):
        return call_turn("write_file", file_path=action.path, content=action.text)
    return call_turn("bash", command=command(action))


MISTRAL_VIBE = Agent(
    "mistral-vibe",
    "mistral-vibe",
    "A provider and a model in `~/.vibe/config.toml`: `api_base`, and `max_context_length` well above the real window, "
    "so that its own compaction stays quiet; then `max_output_tokens` too, or it asks for answers that fill the rest. "
    "It needs Python 3.12.",
    _start_mistral_vibe,
    Habits(step_after_the_last, _act_in_mistral_vibe, text_turn),
    is_offline=True,
)


# Open Interpreter: no tools; scripts are in the model's text, and what they print comes back as user messages.
OPEN_INTERPRETER = Agent(
    "open-interpreter",
    "open-interpreter",
    'What scripts print comes back as user messages that begin "Code output:". It sends only the newest 8,000 tokens '
    "of a model that it does not know, without a word of the task: set `context_window` well above the real window.",
    lambda _: Start(
        ("python", str(PROGRAMS / "open_interpreter_loop.py"), BRIEF), {"LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    ),
    in_a_block("bash"),
    is_offline=True,
)


AGENTS = (
    *(LLM, QWEN_CODE, CLAUDE_CODE, CODEX, PI, PI_IN_RESPONSES, PI_IN_MESSAGES),
    *(OPENCODE, OPENCODE_IN_RESPONSES, OPENCODE_IN_MESSAGES, KILO),
    *(AIDER, MINI_SWE_AGENT, GPTME, MISTRAL_VIBE, OPEN_INTERPRETER),
)

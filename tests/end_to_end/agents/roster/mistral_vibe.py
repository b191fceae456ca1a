"""Mistral Vibe: a command of Mistral's with any model by its settings, streamed. Its results are JSON around a text."""

from tests.end_to_end.agents.agent import MODEL, Agent, Start
from tests.end_to_end.agents.model import Habits, step_after_the_last
from tests.end_to_end.agents.shell import command
from tests.end_to_end.agents.task import BRIEF, Action, Write
from tests.support.completions import Turn, call_turn, text_turn


def _start(base_url: str) -> Start:
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


def _act(action: Action) -> Turn:
    if isinstance(action, Write):
        return call_turn("write_file", file_path=action.path, content=action.text)
    return call_turn("bash", command=command(action))


AGENT = Agent(
    "mistral-vibe",
    "mistral-vibe",
    "A provider and a model in `~/.vibe/config.toml`: `api_base`, and `max_context_length` well above the real window, "
    "so that its own compaction stays quiet; then `max_output_tokens` too, or it asks for answers that fill the rest. "
    "It needs Python 3.12.",
    _start,
    Habits(step_after_the_last, _act, text_turn),
    is_offline=True,
)

"""llm: a command with a loop of tools, which are functions in a file."""

from tests.end_to_end.agents.agent import Agent, Start
from tests.end_to_end.agents.library import PROGRAMS, WITH_TOOLS
from tests.end_to_end.agents.task import BRIEF

_MODELS = """\
- model_id: proxied
  model_name: scripted-1
  api_base: {base_url}
  supports_tools: true
"""


def _start(base_url: str) -> Start:
    return Start(
        ("llm", "--model", "proxied", "--functions", str(PROGRAMS / "tools.py"), "--chain-limit", "0", BRIEF),
        files={".config/io.datasette.llm/extra-openai-models.yaml": _MODELS.format(base_url=base_url)},
    )


AGENT = Agent(
    "llm",
    "llm",
    "A model with another base URL is a line in `extra-openai-models.yaml`.",
    _start,
    WITH_TOOLS,
)

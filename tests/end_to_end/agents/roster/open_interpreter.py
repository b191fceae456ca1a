"""Open Interpreter: no tools; scripts are in the model's text, and what they print comes back as user messages."""

from tests.end_to_end.agents.agent import Agent, Start
from tests.end_to_end.agents.library import PROGRAMS
from tests.end_to_end.agents.shell import in_a_block
from tests.end_to_end.agents.task import BRIEF

AGENT = Agent(
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

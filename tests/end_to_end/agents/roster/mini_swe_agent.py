"""mini-swe-agent: a loop of bash commands, not streamed; ends when a command prints its password."""

from tests.end_to_end.agents.agent import MODEL, Agent, Start
from tests.end_to_end.agents.model import Habits, step_after_the_last
from tests.end_to_end.agents.shell import command
from tests.end_to_end.agents.task import BRIEF, Action
from tests.support.completions import Turn, call_turn


def _start(base_url: str) -> Start:
    return Start(
        (
            "mini",
            "--model",
            f"openai/{MODEL}",
            "--task",
            BRIEF,
            "--yolo",
            "--exit-immediately",
            "--output",
            "/dev/null",
        ),
        {"MSWEA_CONFIGURED": "true", "MSWEA_COST_TRACKING": "ignore_errors", "LITELLM_LOCAL_MODEL_COST_MAP": "True"},
    )


def _act(action: Action) -> Turn:
    return call_turn("bash", command=command(action))


def _closes(word: str) -> Turn:
    return call_turn("bash", command=f"printf 'COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT\\n{word}\\n'")


AGENT = Agent(
    "mini-swe-agent",
    "mini-swe-agent",
    "By default with the tool `bash`. `MSWEA_COST_TRACKING=ignore_errors` is for models that have no price.",
    _start,
    Habits(step_after_the_last, _act, _closes),
    varies=r"(?s)Loading global config from '.*?'",  # whose name it breaks in two
)

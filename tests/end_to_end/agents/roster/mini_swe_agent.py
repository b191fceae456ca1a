"""mini-swe-agent: a loop of bash commands, not streamed; ends when a command prints its password."""

from tests.end_to_end.agents.agent import MODEL, Agent, Start
from tests.end_to_end.agents.model import Habits, step_after_the_last
from tests.end_to_end.agents.task import BRIEF, Action, Edit, Read, Search, Write
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
    return call_turn("bash", command=_command(action))


def _command(action: Action) -> str:
    match action:
        case Read(path):
            return f"cat {path}"
        case Search(pattern, path):
            return f"grep -n {pattern} {path}"
        case Write(path, text):
            return f"cat > {path} <<'END'\n{text}\nEND"
        case Edit(path, old, new):
            return f"sed -i 's/{old.strip()}/{new.strip()}/' {path}"


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

"""gptme: a command with tools of its own, streamed. It puts what tools print into system messages, or into results."""

from tests.end_to_end.agents.agent import MODEL, Agent, Start
from tests.end_to_end.agents.model import Habits, step_after_the_last
from tests.end_to_end.agents.shell import command
from tests.end_to_end.agents.task import BRIEF, Action, Write
from tests.support.completions import Turn, call_turn, text_turn


def _start(base_url: str) -> Start:
    quiet = ("--non-interactive", "--no-workspace", "--system", "short", "--tools", "shell,save")
    return Start(
        ("gptme", "--model", f"openai/{MODEL}", "--tool-format", "tool", *quiet, BRIEF),
        {"GPTME_OPENAI_RESPONSES_API": "0"},
    )


def _act(action: Action) -> Turn:
    if isinstance(action, Write):
        return call_turn("save", path=action.path, content=action.text)
    return call_turn("shell", command=command(action))


def _closes(word: str) -> Turn:
    return text_turn(f"{word}\n") + call_turn("complete")


AGENT = Agent(
    "gptme",
    "gptme",
    "With `--tool-format tool` results are tool messages; in its own format they are system messages, known for output "
    "from the third on. `GPTME_OPENAI_RESPONSES_API=0` selects Chat Completions. A model that it takes for one of 128k "
    "tokens loses its oldest messages, the task first: name a provider whose models are larger.",
    _start,
    Habits(step_after_the_last, _act, _closes),
    # It asks for a title beside its work, and complains of it as often as it has had time to ask.
    varies=r"\d+\.\d+m?s|Session: .*|\(resume with: [^)]*\)|[\d-]+-\w+-\w+-\w+|\d+:\d+:\d+|Token usage.*"
    r"|. WARNING +LLM returned invalid title:.*\n.*",
    is_offline=True,
)

"""smolagents' CodeAgent: no tools; it calls by Python in its text, and results come as messages of the user."""

from tests.end_to_end.agents.library import library
from tests.end_to_end.agents.model import Habits, last_step
from tests.end_to_end.agents.task import Action, Edit, Read, Search, Write
from tests.support.completions import Turn, text_turn


def _act(action: Action) -> Turn:
    return text_turn(f"<code>\n{_python(action)}\n</code>\n")


def _python(action: Action) -> str:
    match action:
        case Read(path):
            return f"print(read_file({path!r}))"
        case Search(pattern, path):
            return f"print(search({pattern!r}, {path!r}))"
        case Write(path, text):
            return f"print(write_file({path!r}, {text!r}))"
        case Edit(path, old, new):
            return f"print(edit_file({path!r}, {old!r}, {new!r}))"


def _closes(word: str) -> Turn:
    return text_turn(f"<code>\nfinal_answer({word!r})\n</code>")


AGENT = library(
    "smolagents",
    "smolagents",
    "smolagents_loop.py",
    "Tool output arrives as user messages, recognised by their first words (`observations` in a policy).",
    habits=Habits(lambda body: last_step(body) + 1, _act, _closes),
    varies=r"[\d.]+ seconds|(?:Input|Output) tokens: [\d,]+|Duration",
)

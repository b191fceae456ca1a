"""For agents whose model acts by commands of a shell, as calls or as scripts in its text."""

from tests.end_to_end.agents.model import Habits, last_step
from tests.end_to_end.agents.task import Action, Edit, Read, Search, Write
from tests.support.completions import Turn, text_turn


def command(action: Action) -> str:
    match action:
        case Read(path):
            return f"cat {path}"
        case Search(pattern, path):
            return f"grep -n {pattern} {path}"
        case Write(path, text):
            return f"cat > {path} <<'END'\n{text}\nEND"
        case Edit(path, old, new):
            return f"sed -i 's/{old.strip()}/{new.strip()}/' {path}"


def in_a_block(language: str) -> Habits:
    """Each script is in a block of this language."""

    def act(action: Action) -> Turn:
        return text_turn(f"\n```{language}\n{command(action)}\n```\n")

    return Habits(lambda body: last_step(body) + 1, act, text_turn)

"""The corpus as a whole: requests recorded from clients and written by hand, and answers written by hand."""

from fidelity.stored import Sent, load
from fidelity.written_answers import Said, written_answers
from fidelity.written_chats import written_chats
from fidelity.written_requests import written_requests


def requests() -> list[Sent]:
    return [*load(), *written_chats(), *written_requests()]


def answers() -> list[Said]:
    return list(written_answers())

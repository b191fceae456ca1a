"""The corpus as a whole: requests recorded from clients and written by hand, and answers written by hand."""

from tests.end_to_end.fidelity.stored import RequestCase, load
from tests.end_to_end.fidelity.written_answers import AnswerCase, written_answers
from tests.end_to_end.fidelity.written_chats import written_chats
from tests.end_to_end.fidelity.written_requests import written_requests


def requests() -> list[RequestCase]:
    return [*load(), *written_chats(), *written_requests()]


def answers() -> list[AnswerCase]:
    return list(written_answers())

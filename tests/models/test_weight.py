"""What of a message a model reads, and whether thinking that Anthropic has signed is in it, in a golden file."""

import json
from pathlib import Path

import pytest

from proxy.history.messages import read_message
from proxy.models.tokenizer import weigh
from tests.support.written_steps import assert_case, list_cases, list_given

GOLDEN = Path(__file__).parent / "golden" / "messages"


def judge(case):
    (line,) = list_given(case)
    raw = line.encode()
    weight = weigh(raw)
    is_signed = line.startswith('{"role": ') and read_message(json.loads(raw), raw).has_claude_thinking
    texts = json.dumps(weight.texts) + (", and holds signed thinking" if is_signed else "")
    figures = f"tokens of markup {weight.markup}, of media {weight.media}; letters unread {weight.unread}"
    return f"{line}\n= reads {texts}\n= {figures}"


@pytest.mark.parametrize(("sentence", "case"), list_cases(GOLDEN))
def test_a_message_weighs_what_its_golden_file_shows(sentence, case):
    assert_case(GOLDEN, case, judge(case))


def test_a_text_that_is_nested_too_deeply_is_weighed_as_text():
    assert weigh(b"[" * 100_000).texts == ["[" * 100_000]

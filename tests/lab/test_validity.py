"""What an upstream would refuse, in three dialects: histories in a golden file, a message in each line."""

import json
from pathlib import Path

import pytest

from proxy.lab.replay.validity import BY_DIALECT, find_breaches, shape_of
from tests.support.written_steps import assert_case, list_cases, list_given

GOLDEN = Path(__file__).parent / "golden" / "validity"


def judge(case):
    given = list_given(case)
    shapes = [shape_of(line.encode()) for line in given]
    found = {dialect: BY_DIALECT[dialect](shapes) for dialect in BY_DIALECT}
    assert find_breaches(map(json.loads, given)) == found["openai"]
    breaches = [f"= {dialect}: {breach} ({times})" for dialect in found for breach, times in found[dialect].items()]
    return "\n".join([*given, *(breaches or ["= good"])])


@pytest.mark.parametrize(("sentence", "case"), list_cases(GOLDEN))
def test_a_history_is_judged_as_its_golden_file_shows(sentence, case):
    assert_case(GOLDEN, case, judge(case))

"""The tables of programs and of their lines: each entry is tested by its own examples."""

import re
from collections import Counter

import pytest

from proxy.shorten.outcome import find_end_states, find_failure_lines
from proxy.tools.command_line import list_commands
from proxy.tools.file_uses import is_act
from proxy.tools.line_forms import FAILURE_FORMS, SUCCESS_FORMS
from proxy.tools.program_table import PROGRAMS

EXAMPLES = [(line, acts) for program in PROGRAMS for line, acts in program.examples.items()]
FAILED = [(form, line, weight) for weight, forms in FAILURE_FORMS.items() for form, line in forms.items()]


@pytest.mark.parametrize(("line", "acts"), EXAMPLES, ids=[line for line, _ in EXAMPLES])
def test_the_examples_of_an_entry_act_or_not_as_it_says(line, acts):
    assert is_act(list_commands(line)[-1]) == acts


@pytest.mark.parametrize(("form", "line"), SUCCESS_FORMS.items())
@pytest.mark.parametrize("tag", ["", "web-1  | ", "test\tRun suite\t2026-11-25T10:35:53Z "])
def test_the_example_of_a_line_that_tells_of_success_is_recognised_behind_times_and_tags(tag, form, line):
    assert re.search(form, line, re.IGNORECASE)
    assert find_end_states([tag + line]) == [0]
    assert find_failure_lines([tag + line]) == {}


@pytest.mark.parametrize(("form", "line", "weight"), FAILED)
def test_the_example_of_a_line_that_tells_of_a_failure_is_recognised(form, line, weight):
    assert re.search(form, line)
    assert find_failure_lines(["ready", line, "ready"]) == {1: weight}
    assert find_end_states([line]) == []


def test_a_program_has_one_entry_and_a_verb_acts_or_does_not():
    assert Counter(name for program in PROGRAMS for name in program.names.split()).most_common(1)[0][1] == 1
    for program in PROGRAMS:
        verbs = Counter([*program.acts.split(), *program.harmless.split()])
        assert [verb for verb, times in verbs.items() if times > 1] == []


def test_an_example_of_each_entry_shows_one_of_its_names():
    for program in PROGRAMS:
        words = {command.words[0].rpartition("/")[2] for line in program.examples for command in list_commands(line)}
        assert not words.isdisjoint(program.names.split()), program.names

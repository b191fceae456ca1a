"""Placeholders and notes: what is said in the place of what was folded."""

from chat import call, request, says, user

from proxy.core import placeholder
from proxy.core.messages import Call
from proxy.core.notes import GO_ON, notes

READ = Call("c", "Read", '{"limit": 3, "file_path": "/a/b.py"}')


def test_a_template_fills_what_it_knows_and_keeps_what_it_does_not():
    told = placeholder.words("{tool}({argument}) {rows} {bytes} {outcome} {handle}{names} {odd}", "a\nnaïve", READ, 7)
    assert told == "Read(/a/b.py) 2 lines 8 ok #7 {odd}"
    assert placeholder.words("{tool}{argument}{names}{lines}", "x", None, 0, names=["a.b"], lines=["l1"]) == (
        "tool Names in it: a.b.\nSome of its lines:\nl1\n"
    )


def test_a_call_is_named_by_the_argument_a_person_would_name():
    assert placeholder.argument(READ) == "/a/b.py"
    assert placeholder.argument(Call("c", "X", '{"n": 1, "odd": "value"}')) == "value"
    assert placeholder.argument(Call("c", "X", '{"n": 1}')) == ""
    assert placeholder.argument(Call("c", "X", "free words")) == "free words"
    assert placeholder.argument(Call("c", "X", "[1]")) == "[1]"
    assert placeholder.argument(None) == ""


def test_what_is_long_is_cut_where_it_says_least():
    assert placeholder.short("one\ntwo") == "one"
    assert placeholder.short("x" * 200) == "x" * 119 + "…"
    assert placeholder.short("/" + "x" * 200 + "/end.py").endswith("/end.py")


def test_a_failure_is_known_and_told_by_its_first_line():
    assert placeholder.outcome("Error: no such file\nmore") == "failed: Error: no such file"
    assert placeholder.outcome("built\n\nexit code: 2") == "failed: exit code: 2"
    assert placeholder.outcome("panic: \n") == "failed: panic:"
    assert placeholder.outcome("0 errors") == "ok"
    assert placeholder.outcome("<returncode>1</returncode>") == "failed: <returncode>1</returncode>"


def test_notes_keep_the_order_of_speakers_legal():
    words, answer = request(user("a"), says("b")).body
    result = request(call("Read")).body[1]
    roles = {
        (None, "assistant"): ["user"],
        (None, "user"): ["user", "assistant"],
        ("user", "user"): ["assistant"],
        ("user", "assistant"): ["assistant", "user"],
        ("tool", "assistant"): ["assistant", "user"],
        ("assistant", "assistant"): ["user"],
    }
    said = {"user": words, "assistant": answer, "tool": result, None: None}
    for (before, after), expected in roles.items():
        made = notes("told", said[before], said[after], 3, 5)
        assert [each.role for each in made] == expected
        assert (made[0].start, made[0].stop) == (3, 5)
        assert all(each.made == "note" for each in made)
        assert [each.text for each in made[1:]] == [GO_ON] * (len(made) - 1)

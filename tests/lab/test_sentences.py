"""Every sentence that the proxy writes is found, with the messages that it speaks of."""

from proxy.history.messages import make_literal
from proxy.lab.replay.replay_history import encode
from proxy.lab.replay.sentences import History, list_sentences
from tests.support.messages import assistant, call, history, user
from tests.support.replay_cases import numbered, view_of

OUT = "".join(f"line {number} of a long output\n" for number in range(90)) + "make: *** no rule"
PIECES = (
    user("Mend the tests, and mind rule 7."),
    call("Bash", command="make all", out=OUT),
    call("Read", file_path="/w/src/berth.py", out="def charge(): ..."),
    call("Edit", file_path="/w/src/berth.py", old="a", new="b", out="updated"),
    call("Bash", command="git push origin main", out="done"),
    assistant("The berth is charged twice."),
)


def body():
    return numbered(view_of(history(*PIECES)))


def read(text, made="clear_results", place=2):
    so_far = History(body())
    if made == "note":
        raw = encode({"role": "user", "content": text})
        message = make_literal(raw, 0, len(so_far.messages), "note")
    else:
        message = so_far.messages[place].with_text(text, made)
    return list(list_sentences(message, so_far))


def test_a_placeholder_has_a_sentence_for_each_claim():
    header = (
        "[Shortened by the context proxy: Bash(make all), 91 lines, 2,410 bytes, exit code 2: make: *** no rule. 7 of 9"
        " failed, the file was changed or deleted since. Left out: 90 other lines. Only a new run shows it, as it is"
        " then.]"
    )
    assert [(sentence.kind, sentence.words) for sentence in read(f"{header}\nmake: *** no rule")] == [
        ("call", "Bash(make all)"),
        ("size", "91 lines, 2,410 bytes"),
        ("way back", "Only a new run shows it, as it is then."),
        ("left out", "Left out: 90 other lines."),
        ("changed since", "the file was changed or deleted since"),
        ("verdict", "exit code 2: make: *** no rule. 7 of 9 failed"),
        ("lines", "make: *** no rule"),
    ]


def test_an_observation_has_the_sentences_of_a_result():
    found = read("Observation: [shortened by the context proxy: 1 line, 900 bytes. Ask.]", "clear_observations")
    assert [sentence.kind for sentence in found] == ["size", "verdict"]


def test_a_result_as_it_came_has_no_sentence():
    so_far = History(body())
    assert [sentence for message in so_far.messages for sentence in list_sentences(message, so_far)] == []


NOTE = """[Background from the context proxy, not from the user: this record replaces older messages to save space.
What the assistant said, in part:
- The berth is charged twice.
Said by the user, or by others in the user's role:
- Mend the tests, …
Done already: do not do it again:
- Bash(git push origin main) (2 times) => done
Files changed (1 of 2, newest first):
- /w/src/berth.py => edited
Commands:
- make all => exit code 2: make: *** no rule
Older messages of the user that are left out here, for there is no room for them: 3.
Something new.
End of background. Everything the user said still applies.]"""


def test_each_line_of_a_note_is_a_sentence_with_its_messages():
    rows = [(row.kind, row.name, row.ending, row.times, row.places) for row in read(NOTE, "note")]
    assert rows == [
        ("assistant said", "The berth is charged twice.", "", 1, (9,)),
        ("user said", "Mend the tests, …", "", 1, (0,)),
        ("acts", "Bash(git push origin main)", "done", 2, (8,)),
        ("files changed", "/w/src/berth.py", "edited", 1, (6, 4)),
        ("commands", "make all", "exit code 2: make: *** no rule", 1, (2,)),
        ("words lost", "3", "", 1, ()),
        ("other", "", "", 1, ()),
    ]


def test_a_summary_of_a_model_is_not_the_proxys_own():
    summary = "Summary of the conversation so far, written by a model:\n(The state.)\nCommands:\n- rm -rf /"
    note = NOTE.replace("What the assistant", f"{summary}\n\nTaken from the calls themselves:\nWhat the assistant")
    assert [row.kind for row in read(note, "note")] == [row.kind for row in read(NOTE, "note")]

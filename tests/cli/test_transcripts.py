"""`transcripts`: what a person finds in the saved originals, and what it says where there is nothing to find."""

import asyncio
import json
import os
from pathlib import Path

import pytest

from proxy.cli import main
from proxy.decide.planning import make_plan
from proxy.history.identity import compute_chain, make_block_key
from proxy.server.listeners import announce
from proxy.shorten.rules import Facts, Keep, Rules
from proxy.shorten.state import ConversationState
from proxy.store.contract import SystemClock
from proxy.store.sqlite import SqliteStore
from proxy.wire.redaction import redaction
from tests.support.commands import run_command
from tests.support.completions import call_turn, text_turn
from tests.support.messages import KEY, TENANT, assistant, call, chat, parse_request, system, user
from tests.support.transcripts import exchange, history_of, keep, originals

CANARY = "sk-canary-7d1e5a"
BIG = "a line of output\n" * 400
READS = [call("Read", path=f"src/{name}.py", out=f"{name}: {BIG}") for name in ("alpha", "beta", "gamma", "delta")]
HELLO = chat(user("Hello there"))
FIRST, SECOND = (chat(user("Hello there"), assistant("Hi."), user(text)) for text in ("And now?", "No, this: zebra"))
WORK = chat(system("You are terse."), user("Read them all."), *READS, user(f"The key is {CANARY}."))
WORK_GONE_ON = chat(system("You are terse."), user("Read them all."), *READS, user(f"The key is {CANARY}."), READS[0])


@pytest.fixture
def state(tmp_path, monkeypatch):
    """Two conversations, one of them forked and one with a secret in it, and the store that made their chains."""
    monkeypatch.chdir(tmp_path)
    now = 1_700_000_000
    clock = SystemClock(lambda: now)
    with originals(tmp_path / "state" / "originals", clock=clock, redaction=redaction()) as kept:
        work_answer = call_turn("Bash", command='ls; echo "done"') + text_turn("Let me look.")
        for one in (
            exchange(HELLO),
            exchange(FIRST, text_turn("Now this.").using(120, 7)),
            exchange(SECOND),
            exchange(WORK, work_answer),
        ):
            keep(kept, one)
            now += 60
    store(tmp_path / "state", {})
    return tmp_path / "state"


def store(place: Path, promises) -> None:
    """The store with the key of these chains, and these blocks."""

    async def fill() -> None:
        kept = SqliteStore(place / "promises.sqlite")
        await kept.load_secret(KEY)
        for key, value in promises.items():
            await kept.put_block(key, value)
        await kept.close()

    asyncio.run(fill())


@pytest.fixture
def run(capsysbinary, state):
    """Runs `transcripts …`; answers exit code, what it said, and what it complained of after the note on the folder."""

    def act(*words):
        code = main(["transcripts", *words])
        output = capsysbinary.readouterr()
        complaint = output.err.decode()
        return code, output.out.decode(), complaint.removeprefix(f"no proxy uses {state} now\n")

    return act


def name_of(source):
    return history_of(source).conversation


def test_every_conversation_is_listed_with_what_there_is_of_it(run):
    code, output, _ = run("list")
    head, *rows = (line.split() for line in output.splitlines())
    assert code == 0
    assert " ".join(head) == "CONVERSATION TENANT FIRST LAST MESSAGES ANSWERS BLOCKS FETCHED SIZE"
    assert [" ".join(row[:8]) for row in rows] == [
        f"{name_of(HELLO)[:16]} team-a 2023-11-14T22:13 2023-11-14T22:15 4 1 0 0",
        f"{name_of(WORK)[:16]} team-a 2023-11-14T22:16 2023-11-14T22:16 10 1 0 0",
    ]


def test_the_list_as_json_names_them_in_full(run, state):
    code, output, _ = run("list", "--json")
    assert code == 0
    assert [json.loads(line)["conversation"] for line in output.splitlines()] == [name_of(HELLO), name_of(WORK)]
    assert json.loads(output.splitlines()[0])["messages"] == 4


def test_where_nothing_is_kept_it_says_where_it_looked(run, tmp_path):
    (tmp_path / "other").mkdir()
    code, output, note = run("list", "--state", str(tmp_path / "other"))
    assert (code, output) == (0, f"nothing is kept in {tmp_path}/other/originals\n")
    assert note == f"no proxy uses {tmp_path}/other now\n"


@pytest.mark.parametrize(
    ("words", "names"), [(("--user", "ann"), "user ann"), (("--user", "ann", "--team", "red"), "user ann and team red")]
)
def test_of_a_user_without_conversations_none_is_listed(run, words, names):
    code, output, _ = run("list", *words)
    assert (code, output) == (0, f"no conversation in state/originals is of {names}\n")


def test_a_folder_that_there_is_not_is_a_fault_and_is_not_made(run, tmp_path):
    code, output, complaint = run("list", "--state", "nowhere")
    assert (code, output) == (1, "")
    assert complaint.startswith(f"there is no state folder {tmp_path}/nowhere: name the proxy by --config, --state")
    assert not (tmp_path / "nowhere").exists()


def test_a_proxy_that_writes_to_the_folder_is_named(run, state):
    with announce(state, "http://127.0.0.1:8800"):
        code, _, note = run("list")
    assert code == 0
    assert note.startswith(f"{state}/originals is in use by http://127.0.0.1:8800 since 20")


def test_the_folder_of_a_configuration_is_looked_into(run, state, tmp_path):
    (state / "originals").rename(tmp_path / "elsewhere")
    (tmp_path / "my.yaml").write_text(f"transcripts: {{dir: {tmp_path}/elsewhere}}\n")
    assert name_of(WORK)[:16] in run("list", "--config", "my.yaml")[1]
    assert run("list", "--config", "none.yaml")[0] == 1


async def test_a_link_to_nothing_is_left_out(run, state):
    expected = run("list")
    folder = next(state.rglob("current.jsonl")).parent
    (folder / "20200101T000000000Z-0123456789abcdef.jsonl").symlink_to("nothing")
    (folder / "old.jsonl").symlink_to("nothing")
    ended = await run_command("transcripts", "list", place=state.parent)
    assert (ended.code, ended.out) == expected[:2]


def test_a_conversation_is_shown_message_by_message_with_its_answers(run):
    code, output, complaint = run("show", name_of(HELLO)[:6], "--leaf", history_of(FIRST).links[-1].hex()[:12])
    assert code == 0
    assert [line.split(maxsplit=2) for line in output.splitlines()[:3]] == [
        ["1", "user", "Hello there"],
        ["2", "assistant", "Hi."],
        ["3", "user", "And now?"],
    ]
    answer = "< answer [scripted-1, stop, 120 prompt_tokens, 7 completion_tokens] Now this."
    assert output.splitlines()[3].split() == answer.split()
    assert complaint == ""


def test_of_a_fork_the_newest_leaf_is_shown_and_the_others_are_named(run):
    _, output, complaint = run("show", name_of(HELLO))
    assert "zebra" in output
    assert "And now?" not in output
    assert history_of(FIRST).links[-1].hex()[:16] in complaint


def test_long_messages_are_shortened_unless_they_are_asked_for_in_full(run):
    _, short, _ = run("show", name_of(WORK))
    _, whole, _ = run("show", name_of(WORK), "--full")
    assert "(6,807 characters)" in short
    assert max(map(len, short.splitlines())) < 200
    assert whole.count("a line of output") == 1_600
    assert 'Read({"path": "src/beta.py"})' in short
    assert "You are terse." in short


def block_of(source):
    """What the core makes of a request, and the key under which it would be kept."""
    request = parse_request(source)
    links = compute_chain(request, TENANT, KEY)
    rules = Rules(clear_at_least=1_000, keep=Keep(tokens=100, groups=1))
    ready = make_plan(ConversationState.of(request, links, None, rules, facts=Facts(force=True, can_summarize=False)))
    assert ready.action == "created"
    return {make_block_key(TENANT, ready.link): ready.block.to_bytes()}, ready


def test_the_forwarded_messages_are_shown_beside_the_sent_ones(run, state):
    promises, ready = block_of(WORK)
    store(state, promises)
    code, output, _ = run("show", name_of(WORK), "--compacted", "--full")
    assert code == 0
    cleared = [message for message in ready.view if message.literal]
    assert cleared
    assert output.count("> seen") == len(cleared)
    assert all(message.text.splitlines()[0] in output for message in cleared)
    assert f"seen: {len(ready.view) - 1} messages" in output
    assert run("list")[1].splitlines()[2].split()[6] == "1"


def test_results_that_were_fetched_again_are_counted(run, state):
    store(state, block_of(WORK)[0])
    with originals(state / "originals", redaction=redaction()) as kept:
        keep(kept, exchange(WORK_GONE_ON))
    (work,) = (line.split() for line in run("list")[1].splitlines() if line.startswith(name_of(WORK)[:16]))
    assert work[6:8] == ["1", "1"]


def test_the_forwarded_messages_are_shown_without_their_secrets(run, state):
    ((key, block),) = block_of(WORK)[0].items()
    store(
        state,
        {
            key: block.replace(
                b"[Shortened by the context proxy: ", f"[Shortened by the context proxy: {CANARY} ".encode()
            )
        },
    )
    _, output, _ = run("show", name_of(WORK), "--compacted", "--full")
    assert "the context proxy: [redacted: api-key] " in output
    assert CANARY not in output


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("show", "ffff"), "there is no conversation 'ffff' in state/originals; `transcripts list` shows all"),
        (("export", "ffff"), "there is no conversation 'ffff' in state/originals; `transcripts list` shows all"),
        (("show", ""), "2 conversations begin with '' in state/originals; `transcripts list` shows all"),
        (("show", "WORK", "--leaf", "zzz"), "0 messages of WORK begin with 'zzz'"),
        (("show", "WORK", "--compacted"), "no block is stored for WORK: the model saw what was sent"),
        (("search", "--regex", "("), "not a regular expression: "),
        (("export", "--forwarded", "cp-0"), "cp-0: unknown request"),
        (("export", "WORK", "--forwarded", "cp-0"), "name one: a conversation (ID), or a request"),
        (("export",), "name one: a conversation (ID), or a request (--forwarded REQUEST)"),
    ],
)
def test_words_that_name_nothing_are_reported(run, words, complaint):
    name = name_of(WORK)[:16]
    code, output, error = run(*(name if word == "WORK" else word for word in words))
    assert (code, output) == (1, "")
    assert error.startswith(complaint.replace("WORK", name))


@pytest.mark.parametrize(
    ("words", "roles"),
    [
        (["zebra"], ["user"]),
        (["ZEBRA"], ["user"]),
        (["src/beta.py"], ["assistant"]),
        (["terse"], ["system"]),
        (["Now this"], ["answer"]),
        (["--regex", r"(alpha|beta): a line"], ["tool", "tool"]),
        (["hello THERE"], ["user"]),
        (['echo "done'], ["answer"]),
        (['echo \\"done'], ["answer"]),
    ],
)
def test_a_text_is_found_in_every_kind_of_message(run, words, roles):
    code, output, _ = run("search", *words)
    assert code == 0
    assert [line.split()[3] for line in output.splitlines()] == roles


def test_a_match_is_shown_with_its_place_and_its_context(run):
    (line,) = run("search", "zebra")[1].splitlines()
    at = history_of(SECOND).links[-1].hex()[:16]
    assert line.split(maxsplit=4) == [name_of(HELLO)[:16], at, "2023-11-14T22:15", "user", "No, this: zebra"]


@pytest.mark.parametrize("words", [["nowhere"], ["a.line"], [CANARY]])
def test_missing_text_is_not_found(run, words):
    assert run("search", *words) == (1, "", "")


def test_an_export_is_the_list_of_messages_as_they_were_sent(run):
    code, output, complaint = run("export", name_of(HELLO), "--leaf", history_of(FIRST).links[-1].hex())
    assert (code, complaint) == (0, "")
    assert json.loads(output) == json.loads(FIRST)["messages"]
    assert [message.raw.decode() in output for message in parse_request(FIRST).messages] == [True] * 3


def test_an_export_leads_with_the_system_prompt_and_says_what_was_taken_out(run):
    _, output, complaint = run("export", name_of(WORK))
    sent = json.loads(WORK)["messages"]
    assert json.loads(output)[:-1] == sent[:-1]
    assert json.loads(output)[-1]["content"] == "The key is [redacted: api-key]."
    assert complaint.startswith("1 message not as sent")


def test_an_export_as_a_request_can_be_compacted_again(run, tmp_path, capsysbinary):
    _, output, _ = run("export", name_of(WORK), "--request")
    (tmp_path / "saved.json").write_text(output)
    saved = json.loads(output)
    assert (saved["model"], len(saved["messages"])) == ("scripted-1", 11)
    assert main(["compact", "saved.json"]) == 0
    assert b"before" in capsysbinary.readouterr().out
    assert json.loads(run("export", name_of(HELLO), "--request", "--model", "m")[1])["model"] == "m"


@pytest.fixture
def aged_state(state):
    """The conversation with the fork was silent for two days."""
    for path in state.rglob("*.jsonl"):
        if b"zebra" in path.read_bytes():
            os.utime(path, (path.stat().st_mtime - 2 * 24 * 3600,) * 2)
    return state


def test_pruning_removes_what_is_too_old_after_a_dry_run_that_lists_it(run, aged_state):
    for words, end, kept in (((), "1 conversation, ", [HELLO, WORK]), (("--yes",), "Freed ", [WORK])):
        code, output, _ = run("prune", "--days", "1", *words)
        removed, last = output.splitlines()
        assert (code, removed.split()[0]) == (0, name_of(HELLO)[:16])
        assert last.startswith(end)
        listed = [line.split()[0] for line in run("list")[1].splitlines()[1:]]
        assert listed == [name_of(source)[:16] for source in kept]


def test_pruning_to_a_size_removes_the_oldest_first(run, aged_state):
    for path in aged_state.rglob("*.jsonl"):
        with path.open("ab") as file:
            file.write(b" " * 800_000 + b"\n")
        if b"zebra" in path.read_bytes():
            os.utime(path, (path.stat().st_mtime - 2 * 24 * 3600,) * 2)
    assert name_of(WORK)[:16] not in run("prune", "--mib", "1")[1]
    assert name_of(HELLO)[:16] in run("prune", "--mib", "1")[1]


def test_pruning_as_configured_is_what_the_proxy_does_itself(run, aged_state, tmp_path):
    (tmp_path / "my.yaml").write_text("transcripts: {days: 1}\n")
    assert "1 conversation," in run("prune", "--config", "my.yaml")[1]
    assert "0 conversations" in run("prune")[1]


@pytest.mark.parametrize(
    ("bound", "expected"),
    [
        ("--days=-1", "--days: must be a number, 0 or more"),
        ("--days=nan", "--days: must be a number, 0 or more"),
        ("--days=inf", "--days: must be a number, 0 or more"),
        ("--mib=-5", "--mib: must be a whole number, 0 or more"),
        ("--mib=1.5", "--mib: must be a whole number, 0 or more"),
    ],
)
async def test_pruning_refuses_a_bound_that_is_no_bound(run, aged_state, bound, expected):
    for yes in ((), ("--yes",)):
        ended = await run_command("transcripts", "prune", bound, *yes, place=aged_state.parent)
        assert (ended.code, ended.out) == (2, "")
        assert expected in ended.complaint
    assert len(run("list")[1].splitlines()) == 3

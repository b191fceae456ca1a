"""`transcripts`: what a person finds in the saved originals, and what it says where there is nothing to find."""

import json
import os

import pytest

from proxy.cli import main
from proxy.decide.planning import make_plan
from proxy.history.identity import compute_chain, make_block_key
from proxy.server.listeners import announce
from proxy.shorten.rules import Facts, Keep, Rules
from proxy.shorten.state import ConversationState
from proxy.wire.redaction import redaction
from tests.cli.saved_conversations import CANARY, HELLO, READS, WORK, name_of, save_conversations, store_blocks
from tests.support.commands import run_command
from tests.support.messages import KEY, TENANT, call, chat, parse_request, system, user
from tests.support.transcripts import exchange, keep, originals

WORK_GONE_ON = chat(system("You are terse."), user("Read them all."), *READS, user(f"The key is {CANARY}."), READS[0])


@pytest.fixture
def state(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save_conversations(tmp_path / "state")
    return tmp_path / "state"


@pytest.fixture
def run(capsysbinary, state):
    """Runs `transcripts …`; answers exit code, what it said, and what it complained of after the note on the folder."""

    def act(*words):
        code = main(["transcripts", *words])
        output = capsysbinary.readouterr()
        complaint = output.err.decode()
        return code, output.out.decode(), complaint.removeprefix(f"no proxy uses {state} now\n")

    return act


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


def test_long_messages_are_shown_in_full_if_they_are_asked_for_so(run):
    assert run("show", name_of(WORK), "--full")[1].count("a line of output") == 1_600


def block_of(source):
    """What the core makes of a request, and the key under which it would be kept."""
    request = parse_request(source)
    links = compute_chain(request, TENANT, KEY)
    rules = Rules(clear_at_least=1_000, keep=Keep(tokens=100, groups=1))
    ready = make_plan(ConversationState.of(request, links, None, rules, facts=Facts(force=True, can_summarize=False)))
    assert ready.action == "created"
    return {make_block_key(TENANT, links[ready.block.covers]): ready.block.to_bytes()}, ready


def test_the_forwarded_messages_are_shown_beside_the_sent_ones(run, state):
    promises, ready = block_of(WORK)
    store_blocks(state, promises)
    code, output, _ = run("show", name_of(WORK), "--compacted", "--full")
    assert code == 0
    cleared = [message for message in ready.view if message.literal]
    assert cleared
    assert output.count("> seen") == len(cleared)
    assert all(message.text.splitlines()[0] in output for message in cleared)
    assert f"seen: {len(ready.view) - 1} messages" in output
    assert run("list")[1].splitlines()[2].split()[6] == "1"


def test_results_that_were_fetched_again_are_counted(run, state):
    store_blocks(state, block_of(WORK)[0])
    with originals(state / "originals", redaction=redaction()) as kept:
        keep(kept, exchange(WORK_GONE_ON))
    (work,) = (line.split() for line in run("list")[1].splitlines() if line.startswith(name_of(WORK)[:16]))
    assert work[6:8] == ["1", "1"]


def test_the_forwarded_messages_are_shown_without_their_secrets(run, state):
    ((key, block),) = block_of(WORK)[0].items()
    store_blocks(
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


def test_what_the_policy_has_repaired_is_shown_as_the_model_saw_it(run, state, tmp_path):
    store_blocks(state, block_of(WORK)[0])
    unanswered = call("Bash", command="make")[:1]
    source = chat(
        system("You are terse."),
        user("Read them all."),
        *READS,
        user(f"The key is {CANARY}."),
        unanswered,
        user("Go on."),
    )
    with originals(state / "originals", redaction=redaction()) as kept:
        keep(kept, exchange(source))
    (tmp_path / "my.yaml").write_text("policies: {default: {repair: true}}\nstate: {dir: state}\n")
    _, output, _ = run("show", name_of(source), "--compacted", "--config", "my.yaml")
    assert "[No result of this call was recorded.]" in output

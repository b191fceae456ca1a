"""The sessions of agents, read from small samples in each of their formats: the texts, the counts, and what began
a new history. The samples were written for this.
"""

import json

from proxy.lab.sessions import read_conversations, read_sessions
from tests.lab.retelling_of import PICTURE, conversations, counted, lines, one, told


def test_claude_code_tells_an_answer_once_with_all_its_blocks_and_results():
    main = conversations("claude-code/session.jsonl")[0]
    assert told(main) == [
        "user: The total is wrong, see src/cart.py",
        "user: <system-reminder>\nRun the tests with make check.\n</system-reminder>",
        "assistant: (Look at both files.)  t1=Read(src/cart.py) t2=Read(src/tax.py)",
        "tool t1: <cart>",
        f"tool t2: RATE = 0.19 + {PICTURE}",
        "assistant: The tax is missing.",
        "user: Then add it, and leave the tests alone",
        "assistant:  t3=Edit(src/cart.py)",
        "tool t3: done",
        "assistant: Done.",
    ]
    assert counted(main) == {2: (100, 0, 25, 4), 5: (134, 100, 9, 12), 7: (158, 130, 11, 84), 9: (172, 150, 3, 90)}
    assert (main.source, main.model, main.begins) == ("Claude Code", "claude-sonnet-4-5", 0)


def test_what_a_person_went_back_on_is_a_branch_that_begins_where_it_left():
    branch = conversations("claude-code/session.jsonl")[1]
    assert branch.name.endswith("session.jsonl branch")
    assert told(branch)[branch.begins :] == ["user: Then add it", "assistant: I would rather change the tests."]
    assert list(branch.recorded) == [7]


def test_after_a_compaction_the_history_is_the_summary_and_what_was_kept():
    after = conversations("claude-code/session.jsonl")[2]
    assert after.name.endswith("after compaction")
    assert told(after) == [
        "user: This session is being continued. The tax was added to src/cart.py.",
        "assistant: Done.",
        "user: Commit it",
        "assistant:  t4=Bash(git commit -am tax)",
        "tool t4: [main 1a2b3c4] tax",
    ]
    assert (after.begins, list(after.recorded)) == (2, [3])


def test_a_sub_agent_is_a_conversation_of_its_own():
    agent = one("claude-code/session/subagents/agent-7.jsonl")
    assert agent.name.endswith("sub-agent 7")
    assert told(agent)[-1] == "assistant: One caller: src/checkout.py:12"


def test_codex_items_become_messages_and_the_usage_closes_an_answer():
    first, after = conversations("codex/rollout.jsonl")
    assert told(first) == [
        "system: You are Codex.",
        "developer: <permissions instructions>",
        "user: The total is wrong, see src/cart.py",
        "assistant: (Look at the file) Both. c1=exec_command(cat src/cart.py) c2=exec_command(cat src/tax.py)",
        "tool c1: <cart>",
        "tool c2: cat: src/tax.py: No such file",
        "assistant:  c3=apply_patch(...)",
        "tool c3: Success",
    ]
    assert counted(first) == {3: (900, 0, 40, 3), 6: (1100, 900, 30, 9)}
    assert told(after) == [
        "system: You are Codex.",
        "user: The total is wrong, see src/cart.py",
        "user: Summary: src/cart.py was patched.",
        "user: Run the tests",
        "assistant:  c4=exec_command(make check)",
        f"tool c4: 2 passed + {PICTURE}",
        "assistant: All green.",
    ]
    assert (after.begins, counted(after)) == (3, {4: (400, 0, 12, 24), 6: (440, 400, 5, 28)})


def test_older_codex_rollouts_tell_only_the_summary_and_turns_are_rolled_back(tmp_path):
    def item(role, words, kind="input_text"):
        message = {"type": "message", "role": role, "content": [{"type": kind, "text": words}]}
        return {"type": "response_item", "payload": message}

    rollout = lines(
        tmp_path / "rollout",
        {"type": "session_meta", "payload": {"id": "1", "instructions": "Be brief."}},
        item("user", "One"),
        item("assistant", "1", "output_text"),
        {"type": "compacted", "payload": {"message": "They count."}},
        item("user", "Two"),
        item("assistant", "2", "output_text"),
        {"type": "event_msg", "payload": {"type": "thread_rolled_back", "num_turns": 1}},
        item("user", "Three"),
        item("assistant", "3", "output_text"),
    )
    first, compacted, rolled_back = read_conversations(rollout)
    assert told(first) == ["system: Be brief.", "user: One", "assistant: 1"]
    assert told(compacted)[compacted.begins - 3 :] == told(compacted)
    assert told(compacted)[:3] == ["system: Be brief.", "user: One", "user: They count."]
    assert told(rolled_back) == [*told(compacted)[:3], "user: Three", "assistant: 3"]
    assert rolled_back.begins == 3


def test_pi_keeps_entries_behind_the_summary_and_shows_what_its_person_ran():
    first, after = conversations("pi/session.jsonl")
    assert told(first) == [
        "user: The total is wrong",
        "assistant: (Read it.)  k1=read(src/cart.py)",
        f"tool k1: <cart> + {PICTURE}",
        "assistant: The tax is missing.",
        "user: Ran `make check`\n```\n2 failed\n```",
        "user: Fix it",
        "assistant:  k2=edit(src/cart.py)",
        "tool k2: ok",
        "assistant: Fixed.",
    ]
    assert counted(first)[3] == (89, 60, 7, 8)
    assert [line.split("\n")[0] for line in told(after)] == [
        "user: The conversation history before this point was compacted into the following summary:",
        "user: Fix it",
        "assistant:  k2=edit(src/cart.py)",
        "tool k2: ok",
        "assistant: Fixed.",
        "user: Commit",
        "assistant: Committed.",
    ]
    assert (after.begins, list(after.recorded)) == (5, [6])


def test_each_step_of_an_opencode_message_is_an_answer():
    first, after = conversations("opencode/export.json")
    assert told(first) == [
        f"user: The total is wrong + {PICTURE}",
        "assistant: (Read it.)  o1=read(src/cart.py)",
        "tool o1: <cart>",
        "assistant: The tax is missing.",
        "user: Fix it",
        "assistant:  o2=edit(src/cart.py)",
        "tool o2: The user rejected this",
    ]
    assert counted(first) == {1: (90, 0, 20, 4), 3: (112, 80, 8, 4), 5: (124, 100, 11, 24)}
    assert told(after) == [
        "user: What did we do so far?",
        "assistant: The tax is missing in src/cart.py; an edit was rejected.",
        "user: Explain the edit",
        "assistant: It multiplies by RATE.",
    ]
    assert after.begins == 2


def test_openhands_events_lie_in_files_of_their_own_and_are_forgotten_by_name():
    first, after = conversations("openhands/conversation")
    assert told(first) == [
        "system: You are OpenHands.",
        "user: The total is wrong",
        "assistant: (Think.) I look. h1=terminal(cat src/cart.py) h2=terminal(cat src/tax.py)",
        "tool h1: <cart>",
        "tool h2: RATE = 0.19",
        "assistant: (Think.) Fix it. h3=terminal(sed -i s/a/b/ src/cart.py)",
        "tool h3: sed: no such file",
    ]
    assert told(after) == [
        *told(first)[:2],
        "user: Both files were read.",
        *told(first)[5:],
        "assistant: (Think.) Again. h4=terminal(make check)",
        "tool h4: 2 passed",
        "assistant: Done.",
    ]
    assert (after.begins, counted(first)[2], counted(after)[5]) == (5, (700, 0, 40, 4), (300, 250, 9, 14))
    assert (first.model, len(first.tools)) == ("anthropic/claude-sonnet-4-5", 1)


def test_swe_agent_histories_with_tools_and_without():
    assert told(one("swe-agent/tools.traj")) == [
        "system: You fix issues.",
        "user: The total is wrong",
        "assistant: (Hm.) I look. w1=bash(cat src/cart.py)",
        "tool w1: <cart>",
        "assistant: Done.",
    ]
    text = one("swe-agent/text.traj")
    assert [message["role"] for message in text.messages] == ["system", "user", "assistant", "user", "assistant"]
    assert text.name.endswith("primary")


def test_mini_swe_agent_messages_without_what_was_not_sent():
    chat = one("mini-swe-agent/run.traj.json")
    assert told(chat) == [
        "system: You fix issues.",
        "user: The total is wrong",
        "assistant: I look. y1=bash(cat src/cart.py)",
        "tool y1: <cart>",
        "assistant: Done.",
    ]
    assert "extra" not in chat.messages[2]
    assert counted(chat) == {2: (420, 0, 20, 3), 4: (500, 420, 4, 8)}


def test_mini_swe_agent_runs_of_the_responses_api_are_named_as_not_read(tmp_path):
    run = {"trajectory_format": "1.1", "messages": [{"role": "user", "content": "hi"}, {"object": "response"}]}
    (tmp_path / "run.traj.json").write_text(json.dumps(run))
    (session,) = read_sessions(tmp_path / "run.traj.json")
    assert session.conversations == ()
    assert session.notes["runs of a model of the Responses API, not read"] == 1


def test_our_own_transcripts_are_a_tree_that_several_processes_wrote():
    main, branch = conversations("transcripts/team/conversation")
    assert told(main) == [
        "system: You fix issues.",
        "user: The total is wrong",
        "assistant:  q1=read(src/cart.py)",
        "tool q1: <cart>",
        "assistant: The tax is missing.",
        "user: Explain it",
        "assistant: It multiplies.",
    ]
    assert counted(main) == {2: (60, None, 9, 3), 4: (90, 64, 5, 8), 6: (98, None, None, 33)}
    assert told(branch)[branch.begins :] == ["user: Fix it", "assistant: Fixed."]

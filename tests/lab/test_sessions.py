"""The sessions of agents, read from small samples in each of their formats: the texts, the counts, and what began
a new history. The samples were written for this.
"""

import json

from proxy.lab.sessions import read_conversations, read_sessions
from tests.lab.conversation_text import PICTURE, conversations, format_lines, lines, one, recorded_figures


def test_claude_code_answers_with_several_blocks_are_read_once():
    main = conversations("claude-code/session.jsonl")[0]
    assert format_lines(main) == [
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
    assert recorded_figures(main) == {
        2: (100, 4),
        5: (134, 12),
        7: (158, 84),
        9: (172, 90),
    }
    assert (main.source, main.model, main.begins) == ("Claude Code", "claude-sonnet-4-5", 0)


def test_a_rewound_message_starts_a_branch_where_it_was_left():
    branch = conversations("claude-code/session.jsonl")[1]
    assert branch.name.endswith("session.jsonl branch")
    assert format_lines(branch)[branch.begins :] == ["user: Then add it", "assistant: I would rather change the tests."]
    assert list(branch.recorded) == [7]


def test_after_a_compaction_the_history_is_the_summary_and_what_was_kept():
    after = conversations("claude-code/session.jsonl")[2]
    assert after.name.endswith("after compaction")
    assert format_lines(after) == [
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
    assert format_lines(agent)[-1] == "assistant: One caller: src/checkout.py:12"


def test_codex_items_become_messages_and_the_usage_closes_an_answer():
    first, after = conversations("codex/rollout.jsonl")
    assert format_lines(first) == [
        "system: You are Codex.",
        "developer: <permissions instructions>",
        "user: The total is wrong, see src/cart.py",
        "assistant: (Look at the file) Both. c1=exec_command(cat src/cart.py) c2=exec_command(cat src/tax.py)",
        "tool c1: <cart>",
        "tool c2: cat: src/tax.py: No such file",
        "assistant:  c3=apply_patch(...)",
        "tool c3: Success",
    ]
    assert recorded_figures(first) == {3: (900, 3), 6: (1100, 9)}
    assert format_lines(after) == [
        "system: You are Codex.",
        "user: The total is wrong, see src/cart.py",
        "user: Summary: src/cart.py was patched.",
        "user: Run the tests",
        "assistant:  c4=exec_command(make check)",
        f"tool c4: 2 passed + {PICTURE}",
        "assistant: All green.",
    ]
    assert (after.begins, recorded_figures(after)) == (3, {4: (400, 24), 6: (440, 28)})


def test_older_codex_rollouts_hold_only_the_summary_and_turns_are_rolled_back(tmp_path):
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
    assert format_lines(first) == ["system: Be brief.", "user: One", "assistant: 1"]
    assert format_lines(compacted)[compacted.begins - 3 :] == format_lines(compacted)
    assert format_lines(compacted)[:3] == ["system: Be brief.", "user: One", "user: They count."]
    assert format_lines(rolled_back) == [*format_lines(compacted)[:3], "user: Three", "assistant: 3"]
    assert rolled_back.begins == 3


def test_pi_keeps_entries_behind_the_summary_and_shows_what_its_person_ran():
    first, after = conversations("pi/session.jsonl")
    assert format_lines(first) == [
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
    assert recorded_figures(first)[3] == (89, 8)
    assert [line.split("\n")[0] for line in format_lines(after)] == [
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
    assert format_lines(first) == [
        f"user: The total is wrong + {PICTURE}",
        "assistant: (Read it.)  o1=read(src/cart.py)",
        "tool o1: <cart>",
        "assistant: The tax is missing.",
        "user: Fix it",
        "assistant:  o2=edit(src/cart.py)",
        "tool o2: The user rejected this",
    ]
    assert recorded_figures(first) == {1: (90, 4), 3: (112, 4), 5: (124, 24)}
    assert format_lines(after) == [
        "user: What did we do so far?",
        "assistant: The tax is missing in src/cart.py; an edit was rejected.",
        "user: Explain the edit",
        "assistant: It multiplies by RATE.",
    ]
    assert after.begins == 2


def test_mini_swe_agent_messages_without_what_was_not_sent():
    chat = one("mini-swe-agent/run.traj.json")
    assert format_lines(chat) == [
        "system: You fix issues.",
        "user: The total is wrong",
        "assistant: I look. y1=bash(cat src/cart.py)",
        "tool y1: <cart>",
        "assistant: Done.",
    ]
    assert "extra" not in chat.messages[2]
    assert recorded_figures(chat) == {2: (420, 3), 4: (500, 8)}


def test_mini_swe_agent_runs_of_the_responses_api_are_named_as_not_read(tmp_path):
    run = {"trajectory_format": "1.1", "messages": [{"role": "user", "content": "hi"}, {"object": "response"}]}
    (tmp_path / "run.traj.json").write_text(json.dumps(run))
    (session,) = read_sessions(tmp_path / "run.traj.json")
    assert session.conversations == ()
    assert session.notes["runs of a model of the Responses API, not read"] == 1


def test_our_own_transcripts_are_a_tree_that_several_processes_wrote():
    main, branch = conversations("transcripts/team/conversation")
    assert format_lines(main) == [
        "system: You fix issues.",
        "user: The total is wrong",
        "assistant:  q1=read(src/cart.py)",
        "tool q1: <cart>",
        "assistant: The tax is missing.",
        "user: Explain it",
        "assistant: It multiplies.",
    ]
    assert recorded_figures(main) == {2: (60, 3), 4: (90, 8), 6: (98, 33)}
    assert format_lines(branch)[branch.begins :] == ["user: Fix it", "assistant: Fixed."]

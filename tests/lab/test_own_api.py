"""Sessions of agents that speak Messages or Responses are replayed as requests of that API."""

import json
import pickle

import pytest

from proxy.config.settings import Config
from proxy.lab.replay.designs import DESIGNS
from proxy.lab.replay.replay_history import BREAKPOINTS, MARKS, PROVIDER, UNMARKED, Cache, Marked, ReplayHistory
from proxy.lab.replay.replay_jobs import Job, replay_job
from proxy.lab.replay.replay_values import PRICES, Tokens
from proxy.lab.replay.scoring import ReplayCase, UpstreamModel
from proxy.lab.replay.simulation import Trial, build_rules
from proxy.lab.replay.summarizers import StandIn
from tests.lab.conversation_text import SAMPLES, conversations, one

PRICE = PRICES["tenth"]


def last_request(conversation):
    history = ReplayHistory(conversation)
    return json.loads(history.body(history.places[-1]))


def lines_of(name):
    """Of a file whose last line was cut off when the machine went down."""
    lines = (SAMPLES / name).read_text().splitlines()
    return [json.loads(line) for line in lines if line.endswith("}")]


def test_claude_code_sends_the_blocks_of_its_file_marked_at_their_end():
    sent = last_request(conversations("claude-code/session.jsonl")[0])
    written = [
        block
        for line in lines_of("claude-code/session.jsonl")
        for block in line.get("message", {}).get("content", [])
        if isinstance(block, dict)
    ]
    blocks = [block for message in sent["messages"] for block in message["content"]]
    assert blocks[-1].pop("cache_control") == {"type": "ephemeral"}
    answer, results = ["thinking", "tool_use", "tool_use"], ["tool_result", "tool_result"]
    of_file = [block["type"] for block in blocks if block in written]
    assert of_file == [*answer, *results, "text", "tool_use", "tool_result"]
    assert sent["thinking"] == {"type": "adaptive"}


def test_codex_sends_the_items_of_its_file():
    sent = last_request(conversations("codex/rollout.jsonl")[0])
    written = [line["payload"] for line in lines_of("codex/rollout.jsonl") if line["type"] == "response_item"]
    assert sent["input"] == written[: len(sent["input"])]
    assert {"reasoning", "function_call", "function_call_output"} < {item["type"] for item in sent["input"]}
    assert sent["instructions"] == "You are Codex."


def test_usage_is_attached_to_the_answer_it_was_recorded_for():
    for conversation in (*conversations("claude-code/session.jsonl"), *conversations("codex/rollout.jsonl")):
        history = ReplayHistory(conversation)
        assert [each.tokens for each in history.recorded.values()] == [
            each.tokens for each in conversation.recorded.values()
        ]
        assert all(history.request.messages[place].role == "assistant" for place in history.recorded)


@pytest.mark.parametrize(
    ("name", "marked"), [("claude-code/session/subagents/agent-7.jsonl", True), ("pi/session.jsonl", False)]
)
def test_only_a_client_of_messages_is_billed_by_its_marks(name, marked):
    conversation = one(name) if marked else conversations(name)[0]
    case = ReplayCase(ReplayHistory(conversation), UpstreamModel())
    assert case.habit is (MARKS if marked else PROVIDER)
    assert (
        any(isinstance(piece, Marked) for piece in case.history.render_unchanged(case.turns[-1].request).pieces)
        == marked
    )
    assert ReplayCase(case.history, UpstreamModel(habit=BREAKPOINTS)).habit is BREAKPOINTS


def test_the_end_of_the_shortened_part_is_marked_as_in_the_running_proxy():
    case = ReplayCase(ReplayHistory(conversations("claude-code/session.jsonl")[0]), UpstreamModel())
    request = case.turns[-1].request
    first = next(number for number, message in enumerate(request.messages) if message.is_result)
    short = request.messages[first].with_text("[short]", "clear_results")
    view = (*request.messages[:first], short, *request.messages[first + 1 :])
    marked = [piece for piece in case.history.render(request, view, request.tools).pieces if isinstance(piece, Marked)]
    assert len(marked) == 2
    assert b"[short]" in marked[0]


def test_a_mark_finds_what_was_marked_within_twenty_blocks():
    head, blocks = b"h" * 2_000, [b"%03d" % number for number in range(60)]
    for added, cached in ((19, 2_000), (20, 0)):
        cache = Cache(MARKS, len)
        assert cache.read([Marked(head)], 0).cached == 0
        assert cache.read([head, *blocks[: added - 1], Marked(blocks[added])], 1).cached == cached


def test_an_agent_without_marks_stores_nothing_in_the_cache_unless_a_proxy_sets_some():
    (conversation, *_) = conversations("claude-code/session.jsonl")
    trials = [
        Trial("nothing", DESIGNS["nothing"], 128_000),
        Trial("lossless", build_rules(Config().policy("lossless"), "lossless"), 128_000),
    ]
    results = replay_job(Job(conversation, trials, UpstreamModel(habit=UNMARKED)))
    nothing, lossless = (result.scores for result in results)
    assert nothing.forwarded == nothing.raw == lossless.raw == Tokens(unstored=nothing.raw.read)
    assert lossless.forwarded.unstored < 0.1 * lossless.forwarded.read


def test_another_process_reads_marks_too():
    (conversation, *_) = conversations("claude-code/session.jsonl")
    upstream = pickle.loads(pickle.dumps(UpstreamModel()))
    assert ReplayCase(ReplayHistory(conversation), upstream).habit == MARKS


@pytest.mark.parametrize("name", ["claude-code/session.jsonl", "codex/rollout.jsonl"])
def test_every_shipped_policy_forwards_the_elements_of_the_session(name):
    for policy in Config().all_policies:
        for conversation in conversations(name):
            trial = Trial(policy, build_rules(Config().policy(policy), policy), 4_000, PRICE, StandIn())
            (result,) = replay_job(Job(conversation, [trial], UpstreamModel(window=4_000)))
            assert result.scores.requests == len(ReplayHistory(conversation).places)
            assert result.scores.invalid == {}

"""What a policy says of tools (`policies.NAME.tools`) is done whichever steps it lists."""

import pytest

from proxy.config.policies import Policy, shipped_policies
from proxy.config.settings import Config
from proxy.history.grouping import count_flaws
from proxy.shorten.clear_results import ClipOutput
from proxy.shorten.pipeline import Draft
from proxy.shorten.rules import Facts, Rules
from proxy.shorten.tool_designs import ToolHints
from tests.support.agent import page
from tests.support.compaction_worker import Worker, turns
from tests.support.messages import call, calls, history, request, system, user

OFF = {"enabled": False}
CLEARING = {"summary": OFF, "clear_at_least": 2_000}


def work(*pieces, reads=30):
    """An agent that has used some tools, and has read files ever since."""
    reading = [call("Read", path=f"src/part_{number}.py", out=page(number, 4_000)) for number in range(reads)]
    return history(system("You are an agent."), user("Make it work."), *pieces, *reading)


def shorten(policy, *pieces, reads=30, window=None, model=""):
    rules = Policy.model_validate(policy).rules("mine")
    worker = Worker(rules, Facts(usable_tokens=window, can_summarize=bool(model)), model=model)
    return worker.send(work(*pieces, reads=reads))


def find_state(sent, tool):
    """What became of the only call of this tool and of its result."""
    view = sent.plan.view
    found = next((message for message in view if any(each.name == tool for each in message.calls)), None)
    if found is None:
        return "removed"
    result = next(message for message in view if message.is_result and message.start == found.start + 1)
    return "shortened" if result.made else "whole"


DUMP = call("mcp__db__dump", q="a", out=page(500, 3_000))
SAVED = call("save_report", text="total = 1\n" * 2_000, out="saved")
ASKED = call("ask_user_docs", q="b", out=page(600, 3_000))
STATE = call("state_get", key="1", out=page(700, 3_000))


def test_a_policy_that_says_nothing_of_tools_has_the_steps_that_it_lists():
    assert Policy().rules("default").when_full == Rules().when_full
    for name in ("j-cli", "middleware", "jp", "blocks"):
        policy = shipped_policies()[name]
        listed = [next(iter(entry)) for entry in policy.when_full]
        assert [step.name for step in policy.rules(name).when_full] == listed


@pytest.mark.parametrize("side", ["request", "response"])
def test_a_call_to_be_removed_goes_with_its_result_under_the_default_steps(side):
    sent = shorten({"tools": {"mcp_*": {side: "remove"}}, **CLEARING}, DUMP, STATE)
    assert find_state(sent, "mcp__db__dump") == "removed"
    assert find_state(sent, "state_get") == "shortened"
    assert sent.flaws == count_flaws(sent.body)


def test_the_result_of_an_exempt_tool_is_stripped_where_the_policy_says_so():
    assert find_state(shorten(CLEARING, ASKED), "ask_user_docs") == "whole"
    sent = shorten({"tools": {"ask_*": {"response": "strip"}}, **CLEARING}, ASKED)
    assert find_state(sent, "ask_user_docs") == "shortened"


def test_of_several_globs_that_match_a_tool_the_first_one_counts():
    tools = {"ask_user_docs": {"response": "strip"}, "ask_*": {"response": "keep"}}
    assert find_state(shorten({"tools": tools, **CLEARING}, ASKED), "ask_user_docs") == "shortened"
    turned = dict(reversed(tools.items()))
    assert find_state(shorten({"tools": turned, **CLEARING}, ASKED), "ask_user_docs") == "whole"


@pytest.mark.parametrize("steps", [None, [], [{"clear_results": {}}, {"clear_arguments": {}}]])
def test_long_arguments_are_stripped_where_the_policy_says_so(steps):
    policy = CLEARING if steps is None else {"when_full": steps, **CLEARING}
    sizes = [
        len(each.arguments)
        for tools in ({}, {"save_*": {"request": "strip"}})
        for message in shorten({"tools": tools, "trigger_tokens": 20_000, "fold": [], **policy}, SAVED).plan.view
        for each in message.calls
        if each.name == "save_report"
    ]
    assert sizes[0] > 10_000
    assert sizes[1] < 1_000


def test_a_policy_without_a_step_that_clears_strips_and_removes_what_it_says():
    tools = {"mcp_*": {"response": "remove"}, "state_*": {"response": "strip"}}
    policy = {"tools": tools, "when_full": [], "fold": [], "trigger_tokens": 8_000, "summary": OFF, "min_progress": 0}
    sent = shorten(policy, DUMP, STATE)
    assert [find_state(sent, name) for name in ("mcp__db__dump", "state_get", "Read")] == [
        "removed",
        "shortened",
        "whole",
    ]


def test_the_newest_results_that_a_step_keeps_are_not_removed():
    policy = {"inherit": "j-cli", "tools": {"Read": {"response": "remove"}}}
    config = Config.model_validate({"policies": {"mine": policy}})
    sent = Worker(config.policy("mine").rules("mine"), Facts(can_summarize=False)).send(work())
    assert sum(each.name == "Read" for message in sent.plan.view for each in message.calls) == 10


@pytest.mark.parametrize("steps", [[{"drop_middle": {}}], [{"one_liners": {}}]])
def test_a_result_to_be_kept_stays_where_the_history_is_folded(steps):
    policy = {"summary": OFF, "when_full": [], "fold": steps, "fold_all": True}
    assert find_state(shorten(policy, STATE, window=12_000), "state_get") == "removed"
    kept = {"tools": {"state_get": {"response": "keep"}}, **policy}
    sent = shorten(kept, STATE, window=12_000)
    assert sent.plan.reason == "window"
    assert find_state(sent, "state_get") == "whole"


@pytest.mark.parametrize("shape", ["notes", "single", "pair"])
def test_a_result_to_be_kept_stays_beside_a_summary(shape):
    summary = {"shape": shape, "prompt": "structured", "ledger": 0}
    policy = {"trigger_tokens": 16_000, "target": 0.6, "when_full": []}
    policy |= {"summary": summary}
    kept = {"tools": {"state_get": {"response": "keep"}}, **policy}
    written = "\n".join(f"## {heading}\nThe tests pass." for heading in Policy().summary.prompt.headings)
    fates = [find_state(shorten(each, STATE, model=written), "state_get") for each in (policy, kept)]
    assert fates == ["removed", "whole"]


def test_results_to_be_kept_take_half_of_the_target_at_most_and_the_newest_stay():
    many = [call("state_get", key=str(number), out=page(700 + number, 3_000)) for number in range(30)]
    policy = {"tools": {"*": {"response": "keep"}}, "summary": OFF}
    sent = shorten(policy, *many, window=12_000)
    found = [each.arguments for message in sent.plan.view for each in message.calls]
    assert sent.plan.tokens_after < 12_000
    assert "src/part_29.py" in found[-1]
    assert not any("key" in each for each in found)


def test_a_result_beside_one_that_is_kept_stays_as_it_was_cleared():
    both = calls(("state_get", {"key": "1"}, page(700, 2_000)), ("Read", {"path": "a.py"}, page(800, 4_000)))
    policy = {"tools": {"state_get": {"response": "keep"}}, "summary": OFF}
    view = shorten(policy, both, window=12_000).plan.view
    place = next(place for place, message in enumerate(view) if len(message.calls) == 2)
    assert [message.made for message in view[place : place + 3]] == ["", "", "clear_results"]


def test_a_huge_result_to_be_kept_is_not_clipped_when_it_arrives():
    huge = call("state_get", key="1", out=page(1, 60_000))
    fates = []
    for policy in (CLEARING, {"tools": {"state_get": {"response": "keep"}}, **CLEARING}):
        worker = Worker(Policy.model_validate(policy).rules("mine"), Facts())
        sendings = [worker.send(messages) for messages in turns(work(huge))]
        fates.append([find_state(sendings[place], "state_get") for place in (1, -1)])
    assert fates == [["shortened", "shortened"], ["whole", "whole"]]


def test_of_several_globs_the_first_one_decides_also_whether_a_result_is_clipped():
    tools = {"mcp_dump": {"response": "strip"}, "mcp_*": {"response": "keep"}}
    (clip,) = (step for step in Policy(tools=tools).rules("mine").always if isinstance(step, ClipOutput))
    body = request(user("x"), *[call(tool, out=page(1, 60_000)) for tool in ("mcp_dump", "mcp_state")]).body
    made = [message.made for message in clip(Draft((), body, origin=body)).middle if message.is_result]
    assert made == ["clip_output", ""]


def test_a_repeated_call_makes_the_older_one_obsolete_where_the_policy_says_so():
    twice = [call("state_get", key="1", out=page(700 + number, 3_000)) for number in range(2)]
    others = [call("ask_user_docs", q="1", out=page(800 + number, 3_000)) for number in range(2)]
    tools = {"state_get": {"dedup": True, "response": "keep"}}
    view = shorten({"tools": tools, **CLEARING}, *twice, *others).plan.view
    callers = [(place, each.name) for place, message in enumerate(view) for each in message.calls]
    made = [(name, view[place + 1].made) for place, name in callers if name != "Read"]
    assert made == [("state_get", "dedup_old"), ("state_get", ""), ("ask_user_docs", ""), ("ask_user_docs", "")]


def test_a_pointer_to_a_result_that_is_removed_says_so():
    same = page(500, 3_000)
    pieces = [call("mcp__db__dump", q="a", out=same), call("Bash", command="cat a.py", out=same)]
    policy = Policy.model_validate({"tools": {"mcp_*": {"response": "remove"}}, **CLEARING, "clear_at_least": 1_000})
    worker = Worker(policy.rules("mine"), Facts())
    *_, sent = [worker.send(messages) for messages in turns(work(*pieces))]
    (pointer,) = [message.text for message in sent.plan.view if "same as" in message.text]
    assert "mcp__db__dump" in pointer
    assert "removed above" in pointer


def test_a_list_with_the_step_for_tools_gets_no_second_one():
    policy = Policy.model_validate({"tools": {"x": {"response": "remove"}}, "when_full": [{"tool_hints": {}}]})
    (step,) = policy.rules("mine").when_full
    assert step == ToolHints(hints=(("x", "", "remove"), *ToolHints().hints))


PAGES = {"path": "doc", "start": "from_page", "end": "to_page"}
NARROW = call("page_of", doc="a.pdf", from_page=4, to_page=5, out=page(1, 3_000))
WIDE = call("page_of", doc="a.pdf", from_page=1, to_page=9, out=page(2, 3_000))


@pytest.mark.parametrize(
    ("subsumes", "arguments"),
    [
        (PAGES, ({"from_page": 4, "to_page": 5}, {"from_page": 1, "to_page": 9})),
        ({"path": "doc", "start": "at", "count": "many"}, ({"at": 4, "many": 2}, {"at": 1, "many": 9})),
        ({"path": "doc", "start": "pages"}, ({"pages": [4, 5]}, {"pages": [1, 9]})),
    ],
)
def test_a_wider_call_of_a_tool_of_ones_own_makes_a_narrower_one_obsolete(subsumes, arguments):
    narrow, wide = (call("page_of", doc="a.pdf", out=page(number, 3_000), **of) for number, of in enumerate(arguments))
    sent = shorten({"tools": {"page_of": {"subsumes": subsumes}}, **CLEARING}, narrow, wide)
    (first, second) = [
        message for message in sent.plan.view if message.is_result and message.made and "page_of" in message.text
    ]
    assert "was called again; see its newer result below" in first.text
    assert second.made == "clear_results"
    (first, _) = [
        message
        for message in shorten(CLEARING, narrow, wide).plan.view
        if message.is_result and message.made and "page_of" in message.text
    ]
    assert first.made == "clear_results"


def test_a_wider_call_makes_nothing_obsolete_where_repeated_calls_do_not():
    tools = {"page_of": {"subsumes": PAGES, "dedup": False}}
    steps = {message.made for message in shorten({"tools": tools, **CLEARING}, NARROW, WIDE).plan.view}
    assert "clear_results" in steps
    assert "dedup_old" not in steps

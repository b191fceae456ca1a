"""A step of one's own: the example of the documents, mistakes in it, and what a step may not do."""

import json
import re

import pytest
from pydantic import ValidationError

from proxy.config.policies import Policy
from proxy.shorten.pipeline import Draft, run
from tests import ROOT
from tests.support.agent import Agent
from tests.support.messages import assistant, call, history, request, system, user
from tests.support.scripted_upstream import Upstream, text_turn

PAGE = (ROOT / "docs" / "policies.md").read_text(encoding="utf-8")
SECTION = PAGE.partition("### A step of your own\n")[2].partition("\n### ")[0]
EXAMPLE, SETTINGS = re.findall(r"```(?:python|yaml)\n(.*?)```", SECTION, re.DOTALL)
BUILD = "\n".join([*(f"{done} %\nbuilding {done}%" for done in range(100)), "built 3 files"])
HISTORY = history(system("You build."), user("Build it."), call("Bash", out=BUILD, command="make"), user("And?"))
BAD = """
from proxy.shorten.pipeline import Draft

def make_longer(draft):
    return draft.with_middle([message.with_text(message.text + "!" * 99, "x") for message in draft.middle])

def drop_results(draft):
    return draft.with_middle(message for message in draft.middle if not message.is_result)

def repeat_the_call(draft):
    call = next(message for message in draft.middle if message.role == "assistant")
    return draft.with_middle(call if message.is_result else message for message in draft.middle)

def touch_fixed(draft):
    return draft.with_middle(message for message in draft.middle if message.start not in draft.fixed)

def swap(draft):
    user, call, result = draft.middle
    return draft.with_middle((call, result, user))

def touch_newest(draft):
    return Draft(draft.before, draft.middle, ())

def fail(draft):
    raise ValueError("a fault of the step")

def forget(draft):
    pass
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "acme_steps.py").write_text(EXAMPLE, encoding="utf-8")
    (tmp_path / "bad_steps.py").write_text(BAD, encoding="utf-8")
    (tmp_path / "broken_steps.py").write_text("one = undefined\n", encoding="utf-8")


def shorten(name):
    asked = request(HISTORY)
    body = asked.body
    (step,) = Policy.model_validate({"when_full": [{name: {}}]}).rules("mine").when_full
    draft = Draft(asked.head, body[:-1], body[-1:], origin=body, fixed=frozenset({0}))
    after, (report,) = run([step], draft)
    return draft, after, report


@pytest.mark.usefixtures("own")
def test_the_example_of_the_documents_shortens_an_old_result():
    assert "acme_steps:drop_progress" in SETTINGS
    _, after, report = shorten("acme_steps:drop_progress")
    (result,) = [message.text for message in after.middle if message.is_result]
    assert "built 3 files" in result
    assert "building 42%" not in result
    assert (report.step, report.messages, report.refused) == ("acme_steps:drop_progress", 1, "")
    assert report.saved > 100


@pytest.mark.usefixtures("own")
@pytest.mark.parametrize(
    ("function", "why"),
    [
        ("make_longer", "it made the history longer"),
        ("drop_results", "it left a call without its result"),
        ("repeat_the_call", "it left a call without its result"),
        ("touch_fixed", "it touched a fixed message"),
        ("swap", "it moved messages"),
        ("touch_newest", "it touched what stands outside the middle"),
    ],
)
def test_the_work_of_a_step_that_breaks_a_rule_is_thrown_away(function, why):
    before, after, report = shorten(f"bad_steps:{function}")
    assert after is before
    assert report.refused == why


@pytest.mark.usefixtures("own")
@pytest.mark.parametrize(
    ("entry", "why"),
    [
        ({"when_full": [{"acme_steps:no_such": {}}]}, "the module 'acme_steps' has no function 'no_such'"),
        ({"when_full": [{"acme_stepps:x": {}}]}, "No module named 'acme_stepps'): is it on PYTHONPATH?"),
        ({"when_full": [{"broken_steps:x": {}}]}, "(NameError: name 'undefined' is not defined)"),
        ({"when_full": [{"acme_steps:drop_progress": {"over": 3}}]}, "acme_steps:drop_progress takes no settings"),
        ({"always": [{"acme_steps:drop_progress": {}}]}, "stands in `when_full` or `fold`"),
        ({"when_full": [{"clear": {}}]}, "and `module:function` is one of your own"),
    ],
)
def test_a_step_that_cannot_be_loaded_is_a_fault_in_a_sentence(entry, why):
    with pytest.raises(ValidationError) as refused:
        Policy.model_validate(entry)
    assert why in str(refused.value)


@pytest.mark.usefixtures("own")
async def test_a_running_proxy_uses_the_step_and_forwards_what_came_if_it_fails(serve, tmp_path):
    work = [*HISTORY, *assistant("Built."), *user("Thanks. And now?")]
    others = {"always": [], "fold": [], "summary": {"enabled": False}, "keep": {"tokens": 0, "groups": 1}}
    outcomes = {
        "acme_steps:drop_progress": "created",
        "bad_steps:make_longer": "none",
        "bad_steps:fail": "failed-open",
        "bad_steps:forget": "failed-open",
    }
    config = {
        "policies": {f"with-{n}": {**others, "when_full": [{step: {}}]} for n, step in enumerate(outcomes)},
        "attachments": [{"policy": f"with-{n}", "tag": f"{n}"} for n in range(len(outcomes))],
    }
    async with Upstream(text_turn("Go on.")) as up:
        config["upstreams"] = [{"base_url": up.url, "window": 200_000}]
        async with serve(None, config=config, environment={"PYTHONPATH": str(tmp_path)}) as proxy:
            for n, (function, compaction) in enumerate(outcomes.items()):
                headers = {"x-compaction": "force", "x-compaction-tag": f"{n}"}
                step = await Agent(proxy, up, f"sk-{n}").send(work, headers=headers)
                assert (step.answer.status, step.compaction) == (200, compaction), function
                assert step.is_verbatim == (compaction != "created"), function
                assert ("building 42%" in json.dumps(step.messages)) == (compaction != "created"), function
                assert "built 3 files" in json.dumps(step.messages), function

"""Calls that must not be made twice, and what a placeholder says of them."""

import json

import pytest

from proxy.history.messages import ToolCall
from proxy.shorten.acts import ACTING_PROGRAMS, acts_on_world
from proxy.shorten.placeholder import TEMPLATE, render_placeholder

OUTPUT = "\n".join(f"step {number} is done" for number in range(100))


def make_call(name, **arguments):
    return ToolCall("1", name, json.dumps(arguments))


def bash(command):
    return make_call("Bash", command=command)


def render(call, text=OUTPUT):
    return render_placeholder(TEMPLATE, text, call)


@pytest.mark.parametrize("program", ACTING_PROGRAMS, ids=lambda program: program.example)
def test_each_entry_of_the_table_has_an_example_that_acts(program):
    assert acts_on_world(bash(program.example))
    assert acts_on_world(bash(f"cd /srv && sudo {program.example} 2>&1 | tail -3"))


@pytest.mark.parametrize(
    "command",
    [
        "shopctl charge-card --order 1042",
        "./deploy.sh checkout v42",
        "python scripts/send_invoices.py",
        "make deploy",
        "npm run deploy",
        "fly deploy --now",
        'psql shop -c "UPDATE orders SET state = 1"',
    ],
)
def test_programs_that_nobody_lists_are_known_by_their_words(command):
    assert acts_on_world(bash(command))


@pytest.mark.parametrize(
    "command",
    [
        "cat deploy.sh",
        "grep -rn charge src/",
        "pytest tests/test_deploy.py -k refund",
        "python -m pytest -q",
        "git log --oneline",
        "git diff HEAD~1",
        "gh pr view 12",
        "gh api repos/acme/shop/pulls/7",
        "curl -s https://api.example.com/orders",
        "kubectl get pods",
        "terraform plan",
        'psql shop -c "SELECT * FROM orders"',
        "ls releases",
        "echo push",
    ],
)
def test_what_reads_or_computes_does_not_act(command):
    assert not acts_on_world(bash(command))


@pytest.mark.parametrize(
    ("tool", "acts"),
    [
        *(("get_order_details", False), ("fetch_invoice", False), ("read_file", False)),
        *(("resolve_order_dispute", True), ("snapshot_and_deploy", True), ("load_and_submit", True), ("refund", True)),
    ],
)
def test_a_tool_acts_by_its_words_unless_the_first_one_reads(tool, acts):
    assert acts_on_world(make_call(tool)) == acts


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (bash("git merge origin/main --no-ff"), "Do not make this call again to see it"),
        (bash("shopctl charge-card --order 1042"), "Do not make this call again to see it"),
        (make_call("charge_card", order=1042, amount_cents=4999), "Do not make this call again to see it"),
        (make_call("mcp__shop__cancel_order", order=1042), "Do not make this call again to see it"),
        (make_call("browser_get_state"), "A new call shows how it looks then"),
        (make_call("rg", pattern="TODO", path="src"), "Call the tool again for the full text"),
        (make_call("EnterPlanMode"), "Calling the tool again may not return this text"),
        (bash("make test"), "Only a new run returns the full text"),
        (make_call("Read", file_path="a.py"), "Call the tool again for the full text"),
        (make_call("Agent", description="Look", prompt="Look."), "Calling the tool again may not return this text"),
    ],
)
def test_the_way_back_is_true(call, sentence):
    assert f"{sentence}" in render(call)


def test_what_acted_keeps_its_last_lines_and_ids_although_its_program_mostly_reads():
    made = render(bash("gh pr create --fill"), f"{OUTPUT}\nhttps://github.com/acme/shop/pull/12")
    assert made.endswith("\nhttps://github.com/acme/shop/pull/12")
    charged = render(
        make_call("charge_card", order=1042, amount_cents=4999),
        json.dumps({"id": "ch_19f3", "status": "succeeded", "log": OUTPUT}),
    )
    assert "charge_card(order: 1042, amount_cents: 4999)" in charged
    assert "ch_19f3" in charged
    assert "succeeded" in charged

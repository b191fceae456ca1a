"""Calls that must not be made twice, and what a placeholder says of them."""

import json

import pytest

from proxy.shorten.placeholder import TEMPLATE, render_placeholder
from proxy.tools.effects import acts_on_world
from proxy.tools.file_uses import is_file_text, list_file_uses
from proxy.tools.programs import ACTING_PROGRAMS
from proxy.tools.tool_call import ToolCall

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


def test_a_handle_is_named_once_also_by_a_template_without_a_place_for_it():
    for template in (TEMPLATE, "{tool}"):
        assert render_placeholder(template, OUTPUT, bash("make"), "recall(3)").count("Call recall(3) for the full") == 1


@pytest.mark.parametrize(
    ("command", "uses", "is_complete", "is_text"),
    [
        ("cat -n a.py b.py", {"a.py": "", "b.py": ""}, True, True),
        ("cd src && head -5 a.py | tail -1", {"src/a.py": ""}, True, True),
        ("cd src && cd && cat ../a.py ~/b.py", {"../a.py": "", "~/b.py": ""}, True, True),
        ("pwd; echo x; cat a.py", {"a.py": ""}, True, True),
        ("cat a.log", {"a.log": ""}, True, False),
        ("cat a.py && make", {"a.py": ""}, False, False),
        ("make", {}, False, False),
        ("echo x", {}, False, False),
        ("sed -n 1,40p a.py", {"a.py": ""}, True, True),
        ("sed -i s/a/b/ a.py b.py", {"a.py": "edited", "b.py": "edited"}, True, False),
        ("echo x > a.py", {"a.py": "written"}, True, False),
        ("make 1> a.txt 2> b.txt >&2", {"a.txt": "written"}, True, False),
        ("mv -f a.py b.py", {"b.py": "moved here"}, True, False),
        ("cp a.py b.py", {"b.py": "copied"}, True, False),
        ("git mv a.py b.py && git rm c.py", {"b.py": "moved here", "c.py": "deleted"}, True, False),
        ("git checkout -- a.py && git checkout main", {"a.py": "restored"}, False, False),
        ("cat $X https://a.org/b 1,2 /dev/null 'a*'", {}, False, False),
        ("cat > a.py <<'E'\nrm b.py\nE\ncat c.py", {"a.py": "written", "c.py": ""}, True, False),
        ("apply_patch <<E\n*** Begin Patch\n*** Delete File: a.py\nE", {"a.py": "deleted"}, True, False),
        ("cd x; apply_patch <<E\n*** Begin Patch\n*** Add File: a.py\nE", {"a.py": "edited"}, False, False),
    ],
)
def test_the_files_of_a_command_and_whether_it_does_nothing_else(command, uses, is_complete, is_text):
    file_uses, does_nothing_else = list_file_uses(bash(command))
    assert {use.path: use.change for use in file_uses} == uses
    assert (does_nothing_else, is_file_text(bash(command))) == (is_complete, is_text)

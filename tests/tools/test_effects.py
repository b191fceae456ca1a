"""Calls that must not be made twice, and what a placeholder says of them."""

import json

import pytest

from proxy.shorten.outcome import ResultOutcome, find_outcome
from proxy.shorten.placeholder import TEMPLATE, render_placeholder
from proxy.tools.file_uses import acts_on_world, find_quoting_kind, is_file_text, list_file_uses
from proxy.tools.tool_call import ToolCall
from tests.support.cost_growth import assert_grows_in_proportion

OUTPUT = "\n".join(f"step {number} is done" for number in range(100))


def make_call(name, **arguments):
    return ToolCall("1", name, json.dumps(arguments))


def bash(command):
    return make_call("Bash", command=command)


def render(call, text=OUTPUT):
    return render_placeholder(TEMPLATE, text, call, find_outcome(text, call))


ACTS = """
bash -c 'git push'
ssh host 'systemctl restart x'
gh pr merge 3
curl -s -X POST https://a.example/orders
docker exec db psql -c "UPDATE t SET a=1"
kubectl exec p -- curl -X POST http://x
for i in 1 2; do curl -X POST http://x; done
cd x && git push origin main 2>&1 | tail -5
FOO=1 git push
az vm delete
stripe charges create
http POST https://x a=1
shopctl charge-card --order 1042
shopctl --env prod deploy checkout
shopctl card charge
./deploy.sh checkout v42
python scripts/send_invoices.py
xargs -n 1 kubectl delete pod < pods.txt
X=$(gh pr create --fill)
kubectl apply --dry-run=none -f a.yaml
psql shop < dump.sql
"""
ACTS_NOT = """
gh run watch 1
kubectl rollout history deploy/x
git log --merges
curl -s https://es/_search -d '{"query":{}}'
helm upgrade --dry-run x
terraform plan
docker run img
docker compose ps
heroku logs
redis-cli get x
make test
cat deploy.sh
grep -rn charge src/
python scripts/check_deploy.py
git commit --help
shopctl show deploy
shopctl help charge-card
echo 'git push'
psql shop -c "SELECT 'a' AS update"
find . -name deploy -exec grep push {} +
now the tests pass
"""


@pytest.mark.parametrize("line", ACTS.strip().split("\n"))
def test_a_command_acts_if_it_would_do_it_again_to_the_world(line):
    assert acts_on_world(bash(line))


@pytest.mark.parametrize("line", ACTS_NOT.strip().split("\n"))
def test_a_command_that_looks_computes_or_changes_files_does_not_act(line):
    assert not acts_on_world(bash(line))


def test_a_script_that_a_shell_reads_acts_and_a_text_that_is_written_does_not():
    for program, acts in (("cat > deploy.sh", False), ("bash", True), ("ssh web1", True), ("python -", False)):
        assert acts_on_world(bash(f"{program} <<'E'\ngit push\nE")) == acts


@pytest.mark.parametrize(
    ("tool", "acts"),
    [
        *(("get_order_details", False), ("fetch_invoice", False), ("read_file", False)),
        *(("resolve_order_dispute", True), ("snapshot_and_deploy", True), ("load_and_submit", True), ("refund", True)),
        *(("mcp__tracker__create_issue", True), ("send_message", True), ("slack_post_message", True)),
        *(("assign_issue", True), ("check_and_deploy", True), ("check_rollout_status", False), ("get_schedule", False)),
        *(("mcp__stripe__create_refund", True), ("transferFunds", True), ("send_email", True)),
        *(("modify_user_address", True), ("issue_update", True), ("query-docs", False), ("list_issues", False)),
        *(("TaskCreate", False), ("save_memory", False), ("run_slash_command", False), ("Task", False)),
        *(("apply_patch", False), ("update_plan", False), ("calculate", False), ("run_tests", False)),
    ],
)
def test_a_tool_acts_by_its_words_unless_the_first_one_reads(tool, acts):
    assert acts_on_world(make_call(tool)) == acts


MAY_ACT = ("get_or_create_ticket", "browser_click", "open_ticket", "check_in_guest")


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (bash("git merge origin/main --no-ff"), "Do not make this call again to see it"),
        (bash("shopctl charge-card --order 1042"), "Do not make this call again to see it"),
        (make_call("charge_card", order=1042, amount_cents=4999), "Do not make this call again to see it"),
        (make_call("mcp__shop__cancel_order", order=1042), "Do not make this call again to see it"),
        *((make_call(tool, title="Clock"), "would do it again") for tool in MAY_ACT),
        (make_call("browser_get_state"), "A new call shows how it looks then"),
        (make_call("rg", pattern="TODO", path="src"), "Call the tool again for its current result"),
        (make_call("EnterPlanMode"), "Calling the tool again may not return this text"),
        (bash("make test"), "Only a new run shows it, as it is then"),
        (make_call("Read", file_path="a.py"), "Call the tool again for the full text"),
        (bash("sed -n 1,200p a.py"), "Call the tool again for the full text"),
        (make_call("WebFetch", url="https://a.example"), "Call the tool again for its current result"),
        (make_call("mcp__jira__get_issue", key="A-1"), "Call the tool again for its current result"),
        (make_call("searchDocs", text="clock"), "Call the tool again for its current result"),
        (make_call("list_orders"), "Call the tool again for its current result"),
        (make_call("Edit", file_path="a.py", old_string="a", new_string="b"), "Read the file for its current text"),
        (make_call("Agent", description="Look", prompt="Look."), "Calling the tool again may not return this text"),
        (make_call("write_stdin", session_id=80697, chars=""), "Calling the tool again may not return this text"),
        (make_call("BashOutput", bash_id="b7"), "Calling the tool again may not return this text"),
    ],
)
def test_the_way_back_is_true(call, sentence):
    assert f"{sentence}" in render(call)


def test_a_handle_is_named_once_also_by_a_template_without_a_place_for_it():
    for template in (TEMPLATE, "{tool}"):
        text = render_placeholder(template, OUTPUT, bash("make"), ResultOutcome(), "recall(3)")
        assert text.count("Call recall(3) for the full") == 1


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


@pytest.mark.parametrize(
    ("program", "piece"),
    [
        *(
            ("psql -c", "/* "),
            ("psql -c", "-- "),
            ("psql -c", "WITH UPDATE x "),
            ("psql -c", "WITH COPY "),
            ("psql -c", ";("),
        ),
        *(("mongosh --eval", ".insert"), ("curl https://a.example/graphql -d", '"query": '), ("xh a.example", "a.b-[")),
        *(("gcloud", "a-"), ("make", "Deploy"), ("shopctl", "A"), ("scp a", "b@"), ("aws", "cp "), ("heroku", "a:")),
    ],
)
def test_a_longer_word_costs_more_in_proportion(program, piece):
    def judge(call):
        acts_on_world(call)
        find_quoting_kind(call)
        list_file_uses(call)

    assert_grows_in_proportion(judge, lambda size: bash(f"{program} '{piece * (size // len(piece))}'"), 12_000)

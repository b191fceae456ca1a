"""`compaction-proxy replay`, as it is called."""

import io
import json

import pytest

from proxy.cli import main
from proxy.lab.commands.replay import ProgressBar, draw_bar
from tests.support.messages import assistant, call, history, user

LONG = "x = 1\n" * 1_000
WORK = history(
    user("Mend it."), *[call("Read", path=f"src/{n}.py", out=f"{n}{LONG}") for n in range(24)], assistant("Done.")
)


FIGURES = (
    *("cost", "cost_with_rereads", "spans", "spans_per_conversation"),
    *("rewrites_per_100", "summaries", "lambda"),
)


@pytest.fixture
def saved_file(tmp_path):
    path = tmp_path / "work.json"
    path.write_text(json.dumps({"model": "gpt-4o", "messages": WORK}))
    return str(path)


def replay(*arguments):
    return main(["replay", *arguments])


def test_repaired_input_is_reported(tmp_path, capsys):
    rows = [json.dumps(message) for message in WORK]
    (tmp_path / "broken.jsonl").write_text("\n".join([*rows[:2], *rows[3:], '{"role": "assis']))
    (tmp_path / "shopping.json").write_text('{"items": ["bread"]}')
    assert replay(str(tmp_path), "--policy", "nothing") == 0
    assert capsys.readouterr().err.splitlines() == [
        "files of unknown form, skipped: 1",
        "lines that are no JSON, left out: 1",
        "calls without a recorded result, answered by a fixed text: 1",
    ]


def test_policies_are_named_and_come_as_json(saved_file, capsys):
    assert replay(saved_file, "--policy", "sliding-10", "--policy", "batched-10k", "--json") == 0
    output = json.loads(capsys.readouterr().out)
    assert [row["policy"] for row in output["policies"]] == ["sliding-10", "batched-10k"]
    dear = output["policies"][1]
    for name in FIGURES:
        assert dear[name].keys() == {"tenth", "twentieth", "fortieth"}
    assert dear["cost"]["tenth"] <= dear["cost_with_rereads"]["tenth"]
    assert dear["figures"]["tenth"]["tokens"] < 100
    assert len(output["conversations"][0]["points"]) == 25


def test_a_custom_policy_is_tried_like_any_other(saved_file, tmp_path, capsys):
    config = tmp_path / "mine.yaml"
    config.write_text("policies: {mine: {clear_at_least: 1000}}")
    assert replay(saved_file, "--config", str(config), "--policy", "mine", "--by", "source") == 0
    assert "mine, by source" in capsys.readouterr().out


def test_one_price_model_is_enough_if_one_is_named(saved_file, capsys):
    assert replay(saved_file, "--policy", "default", "--prices", "fortieth", "--prices", "model", "--json") == 0
    (default,) = json.loads(capsys.readouterr().out)["policies"]
    assert default["cost"].keys() == {"fortieth", "model"}


def test_conversations_are_chosen_by_size_and_by_part(tmp_path, capsys):
    for number in range(6):
        messages = WORK if number else WORK[:4]
        (tmp_path / f"{number}.json").write_text(json.dumps({"messages": messages}))

    def chosen(*options):
        assert replay(str(tmp_path), "--policy", "nothing", "--json", *options) == 0
        return [each["conversation"] for each in json.loads(capsys.readouterr().out)["conversations"]]

    everything = chosen()
    assert len(everything) == 6
    assert chosen("--least-tokens", "10000") == everything[1:]
    halves = [chosen("--part", "1/2"), chosen("--part", "2/2")]
    assert sorted(halves[0] + halves[1]) == sorted(everything)
    assert len(halves[0]) == len(halves[1]) == 3


def test_results_are_kept_and_a_page_is_written(saved_file, tmp_path, capsys):
    out, page = tmp_path / "out.jsonl", tmp_path / "page.html"
    assert replay(saved_file, "--out", str(out), "--html", str(page)) == 0
    first = capsys.readouterr().out
    assert len(out.read_text().splitlines()) == 1 + 3
    assert "<html" in page.read_text()
    assert replay(saved_file, "--out", str(out)) == 0
    assert capsys.readouterr().out == first


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_progress_is_drawn_on_terminals_only():
    terminal, file = Terminal(), io.StringIO()
    for out in (terminal, file):
        bar = ProgressBar(out, "conversations")
        for done in range(4):
            bar(done, 3)
    assert terminal.getvalue().endswith(f"\r{draw_bar(3, 3, 'conversations')}\x1b[K\n")
    assert file.getvalue() == ""
    assert draw_bar(1, 3, "conversations") == f"[{'#' * 10}{'.' * 20}] 1 of 3 conversations"

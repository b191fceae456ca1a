"""Warnings of libraries become lines of the log, without what they quote."""

import json
import logging

import pytest

from proxy import events
from proxy.telemetry.log import Log

CANARY = "sk-canary-0123456789abcdef0123456789"


def lines_of(capfd):
    return [json.loads(line) for line in capfd.readouterr().out.splitlines()]


@pytest.mark.parametrize(
    ("words", "message"),
    [(("cannot use %s", CANARY), "cannot use %s"), ((f"use {CANARY}",), "use [redacted: api-key]")],
)
def test_a_warning_of_a_library_is_a_line_without_its_arguments_and_secrets(capfd, words, message):
    log = Log("info", "json")
    logging.getLogger("redis").warning(*words)
    log.close()
    (line,) = lines_of(capfd)
    assert list(line) == ["timestamp", "level", "event", "logger", "message"]
    assert list(line.values())[1:] == ["warning", "library", "redis", message]


@pytest.mark.parametrize("form", ["json", "text"])
def test_an_exception_of_a_library_names_kind_and_place_and_no_text(capfd, form):
    log = Log("info", form)
    try:
        int(CANARY)
    except ValueError:
        logging.getLogger("asyncio").exception("Task failed")
    log.close()
    written = capfd.readouterr().out
    assert "ValueError" in written
    assert "test_library_lines.py:" in written
    assert CANARY not in written
    assert len(written.splitlines()) == 1


def test_what_libraries_say_below_a_warning_is_left_out_and_after_the_end_nothing_is_taken(capfd):
    log = Log("debug", "json")
    logging.getLogger("redis").info("connected")
    log.close()
    logging.getLogger("redis").warning("too late")
    assert lines_of(capfd) == []


@pytest.mark.parametrize(("level", "expected"), [("info", 4), ("warning", 3), ("error", 1)])
def test_a_level_leaves_out_what_matters_less(capfd, level, expected):
    log = Log(level, "json")
    log(events.Lifecycle("stopped"))
    log(events.StoreFailed("no route"))
    logging.getLogger("redis").warning("slow")
    logging.getLogger("redis").error("gone")
    log.close()
    levels = ["info", "warning", "warning", "error"]
    assert [line["level"] for line in lines_of(capfd)] == levels[-expected:]

"""Numbers of the configuration: one with which something would fail later is refused at load."""

import json
from typing import get_args

import pytest
from msgspec.structs import fields
from pydantic import BaseModel, ValidationError

from proxy.config.policies import Policy
from proxy.config.settings import Config
from proxy.shorten.steps import STEPS


def find_numbers(annotation, place=()):
    """The places of all settings that are numbers; an entry of a list or a mapping stands for all."""
    if annotation in (int, float):
        yield place
    elif isinstance(annotation, type) and issubclass(annotation, BaseModel):
        for name, field in annotation.model_fields.items():
            yield from find_numbers(field.annotation, (*place, name))
    for argument in get_args(annotation):
        yield from find_numbers(argument, place)


NUMBERS = sorted(set(find_numbers(Config)))
LISTS, NAMED = ("upstreams", "attachments", "hooks"), ("policies", "teams")
NEEDED = {"hooks": {"url": "http://127.0.0.1/"}}


def set_at(place, value):
    first, *rest = place
    below = value
    for name in reversed(rest):
        below = {name: below}
    if first in LISTS:
        return {first: [{**NEEDED.get(first, {}), **below}]}
    return {first: {"default": below} if first in NAMED else below}


@pytest.mark.parametrize("value", [".inf", "-.inf", ".nan", "1.0e+30"])
@pytest.mark.parametrize("place", NUMBERS, ids=".".join)
def test_a_number_that_nothing_can_use_is_refused_with_its_place(refuse, place, value):
    refused = refuse(str(set_at(place, value)).replace(f"'{value}'", value))
    assert all(place[-1] in fault.path.split(".") for fault in refused.faults)


def test_all_kinds_of_numbers_are_tried():
    assert len(NUMBERS) >= 40
    assert {("state", "days"), ("hooks", "seconds"), ("policies", "keep", "tokens")} < set(NUMBERS)


def find_step_numbers():
    for name, kind in STEPS.items():
        for field in fields(kind):
            if type(field.default) in (int, float):
                yield name, field.name


@pytest.mark.parametrize("value", [float("inf"), float("nan"), -1, 1e30])
@pytest.mark.parametrize(("step", "field"), list(find_step_numbers()))
def test_a_number_with_which_a_step_would_fail_is_refused(step, field, value):
    with pytest.raises(ValidationError):
        Policy.model_validate({"when_full": [{step: {field: value}}]})


@pytest.mark.parametrize("place", NUMBERS, ids=".".join)
def test_a_boolean_is_no_number(refuse, place):
    """YAML's `true` would be read as 1: a proxy that listens on port 1."""
    refused = refuse(json.dumps(set_at(place, value=True)))
    assert all(place[-1] in fault.path.split(".") for fault in refused.faults)


def test_leading_zeros_make_no_octal_number(load_text):
    assert load_text("listen: {port: 010}").listen.port == 10


def test_a_variable_may_say_1_for_true_and_holds_numbers_as_text(load_text):
    environ = {
        "COMPACTION_PROXY_TRANSCRIPTS__REQUIRED": "1",
        "COMPACTION_PROXY_LISTEN__PORT": "9000",
        "COMPACTION_PROXY_STATE__DIR": "5",
        "COMPACTION_PROXY_POLICIES__A__CLEAR_AT_LEAST": "40000",
        "COMPACTION_PROXY_LISTEN__MAX_BODY_MIB": "1.5",
    }
    config = load_text("policies: {a: {}}", environ)
    assert (config.transcripts.required, config.listen.port, config.state.dir) == (True, 9000, "5")
    assert (config.policy("a").clear_at_least, config.listen.max_body_mib) == (40_000, 1.5)


@pytest.mark.parametrize("text", ["attachments: [{rollout: %s}]", "otel: {sample: %s}"])
def test_a_percentage_below_1_is_written_with_its_sign(load_text, text):
    """`trigger: 0.1` is 10 %, so `rollout: 0.1` may be meant so too: it was a tenth of a percent without a word."""
    for written, percent in (("0.1%", 0.1), ("10%", 10), ("5 %", 5), ("0", 0), ("1", 1), ("2.5", 2.5)):
        config = load_text(text % written)
        assert percent in (config.otel.sample, *(attachment.rollout for attachment in config.attachments))
        assert load_text(json.dumps(config.model_dump(mode="json", include={"otel", "attachments"}))) == config

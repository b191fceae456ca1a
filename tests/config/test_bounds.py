"""Numbers of the configuration: one with which something would fail later is refused at load."""

from dataclasses import fields
from typing import get_args

import pytest
from pydantic import BaseModel, ValidationError

from proxy.config import Config, InvalidConfig, load
from proxy.config.policies import STEPS, Policy
from proxy.config.values import parse_state_url


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
def test_a_number_that_nothing_can_use_is_refused_with_its_place(tmp_path, place, value):
    file = tmp_path / "proxy.yaml"
    file.write_text(str(set_at(place, value)).replace(f"'{value}'", value))
    with pytest.raises(InvalidConfig) as refused:
        load(file, {})
    assert all(place[-1] in fault.path.split(".") for fault in refused.value.faults)


def test_all_kinds_of_numbers_are_tried():
    assert len(NUMBERS) > 45
    assert {("state", "days"), ("hooks", "seconds"), ("policies", "keep", "tokens")} < set(NUMBERS)


@pytest.mark.parametrize(("days", "is_good"), [(3650, True), (0.5, True), (1e7, False), (float("inf"), False)])
def test_blocks_are_kept_for_ten_years_at_most(days, is_good):
    """Redis refuses an expiry that it cannot count in milliseconds, and finds nothing under one beyond its clock."""
    faults = []
    try:
        Config.model_validate({"state": {"days": days}})
    except ValidationError as invalid:
        faults = [error["loc"] for error in invalid.errors()]
    assert faults == ([] if is_good else [("state", "days")])


def test_the_fault_of_a_number_that_is_too_large_says_what_is_allowed(tmp_path):
    file = tmp_path / "proxy.yaml"
    file.write_text("state:\n  days: .inf\n")
    with pytest.raises(InvalidConfig, match=r"proxy.yaml:2: state.days: must be 3650 or less \(it says inf\)"):
        load(file, {})


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


@pytest.mark.parametrize("option", ["socket_timeout", "socket_connect_timeout"])
def test_a_timeout_in_a_url_of_redis_is_a_number_of_seconds_that_a_socket_takes(option):
    for value in ("inf", "nan", "1e30"):
        with pytest.raises(ValueError, match=f"the value of {option} cannot be used|greater than 0"):
            parse_state_url(f"redis://cache:6379/0?{option}={value}")

"""The registry: keys, switches and ended sessions, as one versioned value."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from proxy.access.registry import ENDED_SESSIONS_MAX, EVERYBODY, Registry, TeamKey
from proxy.store.deletions import Deletion


def make_session(until, number=0):
    """A session that ended: of admin.guard, without its signature."""
    return f"{until}.{number:016x}"


TIMES = st.integers(0, 5).map(float)
KEYS = st.builds(TeamKey, st.sampled_from("abc"), st.just("red"), st.just("h"), st.just(1.0), st.just(0.0), TIMES)
ACTS = st.one_of(
    KEYS.map(lambda key: lambda known: known.with_key(key)),
    st.builds(
        lambda team, state, at: lambda known: known.with_switch(team, state, at),
        st.sampled_from(["", "red", "blue"]), st.sampled_from(["on", "still-fit", "off", "bypass"]), TIMES,
    ),
    st.integers(0, 9).map(lambda until: lambda known: known.with_session_ended(make_session(until))),
)  # fmt: skip


@st.composite
def registries(draw):
    known = Registry()
    for act in draw(st.lists(ACTS, max_size=6)):
        known = act(known)
    return known


def test_of_two_copies_the_higher_version_counts():
    older = replace(Registry().with_switch("red", "off", 9.0), version=3)
    newer = replace(older.with_switch("red", "on", 5.0), version=4)
    assert newer.reconcile(older) == older.reconcile(newer) == newer


@given(registries(), registries(), st.integers(1, 3), st.integers(1, 3))
def test_nothing_that_either_copy_knows_is_lost(one, other, version, other_version):
    """A replica that was cut off from the shared state was told "off", and others were logged out meanwhile."""
    one, other = replace(one, version=version), replace(other, version=other_version)
    both = one.reconcile(other)
    assert both.keys.keys() == one.keys.keys() | other.keys.keys()
    revoked = {name for known in (one, other) for name, key in known.keys.items() if key.revoked}
    assert all(both.keys[name].revoked for name in revoked)
    assert both.ended_sessions == one.ended_sessions | other.ended_sessions
    for team in one.switches | other.switches:
        known = [copy.switches[team] for copy in (one, other) if team in copy.switches]
        assert both.switches[team].at == max(switch.at for switch in known)
    assert both.reconcile(one) == both.reconcile(other) == both


def test_no_order_to_delete_of_either_copy_is_lost():
    orders = [Deletion.order(user=name) for name in ("ann", "bob")]
    one, other = (replace(Registry().with_deletion(order), version=3) for order in orders)
    both = one.reconcile(other)
    assert {order.id for order in both.deletions} == {order.id for order in orders}
    assert both.reconcile(one) == both.reconcile(other) == Registry.from_bytes(both.to_bytes()) == both


def test_of_the_ended_sessions_those_are_remembered_that_would_be_open_longest():
    known = Registry()
    for until in range(1, ENDED_SESSIONS_MAX + 12):
        known = known.with_session_ended(make_session(until))
    assert len(known.ended_sessions) == ENDED_SESSIONS_MAX
    assert make_session(ENDED_SESSIONS_MAX + 11) in known.ended_sessions
    assert make_session(1) not in known.ended_sessions


def test_the_ended_sessions_of_version_0_3_are_read():
    value = json.loads(Registry().to_bytes()) | {"ended_sessions": [f"1.{'a' * 8}.{'b' * 16}"]}
    assert len(Registry.from_bytes(json.dumps(value).encode()).ended_sessions) == 1


@pytest.mark.parametrize("session", ["", "99999999990000.x", f"{'9' * 5_000}.x", f"1.{'a' * 8}.{'b' * 15}"])
def test_an_impossible_session_makes_a_registry_invalid(session):
    value = json.loads(Registry().to_bytes()) | {"ended_sessions": [make_session(1), session]}
    with pytest.raises(ValueError, match="not a registry"):
        Registry.from_bytes(json.dumps(value).encode())


@given(registries())
def test_it_is_read_as_it_was_written(known):
    assert Registry.from_bytes(known.to_bytes()) == known
    assert Registry.from_bytes(known.to_bytes()).to_bytes() == known.to_bytes()


def test_of_two_switches_the_one_counts_that_allows_less():
    known = Registry().with_switch(EVERYBODY, "still-fit", 1).with_switch("red", "bypass", 2)
    assert (known.find_state("red"), known.find_state("blue")) == ("bypass", "still-fit")
    assert known.with_switch(EVERYBODY, "off", 3).find_state("blue") == "off"


def test_a_replica_of_version_0_3_takes_each_switch_that_is_not_on_for_off():
    known = Registry().with_switch("red", "bypass", 1).with_switch("blue", "still-fit", 2)
    document = json.loads(known.to_bytes())
    assert document["switches"] == {"red": {"on": False, "at": 1}, "blue": {"on": False, "at": 2}}
    del document["exceptions"]
    assert Registry.from_bytes(json.dumps(document).encode()).find_state("red") == "off"


def test_a_key_is_revoked_once_and_one_that_is_not_there_never():
    known = Registry().with_key(TeamKey("a", "red", "h", 1.0)).with_key_revoked("a", 2.0)
    assert known.with_key_revoked("a", 3.0) == known
    with pytest.raises(KeyError):
        known.with_key_revoked("nobody", 1)


@pytest.mark.parametrize(
    "data",
    [
        b"", b"[]", b"\xff", b'{"format": 2, "keys": {}}', b'{"format": 1}', b"[" * 200_000,
        b'{"more": ' + b"[" * 200_000, b'{"format": 1, "keys": [{}], "switches": {}, "ended_sessions": []}',
        b'{"format": 1, "keys": [], "switches": {"red": {"on": "no", "at": null}}}',
        b'{"format": 1, "keys": [], "switches": {}, "ended_sessions": [{}]}',
        b'{"keys": [], "switches": {}, "ended_sessions": []}',
    ],
)  # fmt: skip
def test_an_invalid_registry_is_reported(data):
    with pytest.raises(ValueError, match="not a registry of format 1"):
        Registry.from_bytes(data)


@pytest.mark.parametrize(
    "values",
    [{"expires": "2027-01-01"}, {"expires": None}, {"expires": 1e18}, {"expires": -1}, {"created": 1e300}, {"id": 5},
     {"team": None}, {"digest": 1}, {"scopes": []}],
)  # fmt: skip
def test_a_key_with_impossible_values_makes_a_registry_invalid(values):
    """Each of these was read, and then failed where it was used: at requests, or in lists."""
    value = json.loads(Registry().with_key(TeamKey("a", "red", "h", 1.0)).to_bytes())
    value["keys"][0] |= values
    with pytest.raises(ValueError, match="not a registry"):
        Registry.from_bytes(json.dumps(value).encode())

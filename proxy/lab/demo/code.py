"""Made-up source files, long and unlike enough to stand for a real repository's.

A module is put together from a few shapes of function, each filled with words of the project's trade (a harbour that
bills ships for berths and cargo). What it computes makes no sense; that it reads like code and weighs like code does.
"""

import random


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


VERBS = _words(  # each takes a d
    "settle charge resolve merge reserve release waive reconcile estimate close quote prorate revise schedule locate "
    "measure reduce receive"
)
THINGS = _words(
    "berth invoice tariff manifest vessel voyage container permit deposit surcharge consignee pilot tug mooring agent "
    "escrow inspection fee route clearance"
)
FIELDS = _words("reference amount issued_at currency weight status port_code due_on quantity discount rate")
WHEN = (
    "the ship left before the tide",
    "two agents share one account",
    "the harbour office has closed the month",
    "a deposit covers only part of it",
    "customs have not cleared the cargo yet",
    "the berth was swapped during the night shift",
    "the rate changed while the voyage was under way",
    "the same notice arrives twice",
    "the consignee is exempt from harbour dues",
    "the clock of the weighbridge runs ahead",
)
RULES = (
    "Rounds half up, as the port authority does.",
    "Amounts are in minor units; floats never enter here.",
    "Idempotent: a notice that comes twice changes nothing.",
    "The caller holds the lock on the account.",
    "Raises rather than guesses: a wrong bill is worse than none.",
    "Kept apart from the web layer, so that the nightly job can use it.",
    "Order matters: waivers come before surcharges.",
    "Nothing is written before the whole batch is checked.",
)

SHAPES = (
    '''
def {name}({thing}: {Kind}, *, limit: int = {number}) -> list[{Other}]:
    """What of the {other}s still counts when {when}. {rule}"""
    found = [each for each in {thing}.{other}s if each.{field} and each.rank <= limit]
    if not found:
        logger.debug("no {other} for %s within %d", {thing}.reference, limit)
        return []
    return sorted(found, key=lambda each: (each.{field}, each.reference))
''',
    '''
def {name}(batch: Sequence[{Kind}], session: Session) -> Outcome:
    """Goes through a batch of {thing}s even when {when}."""
    outcome = Outcome(kind="{name}", started_at=session.now())
    for {thing} in batch:
        if {thing}.{field} is None:
            raise Incomplete({thing}.reference, "{field}")
        try:
            {other} = session.one({Other}, {Other}.{thing}_id == {thing}.id)
        except NotFound:
            outcome.skipped.append({thing}.reference)
            continue
        # {rule}
        {other}.{field} = {verb}_{field}({other}.{field}, {thing}.{field}, base={number})
        outcome.changed.append({other}.reference)
    session.flush()
    return outcome
''',
    '''
async def {name}(client: {Other}Client, reference: str, attempts: int = {small}) -> {Kind} | None:
    """Asks the {other} service for a {thing}; None when {when}."""
    for attempt in range(1, attempts + 1):
        reply = await client.get(f"/v2/{other}s/{{reference}}", timeout=attempt * {small})
        if reply.status == 404:
            return None
        if reply.status >= 500:
            logger.warning("{other} service answered %d (attempt %d)", reply.status, attempt)
            await asyncio.sleep(0.{number} * attempt)
            continue
        return {Kind}.from_payload(await reply.json())
    raise Unavailable("{other}", reference)
''',
    '''
@lru_cache(maxsize={number})
def {name}(port_code: str, on: date) -> Mapping[str, Decimal]:
    """The {field}s of {thing}s at a port on a day. {rule}"""
    table: dict[str, Decimal] = {{}}
    for row in load_rows("{thing}_{field}", port_code):
        if row.valid_from <= on < (row.valid_to or date.max):
            table[row.key] = row.value.quantize(CENT, ROUND_HALF_UP)
    return MappingProxyType(table)
''',
    '''
@dataclass(frozen=True, slots=True)
class {Kind}{Verb}:
    """One {thing} on its way through `{name}`."""

    reference: str
    {field}: Decimal
    {other}_id: int
    issued_at: datetime
    remarks: tuple[str, ...] = ()

    @property
    def is_final(self) -> bool:
        return self.{field} > {number} and not any(remark.startswith("draft") for remark in self.remarks)

    def with_remark(self, remark: str) -> "{Kind}{Verb}":
        """{rule}"""
        return replace(self, remarks=(*self.remarks, remark.strip()[:{number}]))
''',
    '''
def {name}(rows: Iterable[Row], by: str = "{field}") -> dict[str, Decimal]:
    """Totals of {thing}s, the usual way and when {when}."""
    totals: dict[str, Decimal] = defaultdict(Decimal)
    seen: set[str] = set()
    for row in rows:
        key = f"{{row.port_code}}:{{getattr(row, by)}}"
        if key in seen and row.kind != "{other}":
            logger.info("%s was counted before; {verb} number {number} lets it pass", key)
            continue
        seen.add(key)
        totals[row.port_code] += row.amount if row.sign > 0 else -row.amount
    return dict(totals)
''',
)

IMPORTS = """
import asyncio
import logging
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from decimal import ROUND_HALF_UP, Decimal
from functools import lru_cache
from types import MappingProxyType

from tidewater.{first} import {First}, {First}Client
from tidewater.{second} import {Second}, load_rows
from tidewater.store import Incomplete, NotFound, Outcome, Row, Session, Unavailable

logger = logging.getLogger(__name__)
CENT = Decimal("0.01")
"""


def module(name: str, functions: int, dice: random.Random) -> str:
    """The text of a module with this many functions."""
    first, second = dice.sample(THINGS, 2)
    opening = f'"""{name.capitalize()}s of the harbour: what happens to them when {dice.choice(WHEN)}."""\n'
    imports = IMPORTS.format(first=first, First=kind(first), second=second, Second=kind(second))
    return opening + imports + "".join(f"\n{function(name, dice)}" for _ in range(functions))


def function(thing: str, dice: random.Random) -> str:
    """One function, or one small class."""
    verb, other = dice.choice(VERBS), dice.choice([each for each in THINGS if each != thing])
    return dice.choice(SHAPES).format(
        name=f"{verb}_{thing}_{other}s",
        thing=thing,
        Kind=kind(thing),
        other=other,
        Other=kind(other),
        verb=verb,
        Verb=kind(verb),
        field=dice.choice(FIELDS),
        when=dice.choice(WHEN),
        rule=dice.choice(RULES),
        number=dice.randrange(12, 990),
        small=dice.randrange(2, 9),
    )


def test_module(name: str, cases: int, dice: random.Random) -> str:
    """The text of a test file with this many cases."""
    parts = [f'"""Tests of `tidewater.{name}`."""\n\nimport pytest\n\nfrom tidewater import {name}\n\n']
    for _ in range(cases):
        verb, other, number = dice.choice(VERBS), dice.choice(THINGS), dice.randrange(100, 99_999)
        parts.append(
            f"\ndef test_{verb}_{name}_with_{other}_{number}(session, make_{other}):\n"
            f'    """{dice.choice(RULES)}"""\n'
            f'    {other} = make_{other}(reference="HB-{number}", {dice.choice(FIELDS)}={number % 97})\n'
            f"    outcome = {name}.{verb}_{name}_{other}s([{other}], session)\n"
            f'    assert outcome.changed == ["HB-{number}"], "when {dice.choice(WHEN)}"\n'
            f"    assert session.written == {number % 7}\n\n"
        )
    return "".join(parts)


def kind(word: str) -> str:
    """`berth` as a class is called."""
    return word.capitalize()

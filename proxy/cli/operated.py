"""The proxy that `keys`, `switch` and `transcripts delete` act on, and `compare`, which reads what one has recorded.

The proxy is the one that uses a state folder, or the one that answers at `--url`. `keys` and `switch` change nothing if
no running proxy would obey it. Otherwise, an operator in another folder would read "off" while the proxy still
shortens.
"""

import argparse
import asyncio
import http.client
import json
import os
import pwd
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, closing
from datetime import UTC, datetime
from functools import partial
from http import HTTPStatus
from operator import methodcaller
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from proxy import assembly, events
from proxy.access.registry import (
    Change,
    Registry,
    RegistryUnreadable,
    Switch,
    TeamKey,
    create_team_key,
    synchronize,
)
from proxy.admin.arms import describe_arms, format_arms
from proxy.cli import options
from proxy.cli.options import CommandFailed, add_command, parse_number, print_error
from proxy.server.erasure import Obeyed, read_obeyed, write_obeyed
from proxy.server.listeners import RunningProxy, find_running
from proxy.store.activity_log import ActivityLog
from proxy.store.contract import StoreUnavailable
from proxy.store.deletions import Deletion, Eraser
from proxy.store.usage_sums import DAY_SECONDS
from proxy.telemetry import activity
from proxy.wire.http_head import SwitchState

_OTHER_PLACES = "name the proxy by --config, --state or its address (--url http://127.0.0.1:8800)"


def open_operated(args: argparse.Namespace, *, to_change: bool) -> "LocalProxy | RemoteProxy":
    if not args.url:
        return LocalProxy(args, to_change=to_change)
    if args.config or args.state:
        raise CommandFailed("--url names the proxy: leave out --config and --state")
    return RemoteProxy(args.url)


def find_state_folder(path: str) -> Path:
    folder = Path(path).absolute()
    if not folder.is_dir():
        raise CommandFailed(f"there is no state folder {folder} (a proxy makes it at its first start): {_OTHER_PLACES}")
    return folder


def list_running(folder: Path) -> list[RunningProxy]:
    try:
        return find_running(folder)
    except PermissionError as fault:
        raise CommandFailed(f"{fault.filename}: not permitted; run this command as the user of the proxy") from None


def name_running(proxies: Sequence[RunningProxy]) -> str:
    return " and ".join(f"{proxy.url} since {format_time(proxy.since)} UTC" for proxy in proxies)


def format_time(seconds: float) -> str:
    if not seconds:
        return "never"
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M")


class LocalProxy:
    """The registry of a state folder, and the document that replicas share if there is one."""

    def __init__(self, args: argparse.Namespace, *, to_change: bool) -> None:
        self._file = options.find_config_file(args)
        self._config = options.read_config(args)
        self._folder = find_state_folder(self._config.state.dir)
        self._running = list_running(self._folder)
        self._records = options.read_records(self._config)
        self._fault_of_shared = self._synchronize()
        if to_change and not self._running and not self._is_shared:
            raise CommandFailed(
                f"no proxy uses {self._folder}, so nothing was changed: start one there, or {_OTHER_PLACES}"
            )

    @property
    def _is_shared(self) -> bool:
        return bool(self._config.state.url) and not self._fault_of_shared

    def describe(self) -> str:
        """Return a sentence on the proxies that obey the registry."""
        if self._running:
            sentence = f"in force at {name_running(self._running)} (state in {self._folder})"
        elif self._is_shared:
            sentence = f"in force on the replicas that share the state (no proxy uses {self._folder})"
        else:
            sentence = f"no proxy uses {self._folder} now"
        if self._fault_of_shared:
            why = f"this is what this machine knows, and its proxy passes it on: {self._fault_of_shared}"
            sentence += f"\nshared state not reachable; {why}"
        return sentence

    def read_registry(self) -> Registry:
        return self._records.current

    def list_teams(self) -> list[str]:
        return list(self._config.teams)

    def create_key(self, team: str, days: float, label: str) -> tuple[str, TeamKey]:
        if team not in self._config.teams:
            raise self._refuse_team(team)
        text, key = create_team_key(team, time.time(), days=days, label=label)
        self._change(lambda registry: registry.with_key(key), "create key", key.id, team=team, days=days)
        return text, key

    def revoke_key(self, key_id: str) -> None:
        self._change(lambda registry: registry.with_key_revoked(key_id, time.time()), "revoke key", key_id)

    def set_switch(self, team: str, state: SwitchState) -> None:
        if team and not self._config.knows_team(team):
            raise self._refuse_team(team)
        change = methodcaller("with_switch", team, state, time.time())
        self._change(change, f"switch {state}", team or "everybody")

    def find_stored_name(self, user: str) -> str:
        return assembly.build_redaction(self._config).of_name(user)

    def describe_extent(self, order: Deletion, conditions: str) -> str:
        """Say how many conversations of this machine an order covers. Raise CommandFailed if it covers none anywhere.

        Nothing is said if they cannot be counted.
        """

        async def count_here() -> int:
            async with self._open_eraser() as eraser:
                return eraser.count(order)

        try:
            count = asyncio.run(count_here())
        except (StoreUnavailable, OSError):  # the order can be given without a count, and is obeyed later
            return ""
        # Other machines may have conversations of a team that this one has never seen, or share the state.
        is_of_whole_team = order.conditions == ["team"] and self._config.knows_team(order.team)
        if count == 0 and not is_of_whole_team and not self._config.state.url:
            raise CommandFailed(f"nothing was deleted: this machine has no conversation of {conditions}")
        return f" ({options.format_count(count, 'conversation')} of this machine)"

    def delete(self, order: Deletion, _: argparse.Namespace) -> str:
        """Order a deletion, and carry it out on this machine."""
        self._change(
            lambda registry: registry.with_deletion(order),
            "delete conversations",
            order.id,
            by=", ".join(order.conditions),
        )
        if not self._running:
            return _tell_deleted(asyncio.run(self._obey(order)))
        patience_seconds = 30
        end = time.monotonic() + patience_seconds
        while time.monotonic() < end:
            for act in activity.read_newest(self._folder / activity.FILE, 100):
                details = act.get("details", {})
                if order.id in act.get("subject", "") and "conversations" in details:
                    return _tell_deleted(int(details["conversations"]))
            time.sleep(0.1)
        if order.id in read_obeyed(self._folder).ids:
            return "deleted here; the audit log does not say how many conversations"
        return f"ordered; this machine has not obeyed within {patience_seconds} seconds: see the log of the proxy"

    @asynccontextmanager
    async def _open_eraser(self) -> AsyncIterator[Eraser]:
        async with assembly.use_store(self._config) as store:
            with closing(ActivityLog(self._folder)) as activity_log:
                yield Eraser([store], assembly.open_archive(self._config), activity_log)

    async def _obey(self, order: Deletion) -> int:
        obeyed = read_obeyed(self._folder)
        try:
            async with self._open_eraser() as eraser:
                count = await eraser.erase([order])
        except (StoreUnavailable, OSError) as fault:
            raise CommandFailed(f"ordered, but not deleted here before the next start of a proxy: {fault}") from None
        write_obeyed(self._folder, Obeyed(obeyed.since, (*obeyed.ids, order.id)))
        return count

    def _refuse_team(self, team: str) -> CommandFailed:
        place = f"no file was read: there is no ./{options.CONFIG_FILE}, and no --config"
        if self._file is not None:
            place = f"add it to `teams` in {self._file}"
        known = ", ".join(self._config.teams) or "none"
        return CommandFailed(f"unknown team {team!r} (known: {known}): {place}")

    def _change(self, change: Change, act: str, subject: str, **details: str | float) -> None:
        with options.report_registry_faults(self._records):
            self._records.change(change)
        try:
            user = pwd.getpwuid(os.getuid()).pw_name
        except KeyError:
            user = str(os.getuid())
        event = events.AdminActed(user, "command line", act, subject, "done", tuple(details.items()))
        activity.AuditFile(self._folder / activity.FILE, partial(print, file=sys.stderr)).write(
            [activity.render(event)]
        )
        self._fault_of_shared = self._fault_of_shared or self._synchronize()

    def _synchronize(self) -> str:
        """Return why the shared state could not be used; empty on success, and if there is none."""
        if not self._config.state.url:
            return ""

        async def use_store() -> None:
            async with assembly.use_store(self._config) as store:
                await synchronize(self._records, store)

        try:
            asyncio.run(use_store())
        except (StoreUnavailable, RegistryUnreadable, OSError) as fault:
            return str(fault)
        return ""


def _tell_deleted(count: int) -> str:
    return f"deleted here: {options.format_count(count, 'conversation')}"


class RemoteProxy:
    """A running proxy, by its admin API. It checks names and rights itself, and writes its own audit log."""

    def __init__(self, url: str) -> None:
        try:
            parts = urlsplit(url)
        except ValueError:
            parts = urlsplit("")
        # With a path such as /v1 in the URL, the proxy would forward the admin key to an upstream.
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.path.strip("/") or parts.query:
            raise CommandFailed(f"{url}: not the address of a proxy; write it as http://127.0.0.1:8800")
        self._url = f"{parts.scheme}://{parts.netloc}"
        self._connect = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        self._host = parts.netloc
        self._key = options.read_key(options.ADMIN_KEY_VARIABLE)
        if not self._key:
            raise CommandFailed(f"set {options.ADMIN_KEY_VARIABLE} to the admin key of {self._url}")

    def describe(self) -> str:
        return f"in force at {self._url}"

    def read_registry(self) -> Registry:
        keys = {}
        for row in self._ask("GET", "keys")["keys"]:
            times = {name: row[name] or 0.0 for name in ("created", "expires", "revoked")}
            keys[row["id"]] = TeamKey(row["id"], row["team"], digest="", label=row["label"], **times)
        switches = {}
        for row in self._ask("GET", "switches")["switches"]:
            state_of_0_3: SwitchState = "on" if row.get("on") else "off"
            switches[row["team"]] = Switch(row.get("state", state_of_0_3), row["at"])
        return Registry(keys, switches)

    def list_teams(self) -> list[str]:
        return [team["name"] for team in self._ask("GET", "teams")["teams"]]

    def create_key(self, team: str, days: float, label: str) -> tuple[str, TeamKey]:
        answer = self._ask("POST", "keys", {"team": team, "days": days, "label": label})
        told = answer["told"]
        return answer["key"], TeamKey(told["id"], team, "", told["created"], told["expires"] or 0.0)

    def revoke_key(self, key_id: str) -> None:
        self._ask("DELETE", f"keys/{key_id}")

    def set_switch(self, team: str, state: SwitchState) -> None:
        self._ask("PUT", "switches", {"team": team, "state": state})

    def find_stored_name(self, user: str) -> str:
        """Return the name itself: the proxy applies its own redaction to it."""
        return user

    def describe_extent(self, _order: Deletion, _conditions: str) -> str:
        """Return nothing, because the admin API reports no count."""
        return ""

    def delete(self, order: Deletion, args: argparse.Namespace) -> str:
        answer = self._ask("POST", "deletions", {name: getattr(args, name) for name in order.conditions})
        user = answer["user"]
        users = f", for all users who are stored as {user!r}" if user != args.user else ""
        return f"ordered{users}: each machine deletes within seconds, and its audit log says how many conversations"

    def _ask(self, method: str, path: str, body: object = None) -> Any:  # noqa: ANN401 (JSON of the admin API)
        headers = {"Authorization": f"Bearer {self._key}", "Content-Type": "application/json"}
        try:
            with closing(self._connect(self._host, timeout=10.0)) as connection:
                connection.request(method, f"/admin/api/{path}", json.dumps(body), headers)
                answer = connection.getresponse()
                values = json.loads(answer.read())
        except (OSError, http.client.HTTPException, ValueError) as fault:
            raise CommandFailed(f"no proxy answers at {self._url}: {options.describe_fault(fault)}") from None
        match values:
            case {"error": {"message": str(message)}}:
                reasons = [message, *(fault["message"] for fault in values["error"].get("faults", []))]
                raise CommandFailed(f"{self._url} refuses: {': '.join(reasons)}")
            case {} if answer.status < HTTPStatus.BAD_REQUEST:
                return values
        raise CommandFailed(f"no proxy answers at {self._url}, but another server, with status {answer.status}")


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    compare = add_command(
        commands,
        "compare",
        "conversations under a policy beside those that a `holdout` left alone",
        "compare --days 14",
        "compare --team research --json",
    )
    compare.add_argument("--team", default="", metavar="T", help="only this team's conversations")
    compare.add_argument(
        "--days", type=partial(parse_number, maximum=31), default=31.0, metavar="N", help="days back (default 31)"
    )
    options.add_json(compare)
    options.add_config_and_state(compare)
    compare.set_defaults(run=_compare)


def _compare(args: argparse.Namespace) -> int:
    config = options.read_config(args)
    now = time.time()
    with closing(ActivityLog(find_state_folder(config.state.dir))) as log:
        figures = describe_arms(log, now - args.days * DAY_SECONDS, now, args.team)
    if args.json:
        options.print_json(figures)
        return 0
    if not figures["policies"]:
        origin = "an attachment with a `holdout`, such as {policy: default, holdout: 10}"
        return print_error(f"no conversations to compare yet: they come from {origin}")
    print(format_arms(figures))  # noqa: T201
    return 0

"""Policies in force and where they apply, drafts and trials (what-if) of a policy. Changes are made in the file.

A draft is checked as the file would be, and comes back as a text to put there, with the difference to the file that is
in force. Nothing is written.

A trial replays kept conversations through a policy and through another one, in a process of its own
(`proxy.lab.what_if`): it is pure Python and would hold up every other request of this worker. Here the request is
checked, the conversations are handed over, and the process is ended when its time is over. One trial at a time, within
bounds: how many conversations, how large, how long, how much memory.
"""

import asyncio
import difflib
import os
import sys
import time
from asyncio.subprocess import PIPE
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from tempfile import TemporaryFile
from typing import IO, Annotated, Any

import msgspec
from msgspec import Meta

from proxy.admin.context import AdminContext, AdminRequest, Flaw, Invalid, Json, Route, run_in_admin_thread
from proxy.config import Config, InvalidConfig, Loaded, find_origins
from proxy.config.attachments import find_unreachable, sort_by_priority
from proxy.config.editing import NotEditable, replace_policy, write_entry
from proxy.config.loading import with_policy
from proxy.config.policies import DEFAULT, Policy, shipped_policies
from proxy.config.prompt_files import SHIPPED_PROMPTS
from proxy.config.warnings import find_warnings
from proxy.config.yaml_reader import read_text
from proxy.errors import NotFound, Overloaded
from proxy.models.windows import is_known_model
from proxy.store.transcripts.archive import Archive, SavedConversation
from proxy.wire.http import Caller

POLICY_NAME = r"^[A-Za-z0-9_-][A-Za-z0-9_.-]{0,63}\Z"
_BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
_PLAIN = {"boolean": "boolean", "integer": "integer", "number": "number", "string": "text"}
DAY_SECONDS = 24 * 3600.0
CONVERSATION_BYTES = 8 * 1024 * 1024
"""Larger conversations are left out."""
MEMORY_BYTES = 2 * 1024 * 1024 * 1024
"""Address space of the process."""
GRACE_SECONDS = 15.0
"""For its start and its answer; the process keeps to its own seconds."""
_COMMAND = (sys.executable, "-P", "-m", "proxy.lab.what_if")
_RUNNING = asyncio.Lock()


def list_policies(context: AdminContext, request: AdminRequest) -> Json:
    """All policies; to a key of one team, attachments that may concern it, and no warnings: they name other teams."""
    loaded, team = _load(context), request.visitor.team
    config = loaded.config
    behind = dict(find_unreachable(config.attachments))
    names = sorted(config.all_policies, key=lambda name: (name != DEFAULT, name))
    return {
        "policies": [_describe(loaded, name) for name in names],
        "attachments": [  # in the order in which they decide
            {"place": place, "unreachable_behind": behind.get(place), **attachment.model_dump()}
            for place, attachment in sort_by_priority(config.attachments)
            if not team or fnmatchcase(team, attachment.team)
        ],
        "doubts": [{"path": path, "message": why} for path, why in find_warnings(config, is_known_model) if not team],
    }


def show_policy(context: AdminContext, request: AdminRequest) -> Json:
    loaded, name = _load(context), request.names["policy"]
    if name not in loaded.config.all_policies:
        raise NotFound("unknown policy: GET /policies lists all")
    values = [
        {"path": ".".join(path), "value": value, "origin": origin} for path, value, origin in find_origins(loaded, name)
    ]
    return {**_describe(loaded, name), "values": values}


def _load(context: AdminContext) -> Loaded:
    """The configuration in force, with origins as far as its sources still say the same."""
    config = context.config()
    try:
        loaded = context.read()
    except InvalidConfig:
        return Loaded(config, {})
    return loaded if loaded.config.policies == config.policies else Loaded(config, {})


def _describe(loaded: Loaded, name: str) -> Json:
    policy = loaded.config.policy(name)
    return {
        "name": name,
        "kind": _kind(loaded, name),
        "version": policy.version,
        "mode": policy.mode,
        "inherits": loaded.config.lineage(name)[1:],
    }


def _kind(loaded: Loaded, name: str) -> str:
    if name in loaded.config.policies and "policies" in loaded.config.model_fields_set:
        return "file"
    return "shipped" if name in shipped_policies() else "default"


def _with_policy(config: Config, name: str, values: Json) -> Config:
    """The configuration with this policy in it. Invalid: its values cannot be used."""
    try:
        return with_policy(config, name, values)
    except InvalidConfig as refused:
        raise Invalid("invalid policy", [Flaw(fault.path, fault.message) for fault in refused.faults]) from None


# --- trials -----------------------------------------------------------------------------------------------------------


class NewTrial(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Body of `POST /what-if`."""

    policy: str = "default"
    values: Json | None = None
    """Values to try under this name, as in the configuration file; without them the policy as it is."""
    against: str = "default"
    """The policy to compare with, as it is."""
    team: Annotated[str, Meta(max_length=200)] = ""
    """Whose conversations; empty: of all."""
    conversation: Annotated[str, Meta(max_length=64)] = ""
    """Only this conversation, of whatever day; empty: the newest of `days`."""
    days: Annotated[float, Meta(gt=0, le=366)] = 7.0
    conversations: Annotated[int, Meta(ge=1, le=200)] = 25
    seconds: Annotated[float, Meta(gt=0, le=60)] = 20.0
    window: Annotated[int, Meta(ge=1_000, le=100_000_000)] | None = None


async def try_policy(context: AdminContext, request: AdminRequest) -> Json:
    wanted: NewTrial = request.body
    if request.visitor.team:
        wanted = msgspec.structs.replace(wanted, team=request.visitor.team)
    policies = await run_in_admin_thread(_policies, context.config(), wanted)
    if _RUNNING.locked():
        raise Overloaded("another trial is running: retry later", headers=(("retry-after", "10"),))
    async with _RUNNING:
        found = await run_in_admin_thread(_newest, context.archive, wanted)
        job = {"policies": policies, "window": wanted.window, "seconds": wanted.seconds, "memory_bytes": MEMORY_BYTES}
        answer = await _run(
            context.config().state.dir, job, found[: wanted.conversations], wanted.seconds + GRACE_SECONDS
        )
    tried, today = answer["outcomes"]
    done = answer["conversations"]
    return {"conversations": done, "left_out": len(found) - done, "tried": tried, "today": today}


def _policies(today: Config, wanted: NewTrial) -> list[Json]:
    """The policy to try and the one to compare it with, with everything they inherit."""
    tried = today
    if wanted.values is not None:
        if flaws := _out_of_reach(wanted.values):
            raise Invalid("a trial can use neither files nor other upstreams", flaws)
        tried = _with_policy(today, wanted.policy, wanted.values)
    both = (("policy", wanted.policy, tried), ("against", wanted.against, today))
    for field, name, config in both:
        if name not in config.all_policies:
            raise NotFound(f"`{field}` names an unknown policy: GET /policies lists all")
    return [{"name": name, "policy": config.policy(name).model_dump(mode="json")} for _, name, config in both]


def _out_of_reach(values: Json) -> list[Flaw]:
    """Settings that would read a file of this machine, or name who else reads conversations."""
    summary = values.get("summary")
    given = summary if isinstance(summary, dict) else {}
    flaws = []
    if given.get("prompt", SHIPPED_PROMPTS[0]) not in SHIPPED_PROMPTS:
        flaws.append(Flaw("summary.prompt", f"only {' or '.join(SHIPPED_PROMPTS)} can be tried, no file"))
    if given.get("upstream"):
        flaws.append(Flaw("summary.upstream", "can be set in the configuration file only"))
    return flaws


def _newest(archive: Archive, wanted: NewTrial) -> list[SavedConversation]:
    if wanted.conversation:
        return list(archive.find(wanted.conversation, Caller(wanted.team).tenant))[:1]
    since = time.time() - wanted.days * DAY_SECONDS
    return [one for one in archive.newest_first(Caller(wanted.team).tenant) if one.written >= since]


async def _run(folder: str, job: Mapping[str, Any], conversations: Sequence[SavedConversation], seconds: float) -> Json:
    """The answer of the process. It gets nothing of this one's environment: there may be credentials in it."""
    environment = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with TemporaryFile(dir=folder) as given:  # it has no name, and is gone once it is closed
        await run_in_admin_thread(_write_job, given, job, conversations)
        process = await asyncio.create_subprocess_exec(*_COMMAND, stdin=given, stdout=PIPE, env=environment)
    try:
        async with asyncio.timeout(seconds):
            answer, _ = await process.communicate()
    except TimeoutError:
        raise Overloaded("the trial took too long: ask for fewer conversations") from None
    finally:
        if process.returncode is None:  # also when the client has left
            process.kill()
            await process.wait()
    if process.returncode:
        raise Overloaded("the trial failed: ask for fewer conversations")
    return msgspec.json.decode(answer, type=Json)


def _write_job(given: IO[bytes], job: Mapping[str, Any], conversations: Sequence[SavedConversation]) -> None:
    """The job, and the originals of each conversation with an empty line behind them."""
    given.write(msgspec.json.encode(job) + b"\n")
    for one in conversations:
        if one.bytes <= CONVERSATION_BYTES:
            given.writelines(line if line.endswith(b"\n") else line + b"\n" for line in one.lines())
            given.write(b"\n")
    given.seek(0)


# --- drafts -----------------------------------------------------------------------------------------------------------


class NewDraft(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Body of `POST /policy-drafts`."""

    policy: Annotated[str, Meta(pattern=POLICY_NAME)]
    values: Json
    """Values that the policy sets itself, as in the configuration file."""


def show_schema(_: AdminContext, __: AdminRequest) -> Json:
    """Every setting of a policy: path, kind, choices, bounds, and its sentence in proxy.yaml."""
    schema = Policy.model_json_schema()
    return {"settings": list(_settings(schema["properties"], schema["$defs"]))}


def _settings(properties: Mapping[str, Any], groups: Mapping[str, Any], above: str = "") -> Iterator[Json]:
    for name, about in properties.items():
        path = f"{above}.{name}" if above else name
        group = groups.get(about.get("$ref", "").rpartition("/")[2])
        if group is not None and not above:
            yield from _settings(group["properties"], groups, path)
            continue
        kind = "choice" if "enum" in about else _PLAIN.get(about.get("type", ""), "text" if group else "json")
        bounds = {bound: about[bound] for bound in _BOUNDS if bound in about}
        yield {
            "path": path,
            "kind": kind,
            "choices": about.get("enum", []),
            "about": about.get("description", ""),
            **bounds,
        }


def check_draft(context: AdminContext, request: AdminRequest) -> Json:
    """The change that a draft makes to the file, and probable mistakes in it. Invalid: it cannot be used."""
    wanted: NewDraft = request.body
    before = context.config()
    _refuse_files(before, wanted)
    after = _with_policy(before, wanted.policy, wanted.values)
    doubts = {*find_warnings(after, is_known_model)} - {*find_warnings(before, is_known_model)}
    name = context.file.name if context.file else "proxy.yaml"
    text, changed, why = _edit_file(context, wanted)
    lines = text.splitlines(keepends=True), changed.splitlines(keepends=True)
    return {
        "entry": f"policies:\n{write_entry(wanted.policy, wanted.values)}",
        "file": None if why else changed,
        "why_no_file": why,
        "name": name,
        "diff": "" if why else "".join(difflib.unified_diff(*lines, name, f"{name} with this draft")),
        "version": after.policy(wanted.policy).version,
        "doubts": [{"path": path, "message": why} for path, why in sorted(doubts)],
    }


def _edit_file(context: AdminContext, wanted: NewDraft) -> tuple[str, str, str]:
    """The text of the file, the same with the draft in it, and why there is none that the proxy would accept."""
    text = ""
    try:
        text = read_text(context.file) if context.file is not None else ""
        changed = replace_policy(text, wanted.policy, wanted.values)
        context.check(changed)
    except NotEditable as fault:
        return text, "", str(fault)
    except InvalidConfig as invalid:
        return text, "", f"the proxy would refuse the file: {invalid.faults[0]}"
    return text, changed, ""


def _refuse_files(config: Config, wanted: NewDraft) -> None:
    """A prompt of a file of this machine is accepted only where the policy names it already: a draft reads no files."""
    summary = wanted.values.get("summary")
    prompt = summary.get("prompt") if isinstance(summary, dict) else None
    policy = config.policies.get(wanted.policy)
    known = policy.summary.prompt.name if policy is not None else ""
    if prompt is not None and prompt not in (*SHIPPED_PROMPTS, known):
        flaw = Flaw(
            "summary.prompt", f"only {' or '.join(SHIPPED_PROMPTS)} here; name a file in the configuration file"
        )
        raise Invalid("a draft cannot name a file", [flaw])


ROUTES = (
    Route("GET", "/policies", list_policies, rows="policies", for_teams=True),
    Route("GET", "/policies/{policy}", show_policy, rows="values", for_teams=True),
    Route("POST", "/what-if", try_policy, body=NewTrial, for_teams=True, changes=False),
    Route("GET", "/policy-settings", show_schema, rows="settings", for_teams=True),
    Route("POST", "/policy-drafts", check_draft, body=NewDraft),
)

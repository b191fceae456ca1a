"""Policies: those in force, drafts of new ones, and trials on stored conversations.

The configuration file is the only place where policies are set: a draft is checked as the file would be, and returned
as a text to put there. A trial replays stored conversations with one policy and another, in a process of its own
(`proxy.lab.what_if`), because replay is pure Python and would hold up every request of this worker.
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

from proxy.admin.routes import AdminContext, AdminRequest, Flaw, Invalid, Json, Route, run_in_admin_thread
from proxy.config import Config, InvalidConfig, Loaded, find_origins
from proxy.config.loading import with_policy
from proxy.config.policies import DEFAULT, SHIPPED_PROMPTS, Policy, shipped_policies
from proxy.config.warnings import find_warnings
from proxy.config.yaml_file import NotEditable, read_text, replace_policy, write_entry
from proxy.errors import NotFound, Overloaded
from proxy.models.windows import is_known_model
from proxy.store.activity_log import DAY_SECONDS
from proxy.store.transcripts.archive import Archive, SavedConversation
from proxy.wire.http_head import Caller


def list_policies(context: AdminContext, request: AdminRequest) -> Json:
    """A key of one team sees only its attachments, and no warnings: they name other teams."""
    loaded_config = _load(context)
    config = loaded_config.config
    team = request.visitor.team
    attachments = [
        attachment.model_dump() for attachment in config.attachments if not team or fnmatchcase(team, attachment.team)
    ]
    doubts = []
    if not team:
        doubts = [{"path": path, "message": why} for path, why in find_warnings(config, is_known_model)]
    names = sorted(config.all_policies, key=lambda name: (name != DEFAULT, name))
    return {
        "policies": [_describe(loaded_config, name) for name in names],
        "attachments": attachments,
        "doubts": doubts,
    }


def show_policy(context: AdminContext, request: AdminRequest) -> Json:
    loaded_config = _load(context)
    name = request.names["policy"]
    if name not in loaded_config.config.all_policies:
        raise NotFound("unknown policy: GET /policies lists all")
    values = [
        {"path": ".".join(path), "value": value, "origin": origin}
        for path, value, origin in find_origins(loaded_config, name)
    ]
    return {**_describe(loaded_config, name), "values": values}


def _load(context: AdminContext) -> Loaded:
    """Return the configuration in force, with origins if its sources still say the same."""
    config = context.config()
    try:
        loaded_config = context.read()
    except InvalidConfig:
        return Loaded(config, {})
    if loaded_config.config.policies != config.policies:
        return Loaded(config, {})
    return loaded_config


def _describe(loaded_config: Loaded, name: str) -> Json:
    policy = loaded_config.config.policy(name)
    return {
        "name": name,
        "kind": find_kind(loaded_config, name),
        "version": policy.version,
        "mode": policy.mode,
        "inherits": loaded_config.config.lineage(name)[1:],
    }


def find_kind(loaded_config: Loaded, name: str) -> str:
    """Return who wrote a policy: "file", "shipped" or "default"."""
    if name in loaded_config.config.policies and "policies" in loaded_config.config.model_fields_set:
        return "file"
    if name in shipped_policies():
        return "shipped"
    return "default"


CONVERSATION_BYTES = 8 * 1024 * 1024
"""Larger conversations are left out."""
MEMORY_BYTES = 2 * 1024 * 1024 * 1024
GRACE_SECONDS = 15.0
"""For the start and the answer of the process."""
_COMMAND = (sys.executable, "-P", "-m", "proxy.lab.what_if")
_RUNNING = asyncio.Lock()


class NewTrial(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    policy: str = "default"
    values: Json | None = None
    """None: the policy as it is."""
    against: str = "default"
    team: Annotated[str, Meta(max_length=200)] = ""
    """Empty: all."""
    conversation: Annotated[str, Meta(max_length=64)] = ""
    """However old. Empty: the newest of `days`."""
    days: Annotated[float, Meta(gt=0, le=366)] = 7.0
    conversations: Annotated[int, Meta(ge=1, le=200)] = 25
    seconds: Annotated[float, Meta(gt=0, le=60)] = 20.0
    window: Annotated[int, Meta(ge=1_000, le=100_000_000)] | None = None


async def try_policy(context: AdminContext, request: AdminRequest) -> Json:
    trial: NewTrial = request.body
    if request.visitor.team:
        trial = msgspec.structs.replace(trial, team=request.visitor.team)
    policies = await run_in_admin_thread(_resolve_policies, context.config(), trial)
    if _RUNNING.locked():
        raise Overloaded("another trial is running: retry later", headers=(("retry-after", "10"),))
    async with _RUNNING:
        conversations = await run_in_admin_thread(_find_conversations, context.archive, trial)
        job = {"policies": policies, "window": trial.window, "seconds": trial.seconds, "memory_bytes": MEMORY_BYTES}
        answer = await _run(
            context.config().state.dir, job, conversations[: trial.conversations], trial.seconds + GRACE_SECONDS
        )
    outcome, outcome_today = answer["outcomes"]
    replayed = answer["conversations"]
    return {
        "conversations": replayed,
        "left_out": len(conversations) - replayed,
        "tried": outcome,
        "today": outcome_today,
    }


def _resolve_policies(config: Config, trial: NewTrial) -> list[Json]:
    """Return both policies with everything that they inherit."""
    config_with_trial = config
    if trial.values is not None:
        _refuse_outside(trial.values, may_name_upstream=False)
        config_with_trial = insert_policy(config, trial.policy, trial.values)
    policies = []
    for field, name, source in (
        ("policy", trial.policy, config_with_trial),
        ("against", trial.against, config),
    ):
        if name not in source.all_policies:
            raise NotFound(f"`{field}` names an unknown policy: GET /policies lists all")
        policies.append({"name": name, "policy": source.policy(name).model_dump(mode="json")})
    return policies


def insert_policy(config: Config, name: str, values: Json) -> Config:
    try:
        return with_policy(config, name, values)
    except InvalidConfig as fault:
        raise Invalid("invalid policy", [Flaw(flaw.path, flaw.message) for flaw in fault.faults]) from None


def _refuse_outside(values: Json, own_prompt: str = "", *, may_name_upstream: bool) -> None:
    """Refuse settings that would read a file of this machine, or name who else reads conversations."""
    summary = values.get("summary")
    if not isinstance(summary, dict):
        return
    if summary.get("prompt") not in (None, *SHIPPED_PROMPTS, own_prompt):
        why = f"only {' or '.join(SHIPPED_PROMPTS)} here; name a file in the configuration file"
        raise Invalid("no file can be named here", [Flaw("summary.prompt", why)])
    if summary.get("upstream") and not may_name_upstream:
        why = "can be set in the configuration file only"
        raise Invalid("a trial uses no other upstream", [Flaw("summary.upstream", why)])


def _find_conversations(archive: Archive, trial: NewTrial) -> list[SavedConversation]:
    tenant = Caller(trial.team).tenant
    if trial.conversation:
        return list(archive.find(trial.conversation, tenant))[:1]
    since = time.time() - trial.days * DAY_SECONDS
    return [conversation for conversation in archive.newest_first(tenant) if conversation.written_at >= since]


async def _run(folder: str, job: Mapping[str, Any], conversations: Sequence[SavedConversation], seconds: float) -> Json:
    """The process gets no environment: that may hold credentials."""
    environment = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with TemporaryFile(dir=folder) as file:  # without a name, and gone once it is closed
        await run_in_admin_thread(_write_job, file, job, conversations)
        process = await asyncio.create_subprocess_exec(*_COMMAND, stdin=file, stdout=PIPE, env=environment)
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


def _write_job(file: IO[bytes], job: Mapping[str, Any], conversations: Sequence[SavedConversation]) -> None:
    """An empty line ends each conversation."""
    file.write(msgspec.json.encode(job) + b"\n")
    for conversation in conversations:
        if conversation.bytes > CONVERSATION_BYTES:
            continue
        for line in conversation.lines():
            file.write(line.removesuffix(b"\n") + b"\n")
        file.write(b"\n")
    file.seek(0)


POLICY_NAME = r"^[A-Za-z0-9_-][A-Za-z0-9_.-]{0,63}\Z"
_BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
_FIELD_KINDS = {"boolean": "boolean", "integer": "integer", "number": "number", "string": "text"}


class NewDraft(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    policy: Annotated[str, Meta(pattern=POLICY_NAME)]
    values: Json


def show_schema(_: AdminContext, __: AdminRequest) -> Json:
    schema = Policy.model_json_schema()
    return {"settings": list(_list_settings(schema["properties"], schema["$defs"]))}


def _list_settings(properties: Mapping[str, Any], groups: Mapping[str, Any], parent: str = "") -> Iterator[Json]:
    for name, setting in properties.items():
        path = f"{parent}.{name}" if parent else name
        group = groups.get(setting.get("$ref", "").rpartition("/")[2])
        if group is not None and not parent:
            yield from _list_settings(group["properties"], groups, path)
            continue
        if "enum" in setting:
            kind = "choice"
        elif setting.get("type") in _FIELD_KINDS:
            kind = _FIELD_KINDS[setting["type"]]
        else:
            kind = "text" if group else "json"
        yield {
            "path": path,
            "kind": kind,
            "choices": setting.get("enum", []),
            "about": setting.get("description", ""),
            **{bound: setting[bound] for bound in _BOUNDS if bound in setting},
        }


def check_draft(context: AdminContext, request: AdminRequest) -> Json:
    """Return the change that a draft makes to the file, and probable mistakes in it."""
    draft: NewDraft = request.body
    config = context.config()
    policy = config.policies.get(draft.policy)
    own_prompt = ""
    if policy is not None:
        own_prompt = policy.summary.prompt.name
    _refuse_outside(draft.values, own_prompt, may_name_upstream=True)
    changed_config = insert_policy(config, draft.policy, draft.values)
    doubts = {*find_warnings(changed_config, is_known_model)} - {*find_warnings(config, is_known_model)}
    name = context.file.name if context.file else "proxy.yaml"
    text, changed_text, why_no_file = _edit_file(context, draft)
    diff = ""
    if not why_no_file:
        lines = text.splitlines(keepends=True)
        changed_lines = changed_text.splitlines(keepends=True)
        diff = "".join(difflib.unified_diff(lines, changed_lines, name, f"{name} with this draft"))
    return {
        "entry": f"policies:\n{write_entry(draft.policy, draft.values)}",
        "file": None if why_no_file else changed_text,
        "why_no_file": why_no_file,
        "name": name,
        "diff": diff,
        "version": changed_config.policy(draft.policy).version,
        "doubts": [{"path": path, "message": why} for path, why in sorted(doubts)],
    }


def _edit_file(context: AdminContext, draft: NewDraft) -> tuple[str, str, str]:
    """Return the text of the file, the same with the draft, and why the proxy would refuse that."""
    text = ""
    try:
        if context.file is not None:
            text = read_text(context.file)
        changed_text = replace_policy(text, draft.policy, draft.values)
        context.check(changed_text)
    except NotEditable as fault:
        return text, "", str(fault)
    except InvalidConfig as invalid:
        return text, "", f"the proxy would refuse the file: {invalid.faults[0]}"
    return text, changed_text, ""


ROUTES = (
    Route("GET", "/policies", list_policies, for_teams=True),
    Route("GET", "/policies/{policy}", show_policy, for_teams=True),
    Route("POST", "/what-if", try_policy, body=NewTrial, for_teams=True, changes=False),
    Route("GET", "/policy-settings", show_schema, for_teams=True),
    Route("POST", "/policy-drafts", check_draft, body=NewDraft),
)

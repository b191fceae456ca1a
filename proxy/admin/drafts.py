"""Drafts of policies: checked as the configuration file would be, and returned as a text to put there.

The configuration file is the only place where policies are set. Nothing is written here.
"""

import difflib
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from proxy.admin.routes import AdminContext, AdminRequest, Flaw, Invalid, Json, Route
from proxy.admin.trials import insert_policy
from proxy.config import Config, InvalidConfig
from proxy.config.policies import SHIPPED_PROMPTS, Policy
from proxy.config.warnings import find_warnings
from proxy.config.yaml_file import NotEditable, read_text, replace_policy, write_entry
from proxy.models.windows import is_known_model

POLICY_NAME = r"^[A-Za-z0-9_-][A-Za-z0-9_.-]{0,63}\Z"
_BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
_FIELD_KINDS = {"boolean": "boolean", "integer": "integer", "number": "number", "string": "text"}


class NewDraft(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Body of `POST /policy-drafts`."""

    policy: Annotated[str, Meta(pattern=POLICY_NAME)]
    values: Json
    """Values that the policy sets itself, as in the configuration file."""


def show_schema(_: AdminContext, __: AdminRequest) -> Json:
    """Return every setting of a policy: path, kind, choices, bounds, and its sentence in proxy.yaml."""
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
    """Return the change that a draft makes to the file, and probable mistakes in it. Invalid: it cannot be used."""
    draft: NewDraft = request.body
    config = context.config()
    _refuse_files(config, draft)
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
    """Return the text of the file, the same with the draft in it, and the reason if the proxy would refuse that."""
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


def _refuse_files(config: Config, draft: NewDraft) -> None:
    """Refuse a prompt file, unless the policy names it already: a draft reads no files of this machine."""
    summary = draft.values.get("summary")
    prompt = summary.get("prompt") if isinstance(summary, dict) else None
    allowed_prompts = [None, *SHIPPED_PROMPTS]
    policy = config.policies.get(draft.policy)
    if policy is not None:
        allowed_prompts.append(policy.summary.prompt.name)
    if prompt not in allowed_prompts:
        why = f"only {' or '.join(SHIPPED_PROMPTS)} here; name a file in the configuration file"
        raise Invalid("a draft cannot name a file", [Flaw("summary.prompt", why)])


ROUTES = (
    Route("GET", "/policy-settings", show_schema, for_teams=True),
    Route("POST", "/policy-drafts", check_draft, body=NewDraft),
)

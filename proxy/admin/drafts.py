"""Drafts of policies: the settings as a form shows them, and what a draft would change in the configuration file.

The file stays the only source of truth. A draft is checked as the file would be, and comes back as a text to put there,
with the difference to the file that is in force. Nothing is written.
"""

import difflib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from proxy import windows
from proxy.admin.context import AdminContext, AdminRequest, Flaw, Invalid, Json, Route
from proxy.config import Config, InvalidConfig, find_warnings
from proxy.config.editing import replace_policy, write_entry
from proxy.config.loading import with_policy
from proxy.config.policies import SHIPPED_PROMPTS, Policy

POLICY_NAME = r"^[A-Za-z0-9_-][A-Za-z0-9_.-]{0,63}$"
_BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
_PLAIN = {"boolean": "boolean", "integer": "integer", "number": "number", "string": "text"}


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
    try:
        after = with_policy(before, wanted.policy, wanted.values)
    except InvalidConfig as refused:
        raise Invalid("invalid policy", [Flaw(fault.path, fault.message) for fault in refused.faults]) from None
    text = _read_text(context.file)
    entry = write_entry(wanted.policy, wanted.values)
    changed = replace_policy(text, wanted.policy, wanted.values)
    name = context.file.name if context.file else "proxy.yaml"
    lines = text.splitlines(keepends=True), (changed or "").splitlines(keepends=True)
    return {
        "entry": f"policies:\n{entry}",
        "file": changed,
        "name": name,
        "diff": "".join(difflib.unified_diff(*lines, name, f"{name} with this draft")) if changed is not None else "",
        "version": after.policy(wanted.policy).version,
        "doubts": [
            {"path": path, "message": why} for path, why in sorted(set(_find_doubts(after)) - set(_find_doubts(before)))
        ],
    }


def _find_doubts(config: Config) -> Iterator[tuple[str, str]]:
    return iter(find_warnings(config, lambda name: windows.find_bundled_window(name) is not None))


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


def _read_text(file: Path | None) -> str:
    return file.read_text(encoding="utf-8") if file is not None and file.is_file() else ""


ROUTES = (
    Route("GET", "/policy-settings", show_schema, rows="settings", for_teams=True),
    Route("POST", "/policy-drafts", check_draft, body=NewDraft),
)

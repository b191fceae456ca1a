"""Claude Code: `~/.claude/projects/<folder>/<session>.jsonl`, and its sub-agents' files beside them.

Lines follow one another by `parentUuid`: a rewind grows a branch; a sub-agent (`isSidechain`) is a tree, and so are the
messages after a compaction, whose first is the summary. An answer takes a line for each of its blocks, and results of
parallel calls hang on different lines of it. The system prompt and the tools are not recorded.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from msgspec.structs import replace

from proxy.lab.replay.replay_values import Json, RecordedUsage
from proxy.lab.sessions.session_files import ParsedFile
from proxy.lab.sessions.session_history import (
    Branch,
    Chapter,
    Format,
    RecordedMessage,
    as_arguments,
    as_object,
    as_objects,
    as_seconds,
    as_text,
    find_branches,
    list_strings,
    make_answer,
    make_call,
    make_image,
    make_image_link,
    make_result,
    read_usage,
    simplify_content,
)
from proxy.wire.http_head import ApiPath

_ATTACHED = {
    "hook_additional_context": "content",
    "skill_listing": "content",
    "edited_text_file": "snippet",
    "mcp_instructions_delta": "addedBlocks",
    "nested_memory": "content",
    "file": "content",
    "queued_command": "prompt",
}
"""Context that the agent adds, by kind, and the key of its text."""


def claims(values: Sequence[Any]) -> bool:
    return any({"uuid", "sessionId"} <= line.keys() and "parentUuid" in line for line in as_objects(list(values)))


def chapters(sheet: ParsedFile) -> Iterator[Chapter]:
    lines = {as_text(line.get("uuid")): line for line in as_objects(list(sheet.values)) if as_text(line.get("uuid"))}
    parents = {uuid: as_text(line.get("parentUuid")) for uuid, line in lines.items()}
    session = _Session(lines)
    branches = [branch for branch in find_branches(parents) if session.has_own_answer(branch)]
    order = {uuid: number for number, uuid in enumerate(lines)}
    notes = session.notes()
    names: Counter[str] = Counter()
    for branch in sorted(branches, key=lambda branch: (order[branch.root], branch.begins > 0)):
        kind = session.kind(branch)
        number = names[kind]
        names[kind] += 1
        name = kind
        if number:
            name = f"{kind or 'history'} {number + 1}"
        yield Chapter(session.read_branch(branch), name, session.model(branch), notes=notes, path=ApiPath.MESSAGES)
        notes = {}


class _Session:
    def __init__(self, lines: dict[str, Json]) -> None:
        self._lines = lines
        self._parts: dict[str, list[str]] = {}
        self._results: dict[str, list[str]] = {}
        for uuid, line in lines.items():
            if line.get("type") == "assistant":
                self._parts.setdefault(_answer_of(line), []).append(uuid)
            for block in _blocks(line):
                if block.get("type") == "tool_result":
                    self._results.setdefault(as_text(block.get("tool_use_id")), []).append(uuid)

    def has_own_answer(self, branch: Branch) -> bool:
        """Has it an answer that no branch before it had?"""
        earlier = {_answer_of(self._lines[uuid]) for uuid in branch.path[: branch.begins]}
        fresh_lines = (self._lines[uuid] for uuid in branch.path[branch.begins :])
        return any(_is_answer(line) and _answer_of(line) not in earlier for line in fresh_lines)

    def kind(self, branch: Branch) -> str:
        first = self._lines[branch.root]
        if first.get("isSidechain") is True:
            return f"sub-agent {as_text(first.get('agentId'))}".strip()
        if branch.begins:
            return "branch"
        return "after compaction" if any(map(self._is_summary, branch.path[:3])) else ""

    def model(self, branch: Branch) -> str:
        answers = (self._lines[uuid] for uuid in reversed(branch.path) if _is_answer(self._lines[uuid]))
        return next((as_text(as_object(line.get("message")).get("model")) for line in answers), "")

    def notes(self) -> dict[str, int]:
        notes: Counter[str] = Counter()
        for line in self._lines.values():
            if line.get("type") == "attachment" and not _read_attachment(line):
                notes["context attachments of a kind that holds no text here, left out"] += 1
            if line.get("subtype") == "microcompact_boundary":
                notes["times the agent cleared old results itself; they are replayed whole"] += 1
        return dict(notes)

    def read_branch(self, branch: Branch) -> list[RecordedMessage]:
        """Read each answer once, with all its blocks, and the results wherever they hang."""
        earlier_uuids, messages = set(branch.path[: branch.begins]), []
        done: set[str] = set()
        for uuid in self._with_kept(branch):
            line = self._lines[uuid]
            again = uuid in earlier_uuids or uuid not in branch.path
            if line.get("type") in ("user", "attachment") and uuid not in done:
                done.add(uuid)
                messages += [replace(message, again=again) for message in _read_user_line(line)]
            elif _is_answer(line) and _answer_of(line) not in done:
                done.add(_answer_of(line))
                lines = [self._lines[part] for part in self._parts[_answer_of(line)]]
                message = _read_answer(lines)
                blocks = tuple(block for line in lines for block in _blocks(line))
                messages.append(RecordedMessage(message, None if again else _read_usage(lines), again, blocks))
                messages += self._answers_to(message, done, again=again)
        return messages

    def _with_kept(self, branch: Branch) -> list[str]:
        path = list(branch.path)
        boundary = next((uuid for uuid in path if self._lines[uuid].get("subtype") == "compact_boundary"), None)
        meta = as_object(self._lines[boundary].get("compactMetadata")) if boundary else {}
        preserved_uuids = [
            uuid for uuid in list_strings(as_object(meta.get("preservedMessages")).get("uuids")) if uuid in self._lines
        ]
        place = next((place for place, uuid in enumerate(path) if self._is_summary(uuid)), -1) + 1
        return [*path[:place], *(uuid for uuid in preserved_uuids if uuid not in path), *path[place:]]

    def _answers_to(self, message: Json, done: set[str], *, again: bool) -> Iterator[RecordedMessage]:
        """Results that hang elsewhere; those on the branch come in their turn."""
        for call in as_objects(message.get("tool_calls")):
            for uuid in self._results.get(as_text(call.get("id")), ()):
                if uuid not in done:
                    done.add(uuid)
                    yield from (replace(result, again=again) for result in _read_user_line(self._lines[uuid]))

    def _is_summary(self, uuid: str) -> bool:
        return self._lines[uuid].get("isCompactSummary") is True


def _blocks(line: Json) -> list[Json]:
    return as_objects(as_object(line.get("message")).get("content"))


def _answer_of(line: Json) -> str:
    return as_text(as_object(line.get("message")).get("id")) or as_text(line.get("uuid"))


def _is_answer(line: Json) -> bool:
    """API errors that the agent writes in an answer's place are never sent."""
    synthetic = as_object(line.get("message")).get("model") == "<synthetic>"
    return line.get("type") == "assistant" and not synthetic and line.get("isApiErrorMessage") is not True


def _read_usage(lines: Sequence[Json]) -> RecordedUsage | None:
    """Each line repeats the usage, the last with the whole output."""
    return read_usage(as_object(lines[-1].get("message")).get("usage"), at=as_seconds(lines[0].get("timestamp")))


def _read_answer(lines: Sequence[Json]) -> Json:
    words, reasoning, calls = [], [], []
    for block in (block for line in lines for block in _blocks(line)):
        if block.get("type") == "text":
            words.append(as_text(block.get("text")))
        elif block.get("type") == "thinking":
            reasoning.append(as_text(block.get("thinking")))
        elif block.get("type") == "tool_use":
            calls.append(
                make_call(as_text(block.get("name")), as_arguments(block.get("input")), as_text(block.get("id")))
            )
    content = as_text(as_object(lines[0].get("message")).get("content"))
    return make_answer(content or "\n\n".join(filter(None, words)), calls, "\n\n".join(filter(None, reasoning)))


def _read_user_line(line: Json) -> Iterator[RecordedMessage]:
    if line.get("type") == "attachment":
        if reminder := _read_attachment(line):
            content = f"<system-reminder>\n{reminder}\n</system-reminder>"
            yield RecordedMessage({"role": "user", "content": content})
        return
    blocks = as_object(line.get("message")).get("content")
    if isinstance(blocks, str):
        yield RecordedMessage({"role": "user", "content": blocks})
        return
    beside: list[Json] = []
    for block in as_objects(blocks):
        if block.get("type") == "tool_result":
            result = make_result(as_text(block.get("tool_use_id")), _parts(block.get("content")))
            yield RecordedMessage(result, own=(block,))
        else:
            beside.append(block)
    if words := _parts(beside):
        yield RecordedMessage({"role": "user", "content": words}, own=tuple(beside))


def _read_attachment(line: Json) -> str:
    what = as_object(line.get("attachment"))
    words = _words(what.get(_ATTACHED.get(as_text(what.get("type")), "")))
    is_edit = what.get("type") == "edited_text_file"
    return f"Note: {as_text(what.get('filename'))} was modified.\n{words}" if is_edit else words


def _words(value: object) -> str:
    if isinstance(value, dict):
        value = value.get("text") or value.get("content") or value.get("file")
    if isinstance(value, list | dict):
        items = value if isinstance(value, list) else [value]
        return "\n".join(filter(None, map(_words, items)))
    return as_text(value)


def _parts(content: object) -> str | list[Json]:
    if isinstance(content, str):
        return content
    parts: list[Json] = []
    for block in as_objects(content):
        source = as_object(block.get("source"))
        if block.get("type") == "image":
            url = source.get("url")
            parts.append(make_image_link(url) if url else make_image(source.get("media_type"), source.get("data")))
        elif words := as_text(block.get("text")):
            parts.append({"type": "text", "text": words})
    return simplify_content(parts)


FORMATS = (
    Format("Claude Code", 'lines with "uuid", "parentUuid", "sessionId" and "message" (Claude Code)', claims, chapters),
)

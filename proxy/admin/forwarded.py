"""The messages of a request as they were forwarded, rebuilt from its original and the block that stood for them."""

import json

from proxy.admin.conversation_branch import ConversationBranch, list_turns, open_branch
from proxy.admin.request_list import find_request
from proxy.admin.routes import AdminContext, AdminRequest, Json
from proxy.config import Config
from proxy.foundation.errors import NotFound
from proxy.foundation.threads import FILES
from proxy.store.activity_log import ActivityLog
from proxy.store.contract import Store
from proxy.store.transcripts.archive import Archive
from proxy.wire.http_head import ApiPath
from proxy.wire.json_body import as_object


async def show_forwarded(context: AdminContext, request: AdminRequest) -> Json:
    request_id = request.names["request"]
    return await rebuild_forwarded(context.config(), context.archive, context.store, context.activity_log, request_id)


async def rebuild_forwarded(
    config: Config, archive: Archive, store: Store, activity_log: ActivityLog, request_id: str
) -> Json:
    """Return the messages of a request as they were sent and, rebuilt, as they were forwarded.

    `differences` lists all in which the forwarded request differed from this. `compacted_by_provider` tells which of
    the forwarded messages the provider left out itself, if that is known. Raise NotFound if nothing can be rebuilt.
    """
    recorded_request = await FILES.run(find_request, activity_log, request_id)
    if recorded_request["turn"] is None:
        raise NotFound(_explain_no_turn(recorded_request))
    turns = await FILES.run(list_turns, activity_log, recorded_request["conversation"])
    for turn in turns:
        if turn["request_id"] == recorded_request["request_id"]:
            branch = await open_branch(config, archive, store, turn, turns)
            return await FILES.run(_describe, branch, turn, recorded_request)
    raise NotFound("its turn is not among the newest of its conversation")


def _explain_no_turn(recorded_request: Json) -> str:
    if recorded_request["outcome"] == "refused":
        return "the proxy refused it and forwarded nothing"
    if recorded_request["compaction"] in ("applied", "created"):
        return "it was forwarded shortened, but is not recorded further: the upstream refused it or broke off"
    if recorded_request["reason"] == "reasoning-removed":
        return "it was forwarded as it came, but for signed reasoning that the upstream had refused"
    return "its history was too short to be looked at, or is not recorded: it was forwarded as it came"


def _describe(branch: ConversationBranch, turn: Json, recorded_request: Json) -> Json:
    def read(raw: bytes) -> object:
        return json.loads(branch.redaction.of_json(raw)[0])

    head = [read(line.message) for line in branch.transcript.head_of(branch.lines[-1])]
    sent_messages = [*head, *(read(line.message) for line in branch.lines)]
    forwarded_messages = sent_messages
    if not branch.is_observed:
        forwarded_messages = [*head, *(read(message.raw) for message in branch.view.messages)]
    return {
        "sent": sent_messages,
        "forwarded": forwarded_messages,
        "differences": _list_differences(branch, turn, recorded_request),
        "compacted_by_provider": {
            "asked_for": turn["reason"] == "provider-compacts",
            "messages": [index for index, message in enumerate(forwarded_messages) if _is_compacted(message)],
            "edits": [edit for answer in branch.transcript.answers_to(turn["link"]) for edit in answer.provider_edits],
        },
    }


def _list_differences(branch: ConversationBranch, turn: Json, recorded_request: Json) -> list[str]:
    differences = ["the model, tools and other members of the body are not kept; only the messages are"]
    altered_count = sum(bool(line.altered) for line in branch.lines)
    if altered_count:
        differences.append(f"secrets were removed from {altered_count} of the messages")
    if branch.lines[-1].at != turn["link"]:
        differences.append("the end of this history is not kept; this is the newest branch that is")
    if turn["reason"] == "reasoning-removed":
        differences.append("reasoning was removed from all messages, because the upstream refused its signature")
    block = branch.view.block
    if block is None and turn["tokens_forwarded"] < turn["tokens_raw"]:
        differences.append("its block is not kept here, so these are the messages as sent")
    if block is not None and not branch.is_observed and block.policy != turn["policy"]:
        differences.append(f"its block is of {block.policy}, and {turn['policy']} was in force")
    if not recorded_request["route"].endswith(ApiPath.CHAT):
        differences.append("these are the chat messages that say the same as those of its API")
    if recorded_request["turn"]["placed"]:
        differences.append(f"added for the provider's cache: {recorded_request['turn']['placed']}")
    return differences


def _is_compacted(message: object) -> bool:
    """Return True for a message with a compaction of the provider: of those before it, the model reads nothing else."""
    content = as_object(message).get("content")
    if not isinstance(content, list):
        return False
    kinds = ("compaction", "compaction_summary", "context_compaction")
    return any(as_object(part).get("type") in kinds for part in content)

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
    """Rebuild the forwarded messages of a request, beside those that were sent. NotFound: why that cannot be done.

    `differences` says what the upstream got that is not here, or not so. `compacted_by_provider` says what is known of
    what the provider left out itself, of the messages that it got.
    """
    told = await FILES.run(find_request, activity_log, request_id)
    if told["turn"] is None:
        raise NotFound(_explain_no_turn(told))
    turns = await FILES.run(list_turns, activity_log, told["conversation"])
    for turn in turns:
        if turn["request_id"] == told["request_id"]:
            branch = await open_branch(config, archive, store, turn, turns)
            return await FILES.run(_describe, branch, turn, told)
    raise NotFound("its turn is not among the newest of its conversation")


def _explain_no_turn(told: Json) -> str:
    if told["outcome"] == "refused":
        return "the proxy refused it and forwarded nothing"
    if told["compaction"] in ("applied", "created"):
        return "it was forwarded shortened, but is not recorded further: the upstream refused it or broke off"
    if told["reason"] == "reasoning-removed":
        return "it was forwarded as it came, but for signed reasoning that the upstream had refused"
    return "its history was too short to be looked at, or is not recorded: it was forwarded as it came"


def _describe(branch: ConversationBranch, turn: Json, told: Json) -> Json:
    def read(raw: bytes) -> object:
        return json.loads(branch.redaction.of_json(raw)[0])

    head = [read(line.message) for line in branch.transcript.head_of(branch.lines[-1])]
    sent = [*head, *(read(line.message) for line in branch.lines)]
    forwarded = sent
    if not branch.is_observed:
        forwarded = [*head, *(read(message.raw) for message in branch.view.messages)]
    return {
        "sent": sent,
        "forwarded": forwarded,
        "differences": _list_differences(branch, turn, told),
        "compacted_by_provider": {
            "asked_for": turn["reason"] == "provider-compacts",
            "messages": [index for index, message in enumerate(forwarded) if _is_compacted(message)],
            "edits": [edit for answer in branch.transcript.answers_to(turn["link"]) for edit in answer.provider_edits],
        },
    }


def _list_differences(branch: ConversationBranch, turn: Json, told: Json) -> list[str]:
    differences = ["the model, tools and other members of the body are not kept; only the messages are"]
    altered = sum(bool(line.altered) for line in branch.lines)
    if altered:
        differences.append(f"secrets were removed from {altered} of the messages")
    if branch.lines[-1].at != turn["link"]:
        differences.append("the end of this history is not kept; this is the newest branch that is")
    if turn["reason"] == "reasoning-removed":
        differences.append("reasoning was removed from all messages, because the upstream refused its signature")
    block = branch.view.block
    if block is None and turn["tokens_forwarded"] < turn["tokens_raw"]:
        differences.append("its block is not kept here, so these are the messages as sent")
    if block is not None and not branch.is_observed and block.policy != turn["policy"]:
        differences.append(f"its block is of {block.policy}, and {turn['policy']} was in force")
    if not told["route"].endswith(ApiPath.CHAT):
        differences.append("these are the chat messages that say the same as those of its API")
    if told["turn"]["placed"]:
        differences.append(f"added for the provider's cache: {told['turn']['placed']}")
    return differences


def _is_compacted(message: object) -> bool:
    """Return True for a message with a compaction of the provider: of those before it, the model reads nothing else."""
    content = as_object(message).get("content")
    if not isinstance(content, list):
        return False
    kinds = ("compaction", "compaction_summary", "context_compaction")
    return any(as_object(part).get("type") in kinds for part in content)

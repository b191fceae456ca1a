"""An upstream that has a client read sixty pages, compacts for it, and keeps the bill of its cache.

    pages = PagingUpstream(window=128_000)
    async with Upstream(pages.reply) as up:
        ...                       # the client works
    assert pages.read == PAGES
    pages.bill.cost, pages.refused, pages.sealed      # what it has cost, refused and sealed

The model asks for one page after the other, whatever its history still holds. Its compactions are sealed, and must come
back as they were.
"""

import json
from dataclasses import dataclass, field
from typing import Any

from tests.support import responses_api
from tests.support.agent import page
from tests.support.apis import CHAT, OVERFLOW, RESPONSES, Api
from tests.support.cache_bills import PrefixBill
from tests.support.completions import Turn, call_turn, text_turn
from tests.support.scripted_upstream import Request, answer, stream
from tests.support.upstream_replies import Reply

PAGES = 60
PAGE_BYTES = 8_000
SEALED_BYTES = 6_000
SUMMARY_BYTES = 1_500


def page_text(number: int) -> str:
    return page(number, PAGE_BYTES)


@dataclass
class PagingUpstream:
    window: int
    pages: int = PAGES
    """After so many, the model ends each turn."""
    call_name: str = "read_page"
    read: int = 0
    refused: int = 0
    faults: list[str] = field(default_factory=list)
    sealed: list[str] = field(default_factory=list)
    bill: PrefixBill = field(default_factory=PrefixBill)

    def reply(self, request: Request) -> Reply:
        path = request.path.removeprefix("/v1")
        if request.method != "POST" or path not in ("/chat/completions", "/responses", "/responses/compact"):
            return answer({"error": {"message": "There is nothing here."}}, 404)
        api = CHAT if path == "/chat/completions" else RESPONSES
        faults = self._find_faults(api, request)
        if faults:
            self.faults += faults
            return api.refuse("; ".join(faults))
        if len(request.body) // 4 > self.window:
            self.refused += 1
            return api.refuse(code=OVERFLOW)
        self.bill.add(request.body)
        if path == "/responses/compact":
            return answer(self._compact(request))
        return self._answer(api, request)

    def _answer(self, api: Api, request: Request) -> Reply:
        body = request.json
        if api is RESPONSES and body["input"][-1].get("type") == "compaction_trigger":
            return _render_items([self._seal()], request)
        if not body.get("tools") or _asks_for_summary(body):
            return api.reply(page(0, SUMMARY_BYTES), len(request.body) // 4, streams=bool(body.get("stream")))
        return self._render(api, request, self._next_turn())

    def _find_faults(self, api: Api, request: Request) -> list[str]:
        faults = api.find_faults(request.body)
        sealed = [item for item in request.json.get("input", ()) if item.get("type") == "compaction"]
        if any(item["encrypted_content"] not in self.sealed for item in sealed):
            faults.append("a compaction that was not sealed here")
        return faults

    def _next_turn(self) -> Turn:
        if self.read == self.pages:
            return text_turn(f"Pages up to {self.read} are read.")
        self.read += 1
        command = {"cmd": f"cat pages/{self.read}.txt"} if self.call_name == "exec_command" else {"number": self.read}
        return text_turn(f"Page {self.read} comes next.") + call_turn(self.call_name, **command)

    def _render(self, api: Api, request: Request, turn: Turn) -> Reply:
        turn = turn.numbered(f"_{self.read:03}").using(len(request.body) // 4)
        model = request.json["model"]
        if api is CHAT:
            return answer(turn.completion(model))
        calls = turn.message.get("tool_calls", ())
        whole = responses_api.answer_whole(turn.text, turn.prompt_tokens, calls, model)
        whole["id"] = f"resp_{self.read}"
        for item in whole["output"]:
            item["id"] += f"_{self.read}"
        return stream(*responses_api.events_of(whole)) if request.json.get("stream") else answer(whole)

    def _seal(self) -> dict[str, str]:
        number = len(self.sealed) + 1
        self.sealed.append(f"{number:04}" * (SEALED_BYTES // 4))
        return {"type": "compaction", "id": f"cmp_{number}", "encrypted_content": self.sealed[-1]}

    def _compact(self, request: Request) -> dict[str, Any]:
        """The user's messages and the sealed item: <https://platform.openai.com/docs/guides/compaction>."""
        users = [{"type": "message", **item} for item in request.json["input"] if item.get("role") == "user"]
        usage = responses_api.answer_whole("", len(request.body) // 4)["usage"]
        about = {"id": "resp_compact", "object": "response.compaction", "created_at": 1}
        return {**about, "output": [*users, self._seal()], "usage": usage}


def _asks_for_summary(body: dict[str, Any]) -> bool:
    """The proxy asks for its own with these words."""
    last = (body.get("input") or body["messages"])[-1]
    return "handover of this conversation" in json.dumps(last)


def _render_items(items: list[dict[str, Any]], request: Request) -> Reply:
    whole = {**responses_api.answer_whole("", len(request.body) // 4), "output": items}
    return stream(*responses_api.events_of(whole)) if request.json.get("stream") else answer(whole)

"""Replay of the same turns through a running proxy: this one or another.

The proxy's upstream is this recorder. It answers each turn as recorded, and any other question (a proxy's own call for
a summary) with the stand-in's answer. The requests that it gets go to the same judge as a policy's. Messages are
recognised by their content, whatever their spacing. Time is the conversation's own. The recorder refuses nothing.
"""

import asyncio
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from http import HTTPStatus
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from proxy.config.settings import Upstream as Address
from proxy.foundation.errors import ProxyError
from proxy.history.messages import Message, read_message
from proxy.history.request import Request
from proxy.lab.demo.model import DemoUsage, ModelReply, refusal
from proxy.lab.replay import summarizers
from proxy.lab.replay.replay_history import Cache, ReplayHistory, RequestTurn, encode
from proxy.lab.replay.replay_jobs import Progress, ResultFile, result_key
from proxy.lab.replay.replay_values import Conversation, Json, Result
from proxy.lab.replay.scoring import Judge, ReplayCase, UpstreamModel
from proxy.lab.replay.simulation import Sent
from proxy.lab.replay.summarizers import SummaryRequest
from proxy.shorten.pipeline import estimate_tokens
from proxy.upstream.client import Call, Client
from proxy.wire.chat_api import CHAT_FORMAT
from proxy.wire.http_head import ApiPath, find_encoding

SETTLE_SECONDS = 0.02
"""Between two turns, for a proxy's work after an answer."""
BEGINNING_CHARACTERS = 80
"""A text is recognised by its beginning, because the rest may be cut off."""


class ProxyTarget(Struct, frozen=True):
    url: str
    name: str
    key: str = "sk-replay"
    settle: float = SETTLE_SECONDS


class PlayedTurn(Struct):
    history: ReplayHistory
    turn: RequestTurn
    originals: Mapping[str, Message]
    cache: Cache
    received: Request | None = None
    """Its messages are replaced by the originals that say the same."""
    before: tuple[SummaryRequest, ...] = ()
    after: tuple[SummaryRequest, ...] = ()

    def with_originals(self, request: Request) -> Request:
        """Put originals in place of messages and tools that say the same."""
        own = self.history.request.tools
        tools = request.tools and encode(json.loads(request.tools))
        messages = tuple(_find_original(message, self.originals) for message in request.messages)
        return replace(request, messages=messages, tools=own if own and tools == encode(json.loads(own)) else tools)

    def charge_summary(self, call: SummaryRequest) -> None:
        """The turn waited for a question that was put before it arrived."""
        if self.received is None:
            self.before += (call,)
        else:
            self.after += (call,)


class Recorder:
    def __init__(self, upstream: UpstreamModel) -> None:
        self.upstream = upstream
        self._stage: PlayedTurn | None = None

    @property
    def window(self) -> int:
        return self.upstream.window

    def begin_turn(self, history: ReplayHistory, turn: RequestTurn) -> None:
        """Late requests of the previous turn count with this one."""
        stage = self._stage
        if stage is None or stage.history is not history:
            originals = {_normalize(message.raw): message for message in reversed(history.request.messages)}
            self._stage = PlayedTurn(history, turn, originals, Cache(self.upstream.habit, estimate_tokens))
        else:
            self._stage = PlayedTurn(history, turn, stage.originals, stage.cache)

    def read_sent(self, *, failed: bool) -> Sent:
        """A request that never arrived counts as sent."""
        stage = self._stage
        if stage is None:
            raise RuntimeError("no turn was opened")
        request = stage.received or stage.turn.request
        return Sent(request.messages, request.tools, "", stage.before, stage.after, failed)

    async def answer(self, body: bytes) -> ModelReply:
        stage, request = self._stage, CHAT_FORMAT.parse(body)
        if stage is None:
            return refusal(HTTPStatus.SERVICE_UNAVAILABLE, "The replay has not begun.", "server_error", None)
        if request is None:
            return refusal(HTTPStatus.BAD_REQUEST, "That is no chat request.", "invalid_request_error", None)
        request = stage.with_originals(request)
        pieces = (*((request.tools,) if request.tools else ()), *(message.raw for message in request.messages))
        tokens = stage.cache.read(pieces, stage.turn.seconds)
        if _is_turn(request, stage):
            stage.received = request
            message = stage.history.conversation.messages[stage.turn.place]
        else:
            message = _write_summary(request)
            stage.charge_summary(SummaryRequest(pieces, estimate_tokens(encode(message))))
        finish = "tool_calls" if message.get("tool_calls") else "stop"
        usage = DemoUsage(tokens.read, tokens.cached, estimate_tokens(encode(message)))
        return ModelReply(message={"content": None, **message}, finish=finish, usage=usage)


def _is_turn(request: Request, stage: PlayedTurn) -> bool:
    """Requests end as the turn ends; a proxy's own question ends in that question."""
    last, own = request.messages[-1], stage.turn.request.messages[-1]
    if last.role != own.role or last.answers != own.answers:
        return False
    return own.is_result or last.text[:BEGINNING_CHARACTERS] == own.text[:BEGINNING_CHARACTERS]


def _write_summary(request: Request) -> Json:
    """The stand-in answers a question that follows its history."""
    demand = f"{request.messages[0].text}\n{request.messages[-1].text}"
    text = summarizers.write_summary(request.messages[:-1], summarizers.find_headings(demand))
    return {"role": "assistant", "content": text}


class AllFailedError(Exception):
    """The message says why no request got the recorded answer."""


async def replay_through(
    conversations: Sequence[Conversation],
    door: ProxyTarget,
    recorder: Recorder,
    *,
    ledger: ResultFile,
    progress: Progress,
) -> list[Result]:
    """AllFailedError: there is nothing to score."""
    stored_results, results, upstream = ledger.read(), list[Result](), recorder.upstream
    has_replied = False
    async with Client(Address(base_url=door.url, retries=0), lambda _: None) as client:
        for done, conversation in enumerate(conversations):
            progress(done, len(conversations))
            name = result_key(conversation, (door.url, door.name, upstream))
            result = stored_results.get(name)
            if result is None or _has_failed(result):  # earlier versions have written failed ones
                case = ReplayCase(ReplayHistory(replace(conversation, own=None)), upstream)
                result, has_case_replied = await _replay_case(client, door, recorder, case)
                has_replied = has_replied or has_case_replied
                if not _has_failed(result):  # a later run would take it from the file
                    ledger.append([(name, result)])
            results.append(result)
    progress(len(results), len(conversations))
    if results and all(map(_has_failed, results)):
        where = "does it forward to the recorder, and is its key right?" if has_replied else "is the proxy running?"
        raise AllFailedError(f"{'every request failed at' if has_replied else 'no answer from'} {door.url}: {where}")
    return results


def _has_failed(result: Result) -> bool:
    """Did no request get the recorded answer?"""
    return result.scores.failed == result.scores.requests > 0


async def _replay_case(client: Client, door: ProxyTarget, recorder: Recorder, case: ReplayCase) -> tuple[Result, bool]:
    """Return the result, and whether any request was answered."""
    judge, history, has_replied = Judge(case), case.history, False
    for turn in case.turns:
        recorder.begin_turn(history, turn)
        answer = None
        with suppress(ProxyError):
            answer = await _ask(client, door, history.body(turn.place), case.model)
            has_replied = True
        await asyncio.sleep(door.settle)
        recorded_answer = history.conversation.messages[turn.place]
        judge.score(turn, recorder.read_sent(failed=answer is None or _essence(answer) != _essence(recorded_answer)))
    return judge.result(door.name), has_replied


async def _ask(client: Client, door: ProxyTarget, body: bytes, model: str) -> Json | None:
    headers = (("content-type", "application/json"), ("authorization", f"Bearer {door.key}"))
    async with client.send(Call("POST", ApiPath.CHAT, "", headers, body), model) as reply:
        raw = b"".join([chunk async for chunk in reply.chunks()])
    if not reply.is_good or find_encoding(reply.headers):
        return None
    return _message(raw)


def _message(raw: bytes) -> Json | None:
    try:
        message = json.loads(raw)["choices"][0]["message"]
    except (ValueError, KeyError, IndexError, TypeError):
        return None
    return message if isinstance(message, dict) else None


def _essence(message: Json) -> tuple[str, list[tuple[str, str]]]:
    """Text and calls are all that an agent acts on."""
    functions = [call.get("function") or {} for call in message.get("tool_calls") or ()]
    calls = [(str(function.get("name", "")), str(function.get("arguments", ""))) for function in functions]
    return str(message.get("content") or ""), calls


def _find_original(message: Message, originals: Mapping[str, Message]) -> Message:
    """Return the original that says the same, or the message as we would write it."""
    original = originals.get(_normalize(message.raw))
    if original is not None:
        return original
    value = json.loads(message.raw)
    return read_message(value, encode(value))


@lru_cache(maxsize=20_000)
def _normalize(raw: bytes) -> str:
    """Leave out empty members and cache markers; a single text part becomes text."""
    return json.dumps(_without_empty(json.loads(raw)), sort_keys=True)


def _without_empty(value: Any) -> Any:  # noqa: ANN401 (any JSON)
    if isinstance(value, list):
        if len(value) == 1 and isinstance(value[0], dict) and value[0].get("type") == "text":
            return value[0]["text"]
        return list(map(_without_empty, value))
    if isinstance(value, dict):
        members = {}
        for name, member in value.items():
            if member not in (None, "", []) and name not in _MARKS:
                members[name] = _without_empty(member)
        return members
    return value


_MARKS = frozenset({"cache_control", "prompt_cache_breakpoint"})

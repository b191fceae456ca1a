"""An upstream that refuses what is too long, in the words of each provider, behind the real proxy."""

import json
import re
import sqlite3
from dataclasses import dataclass, field, replace

import pytest
import pytest_asyncio

from tests.support.agent import Agent, page, reading
from tests.support.apis import KEY, MESSAGES, RESPONSES, each_api
from tests.support.compacting_proxy import metric
from tests.support.messages import assistant, body, call, history, user
from tests.support.overflow_replies import FIGURES, OVERFLOWS, overflow
from tests.support.proxy_client import ask, data_of, log_of, streaming, until
from tests.support.scripted_upstream import (
    DONE,
    Reply,
    Request,
    Upstream,
    answer,
    comment,
    cut,
    event,
    hang,
    in_turn,
    pause,
    stream,
    text_turn,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")

LIMIT = 20_000
TOO_LONG = 26_000
# Too small for any decision; or decided on, but left alone as long as it fits.
UNNOTICED = {"clear_at_least": 1_000_000}
NOTICED = {"clear_at_least": 5_000, "min_groups": 1_000}
WORK = reading(30, size=3_000)
NOT_FOUND = answer({"error": {"message": "Not Found"}}, 404)
INPUT = [name for name, known in OVERFLOWS.items() if known.kind in ("input", "tpm")]
OUTPUT = [name for name, known in OVERFLOWS.items() if known.kind == "output"]
OTHERS = [name for name, known in OVERFLOWS.items() if known.kind in ("rate", "bytes")]


def settings(**policy):
    return {"policies": {"default": {**UNNOTICED, **policy}}, "log": {"format": "json"}}


@dataclass
class Provider:
    """Refuses in the words of `name`, scaled to its limit, whatever does not fit; its first request weighs `first`."""

    name: str
    limit: int = LIMIT
    first: int = TOO_LONG
    answered: object = field(default_factory=lambda: text_turn("Go on."))
    chats: list[Request] = field(default_factory=list)
    _unit: float = 0.0

    def __post_init__(self):
        limit, size, _, _ = FIGURES.get(self.name, (None, None, None, None))
        self.scale = self.limit / limit if limit else 1
        self.first = round(min(size, 2 * limit) * self.scale) if size else self.first

    def weight(self, request):
        characters = len(json.dumps(request.json["messages"]))
        self._unit = self._unit or self.first / characters
        return round(characters * self._unit)

    def __call__(self, request):
        self.chats.append(request)
        asked = request.json.get("max_completion_tokens") or request.json.get("max_tokens") or 0
        return self.answered if self.weight(request) + asked <= self.limit else self.refusal

    @property
    def refusal(self) -> Reply:
        known = OVERFLOWS[self.name]
        text = known.body.replace(b"342389", b"42389")  # no tokenizer counts ten times as many as another
        return answer(re.sub(rb"\d{4,}", self._scale_figure, text), known.status, known.headers)

    def _scale_figure(self, figure):
        return str(round(int(figure[0]) * self.scale)).encode()


class MeteredProvider(Provider):
    """One that reports how many tokens it has read."""

    def __call__(self, request):
        text = super().__call__(request)
        return text.using(self.weight(request)) if text is self.answered else text


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stack(serve):
    async with Upstream() as up, serve(up.url, config=settings()) as proxy:
        yield up, proxy


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def attentive_stack(serve):
    async with Upstream() as up, serve(up.url, config=settings(**NOTICED)) as proxy:
        yield up, proxy


@pytest.fixture
def send_turn(stack, request):
    """A client with a key of its own, before an upstream with scripted answers."""
    return turn_sender(*stack, f"sk-{request.node.name}")


@pytest.fixture
def send_to_attentive(attentive_stack, request):
    return turn_sender(*attentive_stack, f"sk-{request.node.name}")


def _reply_to(request, script):
    return script(request) if callable(script) else script


def turn_sender(up, proxy, key):
    async def send_turn(script, messages=WORK, *, headers=(), **more):
        # The proxy asks for the window beside the request: that takes no turn of the script.
        up.script = lambda request: _reply_to(request, script) if request.method == "POST" else NOT_FOUND
        up.forget()
        exchange = await Agent(proxy, up, key).send(messages, dict(headers), **more)
        return exchange._replace(bodies=[each.body for each in up.requests if each.method == "POST"])

    return send_turn


def longer(messages):
    return [*messages, *assistant("Done."), *user("Go on, please."), *history(call("Read", out=page(99, 3_000)))]


@pytest.mark.parametrize(("name", "stream"), [*((name, False) for name in INPUT), ("openai", True), ("gemini", True)])
async def test_a_history_too_long_for_any_server_is_sent_once_more_and_fits(send_turn, name, stream):
    wanted = {"vllm-old": 610, "sglang-total": 4_882, "openrouter": 1_221, "openrouter-in-200": 1_221}.get(name)
    outcome = await send_turn(Provider(name), stream=stream, **({"max_tokens": wanted} if wanted else {}))
    assert outcome.answer.status == 200
    assert len(outcome.bodies) == 2
    assert outcome.bodies[0] == outcome.sent
    assert outcome.header("x-compaction") == "created"
    assert outcome.header("x-compaction-reason") == "overflow_retry"
    text = data_of(outcome.answer.body.data) if stream else [json.loads(outcome.answer.body.data)]
    assert "Go on." in json.dumps(text, ensure_ascii=False) or text[-1] == "[DONE]"


async def test_a_recovery_is_logged_and_counted(stack, send_turn):
    _, proxy = stack
    outcome = await send_turn(Provider("gemini"))
    # Lines appear a little after their event, and other tests share this proxy: so it is known by its size.
    after = int(outcome.header("x-compaction-tokens-after"))
    request = (await until(lambda: log_of(proxy, "request", reason="overflow_retry", tokens_after=after)))[-1]
    assert (request["status"], request["compaction"]) == (200, "created")
    refusals = {"limit": LIMIT, "kind": "input", "helped": True, "request_id": request["request_id"]}
    (line,) = await until(lambda: log_of(proxy, "refused-for-size", **refusals))
    assert line["effect"] == "the second try was accepted"
    assert await metric(proxy, "refused_for_size_total", kind="input", outcome="helped") >= 1


def is_unaltered(outcome, text: Reply):
    return (
        outcome.answer.status == text.status
        and outcome.answer.body.data == text.body
        and dict(text.headers).items()
        <= {k.decode().lower(): v.decode() for k, v in outcome.answer.head.headers}.items()
    )


def numbered_refusal(name, number):
    return replace(Provider(name).refusal, headers=(*OVERFLOWS[name].headers, ("x-ray-id", number)))


REFUSING = ("openai", "vllm", "gemini", "cerebras-no-body", "openrouter-in-200", "groq-tpm")
OTHER_FAULTS = (answer({"error": {"message": "Oops"}}, 500), answer({"error": {"message": "Slow down"}}, 429), cut())


@pytest.mark.parametrize(
    ("name", "second"),
    [*((name, numbered_refusal(name, "second")) for name in REFUSING), *(("openai", fault) for fault in OTHER_FAULTS)],
)
async def test_after_a_failed_second_try_the_first_refusal_is_handed_on_unaltered(send_turn, name, second):
    first = numbered_refusal(name, "first")
    outcome = await send_turn(in_turn(first, second, text_turn("Too late.")))
    assert len(outcome.bodies) == 2
    assert is_unaltered(outcome, first)
    assert outcome.header("x-compaction") == "none"


@pytest.mark.parametrize("before", [[], [comment("PROCESSING"), pause(0.05)]], ids=["at once", "behind comments"])
async def test_an_error_in_the_first_event_of_a_stream_is_recovered_from(send_turn, before):
    provider = Provider("openrouter-in-200")

    def refuse_within(request):
        text = provider(request)
        return text if text is provider.answered else stream(*before, event(json.loads(text.body)))

    outcome = await send_turn(refuse_within, stream=True)
    assert len(outcome.bodies) == 2
    assert outcome.header("x-compaction") == "created"
    assert "error" not in data_of(outcome.answer.body.data)[0]
    assert outcome.answer.body.data.endswith(DONE)


async def test_an_error_in_the_first_event_that_nothing_helps_reaches_the_client_as_it_came(send_turn):
    refused = stream(comment("PROCESSING"), event({"error": {"message": "Overloaded", "code": 503}}))
    outcome = await send_turn(refused, stream=True)
    assert len(outcome.bodies) == 1
    assert outcome.answer.body.data == refused.body
    assert outcome.answer.body.whole


async def test_white_space_before_an_answer_passes_while_it_is_waited_for(stack):
    up, proxy = stack
    up.script = replace(answer({}), parts=(b"\n\n", hang()), framing="chunked")
    async with streaming(proxy, body(WORK)) as line:
        await line.until(b"\n\n\r\n")


@pytest.mark.parametrize("wish", ["off", "observe", "bypass"])
async def test_without_compaction_the_upstreams_own_error_is_relayed(send_turn, wish):
    provider = Provider("openai")
    outcome = await send_turn(provider, headers={"x-compaction": wish})
    assert len(outcome.bodies) == 1
    assert is_unaltered(outcome, provider.refusal)


@pytest.mark.parametrize(
    "said",
    [
        *map(overflow, OTHERS),
        answer({"error": {"message": "Incorrect API key provided", "code": "invalid_api_key"}}, 401),
        answer({"error": {"message": "max_tokens must be at least 1"}}, 400),
        answer({"error": {"message": "prompt is too long: 9000 tokens > 8000 maximum. " + "x" * 70_000}}, 400),
        answer({"error": {"message": "Your prompt was filtered", "code": "content_filter"}}, 400).in_pieces(7),
        answer({"id": "x", "choices": [], "error": {"message": "prompt is too long: 9000 tokens > 8000 maximum"}}),
    ],
)
async def test_any_other_answer_is_handed_on_as_it_is(send_turn, said):
    outcome = await send_turn(said)
    assert len(outcome.bodies) == 1
    assert is_unaltered(outcome, said)


@pytest.mark.parametrize("whose", ["talk", "noticed"])
@pytest.mark.parametrize("name", ["openai", "cerebras-no-body"])
async def test_the_next_request_knows_and_goes_on_where_the_first_was_brought(
    name, whose, send_turn, send_to_attentive
):
    send_turn, provider = {"talk": send_turn, "noticed": send_to_attentive}[whose], Provider(name)
    first = await send_turn(provider)
    second = await send_turn(provider, longer(WORK))
    third = await send_turn(provider, longer(reading(40, size=3_000, task="Something else.")))
    assert [len(outcome.bodies) for outcome in (first, second, third)] == [2, 1, 1]
    assert second.bodies[-1].startswith(first.bodies[-1].removesuffix(b"]}"))
    assert third.header("x-compaction-reason") == "window"


@pytest.mark.seconds
async def test_it_is_known_after_a_restart_until_it_expires_and_to_this_credential_only(serve, tmp_path):
    provider, config, state = Provider("openai"), settings(**NOTICED), ("--state", str(tmp_path))
    async with Upstream() as up:
        async with serve(up.url, *state, config=config) as proxy:
            assert len((await turn_sender(up, proxy, "sk-a")(provider)).bodies) == 2
        async with serve(up.url, *state, config=config) as proxy:
            known = await turn_sender(up, proxy, "sk-a")(provider, reading(31, size=3_000, task="Another task."))
            stranger = await turn_sender(up, proxy, "sk-b")(provider, reading(31, size=3_000, task="Another task."))
            another_model = await turn_sender(up, proxy, "sk-a")(
                provider, reading(31, size=3_000, task="X"), model="else"
            )
            with sqlite3.connect(tmp_path / "promises.sqlite") as db:
                assert db.execute("update facts_1 set until = 0 where key like '%/window/%'").rowcount == 3
            db.close()
            expired = await turn_sender(up, proxy, "sk-a")(provider, reading(31, size=3_000, task="A third task."))
    assert [len(outcome.bodies) for outcome in (known, stranger, another_model, expired)] == [1, 2, 2, 2]
    assert {outcome.answer.status for outcome in (known, stranger, another_model, expired)} == {200}


async def test_it_is_not_believed_of_another_server_under_the_same_name(serve, tmp_path):
    config, state = settings(**NOTICED), ("--state", str(tmp_path))
    async with Upstream() as small, Upstream(text_turn("Go on.")) as large:
        async with serve(small.url, *state, config=config) as proxy:
            assert len((await turn_sender(small, proxy, "sk-a")(Provider("openai"))).bodies) == 2
        async with serve(large.url, *state, config=config) as proxy:
            step = await Agent(proxy, large, "sk-a").send(reading(31, size=3_000, task="Another task."))
    assert step.compaction == "none"


@pytest.mark.parametrize("name", OUTPUT)
async def test_an_answer_too_long_is_asked_for_shorter_and_the_history_stays(send_turn, name):
    provider = Provider(name, limit=40_000, first=8_000)
    outcome = await send_turn(provider, reading(8, size=3_000), max_tokens=60_000, seed=10**30)
    assert (outcome.answer.status, len(outcome.bodies)) == (200, 2)
    asked = json.loads(outcome.bodies[1])["max_tokens"]
    assert 1_000 < asked < 40_000
    assert outcome.bodies[1] == outcome.sent.replace(b'"max_tokens": 60000', b'"max_tokens": %d' % asked)
    assert outcome.header("x-compaction") == "none"
    assert outcome.header("x-compaction-reason") == "overflow_retry"


@each_api
@pytest.mark.parametrize("longest", [None, 16_384], ids=["window", "longest-answer"])
async def test_an_answer_that_was_refused_is_bounded_before_later_requests_are_sent(serve, api, longest):
    window, wanted = 40_000, 25_000
    member = "max_output_tokens" if api is RESPONSES else "max_tokens"
    bounds = []

    def reply(request):
        if request.method != "POST":
            return NOT_FOUND
        tokens, asked = len(request.body) // 4, request.json[member]
        bounds.append(asked)
        if longest is not None and asked > longest:
            return api.refuse(
                f"max_tokens is too large: {asked}. This model supports at most {longest} completion tokens."
            )
        if longest is not None or tokens + asked <= window:
            return api.reply(prompt=tokens)
        if api is MESSAGES:
            return api.refuse(f"input length and `max_tokens` exceed context limit: {tokens} + {asked} > {window}")
        told = f"{tokens + asked} tokens ({tokens} in the messages, {asked} in the completion)"
        return api.refuse(f"This model's maximum context length is {window} tokens. However, you requested {told}.")

    async with Upstream(reply) as up, serve(up.url, config=settings()) as proxy:
        reasons = []
        for steps in (*range(12, 44, 2), 3):
            source = api.write(reading(steps, size=3_000), **{member: wanted})
            answered = await ask(proxy, source, api.path, headers=KEY)
            assert answered.status == 200
            reasons.append(answered.head.first("x-compaction-reason"))
    assert len(bounds) == len(reasons) + 1
    *_, last_whole = (place for place, bound in enumerate(bounds[:-1]) if bound == wanted)
    bounded = bounds[last_whole + 1 : -1]
    assert set(reasons[last_whole:-1]) == {"overflow_retry"}
    if longest is None:
        assert min(bounded) > 4_000
        assert bounded == sorted(bounded, reverse=True)
        assert bounds[-1] == wanted
    else:
        assert {*bounded, bounds[-1]} == {longest}


async def test_a_silently_cut_prompt_is_reported_once_in_a_conversation_and_counted(attentive_stack, send_to_attentive):
    _, proxy = attentive_stack
    before = await metric(proxy, "prompts_cut_silently_total")
    for messages in (WORK, longer(WORK)):
        await send_to_attentive(text_turn("Go on.").using(prompt=4_096), messages)
    await send_to_attentive(text_turn("Go on.").using(prompt=28_000), reading(30, size=3_000, task="Fits."))
    text = await until(lambda: log_of(proxy, "prompt-cut-silently", tokens_read=4_096))
    assert len(text) == 1
    assert await metric(proxy, "prompts_cut_silently_total") == before + 2


@pytest.mark.seconds
@pytest.mark.parametrize("policy", [{"trigger": 0}, {"inherit": "middleware"}], ids=["trigger-0", "middleware"])
async def test_a_policy_that_makes_no_blocks_before_the_window_does_not_overflow_it_with_every_request(serve, policy):
    """Once it is known: a request that is refused costs a round trip, and its history is read again."""
    async with Upstream() as up, serve(up.url, config=settings(**policy)) as proxy:
        send_turn = turn_sender(up, proxy, "sk-a")
        provider = MeteredProvider("openai")
        for size in range(20, 60):
            assert (await send_turn(provider, reading(size, size=3_000))).answer.status == 200
    assert [provider.weight(request) > LIMIT for request in provider.chats].count(True) == 1

"""An upstream that refuses what is too long, in the words of each provider, behind the real proxy."""

import asyncio
import json
import re
import sqlite3
from dataclasses import dataclass, field, replace

import pytest
import pytest_asyncio

from tests.support.agent import page, reading
from tests.support.messages import body, call, history, says, system, user
from tests.support.overflow_replies import FIGURES, OVERFLOWS
from tests.support.proxy_client import ask, data_of, log_of, until
from tests.support.proxy_client import page as own_page
from tests.support.scripted_upstream import Reply, Request, Upstream, answer, cut, hang, in_turn
from tests.support.scripted_upstream import says as tells

pytestmark = pytest.mark.asyncio(loop_scope="module")

LIMIT = 20_000
TOO_LONG = 26_000
# Too small for any decision; or decided on, but nothing is ever worth a rewrite.
UNNOTICED = {"clear_at_least": 1_000_000}
NOTICED = {"clear_at_least": 5_000, "horizon": 0}
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
    answered: object = field(default_factory=lambda: tells("Go on."))
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
        if request.method != "POST":
            return NOT_FOUND
        self.chats.append(request)
        asked = request.json.get("max_completion_tokens") or request.json.get("max_tokens") or 0
        return self.answered if self.weight(request) + asked <= self.limit else self.refusal

    @property
    def refusal(self) -> Reply:
        known = OVERFLOWS[self.name]
        said = known.body.replace(b"342389", b"42389")  # no tokenizer counts ten times as many as another
        return answer(re.sub(rb"\d{4,}", self._scaled, said), known.status, known.headers)

    def _scaled(self, figure):
        return str(round(int(figure[0]) * self.scale)).encode()


class MeteredProvider(Provider):
    """One that reports how many tokens it has read."""

    def __call__(self, request):
        said = super().__call__(request)
        return said.using(self.weight(request)) if said is self.answered else said


@dataclass(frozen=True)
class Heard:
    """What a client got, and what the upstream was asked for it."""

    sent: bytes
    answer: object
    asked: list[Request]

    def says(self, name):
        return self.answer.head.first(name)

    @property
    def forwarded(self):
        return [request.body for request in self.asked]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def house(serve):
    async with Upstream() as up, serve(up.url, config=settings()) as proxy:
        yield up, proxy


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def attentive_house(serve):
    async with Upstream() as up, serve(up.url, config=settings(**NOTICED)) as proxy:
        yield up, proxy


@pytest.fixture
def talk(house, request):
    """A client with a key of its own, before an upstream with scripted answers."""
    return talking(*house, f"sk-{request.node.name}")


@pytest.fixture
def noticed(attentive_house, request):
    return talking(*attentive_house, f"sk-{request.node.name}")


def _reply_to(request, script):
    return script(request) if callable(script) else script


def talking(up, proxy, key):
    async def talk(script, messages=WORK, *, headers=(), **more):
        # The proxy asks for the window beside the request: that takes no turn of the script.
        up.script = lambda request: _reply_to(request, script) if request.method == "POST" else NOT_FOUND
        up.forget()
        sent = body(messages, **more)
        got = await ask(proxy, sent, headers={"authorization": f"Bearer {key}", **dict(headers)})
        return Heard(sent, got, [each for each in up.requests if each.method == "POST"])

    return talk


def longer(messages, more=1):
    return [*messages, *says("Done."), *user("Go on, please."), *history(*[call("Read", out=page(99, 3_000))] * more)]


# --- too long ------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("name", INPUT)
async def test_whoever_says_it_a_history_too_long_is_sent_once_more_and_fits(talk, name, stream):
    wanted = {"vllm-old": 610, "sglang-total": 4_882, "openrouter": 1_221, "openrouter-in-200": 1_221}.get(name)
    heard = await talk(Provider(name), stream=stream, **({"max_tokens": wanted} if wanted else {}))
    assert heard.answer.status == 200
    assert len(heard.asked) == 2
    assert heard.forwarded[0] == heard.sent
    assert heard.says("x-compaction") == "created"
    assert heard.says("x-compaction-reason") == "overflow_retry"
    said = data_of(heard.answer.body.data) if stream else [json.loads(heard.answer.body.data)]
    assert "Go on." in json.dumps(said, ensure_ascii=False) or said[-1] == "[DONE]"


async def test_what_is_kept_of_it_is_what_a_policy_keeps(talk):
    heard = await talk(Provider("openai"))
    kept = json.loads(heard.forwarded[1])
    assert {**kept, "messages": 0} == {**json.loads(heard.sent), "messages": 0}
    assert kept["messages"][:2] == WORK[:2]
    assert kept["messages"][-1] == WORK[-1]
    before, after = int(heard.says("x-compaction-tokens-before")), int(heard.says("x-compaction-tokens-after"))
    assert after <= 0.85 * LIMIT < before


async def test_a_history_that_was_noticed_and_left_alone_is_helped_as_well(noticed):
    heard = await noticed(Provider("anthropic"))
    assert (heard.answer.status, len(heard.asked)) == (200, 2)
    assert heard.says("x-compaction-reason") == "overflow_retry"


async def test_it_is_said_and_counted(house, talk):
    _, proxy = house
    heard = await talk(Provider("gemini"))
    # Lines appear a little after their event, and other tests share this proxy: so it is known by its size.
    after = int(heard.says("x-compaction-tokens-after"))
    request = (await until(lambda: log_of(proxy, "request", reason="overflow_retry", tokens_after=after)))[-1]
    assert (request["status"], request["compaction"]) == (200, "created")
    refusals = {"limit": LIMIT, "kind": "input", "helped": True, "request_id": request["request_id"]}
    (line,) = await until(lambda: log_of(proxy, "refused-for-size", **refusals))
    assert line["effect"] == "the second try was accepted"
    metrics = (await own_page(proxy, "/metrics")).body.data.decode()
    assert re.search(r'refused_for_size_total\{kind="input",outcome="helped"\} [1-9]', metrics)


# --- without success------------------------------------------------------------------------------


def unaltered(heard, said: Reply):
    return (
        heard.answer.status == said.status
        and heard.answer.body.data == said.body
        and dict(said.headers).items() <= {k.decode().lower(): v.decode() for k, v in heard.answer.head.headers}.items()
    )


@pytest.mark.parametrize("name", ["openai", "vllm", "gemini", "cerebras-no-body", "openrouter-in-200", "groq-tpm"])
async def test_a_second_refusal_is_not_tried_again_and_the_first_is_handed_on_unaltered(talk, name):
    first = replace(Provider(name).refusal, headers=(*OVERFLOWS[name].headers, ("x-ray-id", "first")))
    heard = await talk(in_turn(first, overflow_again(name), tells("Too late.")))
    assert len(heard.asked) == 2
    assert unaltered(heard, first)
    assert heard.says("x-compaction") == "none"


def overflow_again(name):
    return replace(Provider(name).refusal, headers=(*OVERFLOWS[name].headers, ("x-ray-id", "second")))


@pytest.mark.parametrize(
    "second", [answer({"error": {"message": "Oops"}}, 500), answer({"error": {"message": "Slow down"}}, 429), cut()]
)
async def test_whatever_becomes_of_the_second_try_the_first_refusal_is_handed_on(talk, second):
    first = Provider("openai").refusal
    heard = await talk(in_turn(first, second))
    assert len(heard.asked) == 2
    assert unaltered(heard, first)


@pytest.mark.parametrize("messages", [user("word " * 30_000), [*system("Be brief."), *user("word " * 30_000)]])
async def test_what_cannot_be_shortened_is_not_tried_again(talk, messages):
    provider = Provider("openai")
    heard = await talk(provider, messages)
    assert len(heard.asked) == 1
    assert unaltered(heard, provider.refusal)
    assert heard.says("x-compaction") == "none"


@pytest.mark.parametrize("wish", ["off", "observe", "bypass"])
async def test_who_wants_no_compaction_gets_the_upstreams_own_error(talk, wish):
    provider = Provider("openai")
    heard = await talk(provider, headers={"x-compaction": wish})
    assert len(heard.asked) == 1
    assert unaltered(heard, provider.refusal)


@pytest.mark.parametrize("name", OTHERS)
async def test_what_only_time_or_the_client_can_help_is_handed_on(talk, name):
    said = OVERFLOWS[name]
    heard = await talk(answer(said.body, said.status, said.headers))
    assert len(heard.asked) == 1
    assert unaltered(heard, answer(said.body, said.status, said.headers))


@pytest.mark.parametrize(
    "said",
    [
        answer({"error": {"message": "Incorrect API key provided", "code": "invalid_api_key"}}, 401),
        answer({"error": {"message": "max_tokens must be at least 1"}}, 400),
        answer({"error": {"message": "prompt is too long: 9000 tokens > 8000 maximum. " + "x" * 70_000}}, 400),
        answer({"error": {"message": "Your prompt was filtered", "code": "content_filter"}}, 400).in_pieces(7),
        answer({"id": "x", "choices": [], "error": {"message": "prompt is too long: 9000 tokens > 8000 maximum"}}),
    ],
)
async def test_any_other_answer_is_handed_on_as_it_is(talk, said):
    heard = await talk(said)
    assert len(heard.asked) == 1
    assert unaltered(heard, said)


async def test_an_error_in_a_good_answer_promises_nothing(talk):
    forced = await talk(answer({"error": {"message": "Oops"}}), headers={"x-compaction": "force"})
    assert forced.says("x-compaction") == "created"
    heard = await talk(tells("Go on."), headers={"x-compaction": "force"})
    assert heard.says("x-compaction") == "created"


async def test_an_error_that_breaks_off_is_no_second_try(talk):
    heard = await talk(Provider("openai").refusal.broken_at(40))
    assert len(heard.asked) == 1
    assert not heard.answer.body.whole


async def test_when_the_client_leaves_during_the_second_try_the_upstream_is_told(house):
    up, proxy = house
    up.forget()
    asking = asyncio.create_task(talking(up, proxy, "sk-leaves")(in_turn(Provider("openai").refusal, hang())))
    _, second = await until(lambda: len(found := [each for each in up.requests if each.method == "POST"]) > 1 and found)
    asking.cancel()
    await second.end()
    assert second.departure.phase == "before headers"


# --- what it teaches -----------------------------------------------------------------------------


@pytest.mark.parametrize("whose", ["talk", "noticed"])
@pytest.mark.parametrize("name", ["openai", "tgi-input", "bedrock", "cerebras-no-body"])
async def test_the_next_request_knows_and_goes_on_where_the_first_was_brought(name, whose, talk, noticed):
    talk, provider = {"talk": talk, "noticed": noticed}[whose], Provider(name)
    first = await talk(provider)
    second = await talk(provider, longer(WORK))
    third = await talk(provider, longer(reading(40, size=3_000, task="Something else.")))
    assert [len(heard.asked) for heard in (first, second, third)] == [2, 1, 1]
    assert second.forwarded[-1].startswith(first.forwarded[-1].removesuffix(b"]}"))
    assert third.says("x-compaction-reason") == "window"


async def test_it_is_known_after_a_restart_until_it_expires_and_to_this_credential_only(serve, tmp_path):
    provider, config, state = Provider("openai"), settings(**NOTICED), ("--state", str(tmp_path))
    async with Upstream() as up:
        async with serve(up.url, *state, config=config) as proxy:
            assert len((await talking(up, proxy, "sk-a")(provider)).asked) == 2
        async with serve(up.url, *state, config=config) as proxy:
            known = await talking(up, proxy, "sk-a")(provider, reading(31, size=3_000, task="Another task."))
            stranger = await talking(up, proxy, "sk-b")(provider, reading(31, size=3_000, task="Another task."))
            another_model = await talking(up, proxy, "sk-a")(provider, reading(31, size=3_000, task="X"), model="else")
            with sqlite3.connect(tmp_path / "promises.sqlite") as db:
                assert db.execute("update facts_1 set until = 0 where key like '%/window/%'").rowcount == 3
            db.close()
            expired = await talking(up, proxy, "sk-a")(provider, reading(31, size=3_000, task="A third task."))
    assert [len(heard.asked) for heard in (known, stranger, another_model, expired)] == [1, 2, 2, 2]
    assert {heard.answer.status for heard in (known, stranger, another_model, expired)} == {200}


async def test_what_the_operator_says_of_the_window_counts_for_more(serve):
    upstream = {"upstreams": [{"window": 1_000_000}]}
    async with Upstream() as up, serve(up.url, config=settings(**NOTICED) | upstream) as proxy:
        talk, provider = talking(up, proxy, "sk-a"), Provider("openai")
        asked = [len((await talk(provider)).asked), len((await talk(provider, longer(WORK))).asked)]
    assert asked == [2, 2]


async def test_a_block_whose_second_try_failed_is_no_promise(talk):
    await talk(in_turn(Provider("bedrock").refusal, answer({"error": {"message": "Oops"}}, 500)))
    heard = await talk(tells("Go on."))
    assert heard.forwarded == [heard.sent]


# --- too long an answer --------------------------------------------------------------------------


@pytest.mark.parametrize("name", OUTPUT)
async def test_an_answer_too_long_is_asked_for_shorter_and_the_history_stays(talk, name):
    provider = Provider(name, limit=40_000, first=8_000)
    heard = await talk(provider, reading(8, size=3_000), max_tokens=60_000, seed=10**30)
    assert (heard.answer.status, len(heard.asked)) == (200, 2)
    asked = json.loads(heard.forwarded[1])["max_tokens"]
    assert 1_000 < asked < 40_000
    assert heard.forwarded[1] == heard.sent.replace(b'"max_tokens": 60000', b'"max_tokens": %d' % asked)
    assert heard.says("x-compaction") == "none"
    assert heard.says("x-compaction-reason") == "overflow_retry"


async def test_each_way_to_ask_for_an_answer_is_minded(talk):
    refusal = Provider("azure", first=8_000)
    newer = await talk(refusal, max_completion_tokens=30_000)
    room = json.loads(newer.forwarded[1])["max_completion_tokens"]
    assert newer.forwarded[1] == newer.sent.replace(b"30000", b"%d" % room)
    silent = await talk(in_turn(refusal.refusal, tells("Go on.")))
    assert silent.forwarded[1] == silent.sent.replace(b"{", b'{"max_tokens":%d,' % room, 1)
    modest = await talk(in_turn(refusal.refusal, tells("Go on.")), max_tokens=100)
    assert modest.forwarded == [modest.sent]


# --- broken signatures ---------------------------------------------------------------------------


def thinking(thought, signature):
    return {"reasoning_details": [{"type": "reasoning.text", "text": thought, "signature": signature}]}


async def test_when_a_signature_is_refused_old_signed_reasoning_goes_and_stays_away(talk):
    signed = [*system("S"), *user("Add."), *says("4", **thinking("2+2", "c2lnbmVk")), *user("And 3?")]
    plain = [*signed, *says("7", reasoning_content="no seal"), *user("And 4?")]
    refusal = answer({"error": {"message": "messages.2: Invalid `signature` in `thinking` block"}}, 400)
    heard = await talk(in_turn(refusal, tells("11")), plain)
    bare = [{k: v for k, v in message.items() if k != "reasoning_details"} for message in plain]
    assert (heard.answer.status, len(heard.asked)) == (200, 2)
    assert json.loads(heard.forwarded[1])["messages"] == bare
    hopeless = await talk(in_turn(refusal, tells("11")), [*user("Add."), *says("4"), *user("And 3?")])
    assert len(hopeless.asked) == 1
    assert unaltered(hopeless, refusal)


# --- without a word ------------------------------------------------------------------------------


async def test_a_prompt_that_was_cut_silently_is_said_once_in_a_conversation_and_counted(attentive_house, noticed):
    _, proxy = attentive_house
    before = await cut_silently(proxy)
    for messages in (WORK, longer(WORK)):
        await noticed(tells("Go on.").using(prompt=4_096), messages)
    await noticed(tells("Go on.").using(prompt=28_000), reading(30, size=3_000, task="Fits."))
    said = await until(lambda: log_of(proxy, "prompt-cut-silently", tokens_read=4_096))
    assert len(said) == 1
    assert await cut_silently(proxy) == before + 2


async def cut_silently(proxy):
    metrics = (await own_page(proxy, "/metrics")).body.data.decode()
    found = re.search(r'prompts_cut_silently_total\{upstream="default"\} (\d+)', metrics)
    return int(found[1]) if found else 0


@pytest.mark.parametrize("policy", [{"trigger": 0}, {"inherit": "middleware"}], ids=["trigger-0", "middleware"])
async def test_a_policy_that_makes_no_blocks_before_the_window_does_not_overflow_it_with_every_request(serve, policy):
    """Once it is known: a request that is refused costs a round trip, and its history is read again."""
    async with Upstream() as up, serve(up.url, config=settings(**policy)) as proxy:
        talk = talking(up, proxy, "sk-a")
        provider = MeteredProvider("openai")
        for size in range(20, 60):
            assert (await talk(provider, reading(size, size=3_000))).answer.status == 200
    assert [provider.weight(request) > LIMIT for request in provider.chats].count(True) == 1


@pytest.mark.parametrize("name", ["openai", "vllm-old"])
async def test_a_large_answer_that_is_asked_for_takes_no_room_that_the_history_needs(serve, name):
    """Half of the window was kept for the answer, so a history that is mostly instructions and tools was given up."""
    head = [{"role": "system", "content": "Rules. " * 7_000}]
    work = reading(14, size=3_000)[1:]
    async with Upstream() as up, serve(up.url, config=settings()) as proxy:
        heard = await talking(up, proxy, "sk-a")(
            Provider(name, limit=30_000, first=34_000), [*head, *work], max_tokens=32_000
        )
    assert heard.answer.status == 200
    assert json.loads(heard.forwarded[-1])["messages"][0] == head[0]

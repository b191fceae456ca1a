"""Counting: exact, cheap, off the event loop, and never over the network."""

import base64
import hashlib
import json
import random
import socket
import sys
import time

import pytest
import tiktoken_ext.openai_public as published

from proxy.foundation.model_names import model_family
from proxy.models import tokenizer
from proxy.models.tokenizer import (
    _SPLITS,
    INLINE_BYTES,
    LOOK_UP_BYTES,
    MESSAGE_TOKENS,
    Tokenizers,
    build_encoding,
    count_tokens,
    find_encoding,
    read_ranks,
)
from proxy.models.windows import find_prior_calibration
from tests.support.messages import assistant, request

SHA256 = {
    "o200k_base": "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d",
    "cl100k_base": "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7",
}


def user(text):
    return json.dumps({"role": "user", "content": text}).encode()


@pytest.fixture
def tokenizers():
    return Tokenizers()


@pytest.fixture
def gpt(tokenizers):
    return tokenizers.of("gpt-5")


@pytest.mark.parametrize("name", ["o200k_base", "cl100k_base"])
def test_the_shipped_ranks_are_tiktokens_own_to_the_byte(name):
    lines = (b"%s %d\n" % (base64.b64encode(token), rank) for token, rank in read_ranks(name).items())
    assert hashlib.sha256(b"".join(lines)).hexdigest() == SHA256[name]


@pytest.mark.parametrize("name", ["o200k_base", "cl100k_base"])
def test_the_patterns_are_those_tiktoken_publishes(name, monkeypatch):
    monkeypatch.setattr(published, "load_tiktoken_bpe", lambda *_, **__: {})
    assert _SPLITS[name] == published.ENCODING_CONSTRUCTORS[name]()["pat_str"]


@pytest.mark.seconds
async def test_counting_never_goes_to_the_network(monkeypatch, tokenizers):
    build_encoding.cache_clear()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: pytest.fail("asked for an address"))
    await tokenizers.load()
    assert tokenizers.of("gpt-5").count(user("Hello, world!")) == 4 + MESSAGE_TOKENS


def test_special_tokens_in_a_text_are_only_text(gpt):
    assert gpt.count(user("<|endoftext|>")) > 1 + MESSAGE_TOKENS
    assert gpt.count(user("a <|endoftext|> b" * 3)) > 9 + MESSAGE_TOKENS


def test_old_openai_models_have_the_old_encoding_and_everyone_else_the_new(tokenizers):
    old = ["gpt-4", "gpt-4-turbo-2024-04-09", "gpt-4-1106-preview", "gpt-3.5-turbo", "azure/gpt-35-turbo"]
    new = ["gpt-4o", "gpt-4.1", "gpt-4.5-preview", "gpt-5.5", "o3", "claude-sonnet-4-5", "qwen3-coder"]
    assert {find_encoding(model) for model in old} == {"cl100k_base"}
    assert {find_encoding(model) for model in new} == {"o200k_base"}
    chinese = user("今天的天气很好我们去公园散步吧")
    assert tokenizers.of("gpt-4").count(chinese) > tokenizers.of("gpt-4o").count(chinese)


def test_a_million_blanks_are_counted_like_any_text(gpt):
    assert gpt.count(user(" " * 1_000_000)) < 20_000


def test_a_text_cut_in_pieces_counts_within_a_token_or_two_per_cut(gpt):
    text = "the quick brown fox jumps over the lazy dog. " * 9_000
    whole = sum(gpt.count(user(text[at : at + 45_000])) - MESSAGE_TOKENS for at in range(0, len(text), 45_000))
    assert gpt.count(user(text)) - MESSAGE_TOKENS == pytest.approx(whole, abs=16)


def test_text_that_the_encoder_rejects_is_estimated(gpt, monkeypatch):
    monkeypatch.setattr(tokenizer, "PIECE_CHARS", 2_000_000)
    assert gpt.count(user(" " * 999_999 + "x")) == 250_000 + MESSAGE_TOKENS


def test_models_of_one_encoding_share_what_was_counted(tokenizers):
    assert tokenizers.of("gpt-5") is tokenizers.of("claude-sonnet-4-5")
    assert tokenizers.of("gpt-5") is not tokenizers.of("gpt-5", "chars")


@pytest.mark.parametrize("size", [10, INLINE_BYTES * 2, LOOK_UP_BYTES + 10], ids=["inline", "thread", "huge"])
async def test_the_way_of_counting_does_not_show_in_the_count(gpt, size):
    messages = [user(f"{index} " + "word " * (size // 50)) for index in range(10)]
    assert await gpt.count_all(messages) == [gpt.count(message) for message in messages]


async def test_a_message_is_encoded_only_once(gpt, monkeypatch):
    history = [user(f"message {index}") for index in range(300)]
    counts = await gpt.count_all(history)
    monkeypatch.setattr(tokenizer, "weigh", lambda *_: pytest.fail("counted again"))
    assert await gpt.count_all([bytes(bytearray(message)) for message in history]) == counts
    assert [gpt.count(message) for message in history] == counts


def test_each_owner_has_one_tokenizer_so_that_its_counts_are_continued():
    gpt = Tokenizers().of("gpt-4o")
    assert gpt.of_owner(1).count == gpt.of_owner(1).count != gpt.of_owner(2).count


async def test_tokens_counted_for_one_caller_are_counted_again_for_another(gpt, monkeypatch):
    encoded = []
    tokens = count_tokens
    monkeypatch.setattr(tokenizer, "count_tokens", lambda text, name: encoded.append(text) or tokens(text, name))
    history = [user(f"message {index}") for index in range(30)]
    counts = [await gpt.of_owner(owner).count_all(history) for owner in (1, 2, 1, 2)]
    assert counts == [counts[0]] * 4
    assert len(encoded) == 2 * len(history)


def test_the_sums_of_a_history_are_kept_from_one_request_to_the_next(gpt):
    known = request(assistant("Hello.")).known
    known.count_tokens(gpt.of_owner(1).count)
    assert known.list_uncounted(gpt.of_owner(1).count) == ()
    assert len(known.list_uncounted(gpt.of_owner(2).count)) == 1


async def test_the_memory_of_counts_is_bounded_and_keeps_what_is_used():
    tokenizers = Tokenizers(remembered_counts=100)
    few = tokenizers.of("gpt-5")
    kept = user("used all the time")
    for index in range(1000):
        await few.count_all([user(f"message {index}"), kept])
    assert len(few.counts) <= 100
    assert hash(kept) in few.counts
    assert hash(user("message 3")) not in few.counts


def test_another_thread_may_count_while_the_older_half_is_forgotten():
    few, keys = Tokenizers(remembered_counts=20).of("gpt-5", "chars"), iter(range(1_000))

    def count_between_steps(frame, event, _):
        if frame.f_code.co_name != "_forget_older_half":
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            few.counts[next(keys)] = 1
        return count_between_steps

    before = sys.gettrace()
    sys.settrace(count_between_steps)
    try:
        for number in range(21):
            few.count(user(str(number)))
    finally:
        sys.settrace(before)
    assert hash(user("0")) not in few.counts
    assert hash(user("20")) in few.counts


async def test_a_megabyte_seen_for_the_first_time_does_not_hold_the_event_loop(tokenizers):
    await tokenizers.load()
    rng = random.Random(1)
    words = ["".join(rng.choices("etaoinshrdlu_/.0123456789", k=rng.randint(2, 12))) for _ in range(2000)]
    history = [user(" ".join(rng.choices(words, k=420))) for _ in range(310)]
    assert sum(map(len, history)) > 900_000
    before = time.thread_time()
    await tokenizers.of("gpt-5").count_all(history)
    assert time.thread_time() - before < 0.020


async def test_tools_are_counted_with_their_schemas(gpt):
    tool = {
        "type": "function",
        "function": {"name": "Read", "parameters": {"properties": {"path": {"type": "string"}}}},
    }
    one, two = await gpt.count_all([json.dumps([tool]).encode(), json.dumps([tool, tool]).encode()])
    assert one > 15
    assert two == pytest.approx(2 * one, abs=3)


@pytest.mark.parametrize("text", ["x" * 4_000, "文" * 4_000])
def test_the_estimator_chars_is_a_quarter_of_the_characters_of_the_json(tokenizers, text):
    count = tokenizers.of("gpt-5", "chars").count
    plain = json.dumps({"role": "user", "content": text}, ensure_ascii=False)
    assert count(plain.encode()) == round((len(plain) + len(", ")) / 4)
    assert count(json.dumps({"role": "user", "content": text}).encode()) == count(plain.encode())


def test_claude_counts_more_tokens_than_openai_before_anything_was_observed():
    assert find_prior_calibration("gpt-5.5").ratio == 1
    assert find_prior_calibration("claude-sonnet-4-5").learn(10_000, 14_000).ratio == 1.4, "the first counts in full"
    older, newer = (find_prior_calibration(f"anthropic/claude-{name}").ratio for name in ("sonnet-4.5", "opus-5-5"))
    assert 1 < older < newer


def test_models_that_share_a_tokenizer_share_a_family():
    assert model_family("claude-opus-4-5-20251101") == model_family("us.anthropic.claude-sonnet-4-6-v1:0") == "claude-4"
    assert model_family("qwen3-coder-30b") == model_family("Qwen/Qwen3-32B") == "qwen-3"
    assert model_family("gpt-5.5") != model_family("gpt-4o")
    assert model_family("~") == "-"

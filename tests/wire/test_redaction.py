"""Secrets are recognised by their form and removed, and nothing else is touched."""

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.wire.redaction import SHIPPED, redaction
from tests.support.cost_growth import assert_grows_in_proportion, count_lines
from tests.support.written_steps import assert_case, list_cases, list_given

RULES = redaction()
HEX, MIXED = "0123456789abcdef" * 8, "aB3dE5gH7jK9mN1pQ2rS4tU6vW8xY0zA" * 4
PEM = "-----BEGIN RSA PRIVATE KEY-----\n" + "\n".join([MIXED[:64]] * 20) + "\n-----END RSA PRIVATE KEY-----"

SECRETS = {
    "api-key": [
        "sk-canary-7d1e5a",
        f"sk-proj-{MIXED[:100]}",
        f"sk-ant-api03-{MIXED[:90]}-AA",
        f"sk-or-v1-{HEX[:64]}",
        f"gsk_{MIXED[:52]}",
        f"hf_{MIXED[:34]}",
        f"xai-{MIXED[:80]}",
        f"nvapi-{MIXED[:64]}",
        f"r8_{MIXED[:37]}",
        f"cp-0a1b2c3d4e-{MIXED[:32]}",
        f"cpa-{MIXED[:32]}",
    ],
    "google-key": [f"AIza{MIXED[:35]}", f"ya29.{MIXED[:60]}"],
    "aws-key": ["AKIAIOSFODNN7EXAMPLE", "ASIAIOSFODNN7EXAMPLE"],
    "github-token": [f"ghp_{MIXED[:36]}", f"github_pat_{MIXED[:22]}_{MIXED[:59]}"],
    "gitlab-token": [f"glpat-{MIXED[:20]}"],
    "slack-token": [f"xoxb-123456789012-{MIXED[:24]}"],
    "stripe-key": [f"sk_live_{MIXED[:24]}", f"whsec_{MIXED[:32]}"],
    "package-token": [f"npm_{MIXED[:36]}", f"pypi-AgEIcHlwaS5vcmc{MIXED[:80]}"],
    "sendgrid-key": [f"SG.{MIXED[:22]}.{MIXED[:43]}"],
    "web-token": [f"eyJ{MIXED[:20]}.eyJ{MIXED[:60]}.{MIXED[:43]}"],
    "private-key": [
        PEM,
        PEM.replace("RSA PRIVATE", "PRIVATE"),
        PEM.replace("RSA PRIVATE KEY", "PGP PRIVATE KEY BLOCK"),
        PEM.replace("\n", "\\n"),
        PEM[:322],
    ],
}
GOLDEN = Path(__file__).parent / "golden" / "secrets"


def redact(value, rules=RULES):
    raw = json.dumps(value).encode()
    clean, kinds = rules.of_json(raw)
    return clean, kinds, json.loads(clean)


@pytest.mark.parametrize(("kind", "secret"), [(kind, secret) for kind, all_ in SECRETS.items() for secret in all_])
@pytest.mark.parametrize(
    "place",
    [
        *("{}", "export KEY={} # mine", 'a["{}"],', "{}\nnext line", "über {}. Ende"),
        *("nested: tokens:\\n{}", "nested: \\t{}"),
        *("\x1b[32m{}\x1b[0m", "\x1b[01;31m\x1b[K{}\x1b[m", "\x1b[1;31m{}", "\x1b[m{}"),
    ],
)
def test_text_that_looks_like_a_secret_is_redacted(kind, secret, place):
    _, kinds, value = redact({"role": "user", "content": place.format(secret)})
    assert value == {"role": "user", "content": place.format(f"[redacted: {kind}]")}
    assert kinds == (kind,)


def judge(case):
    """A text as it comes and as it is redacted."""
    (line,) = list_given(case)
    clean = redact(line.replace("\\n", "\n"))[2].replace("\n", "\\n")
    return f"{line}\n= {clean}"


@pytest.mark.parametrize(("sentence", "case"), list_cases(GOLDEN))
def test_a_text_is_redacted_as_its_golden_file_shows(sentence, case):
    assert_case(GOLDEN, case, judge(case))
    assert ("[redacted: " in case) == ("stays" not in sentence)


def test_every_shipped_rule_is_shown_here():
    shown = {kind for _, case in list_cases(GOLDEN) for kind in re.findall(r"\[redacted: ([\w-]+)\]", case)}
    assert {rule.name for rule in SHIPPED} == {*SECRETS, *shown}


def test_secrets_in_arguments_are_found_though_they_are_json_within_json():
    arguments = json.dumps({"key": SECRETS["api-key"][1], "pem": PEM, "url": "postgres:\\/\\/a:b@c"})
    _, kinds, value = redact({"tool_calls": [{"function": {"arguments": arguments}}]})
    text = json.loads(value["tool_calls"][0]["function"]["arguments"])
    assert text == {"key": "[redacted: api-key]", "pem": "[redacted: private-key]", "url": "postgres:\\/\\/a:b@c"}
    assert kinds == ("api-key", "private-key")


def test_a_secret_is_found_however_its_json_is_written():
    secret = "sk-canary-7d1e5a"
    escaped = "".join(f"\\u{ord(letter):04x}" for letter in secret)
    assert RULES.of_json(f'"{escaped}"'.encode()) == (b'"[redacted: api-key]"', ("api-key",))
    assert RULES.of_json(rb'"postgres:\/\/app:hunter2@db"')[0] == b'"postgres://app:[redacted: password-in-url]@db"'


@pytest.mark.parametrize("mark", ["kundé-", '"key": "', "a:/b="])
@pytest.mark.parametrize("ascii_only", [True, False])
def test_a_custom_pattern_matches_however_its_json_is_written(mark, ascii_only):
    raw = json.dumps({"content": f"see {mark}123456, again"}, ensure_ascii=ascii_only).encode()
    for written in (raw, raw.replace(b"/", b"\\/")):
        clean, kinds = redaction([mark + "[0-9]{6}"]).of_json(written)
        assert kinds == ("own-pattern",)
        assert json.loads(clean) == {"content": "see [redacted: own-pattern], again"}


def test_every_byte_around_a_secret_stays():
    raw = b'{ "n": 1e400,\t"a":"\\u00e9\\/", "key" : "sk-canary-7d1e5a" , "z":"\\ud83d" }'
    assert RULES.of_json(raw)[0] == raw.replace(b"sk-canary-7d1e5a", b"[redacted: api-key]")


def test_media_is_not_searched():
    image = "data:image/png;base64," + "A" * 1000 + "sk-canary-7d1e5a"
    assert redact([image])[2] == [image]


def test_a_short_secret_of_a_custom_pattern_is_redacted_where_it_stands_alone():
    assert redaction(["pin-[0-9]{4}"]).of_json(b'["pin-1234"]')[0] == b'["[redacted: own-pattern]"]'


@pytest.mark.parametrize("pattern", ["corp-(live|test)-[0-9]{6}", "corp-(old-)?live-[0-9]{6}"])
def test_all_that_a_custom_pattern_matches_is_redacted_and_not_its_group_alone(pattern):
    assert redaction([pattern]).of_text("see corp-live-123456, again")[0] == "see [redacted: own-pattern], again"


@pytest.mark.parametrize("secret", ["see http://a/", "sk-canary-7d1e5a", r"see a\/b", r"a \u003cb\u003e"])
def test_strings_without_the_beginning_of_a_secret_are_passed_over(secret):
    """A list of files has thousands, and the writer's thread reads them all."""
    strings = 1_000
    raw = b"[%b]" % b",".join([b'"src/file.py"'] * strings + [b'"%b"' % secret.encode()])
    assert count_lines(lambda: RULES.of_json(raw)).total() < 8 * strings


@pytest.mark.parametrize("written", [r"\\/", r"\\\/", r"\u005c/", r"\u005C\u002f"])
def test_a_mark_of_json_within_json_is_found_however_it_is_written(written):
    raw = rb'"postgres:\/\/app:hunter2@db"'.replace(rb"\/", written.encode())
    clean, kinds = RULES.of_json(raw)
    assert kinds == ("password-in-url",)
    assert b"hunter2" not in clean


OWN = redaction(["corp--[0-9a-f]{4}", "a_b_[0-9]{4}", "--x-[0-9]{4}", "keyx[0-9]{4}"])
OWN_MARKS = ["corp--", "a_b_", "--x-", "keyx", "corp--12ab", "a_b_1234", "--x-1234", "keyx1234"]


@given(st.lists(st.sampled_from([*"aB3-_ cx", *OWN_MARKS, "hf_", "_-", MIXED]), max_size=30).map("".join))
def test_in_json_the_same_is_redacted_as_in_text(text):
    text = f"{text} and enough"
    assert redact(text, OWN)[2] == OWN.of_text(text)[0]


MARKS = sorted({mark for rule in SHIPPED for mark in rule.marks})


@pytest.mark.parametrize("mark", MARKS)
@pytest.mark.parametrize("filling", ["", "a", "A1", "/a:b", "=", ".eyJaaaaaaaa"])
def test_no_text_makes_it_slow(mark, filling):
    piece = mark + filling
    assert_grows_in_proportion(RULES.of_text, lambda size: piece * (size // len(piece)), 3_000)


@given(st.lists(st.sampled_from([*'aB3-_./:@= \n"\\é', *MARKS, MIXED, HEX]), max_size=40).map("".join))
def test_redacted_json_is_valid_with_a_word_for_each_secret(text):
    _, kinds, value = redact({"content": text})
    assert (value["content"] == text) == (not kinds)
    assert value["content"].count("[redacted: ") >= len(kinds)


@pytest.mark.parametrize("length", [40, 900, 8_000])
def test_of_a_long_token_nothing_stays(length):
    signature = "Zx9-" * (length // 4)
    web_token = f"eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.{signature[:900]}"
    for token in (f"a1{signature}", web_token):
        clean, _ = redaction().of_text(f"Authorization: Bearer {token} done")
        assert "Zx9" not in clean
        assert clean.endswith(" done")


def test_of_secrets_that_overlap_nothing_stays():
    clean, _ = redaction(["corp-[0-9a-f]{8}"]).of_text("Bearer corp-0123456789abcdefghij")
    assert clean == "Bearer [redacted: bearer-token]"

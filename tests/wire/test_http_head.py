"""Heads of HTTP: headers that pass, values that are credentials, and one spelling for each path."""

from pathlib import Path
from posixpath import normpath
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.wire.http_head import (
    CREDENTIALS,
    HOP_BY_HOP,
    are_writable,
    below_v1,
    find_credentials,
    find_header,
    is_credential,
    is_inference,
    normalize_path,
    select_for_client,
    select_for_upstream,
)
from tests.support.written_steps import assert_case, list_cases, list_given

GOLDEN, HEADS = (Path(__file__).parent / "golden" / name for name in ("paths", "heads"))
NAMES = st.sampled_from(
    ["X-Stainless-Lang", "OpenAI-Beta", "traceparent", "Idempotency-Key", "TE", "Host", "User-Agent"]
)
LISTS = st.lists(st.tuples(NAMES, st.text("abc", max_size=3)), max_size=8).map(tuple)


def keep_headers(*pairs):
    return select_for_upstream(pairs)


@pytest.mark.parametrize("name", sorted(HOP_BY_HOP))
def test_a_header_of_the_connection_is_not_handed_on_in_either_direction(name):
    value = "chunked" if name == "transfer-encoding" else "x"
    assert keep_headers((name.title(), value)) == ()
    assert select_for_client(((name.upper(), value),)) == ()


def test_more_can_be_left_out():
    pairs = (("Authorization", "x"), ("API-Key", "y"), ("Cookie", "z"), ("accept", "*/*"))
    assert select_for_upstream(pairs, without=CREDENTIALS) == (("accept", "*/*"),)


@given(LISTS)
def test_kept_headers_keep_their_order_and_repetitions(pairs):
    assert select_for_upstream(pairs) == tuple(pair for pair in pairs if pair[0] not in ("TE", "Host"))


def test_a_value_that_cannot_be_written_again_is_reported_and_left_out_of_an_answer():
    text, surrogate = ("x-name", "Grüße \u20ac"), ("x-raw", "caf\udce9")
    assert are_writable((text,))
    assert not are_writable((text, surrogate))
    assert not are_writable((("x-\udce9", "1"),))
    assert select_for_client((text, surrogate)) == (text,)
    tab, control, delete = ("x-name", "a\tb"), ("x-raw", "a\x01b"), ("x-raw", "a\x7fb")
    assert select_for_client((tab, control, text, delete)) == (tab, text)


def test_a_header_is_found_in_any_spelling():
    assert find_header((("X-A", "1"), ("Content-TYPE", "2"), ("content-type", "3")), "content-type") == "2"
    assert find_header((), "content-type") is None


def judge_head(case):
    """Headers, perhaps with a query, the credentials in them, and what is handed on if that is not all as it came."""
    given = list_given(case)
    headers = tuple(tuple(line.split(": ", 1)) for line in given if not line.startswith("?"))
    query = "".join(line[1:] for line in given if line.startswith("?"))
    handed_on = {"to an upstream": select_for_upstream(headers), "to a client": select_for_client(headers)}
    found = {"known by": find_credentials(headers, query)}
    found |= {way: pairs for way, pairs in handed_on.items() if pairs != headers}
    told = [f"= {way} {name}: {value}" for way, pairs in found.items() for name, value in pairs]
    return "\n".join([*given, *(told or ["= nothing to know it by"])])


@pytest.mark.parametrize(("sentence", "case"), list_cases(HEADS))
def test_a_head_is_handed_on_as_its_golden_file_shows(sentence, case):
    assert_case(HEADS, case, judge_head(case))


def test_a_very_long_name_is_none_of_a_credential():
    assert not is_credential("x" * 10_000 + "-token")


def test_odd_bytes_are_read():
    assert find_credentials((("cookie", "a=\udcff"),), "key=%ff\udcff") == (
        ("?key", "\udcff\udcff"),
        ("cookie", "a=\udcff"),
    )


PIECES = st.sampled_from(
    [
        "/",
        "/",
        "//",
        ".",
        "..",
        "%2e",
        "%2E",
        "%2f",
        "%5c",
        "%25",
        "%",
        "2e",
        "%2%65",
        "v1",
        "files",
        "a b",
        "ä",
        "~",
        ";",
    ]
)
PATHS = st.lists(PIECES, max_size=12).map(lambda pieces: "/" + "".join(pieces))


@given(PATHS)
def test_a_normal_path_is_what_an_upstream_would_have_resolved_and_its_own_normal_form(path):
    normal = normalize_path(path)
    if normal is None:
        return
    assert normalize_path(normal) == normal
    segments = normal.strip("/").split("/") if normal != "/" else []
    assert not {"", ".", "..", "%2e", "%2E", "%2e%2e"} & set(segments)
    if "%2F" not in path.upper():
        assert unquote(normal).rstrip("/") == normpath("/" + unquote(path).lstrip("/")).rstrip("/")


def judge(case):
    """A request, with the normal form of its path, and whether a key of the proxy opens it."""
    (line,) = list_given(case)
    method, _, path = line.partition(" ")
    normal = normalize_path(path)
    below = below_v1(normal)
    is_open = below is not None and is_inference(method, below, ())
    return f"{line}\n= {normal}, {'open' if is_open else 'closed'}"


@pytest.mark.parametrize(("sentence", "case"), list_cases(GOLDEN))
def test_a_path_has_the_normal_form_of_the_golden_file_and_is_open_or_closed(sentence, case):
    assert_case(GOLDEN, case, judge(case))
    assert case.endswith("closed") or "nothing else" not in sentence


@pytest.mark.parametrize(
    "path", ["", "v1/models", "*", "/v1\\files", "/v1/a b", "/v1/ä", "/v1/\x00", "/v1/%", "/v1/%2", "/v1/%2%65"]
)
def test_a_path_that_servers_read_differently_is_none(path):
    assert normalize_path(path) is None


def test_only_paths_below_v1_are_the_api():
    assert below_v1("/v1/chat/completions") == "/chat/completions"
    assert below_v1("/v1/") == "/"
    assert below_v1("/v1") is None
    assert below_v1("/v10/models") is None
    assert below_v1("/health/live") is None


def test_configured_paths_are_allowed_by_any_method():
    assert is_inference("DELETE", "/files/file-1", ("/files/*",))
    assert not is_inference("DELETE", "/file", ("/files/*",))


def test_a_listed_glob_does_not_reach_past_itself():
    assert not is_inference("GET", "/files/%2e%2e%2forganization", ("/files/*",))


@given(st.lists(PIECES, max_size=6))
def test_no_spelling_reaches_a_refused_path(pieces):
    """Whatever passes as a look at the models still is one for an upstream that decodes and resolves it."""
    below = below_v1(normalize_path("/v1/models/x" + "".join(pieces)) or "")
    if below is not None and is_inference("GET", below, ()):
        resolved = normpath(unquote(below))
        assert resolved == "/models" or resolved.startswith("/models/")

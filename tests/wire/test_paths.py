"""Request paths: one spelling for each, and no spelling that leads past what was decided about it."""

from posixpath import normpath
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.wire.http_head import INFERENCE_PATHS, below_v1, is_inference, normalize_path

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


@pytest.mark.parametrize(
    ("path", "normal"),
    [
        ("/v1/chat/completions", "/v1/chat/completions"),
        ("/v1/models/", "/v1/models/"),
        ("/v1//chat///completions", "/v1/chat/completions"),
        ("/v1/./models/../files", "/v1/files"),
        ("/v1/%2e%2e/admin", "/admin"),
        ("/v1/models/.%2E/files", "/v1/files"),
        ("/../../v1/models", "/v1/models"),
        ("/v1/files/..", "/v1/"),
        ("/v1/%63hat/completions", "/v1/chat/completions"),
        ("/v1/models/openai%2fgpt-4o", "/v1/models/openai%2Fgpt-4o"),
        ("/v1/models/a%20b", "/v1/models/a%20b"),
        ("/", "/"),
    ],
)
def test_a_path_has_one_spelling(path, normal):
    assert normalize_path(path) == normal


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


@pytest.mark.parametrize("path", [*INFERENCE_PATHS, "/chat/completions/"])
def test_a_proxy_key_may_ask_a_model(path):
    assert is_inference("POST", path, ())


@pytest.mark.parametrize("path", ["/models", "/models/gpt-4o", "/models/openai/gpt-4o", "/models/openai%2Fgpt-4o"])
def test_a_proxy_key_may_list_the_models(path):
    assert is_inference("GET", path, ())
    assert is_inference("HEAD", path, ())


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/files"),
        ("POST", "/files"),
        ("POST", "/batches"),
        ("POST", "/fine_tuning/jobs"),
        ("GET", "/organization/users"),
        ("DELETE", "/models/ft:gpt-4o:mine"),
        ("GET", "/chat/completions"),
        ("GET", "/chat/completions/chatcmpl-1"),
        ("GET", "/responses/resp_1"),
        ("DELETE", "/responses/resp_1"),
        ("POST", "/"),
        ("POST", "/chat/completions/../files"),
        ("GET", "/models/%2F..%2Ffiles"),
        ("GET", "/models/..;/files"),
        ("GET", "/models/%252e%252e/files"),
    ],
)
def test_a_proxy_key_may_do_nothing_else(method, path):
    assert not is_inference(method, path, ())


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

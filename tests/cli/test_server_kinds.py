"""Which server an upstream is, by what such servers say of themselves."""

import pytest

from proxy.cli.doctor import KINDS, MODELS, ServerEvidence, detect_server


def listing(*models):
    return {"object": "list", "data": list(models)}


def evidence_of(host="10.0.0.7", models=None, headers=(), **pages):
    text = {f"/{name.replace('__', '/')}": page for name, page in pages.items()}
    return ServerEvidence(host, tuple(headers), {MODELS: listing(models or {"id": "m"}), **text})


LLAMA = {"default_generation_settings": {"n_ctx": 8192, "params": {}}, "total_slots": 2}
STUDIO = listing({"id": "m", "compatibility_type": "gguf", "state": "loaded", "loaded_context_length": 4096})
PS = {"models": [{"name": "m", "model": "m", "context_length": 4096}]}
SIGNS = [
    ("Azure", evidence_of("house.openai.azure.com")),
    ("Azure", evidence_of("house.services.ai.azure.com")),
    ("Azure", evidence_of(headers=[("apim-request-id", "7")])),
    ("llama.cpp", evidence_of(headers=[("Server", "llama.cpp")])),
    ("llama.cpp", evidence_of(models={"id": "m", "owned_by": "llamacpp", "meta": {"n_ctx_train": 131072}})),
    ("llama.cpp", evidence_of(props=LLAMA)),
    ("LM Studio", evidence_of(models={"id": "m", "owned_by": "organization_owner"}, api__v0__models=STUDIO)),
    ("Ollama", evidence_of(models={"id": "m", "owned_by": "library"}, api__ps=PS)),
    ("LiteLLM", evidence_of(headers=[("server", "uvicorn"), ("x-litellm-version", "1.106.2")])),
    ("LiteLLM", evidence_of(headers=[("x-litellm-call-id", "7")])),
    ("LiteLLM", evidence_of(health__readiness={"status": "healthy", "db": "Not connected"})),
    # a gateway is not taken for the server behind it
    ("LiteLLM", evidence_of(models={"id": "m", "owned_by": "vllm"}, headers=[("x-litellm-version", "1.106.2")])),
]


@pytest.mark.parametrize(("name", "look"), SIGNS)
def test_a_server_is_known_by_any_one_of_its_signs(name, look):
    assert detect_server(look)[0] == name


def test_every_kind_that_is_known_is_shown_here():
    assert set(KINDS) == {name for name, _ in SIGNS}


@pytest.mark.parametrize(
    "look",
    [
        ServerEvidence("127.0.0.1"),
        evidence_of(headers=[("server", "uvicorn")]),
        evidence_of("openai.com.example.net"),
        evidence_of("notazure.com"),
        evidence_of(models={"id": "vllm", "owned_by": "me"}),
        evidence_of(props={"error": "not found"}, api__ps="0.1", api__v0__models=[]),
    ],
)
def test_a_server_without_signs_is_unknown(look):
    assert detect_server(look) is None


@pytest.mark.parametrize(
    "look",
    [
        evidence_of(props=LLAMA | {"default_generation_settings": {"n_ctx": 4096}}),
        evidence_of(api__ps=PS),
        evidence_of(api__v0__models=STUDIO),
    ],
)
def test_a_window_is_read_from_the_page_that_reports_it(look):
    assert look.read_windows()["m"].total == 4096


def test_a_server_that_reports_no_window_has_none():
    assert evidence_of().read_windows() == {}

"""Which server an upstream is, by what such servers say of themselves."""

import pytest

from proxy.cli.doctor import KINDS, MODELS, ServerEvidence, detect_server, read_window


def listing(*models):
    return {"object": "list", "data": list(models)}


def seen(host="10.0.0.7", models=None, headers=(), **pages):
    told = {f"/{name.replace('__', '/')}": page for name, page in pages.items()}
    return ServerEvidence(host, tuple(headers), {MODELS: listing(models or {"id": "m"}), **told})


LLAMA = {"default_generation_settings": {"n_ctx": 8192, "params": {}}, "total_slots": 2}
STUDIO = listing({"id": "m", "compatibility_type": "gguf", "state": "loaded", "loaded_context_length": 4096})
PS = {"models": [{"name": "m", "model": "m", "context_length": 4096}]}
SHOWN = {
    "OpenAI": [seen("api.openai.com"), seen("eu.api.openai.com"), seen(headers=[("OpenAI-Version", "2020-10-01")])],
    "Azure": [
        seen("house.openai.azure.com"),
        seen("house.services.ai.azure.com"),
        seen(headers=[("apim-request-id", "7")]),
    ],
    "OpenRouter": [seen("openrouter.ai"), seen(models={"id": "m", "top_provider": {"context_length": 1}})],
    "vLLM": [seen(models={"id": "m", "owned_by": "vllm", "max_model_len": 32768})],
    "SGLang": [seen(models={"id": "m", "owned_by": "sglang", "max_model_len": 32768})],
    "llama.cpp": [
        seen(headers=[("Server", "llama.cpp")]),
        seen(models={"id": "m", "owned_by": "llamacpp", "meta": {"n_ctx_train": 131072}}),
        seen(props=LLAMA),
    ],
    "LM Studio": [seen(models={"id": "m", "owned_by": "organization_owner"}, api__v0__models=STUDIO)],
    "Ollama": [seen(models={"id": "m", "owned_by": "library"}, api__ps=PS)],
    "LiteLLM": [
        seen(headers=[("server", "uvicorn"), ("x-litellm-version", "1.106.2")]),
        seen(headers=[("x-litellm-call-id", "7")]),
        seen(health__readiness={"status": "healthy", "db": "Not connected"}),
    ],
}


@pytest.mark.parametrize(("name", "look"), [(name, look) for name, looks in SHOWN.items() for look in looks])
def test_a_server_is_known_by_any_one_of_its_signs(name, look):
    assert detect_server(look)[0].name == name


def test_every_kind_that_is_known_is_shown_here():
    assert {kind.name for kind in KINDS} == SHOWN.keys()


@pytest.mark.parametrize(
    "look",
    [
        ServerEvidence("127.0.0.1"),
        seen(headers=[("server", "uvicorn")]),
        seen("openai.com.example.net"),
        seen("notopenrouter.ai"),
        seen(models={"id": "vllm", "owned_by": "me"}),
        seen(props={"error": "not found"}, api__ps="0.1", api__v0__models=[]),
    ],
)
def test_what_shows_no_sign_is_unknown(look):
    assert detect_server(look) is None


def test_a_gateway_is_not_taken_for_the_server_behind_it():
    look = seen(models={"id": "m", "owned_by": "vllm"}, headers=[("x-litellm-version", "1.106.2")])
    assert detect_server(look)[0].name == "LiteLLM"


@pytest.mark.parametrize(
    "look",
    [
        seen(props=LLAMA | {"default_generation_settings": {"n_ctx": 4096}}),
        seen(api__ps=PS),
        seen(api__v0__models=STUDIO),
    ],
)
def test_a_window_is_read_from_the_page_that_tells_it(look):
    assert read_window(look, "m").total == 4096


def test_a_server_that_tells_no_window_tells_none():
    assert read_window(seen(), "m") is None

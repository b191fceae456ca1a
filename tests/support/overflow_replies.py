"""How upstreams say that a request was too much: status, headers and body, one of each kind that is known.

The sentences are those the servers really use (with other figures), because programs recognise them by their words.
`kind` says what would help: `input` a shorter history, `output` a lower max_tokens, `tpm` a request that fits the
minute's budget at all, `rate` only time, `bytes` fewer or smaller images; `silent` ones look like success.
"""

import json
from dataclasses import dataclass
from typing import Any, Literal

from tests.support.completions import DONE, text_turn
from tests.support.upstream_replies import EVENTS, JSON, Reply, answer

Kind = Literal["input", "output", "tpm", "rate", "bytes", "silent"]


@dataclass(frozen=True, slots=True)
class Overflow:
    kind: Kind
    status: int
    body: bytes
    headers: tuple[tuple[str, str], ...] = (JSON,)


def overflow(name: str) -> Reply:
    text = OVERFLOWS[name]
    return answer(text.body, text.status, text.headers)


def _error(kind: Kind, status: int, message: str, type_: str | None = "invalid_request_error", **more: Any) -> Overflow:
    error = {"message": message, "type": type_, "param": None, "code": None} | more
    return _json(kind, status, {"error": error})


def _json(kind: Kind, status: int, body: Any, *headers: tuple[str, str]) -> Overflow:
    return Overflow(kind, status, json.dumps(body).encode(), (JSON, *headers))


def _object(message: str, type_: str = "BadRequestError", code: int | str = 400) -> Overflow:
    """As servers in the manner of vLLM's first versions answer."""
    return _json("input", 400, {"object": "error", "message": message, "type": type_, "param": None, "code": code})


def _tgi(kind: Kind, message: str) -> Overflow:
    return _json(kind, 422, {"error": f"Input validation error: {message}", "error_type": "validation"})


def _too_long(message: str) -> Overflow:
    return _error("input", 400, message, param="messages", code="context_length_exceeded")


def _rate_limit(kind: Kind, status: int, message: str, retry_after: str) -> Overflow:
    error = {"message": message, "type": "tokens", "param": None, "code": "rate_limit_exceeded"}
    return _json(kind, status, {"error": error}, ("retry-after", retry_after), ("x-ratelimit-remaining-tokens", "0"))


def _vllm(kind: Kind, message: str, **more: Any) -> Overflow:
    return _error(kind, 400, message, "BadRequestError", **{"code": 400} | more)


_VLLM_INPUT = (
    "You passed 32769 input tokens and requested 512 output tokens. However, the model's context length is only "
    "33280 tokens, resulting in a maximum input length of 32768 tokens. Please reduce the length of the input prompt. "
    "(parameter=input_tokens, value=32769)"
)
_VLLM_OLD = (
    "This model's maximum context length is 32768 tokens. However, you requested {} tokens ({} in the messages, {} in "
    "the completion). Please reduce the length of the messages or completion."
)
_SGLANG_TOTAL = (
    "Requested token count exceeds the model's maximum context length of 32768 tokens. You requested a total of 41000 "
    "tokens: 33000 tokens from the input messages and 8000 tokens for the completion."
)
_OPENROUTER = (
    "This endpoint's maximum context length is 131072 tokens. However, you requested about 140000 tokens (131000 of "
    "text input, 1000 of tool input, 8000 in the output). Please reduce the length of either one, or use the "
    '"middle-out" transform to compress your prompt automatically.'
)
_LM_STUDIO = (
    "Trying to keep the first 9000 tokens when context the overflows. However, the model is loaded with context length "
    "of only 8192 tokens, which is not enough."
)

OVERFLOWS: dict[str, Overflow] = {
    "openai": _too_long(
        "This model's maximum context length is 128000 tokens. However, your messages resulted in 130512 tokens. "
        "Please reduce the length of the messages."
    ),
    "openai-functions": _too_long(
        "This model's maximum context length is 128000 tokens. However, your messages resulted in 130512 tokens "
        "(128400 in the messages, 2112 in the functions). Please reduce the length of the messages or functions."
    ),
    "openai-gpt5": _too_long(
        "Input tokens exceed the configured limit of 272000 tokens. Your messages resulted in 289650 tokens. "
        "Please reduce the length of the messages."
    ),
    "openai-responses": _error(
        "input",
        400,
        "Your input exceeds the context window of this model. Please adjust your input and try again.",
        param="input",
        code="context_length_exceeded",
    ),
    "azure": _error(
        "output",
        400,
        "This model's maximum context length is 32768 tokens. However, you requested 35969 tokens (9969 in the "
        "messages, 26000 in the completion). Please reduce the length of the messages or completion.",
        param="messages",
        code="context_length_exceeded",
    ),
    "vllm": _vllm("input", _VLLM_INPUT, param="input_tokens"),
    "vllm-wrapped": _json(
        "input", 400, {"detail": {"error": {"message": _VLLM_INPUT, "type": "BadRequestError", "code": 400}}}
    ),
    "vllm-output": _vllm(
        "output", "max_tokens=40000 cannot be greater than max_model_len=max_total_tokens=32768.", param="max_tokens"
    ),
    "vllm-old": _object(_VLLM_OLD.format(40000, 39000, 1000)),
    "deepseek": _error("output", 400, _VLLM_OLD.format(40000, 8000, 32000), code="invalid_request_error"),
    "sglang": _object("The input (33000 tokens) is longer than the model's context length (32768 tokens)."),
    "sglang-total": _vllm("input", _SGLANG_TOTAL, param=None),
    "llama.cpp": _error(
        "input",
        400,
        "request (9001 tokens) exceeds the available context size (8192 tokens), try increasing it",
        "exceed_context_size_error",
        code=400,
        n_prompt_tokens=9001,
        n_ctx=8192,
    ),
    "llama.cpp-midway": _error("input", 500, "Context size has been exceeded.", "server_error", code=500),
    "ollama-cloud": _error("input", 400, "prompt too long; exceeded max context length by 1289 tokens", "api_error"),
    "lm-studio": _json("input", 400, {"error": _LM_STUDIO}),
    "lm-studio-prompt": _json(
        "input",
        400,
        {"error": "The number of tokens to keep from the initial prompt is greater than the context length."},
    ),
    "lm-studio-empty-stream": Overflow("silent", 200, DONE, (EVENTS,)),
    "tgi": _tgi(
        "output",
        "`inputs` tokens + `max_new_tokens` must be <= 8192. Given: 5000 `inputs` tokens and 4096 `max_new_tokens`",
    ),
    "tgi-input": _tgi("input", "`inputs` must have less than 8191 tokens. Given: 9000"),
    "openrouter": _json(
        "input",
        400,
        {
            "error": {"message": _OPENROUTER, "code": 400, "metadata": {"provider_name": "Somebody"}},
            "user_id": "user_made_up",
        },
    ),
    "openrouter-in-200": _json("input", 200, {"error": {"message": _OPENROUTER, "code": 400}}),
    "openrouter-in-502": _json(
        "input",
        502,
        {
            "error": {
                "message": "Provider returned error",
                "code": 502,
                "metadata": {"raw": json.dumps({"error": {"message": _OPENROUTER}}), "provider_name": "Somebody"},
            }
        },
    ),
    "mistral": _object(
        "Prompt contains 40113 tokens and 0 draft tokens, too large for model with 32768 maximum context length",
        "invalid_request_error",
        "3051",
    ),
    "gemini": _json(
        "input",
        400,
        [
            {
                "error": {
                    "code": 400,
                    "message": "The input token count (1200345) exceeds the maximum number of tokens allowed "
                    "(1048576).",
                    "status": "INVALID_ARGUMENT",
                }
            }
        ],
    ),
    "groq-tpm": _rate_limit(
        "tpm",
        413,
        "Request too large for model `scripted-1` on tokens per minute (TPM): Limit 6000, Requested 9342, please "
        "reduce your message size and try again.",
        "34",
    ),
    "groq": _error("input", 400, "Please reduce the length of the messages or completion.", param="messages"),
    "openai-tpm": _rate_limit(
        "tpm",
        429,
        "Request too large for gpt-4o on tokens per min (TPM): Limit 30000, Requested 342389. The input or output "
        "tokens must be reduced in order to run successfully.",
        "60",
    ),
    "openai-rate": _rate_limit(
        "rate",
        429,
        "Rate limit reached for gpt-4o on tokens per min (TPM): Limit 30000, Used 28700, Requested 4100. Please try "
        "again in 5.6s.",
        "6",
    ),
    "anthropic": _error("input", 400, "prompt is too long: 213044 tokens > 200000 maximum", code=None),
    "anthropic-output": _error(
        "output",
        400,
        "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000, decrease input length or "
        "`max_tokens` and try again",
    ),
    "anthropic-bytes": _json(
        "bytes",
        413,
        {
            "type": "error",
            "error": {"type": "request_too_large", "message": "Request exceeds the maximum size"},
        },
    ),
    "xai": _json(
        "input",
        400,
        {
            "code": "Client specified an invalid argument",
            "error": "This model's maximum prompt length is 131072 but the request contains 140113 tokens.",
        },
    ),
    "cerebras": _json(
        "input",
        400,
        {
            "message": "Please reduce the length of the messages or completion. Current length is 9312 while "
            "limit is 8192",
            "type": "invalid_request_error",
            "param": "messages",
            "code": "context_length_exceeded",
        },
    ),
    "cerebras-no-body": Overflow("input", 400, b"", ()),
    "cerebras-no-body-413": Overflow("input", 413, b"", ()),
    "dashscope": _error("input", 400, "Range of input length should be [1, 129024]", code="invalid_parameter_error"),
    "bedrock": _json("input", 400, {"message": "Input is too long for requested model."}),
    "bedrock-throttle": _json("rate", 429, {"message": "Too many tokens, please wait before trying again."}),
    "z.ai": _json("silent", 200, text_turn("").ending("model_context_window_exceeded").completion()),
    "unheard-of": _error(
        "input", 400, "The conversation holds 70001 tokens, which is more than the 65536 this deployment can read."
    ),
}

# What can be read in them: the limit, the size of the prompt, what the limit covers, the room for an answer.
FIGURES = {
    "openai": (128_000, 130_512, "total", None),
    "openai-functions": (128_000, 130_512, "total", None),
    "openai-gpt5": (272_000, 289_650, "input", None),
    "azure": (32_768, 9_969, "total", 22_799),
    "vllm": (33_280, None, "total", None),
    "vllm-wrapped": (33_280, None, "total", None),
    "vllm-output": (32_768, None, "total", None),
    "vllm-old": (32_768, 39_000, "total", None),
    "deepseek": (32_768, 8_000, "total", 24_768),
    "sglang": (32_768, 33_000, "total", None),
    "sglang-total": (32_768, 33_000, "total", None),
    "llama.cpp": (8_192, 9_001, "total", None),
    "lm-studio": (8_192, 9_000, "total", None),
    "tgi": (8_192, 5_000, "total", 3_192),
    "tgi-input": (8_191, 9_000, "input", None),
    "openrouter": (131_072, 132_000, "total", None),
    "openrouter-in-200": (131_072, 132_000, "total", None),
    "openrouter-in-502": (131_072, 132_000, "total", None),
    "mistral": (32_768, 40_113, "total", None),
    "gemini": (1_048_576, 1_200_345, "input", None),
    "groq-tpm": (6_000, 9_342, "total", None),
    "openai-tpm": (30_000, 342_389, "total", None),
    "anthropic": (200_000, 213_044, "input", None),
    "anthropic-output": (200_000, 190_000, "total", 10_000),
    "xai": (131_072, 140_113, "input", None),
    "cerebras": (8_192, 9_312, "total", None),
    "dashscope": (129_024, None, "input", None),
    "unheard-of": (65_536, 70_001, "total", None),
}

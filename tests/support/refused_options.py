"""Errors of servers that refuse a member which the proxy adds, each as the server words it."""

EXTRA = "Extra inputs are not permitted"

REFUSED_OPTIONS = (
    # FastAPI and pydantic name the place outside of the message.
    ("usage-option", 422, {"detail": [{"loc": ["body", "stream_options"], "msg": EXTRA, "type": "extra_forbidden"}]}),
    ("cache-marks", 422, {"detail": [{"loc": ["body", "messages", 0, "content", 0, "cache_control"], "msg": EXTRA}]}),
    ("cache-key", 422, {"detail": [{"loc": ["body", "prompt_cache_key"], "msg": EXTRA}]}),
    # OpenAI: https://platform.openai.com/docs/guides/error-codes
    (
        "cache-key",
        400,
        {
            "error": {
                "message": "Unknown parameter: 'prompt_cache_key'.",
                "type": "invalid_request_error",
                "param": "prompt_cache_key",
                "code": "unknown_parameter",
            }
        },
    ),
    # Anthropic: https://platform.claude.com/docs/en/api/errors
    (
        "cache-marks",
        400,
        {
            "type": "error",
            "error": {
                "type": "invalid_request_error",
                "message": f"messages.2.content.0.tool_result.cache_control: {EXTRA}",
            },
        },
    ),
    (
        "cache-marks",
        400,
        {
            "type": "error",
            "error": {
                "type": "invalid_request_error",
                "message": "A maximum of 4 blocks with cache_control may be provided. Found 5.",
            },
        },
    ),
)
"""What is refused, the status and the body."""

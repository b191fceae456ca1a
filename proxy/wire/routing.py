"""The one thing about a body that decides where it goes: the model it names."""

import json

import msgspec


class _Named(msgspec.Struct):
    model: str | None = None


_decoder = msgspec.json.Decoder(_Named)


def model_of(body: bytes) -> str | None:
    """The model a request names, if it names one that can be read."""
    try:
        return _decoder.decode(body).model
    except (msgspec.DecodeError, RecursionError):
        return _model_of_oddity(body)


def _model_of_oddity(body: bytes) -> str | None:
    """What the strict parser refuses (lone surrogates, NaN, a byte order mark) clients send all the same."""
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return None
    model = value.get("model") if isinstance(value, dict) else None
    return model if isinstance(model, str) else None

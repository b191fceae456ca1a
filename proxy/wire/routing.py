"""Model of a request: the one value in a body that decides which upstream it goes to."""

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
    """The model in JSON that the strict parser rejects: clients send lone surrogates, NaN and byte order marks."""
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return None
    model = value.get("model") if isinstance(value, dict) else None
    return model if isinstance(model, str) else None

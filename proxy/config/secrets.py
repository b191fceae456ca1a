"""Secrets in settings: named as `env:NAME` or `file:PATH`, never written. Only that reference is ever shown."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import BeforeValidator, PlainSerializer, ValidationInfo

FIELD_VALUE = re.compile(r"[\t\x20-\x7e]*")
SHORTEST_KEY_CHARS = 16
# What people leave in place, whatever stands around it.
WEAK = (
    "password", "changeme", "change-me", "secret", "admin", "letmein", "12345", "abcdef", "qwerty", "asdf", "example",
    "default", "compaction", "replace",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Secret:
    """A secret and the reference to it. As text it is the reference."""

    reference: str
    value: str

    def __repr__(self) -> str:
        return self.reference

    __str__ = __repr__


def _read_reference(reference: object, info: ValidationInfo) -> Secret | None:
    if reference is None or isinstance(reference, Secret):
        return reference
    kind, _, name = str(reference).partition(":")
    if kind == "env":
        value = (info.context or {}).get(name, "")
    elif kind == "file":
        value = _read_secret(name)
    else:
        raise ValueError("a secret is named, not written: say env:NAME or file:PATH")
    where = f"{'variable' if kind == 'env' else 'file'} {name}"
    if not value.strip():
        raise ValueError(f"{where} is empty or missing")
    if not FIELD_VALUE.fullmatch(value.strip()):
        raise ValueError(f"{where} holds characters that no header can carry")
    return Secret(str(reference), value.strip())


def _read_secret(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ""


def _read_if_reference(value: object, info: ValidationInfo) -> object:
    named = isinstance(value, str) and value.startswith(("env:", "file:"))
    return _read_reference(value, info) if named else value


def _show_reference(value: Secret | str | None) -> str | None:
    return None if value is None else str(value)


def check_strength(secret: Secret | None) -> Secret | None:
    """Check that a key cannot be guessed: it is long, varied, and no word from a manual."""
    if secret is None:
        return None
    plain = secret.value.lower()
    if len(plain) < SHORTEST_KEY_CHARS or len(set(plain)) < SHORTEST_KEY_CHARS // 2:
        raise ValueError(f"too weak: it needs {SHORTEST_KEY_CHARS} characters or more that were drawn at random")
    if any(word in plain for word in WEAK):
        raise ValueError("too weak: it holds a word that everybody tries first")
    return secret


SecretReference = Annotated[Secret | None, BeforeValidator(_read_reference), PlainSerializer(_show_reference)]
MaybeSecret = Annotated[Secret | str, BeforeValidator(_read_if_reference), PlainSerializer(_show_reference)]

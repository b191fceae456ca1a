"""The admin key: the one that `admin.key` names, or one that the first start creates in the state directory."""

import fcntl
import hmac
import os
import secrets
from pathlib import Path

from proxy.access.registry import replace_file
from proxy.config.settings import Config
from proxy.config.values import Secret, check_strength

ADMIN_KEY_FILE = "admin.key"
ADMIN_KEY_PREFIX = "cpa-"


def create_admin_key(config: Config) -> str | None:
    """Return a new key, to be shown once. None if the pages are off, or there is a key already.

    A file without a usable key is replaced.
    """
    if config.admin.key is not None or not config.admin.enabled:
        return None
    path = Path(config.state.dir) / ADMIN_KEY_FILE
    try:
        if _read_key(path) is not None:
            return None
    except FileNotFoundError:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    except PermissionError:  # another user has a key there
        return None
    with os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o600), "rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        # Read by name: another start may have replaced the file meanwhile.
        if _read_key(path) is not None:
            return None
        key = ADMIN_KEY_PREFIX + secrets.token_urlsafe(24)
        replace_file(path, key.encode())
        return key


def _read_key(path: Path) -> str | None:
    """Return None if the file is empty, torn, not text, or easy to guess."""
    try:
        key = path.read_text(encoding="utf-8-sig").strip()  # some editors write a byte order mark
        if key.startswith(ADMIN_KEY_PREFIX):
            is_torn = len(key) < len(ADMIN_KEY_PREFIX) + 32
        else:
            check_strength(Secret(str(path), key))
            is_torn = not key
    except ValueError:
        return None
    if is_torn or not key.isprintable():
        return None
    return key


def read_admin_key(config: Config) -> str | None:
    """Return the stored admin key, or None if there is none and the pages cannot be opened."""
    if not config.admin.enabled:
        return None
    if config.admin.key is not None:
        return config.admin.key.value
    try:
        return _read_key(Path(config.state.dir) / ADMIN_KEY_FILE)
    except OSError:
        return None


def is_admin_key(key: str | None, text: str | None) -> bool:
    if key is None or text is None:
        return False
    # In constant time, so that the time of an answer does not tell how much of a guess is right.
    return hmac.compare_digest(key.encode("utf-8", "surrogatepass"), text.encode("utf-8", "surrogatepass"))

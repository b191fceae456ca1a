"""The key of the admin pages: the operator's own, or one that is made at the first start and kept beside the state."""

import hmac
import os
import secrets
from pathlib import Path

from proxy.config import Config

FILE = "admin.key"
PREFIX = "cpa-"


def create_key(config: Config) -> str | None:
    """Create the key if none is configured and none is kept; the new key, which is shown this once, or None."""
    if config.admin.key is not None or not config.admin.enabled:
        return None
    path, text = Path(config.state.dir) / FILE, PREFIX + secrets.token_urlsafe(24)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(text)
    except FileExistsError:  # from an earlier start, or from another one at this moment
        return None
    return text


def read_key(config: Config) -> str | None:
    """The key of the admin pages; None: they cannot be opened."""
    if not config.admin.enabled:
        return None
    if config.admin.key is not None:
        return config.admin.key.value
    try:
        return (Path(config.state.dir) / FILE).read_text(encoding="utf-8").strip() or None
    except OSError:
        return None


def is_key(key: str | None, shown: str | None) -> bool:
    """True for the admin key, compared in constant time."""
    if key is None or shown is None:
        return False
    return hmac.compare_digest(key.encode("utf-8", "surrogatepass"), shown.encode("utf-8", "surrogatepass"))

"""The key of the admin pages: the operator's own, or one that is made at the first start and lies beside the state."""

import hmac
import os
import secrets
from pathlib import Path

from proxy.config import Config

FILE = "admin.key"
PREFIX = "cpa-"


def made(config: Config) -> str | None:
    """Make the key if none is configured and none lies there; the fresh one, which is shown this once."""
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


def key_of(config: Config) -> str | None:
    """The key that opens the admin pages; None: nothing does."""
    if not config.admin.enabled:
        return None
    if config.admin.key is not None:
        return config.admin.key.value
    try:
        return (Path(config.state.dir) / FILE).read_text(encoding="utf-8").strip() or None
    except OSError:
        return None


def opens(key: str | None, shown: str | None) -> bool:
    """In the same time whatever is shown."""
    if key is None or shown is None:
        return False
    return hmac.compare_digest(key.encode("utf-8", "surrogatepass"), shown.encode("utf-8", "surrogatepass"))

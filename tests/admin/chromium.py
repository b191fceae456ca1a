"""Where the system's browser is. Programs in the environment of `install.py` import this too."""

import shutil


def chromium() -> str | None:
    """The system's; None: Playwright's own, if it has one."""
    return shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

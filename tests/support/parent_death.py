"""Processes of tests end with the process that started them, also if that is killed.

    subprocess.Popen(command, preexec_fn=die_with_parent)

Linux only; elsewhere it does nothing.
"""

import ctypes
import signal
import sys

_SET_PARENT_DEATH_SIGNAL = 1
"""`PR_SET_PDEATHSIG`: https://man7.org/linux/man-pages/man2/prctl.2.html. It outlives exec, and no fork."""
_LIBRARY = ctypes.CDLL(None) if sys.platform == "linux" else None


def die_with_parent() -> None:
    """Let the kernel kill this process when its parent ends."""
    if _LIBRARY is not None:
        _LIBRARY.prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)

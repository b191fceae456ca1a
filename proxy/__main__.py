"""The command `compaction-proxy`, and `python -m proxy`.

It is apart from `proxy.cli` because Ctrl-C counts while modules are loaded, too.
"""

import gc
import os
import signal
import sys
from importlib import import_module


def main() -> int:
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # closed, as by `>&-`: the next file that is opened would be taken for it
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: PTH123, SIM115
    gc.disable()  # until the modules are loaded: they make no garbage, and to search for it takes time
    if sys.argv[1:2] == ["serve"]:
        # Held until the server can reload: the modules take a second to load, and SIGHUP would end the process.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
    try:
        return int(import_module("proxy.cli").main())
    except KeyboardInterrupt:
        return 128 + signal.SIGINT


if __name__ == "__main__":
    sys.exit(main())

"""The command `compaction-proxy`, and `python -m proxy`.

It is apart from `proxy.cli` because Ctrl-C counts while modules are loaded, too.
"""

import signal
import sys
from importlib import import_module


def main() -> int:
    try:
        return int(import_module("proxy.cli").main())
    except KeyboardInterrupt:
        return 128 + signal.SIGINT


if __name__ == "__main__":
    sys.exit(main())

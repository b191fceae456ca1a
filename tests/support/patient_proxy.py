"""The proxy with a patient store, and what-if at normal priority. Beside a busy neighbour a disk is slow, and a process
with the lowest priority hardly runs; few tests are about that.

Run as a script it is `python -m proxy`; `wait_patiently()` gives the process that calls it the same patience.
"""

import sys
from functools import partialmethod

from proxy.__main__ import main
from proxy.admin import policy_pages
from proxy.path import services
from proxy.store.sqlite import SqliteStore

PATIENCE_SECONDS = 60.0
WHAT_IF = """
import os, runpy
os.nice = lambda levels: 0
runpy.run_module("proxy.lab.what_if", run_name="__main__")
"""


def wait_patiently() -> None:
    SqliteStore.__init__ = partialmethod(SqliteStore.__init__, timeout=PATIENCE_SECONDS)
    services.WRITE_TIMEOUT_SECONDS = PATIENCE_SECONDS
    policy_pages._COMMAND = (sys.executable, "-P", "-c", WHAT_IF)


if __name__ == "__main__":
    wait_patiently()
    sys.exit(main())

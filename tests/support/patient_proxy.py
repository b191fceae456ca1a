"""The proxy with a patient store. Beside a busy neighbour a disk is slow; few tests are about that.

Run as a script it is `python -m proxy`; `wait_patiently()` gives the process that calls it the same patience.
"""

import sys
from functools import partialmethod

from proxy.__main__ import main
from proxy.serve import services
from proxy.store.sqlite import SqliteStore

PATIENCE_SECONDS = 60.0


def wait_patiently() -> None:
    SqliteStore.__init__ = partialmethod(SqliteStore.__init__, timeout=PATIENCE_SECONDS)
    services.WRITE_TIMEOUT_SECONDS = PATIENCE_SECONDS


if __name__ == "__main__":
    wait_patiently()
    sys.exit(main())

"""`python -m proxy` is `compaction-proxy`."""

from proxy.cli import main

raise SystemExit(main())

"""A transparent proxy for LLM APIs that shortens the histories of agents.

Each room imports only rooms that stand above it in this list, which tests/test_architecture.py holds:

    foundation/    a bounded cache, leases, threads, the proxy's own errors: what every room may use
    tools/         what tools and programs are: tables of them, and questions about a call
    history/       the history that a client sends: its messages, groups and identity
    recall         the tool of the proxy itself, by which a model reads earlier messages again
    shorten/       the shorter form of a history: decisions only, without I/O
    wire/          bytes to values and back: HTTP, event streams, the JSON of three APIs
    events         values that say what happened, and their delivery to listeners
    decide/        the life of a request as one generator, without I/O: what to send, what to store, when to ask again
    config/        proxy.yaml, environment and options to one frozen configuration
    models/        facts about models: windows, prices, token counts
    store/         blocks and facts (memory, SQLite, Redis), original messages, the activity log
    upstream/      connections to a model's API
    telemetry/     listeners: log, metrics, hooks, audit log, OpenTelemetry
    access/        authentication of callers: team keys, trusted gateways, the admin key
    serve/         one request from its first byte to its last note, and the one place that fails open
    assembly       from a configuration to running objects
    admin/         API and pages for operators
    server/        sockets, worker processes, start and shutdown
    cli/           the commands; settings of the environment are read here (but libraries read HTTPS_PROXY and AWS_*)
    lab/           replay, scorecard, session readers, demo: nothing that serves imports it

docs/architecture.md follows one request through these rooms. What must always hold is a test: a request that is not
shortened leaves byte for byte as it came, but for members that are added (cache marks, a cache key, the wish for usage
at the end of a stream); between two rewrites what was forwarded once is forwarded again with the same bytes; a history
is cut between groups only; on any fault of the compaction the client's own bytes are forwarded; tenants share nothing;
no credential of a request is written down.
"""

__version__ = "0.4.0"

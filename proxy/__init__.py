"""A transparent proxy for LLM APIs that keeps the context of agents short, cheap and whole.

The map, from the core outwards; each part imports only what stands above it:

    lru           a cache bounded in bytes, shared fairly between tenants
    model_names   names of models, as providers, routers and clouds spell them
    core/         decides what is forwarded by pure functions over values
    wire/         bytes <-> values: chat requests, event streams, headers, paths, bodies
    config/       proxy.yaml -> frozen values
    events        frozen facts about what happened
    lifetime      leases on what is shared, and tasks that outlive a request
    errors        our few errors, each with a status and whose fault it is
    windows       how much a model can read, and at what prices
    tokenizer     how many tokens a message is
    store/        promises (blocks) and originals (transcripts)
    upstream/     the one door to the model's API
    request_record what is known of one request: times, sizes, outcome
    telemetry/    listeners on events: log lines, metrics, hooks, OpenTelemetry, the activity log
    access/       who may come in, and as whom: team keys, switches, the key of the admin pages
    compaction/   the heart meets the world: gather what it must know, carry out what it decides
    gateway       THE ONE PATH a request takes, and the one place that fails open
    assembly      configuration -> running objects: stores, originals, redaction
    admin/        API and pages of operators
    server/       sockets and processes: HTTP in, lifecycle, workers
    cli/          one command, one file; the only reader of the environment
    lab/          everything that judges: replay, scorecard, session readers, demo; nothing that serves imports it

The laws (each is a test): what is not compacted leaves byte for byte as it came; what was once
forwarded is forwarded again, identical, until a rewrite is worth its price; cuts fall between groups
only; on any fault of the proxy the client's own bytes go out; tenants share nothing; no secret is ever
written down.
"""

__version__ = "0.2.0"

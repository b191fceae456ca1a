"""Sockets and processes: HTTP in and out, the life of a worker, and several workers on one port.

    supervisor --fork--> worker (listeners, store, gateway, admin)
                           |
    client --> connection --> application --> gateway --> connection --> client
                                   |
                                admin pages

1. `supervisor.serve` starts the workers. A single one runs in its process, without a `Supervisor`.
2. `Worker` makes its parts; `Worker.run` serves with them until SIGTERM.
3. aiohttp parses a request on a `ClientConnection`, and calls `App`: pages of the proxy itself, the admin pages, or
   the gateway with a `ClientRequest`, which also delivers the answer.
4. Meanwhile periodic jobs run; those of `config_watch` put a changed configuration, key or switch in force.
5. At SIGTERM the worker drains: requests, notes after answers, summary calls, connections, listeners.

connection    a client's connection, its requests, the delivery of answers with heartbeats; the handlers of paths
worker        one process, from its parts to the end of its drain; periodic jobs
listeners     everything in a worker that listens to events; which proxies use a state folder
config_watch  changes without a restart: configuration, keys, switches, certificates; upstreams that loop
erasure       orders to delete conversations, as a worker obeys them
supervisor    several workers on one port
"""

"""Sockets and processes: HTTP in and out, the life of a worker, and several workers on one port.

    supervisor --fork--> worker <--build-- building (listeners, store, gateway, admin)
                           |
    client --> connection --> application --> client_request --> gateway
                                   |                               |
                                admin pages      client_response <-+

1. `supervisor.serve` starts the workers, each with a socket of its own on one port. One worker runs without it.
2. `building.build_worker` makes the parts of a worker; `Worker.run` serves with them until SIGTERM.
3. aiohttp parses a request on a `ClientConnection`, and calls `App`: pages of the proxy itself, the admin pages, or
   the gateway with a `ClientRequest`. The gateway gives its answer back to that request to deliver.
4. Beside requests run `jobs`, and `ConfigWatch`, which puts a changed configuration, key or switch in force.
5. At SIGTERM the worker drains: requests, notes after answers, summary calls, connections, listeners.

application      the handlers of paths, the limit of requests, one event for each request
connection       a client's connection; errors for requests that cannot be parsed
client_request   a client's request: its body is read, its answer delivered
client_response  the delivery of an answer, chunk by chunk, with heartbeats
worker           one process, from its start to the end of its drain
building         builds a worker
listeners        everything in a worker that listens to events
jobs             periodic jobs beside requests
config_watch     changes without a restart: configuration, keys, switches
certificates     TLS of the listener, renewed certificates
loop_faults      exceptions that asyncio caught, reported once a second
supervisor       several workers on one port
own_address      refuses an upstream that is the proxy itself
"""

"""Listeners on events. `events.Dispatcher` isolates them: none can fail, delay or change a request.

    event -> Dispatcher -> Log        make_line -> structlog processors -> BackgroundWriter -> standard output
                        -> Metrics    counters of this worker -> snapshot in shared memory -> page of any worker
                        -> Hooks      make_payload -> a queue for each hook -> Receiver
                        -> Exporter   spans -> a thread makes OTLP messages -> Receiver
                        -> Audit, activity log      a thread writes a file, a table

An event holds no header, query or body, so no listener can leak one. A pipe, a disk or a collector may block, so a
bounded queue is before each; if it is full, events are dropped, and that is counted or reported.

log          each event as a line for operators, on standard output, by structlog; also lines of libraries
metrics      numbers for Prometheus
hooks        posts to URLs of other programs
activity     rows and counts for the admin pages (`proxy/store/activity_log.py`); actions of operators, in a file
otel         export to an OpenTelemetry collector (optional)
"""

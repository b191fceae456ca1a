"""Listeners on events. `events.Dispatcher` isolates them: none can fail, delay or change a request.

How an event becomes a line, a number, a post:

    event -> Dispatcher -> Log        lines.make_line -> structlog processors -> BackgroundWriter -> standard output
                        -> Metrics    counters of this worker -> snapshot in shared memory -> page of any worker
                        -> Hooks      make_payload -> a queue for each hook -> posting
                        -> Exporter   spans, log records -> a thread makes OTLP messages -> posting
                        -> Audit, activity log      a thread writes a file, a table

1. An event is the source. It holds no header, query or body, so no listener can leak one.
2. Each reader names the fields that it takes: a new field of an event must not reach a log or a program unseen.
3. A pipe, a disk or a collector may block, so a bounded queue is before each. If it is full, events are dropped and
   counted.

log          lines on standard output, by structlog; also those of libraries
stdout       whole lines on a descriptor that several workers share
metrics      numbers for Prometheus
hooks        posts to URLs of other programs
audit        actions of operators, in a file
activity     rows and counts for the admin pages (`proxy/store/activity_log.py`)
otel         export to an OpenTelemetry collector (optional)
otel_spans   its spans
otlp         its log records, metrics and attributes
lines        each event as a line for operators: severity, name, fields
output       JSON and terminal text of odd values
posting      one post, with a time limit
"""

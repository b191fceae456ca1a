"""Listeners on events. `events.Dispatcher` isolates them: none can fail, delay or change a request.

log        lines on standard output
metrics    numbers for Prometheus
hooks      requests to URLs of other programs
audit      actions of operators, in a file
activity   rows and counts for the admin pages (`proxy/store/activity_log.py`)
otel       OpenTelemetry: spans, log records, metrics (optional)

lines      each event as a line for operators: severity, name, fields
output     JSON and terminal text of odd values
posting    posts to hooks and collectors
"""

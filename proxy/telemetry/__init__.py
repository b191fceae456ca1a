"""Listeners on events: none of them can fail, delay or change a request.

log          lines on standard output            metrics      numbers for Prometheus
hooks        other programs, by URL              audit        acts of operators, in a file
activity     rows and counts for the admin pages (proxy/store/activity_log.py)

lines        what each event says to operators, in the log and on the admin pages
output       JSON and terminal text of odd values, fields of events

`events.Dispatcher` isolates them from one another and from whoever emits.
"""

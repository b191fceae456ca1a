"""API and pages for operators: the API below /admin/api/, the dashboard at /admin/.

app             every request below /admin: authentication, routing, errors, downloads, the dashboard's files
guard           authentication: the admin key, sessions, host names, page origins
context         the input of a route and what it may raise, and how a route is declared

One module for each family of routes, each with a list `ROUTES`:

activity        totals and figures over time, warnings, audit log, configuration
conversations   conversations, their turns and messages; search in the saved originals
usage           spend, savings and tokens over time, by team, model and more
requests        every request, its outcome and duration; latency and errors over time
policies        policies and where they apply; a trial of a policy, in a process of its own; drafts of policies
teams           teams, their keys, switches

history         the messages of a conversation at one request, and what became of each
"""

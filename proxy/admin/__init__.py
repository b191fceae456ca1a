"""API and pages of operators: the API below /admin/api/, the dashboard at /admin/.

app            every request below /admin: authentication, routing, errors, the dashboard's files
guard          authentication: the admin key, sessions, host names, page origins
context        what each route is given and may refuse (AdminContext, AdminRequest), how one is declared (Route)

One module for each family of routes, each a list `ROUTES`:
activity       totals and figures over time, warnings, audit log, configuration
conversations  what each conversation did; search in the kept originals
policies       policies and where they apply; a trial of a policy, in a process of its own
teams          teams, their keys, switches

history        the messages of a conversation as of one request, and what became of each
"""

"""API and pages of operators: the API below /admin/api/, the dashboard at /admin/.

app            every request below /admin: authentication, routing, errors, the dashboard's files
guard          authentication: the admin key, sessions, host names, page origins
context        what each route is given and may refuse (AdminContext, AdminRequest), how one is declared (Route)

One module for each family of routes, each a list `ROUTES`:
activity       totals and figures over time, warnings, audit log, configuration
conversations  what each conversation did; search in the kept originals
usage          spend, savings and tokens over time, by team, model and more
requests       every request, its outcome and duration; latency and errors over time
policies       policies and where they apply; a trial of a policy, in a process of its own
drafts         drafts of policies: the settings for a form, and what a draft changes in the file
teams          teams, their keys, switches

moments        the steps of time in which figures are shown
export         an answer as a CSV or JSON file
history        the messages of a conversation as of one request, and what became of each
"""

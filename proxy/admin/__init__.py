"""API and pages of operators: the API below /admin/api/, the dashboard at /admin/.

app               every request below /admin: authentication, routing, errors, the dashboard's files
guard             authentication: the admin key, sessions, host names, page origins
context           what each route is given (AdminContext, AdminRequest), and how a route is declared (Route)
errors            why a request is refused

One module for each family of routes, each a list `ROUTES`:
overview          totals and figures over time         conversations     what each conversation did; search
policies          policies and where they apply        what_if           a trial of a policy, in a process of its own
teams             teams, their keys, switches          activity          warnings, audit log, configuration

history           the messages of a conversation as of one request
message_status    what became of each message          transcript_search kept originals: found, searched, titled
"""

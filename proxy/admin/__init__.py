"""API and pages for operators: the API below /admin/api/, the dashboard at /admin/.

    browser, curl --> guard --> dispatch --+-- dashboard: static files, login form
                                           |
                                           +-- routes: overview, usage, requests, conversations, policies, teams, ...
                                                    |
                          activity log (figures) ---+--- originals and store (messages, blocks)

1. `Admin` checks host, key or session, page origin and the rights of the key.
2. A route is a function with types for its query and body. It gets an `AdminContext`, and `visitor.team` if the key is
   of one team.
3. Figures are SQL on the activity log of this machine; a route that is not `async` runs in a thread.
4. Policies are never written: a draft is returned as text for the configuration file, a trial replays originals.

dispatch        every request below /admin: authentication, routing, log in and out, errors
guard           authentication: the admin key, sessions, host names, page origins
routes          how a route is declared, what it gets and may raise
bodies          bodies of requests, read and checked; answers as JSON
dashboard       the dashboard's files, and the login form
moments         the steps of time in which the pages show figures

Routes, a family in each module, with a list `ROUTES`:

overview        totals, and figures over time
usage           spend, savings and tokens over time, by team, model and more
request_list    every request, its outcome and duration; latency and errors over time
conversations   conversations, their turns and messages
search          search in the saved originals
policy_list     policies in force, and the requests they apply to
drafts          drafts of policies, and the change that one makes to the file
trials          trials of a policy on stored conversations
teams           teams, their keys, switches
incidents       warnings, faults and the audit log
in_force        the configuration in force, and the rights of the caller's key

conversation_branch  the messages of a conversation at one request, and the block that stood for them
views                the status of each message
"""

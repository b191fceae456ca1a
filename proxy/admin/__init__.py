"""API and pages for operators: the API below /admin/api/, the dashboard at /admin/.

    browser, curl --> guard --> dispatch --+-- the dashboard's files, login form
                                           |
                                           +-- routes: figures, requests, conversations, policies, teams, events
                                                    |
                          activity log (figures) ---+--- originals and store (messages, blocks)

1. `Admin` checks host, key or session, and page origin.
2. A route is a function with types for its query and body.
3. Figures are SQL on the activity log of this machine.
4. Policies are never written here: the configuration file is their one source.

dispatch        requests below /admin: the table of routes, bodies, files, log in and out, errors
routes          the declaration of a route, its arguments and errors; the admin key, sessions, page origins

The functions of the routes:

arms            conversations under a policy, compared with those that a holdout left alone
figures         totals, spend, savings and tokens over time, by team, model and more
conversations   conversations, their turns and messages, also as they were forwarded; search in the originals
teams           teams, their keys, switches, deletions; policies in force, and their attachments
request_pages   requests, latency and errors over time; the configuration, warnings, faults and the audit log
"""

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
guard           authentication: the admin key, sessions, host names, page origins
routes          the declaration of a route, its arguments and errors

Pages, the functions of the routes:

arms            `/arms`: conversations under a policy, compared with those that a holdout left alone
arm_statistics  whether two groups of conversations differ, and how many that takes
figures         totals, spend, savings and tokens over time, by team, model and more
request_list    requests; latency and errors over time
conversations   conversations, their turns and messages; search in the originals
policy_pages    policies in force, and their attachments
teams           teams, their keys, switches
events_page     the configuration, warnings, faults and the audit log
forwarded       the messages of a request as they were forwarded, rebuilt

conversation_branch  the messages of a conversation at one request, and the block that stood for them
"""

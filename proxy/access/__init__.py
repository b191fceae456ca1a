"""Access: turns a request into a `Caller`, or refuses it.

    headers, peer                          registry (keys, switches)
         |                                    |
    authentication ---------------------------+---- records: registry.json <-> shared state
         |                                                  ^          ^
    Caller, headers to forward                     keys, switch     admin pages

1. The `Authenticator` judges a request before its body is read, by keys and switches in `Records.current`.
2. Commands and admin pages change the file. Workers look at it five times a second.
3. With a shared state, a change is passed on to it at once, and the first worker of each machine keeps both equal.

authentication   the caller: a team by its key or by a trusted gateway, or a client; no page of another site
registry         keys, switches, ended sessions, deletions as one versioned value; its file, and what replicas share
admin_key        the key of the admin pages
"""

"""Access: turns a request into a `Caller`, or refuses it.

authentication   the caller: a team by its key or by a trusted gateway, a client by its own credentials, an operator
key_uses         when each team key was used last, by any replica
records          team keys, switches and ended sessions: a file, kept the same in all replicas
"""

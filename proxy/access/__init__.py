"""Access: team keys, switches, and the check that turns a request into a `Caller` or refuses it.

authentication  who calls: a team by its key or by a trusted gateway, a client by its own credentials, an operator
records         what operators have decided while the proxy runs, in a file and the same in all replicas
"""

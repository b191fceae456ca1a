"""Access: team keys, switches, and the check that turns a request into a `Caller` or refuses it.

authenticator  who calls: a team by its key or by a trusted gateway, or a client known by its own credentials
pages          checks for requests that a web page may have made a browser send
keys           team keys as they are shown and as they are kept
registry       what operators have decided while the proxy runs; two registries merge without conflict
records        the registry in a file, and the same in all replicas
admin_key      the key of the admin pages
"""

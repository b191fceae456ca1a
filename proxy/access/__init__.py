"""Who may come in, and as whom: team keys, what operators have switched, and the door that looks at both.

`keys` and `registry` are values; `records` keeps the registry in a file (and the same in all replicas); `door` makes a
`Caller` of a request, or refuses it.
"""

"""What operators see and change while the proxy runs: the API below /admin/api/ and the pages at /admin/.

guard       who may come in: the key, the session, the host's name, the page's origin
door        a request below /admin, from the guard to the answer         pages    the static files of the dashboard
routes      a table row for each thing the API does, checked in and out  openapi  the same table as a document
exchange    the chronicles of all machines

The rows stand in families: overview, conversations (fates: what became of each message; shelf: the saved originals),
policies (origins: where each value comes from), publishing, people (teams, keys, switches), records (faults,
configuration, audit), trial (what if). Each is functions from a `Desk` and what was asked to a value.
"""

"""Real servers behind the proxy, and real gateways around it, each in an environment of its own.

The model they serve is made here, in seconds (`programs/tiny.py`): what it says is nonsense; how many tokens a text
takes, when a window is full, what a cache still holds and how a stream arrives is real. `install.py` puts them there,
`roster.py` says how each is started, `nginx.py` and `litellm.py` are what is in between. The configurations are
those that docs/upstreams.md shows: `recipes.py` reads them there.
"""

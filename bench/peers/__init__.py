"""Who else does this, measured as we measure ourselves: `make -C bench peers`.

    PYTHONPATH=bench python -m peers                     # a generated sample, all peers, the relays: some minutes
    PYTHONPATH=bench python -m peers FILE… --out DIR     # recorded conversations; a run that broke off goes on

- conversations.py  the fixed set that all peers are played
- policies.py       what others do, as policies of their own: documented context editing, a trim of messages
- environments.py   each peer installed as its users have it, and how large that is
- processes.py      how each peer is started and configured
- recording.py     their upstream: it answers any proxy's question for a summary
- scored.py         all peers on the same conversations, by the scorecard's measures
- relays.py         all peers as relays: delay, processor time, memory
- page.py           the page of results

No peer is set up better or worse than another: each gets the upstream and, where it asks for one, the window; the
rest is its default. What had to differ is beside its name on the page.
"""

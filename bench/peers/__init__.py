"""Who else does this, measured as we measure ourselves: `make peers`.

    PYTHONPATH=bench python -m peers                     # a generated sample, all peers, the relays: some minutes
    PYTHONPATH=bench python -m peers FILE… --out DIR     # recorded conversations; a run that broke off goes on

- conversations.py  the fixed set that everybody is played
- policies.py       what others do, as policies of their own: documented context editing, a trim of messages
- environments.py   each peer installed as its users have it, and how large that is
- processes.py      how each peer is started, and what it is told
- listening.py     their upstream: it answers a stranger's question for a summary as well as ours
- scored.py         everybody on the same conversations, by the scorecard's measures
- relays.py         everybody as a relay: delay, processor time, memory
- findings.py       who is better than ours at what, and what it pays for that: read off the figures
- page.py           docs/peers.md

Nobody is set up better or worse than the next: each is told the upstream and, where it asks for one, the window; the
rest is its default. What had to differ stands beside its name on the page.
"""

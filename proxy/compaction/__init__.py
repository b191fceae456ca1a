"""The heart meets the world: what it must know is gathered here, and what it decides is carried out.

wish       what a request's headers ask for          facts      whose history it is, the last usage, prices
probe      asks an upstream for its windows          recall     what the store remembers, and what it is told
case       what is known of one request, and what came of it
lessons    the windows that overflows taught         recovery   what may be tried once more after a refusal
keeping    what of it the originals are given        compactor  gather, decide, keep, render
"""

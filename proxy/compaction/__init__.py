"""The heart meets the world: what it must know is gathered here, and what it decides is carried out.

wish       what a request's headers ask for          facts      window, prices, the last usage, the last time
probe      asks an upstream for its windows          compactor  gather, decide, keep, render
"""

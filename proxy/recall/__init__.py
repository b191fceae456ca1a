"""The tools of the proxy itself, above all the one by which a model reads earlier messages again.

own_tools  names of these tools, and how they are offered to a model
tool       the search in the originals, and the text of its answer
answering  the rounds of one request in which the model calls such a tool
"""

"""What the page says: definitions in one sentence each, and what a reader must know to believe the figures rightly."""

READING = (
    "the agents' behaviour is held fixed, so savings are upper bounds; summaries are a stand-in's unless a model was "
    "named to write them; no request was sent to a provider, caches and prices are computed by their published rules. "
    "What a session file does not hold (system prompts and tools, for most agents) is not counted."
)
DEFINITIONS = (
    (
        "Request",
        "One question to the model: everything that was said before one of its answers, for agents send it anew.",
    ),
    (
        "Doing nothing",
        "Every request goes to the model just as the agent sent it; all costs are told as a part of what that costs.",
    ),
    (
        "Behaviour held fixed",
        (
            "The agent says and does what was recorded, whatever it would have been shown: what it would have read "
            "again because it was folded away is not charged, and the retention figures say how often it had reason to."
        ),
    ),
    (
        "Stand-in summaries",
        "Picked by rule from what they replace, with the length and the delay of real ones; no model wrote them.",
    ),
    (
        "Cost at .1/1.25",
        (
            "A token that the provider has in its cache costs 0.1 of its plain price and one that it has to read and "
            "store 1.25; the other pairs are other terms, and what summaries read and write is included."
        ),
    ),
    ("List prices", "Those of the recorded model, tiers and cache prices included, for input and for summaries."),
    (
        "Rewrite",
        (
            "A request whose beginning is no longer what was sent before, so that the provider has to read it afresh; "
            "each has a mark in the pictures, and its reason: the window, a stride (enough old results to go), or a "
            "cold cache."
        ),
    ),
    ("Window", "The most tokens that the model takes; a request over it is refused, and the agent stops."),
    ("Tokens", "Bytes of what is sent divided by four, the same for every policy."),
    (
        "In context",
        (
            "Of the paths, names and numbers in the agent's next action that it had last seen more than six messages "
            "before, the share that still stood in what was forwarded, in a whole line as it was."
        ),
    ),
    ("Named", "The same, where the word itself stood anywhere in what was forwarded, an index of names included."),
    ("Fresh", "In context, for what the agent had seen within its last six messages."),
    ("Pointed", "In context, or to be had again by a call that what was forwarded still points to."),
    ("Recall", "Of the things in the whole history, the share that stood in the last request as it was forwarded."),
    (
        "Breach",
        "A request that breaks an API's rules (a result without its call, say) where the agent's own did not.",
    ),
)

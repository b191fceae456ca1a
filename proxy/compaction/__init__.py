"""The driver of `core.conversation`: what the core decides, performed with real counts, stores, models and transcripts.

Read `compactor` first, which is the story of one chat request, then `session`, which performs the actions of the core.

compactor         one request: its policy, its options, what leaves, and what is remembered of its answer
session           one exchange of the core, and what performs its actions
request_options   what a request asks for in its headers
policy_selection  which policies may apply, and which of them while one is rolled out
tenants           whose conversation it is
summaries         a model asked for a summary, and the calls that are under way
windows           what this worker knows of windows, and the probes that ask for them
originals         what is handed to the transcripts, and when
local_answers     what a client asks for by name and this proxy answers by itself
history_threads   large histories are worked on in threads
"""

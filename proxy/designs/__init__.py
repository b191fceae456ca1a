"""Steps that only the four published designs use: the policies `j-cli`, `middleware`, `jp` and `blocks`.

docs/five-documents.md says which document a policy implements, word by word. The policies themselves are in
`config/shipped.yaml`; `j-cli` and `middleware` need no step of their own.

    004 blocks                                     one_liners
    002 RFD D17, per-tool hints                    tool_hints, clear_arguments
    003 RFD 036, strategies that are composed      dedup_old, strip_attachments, prune_tools

one_liners         004: a line for each turn
tool_hints         002: keep, strip or remove the requests and responses of old calls, tool by tool
clear_arguments    002: shorten long texts in the arguments of old calls
dedup_old          003: old results that a later call has made obsolete
strip_attachments  003: labels in place of old images, audio and files
prune_tools        003: offer only the tools that were ever used

1. A step here is a step like those in `shorten/steps`, and `shorten/step_registry` lists it beside them.
2. Any policy may name it; the default does not. What a policy says `tools:` by tool makes `tool_hints` and `dedup_old`
   run as well.
"""

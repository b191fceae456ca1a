"""Steps that only the published designs use: the policies `jp` and `blocks` (docs/five-documents.md).

one_liners  document 004: a line for each turn
tool_hints  document 002: keep, strip or remove the requests and responses of old calls, tool by tool
strategies  document 003: obsolete results, attachments and tools that were never used

Any policy may name them; the default does not. A policy with `tools:` runs `tool_hints` and `dedup_old` as well.
"""

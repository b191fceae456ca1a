"""The reasons of decisions: headers, log, metrics and admin pages show them, and docs/policies.md explains them."""

from typing import Literal

BlockReason = Literal["", "stride", "cold", "user", "window", "cliff", "forced", "opening", "signature"]
"""Why a block was made. It is stored with the block."""

Reason = Literal[
    BlockReason,
    "overflow_retry",
    "reasoning-removed",
    "shortened-refused",
    "floor",
    "min_groups",
    "min_turns",
    "summary-pending",
    "switched-off",
    "fetches-high",
    "no-summary",
    "summary-no-gain",
    "summaries-off",
    "focus-unused",
    "originals-unwritable",
    "window-unknown",
    "not-understood",
    "too-much-work",
    "provider-compacts",
    "client-rewrites",
    "history-elsewhere",
    "whole-history-asked",
]

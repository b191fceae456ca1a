"""proxy.yaml -> frozen values: what can be set, where it came from, and how the shipped file is written."""

from proxy.config.defaults import as_yaml
from proxy.config.faults import Fault, InvalidConfig
from proxy.config.loading import Loaded, load
from proxy.config.origins import origins
from proxy.config.policies import Policy
from proxy.config.secrets import Secret
from proxy.config.settings import Config, Listen, Log, State, Transcripts, Upstream
from proxy.config.teams import Access, Admin, Attachment, Choice, Occasion, Team
from proxy.config.warnings import find_warnings

__all__ = [
    "Access",
    "Admin",
    "Attachment",
    "Choice",
    "Config",
    "Fault",
    "InvalidConfig",
    "Listen",
    "Loaded",
    "Log",
    "Occasion",
    "Policy",
    "Secret",
    "State",
    "Team",
    "Transcripts",
    "Upstream",
    "as_yaml",
    "find_warnings",
    "load",
    "origins",
]

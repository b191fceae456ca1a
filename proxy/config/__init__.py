"""proxy.yaml -> frozen values: what can be set, where it came from, and how the shipped file is written."""

from proxy.config.defaults import as_yaml
from proxy.config.loading import Fault, InvalidConfig, Loaded, load
from proxy.config.policies import Policy
from proxy.config.settings import Config, Listen, Log, Secret, State, Transcripts, Upstream

__all__ = [
    "Config",
    "Fault",
    "InvalidConfig",
    "Listen",
    "Loaded",
    "Log",
    "Policy",
    "Secret",
    "State",
    "Transcripts",
    "Upstream",
    "as_yaml",
    "load",
]

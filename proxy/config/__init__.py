"""proxy.yaml -> frozen values: what can be set, where it came from, and how the shipped file is written."""

from proxy.config.defaults import as_yaml
from proxy.config.loading import Fault, InvalidConfig, Loaded, load
from proxy.config.settings import Config, Listen, Log, Secret, State, Upstream

__all__ = [
    "Config",
    "Fault",
    "InvalidConfig",
    "Listen",
    "Loaded",
    "Log",
    "Secret",
    "State",
    "Upstream",
    "as_yaml",
    "load",
]

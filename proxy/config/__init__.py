"""Configuration: proxy.yaml, environment variables and options become one frozen value.

settings      every group of settings but policies, and the whole configuration
policies      the settings of a policy, and the shipped policies
attachments   which policy applies to which requests
values        types that several settings share
loading       reads file, environment and options, and reports every fault with its line
warnings      valid settings that are probably mistakes
defaults      writes the shipped proxy.yaml
editing       replaces one policy in the text of a file
schema        JSON Schema of proxy.yaml
"""

from proxy.config.attachments import Attachment, Occasion, RolloutChoice
from proxy.config.defaults import as_yaml
from proxy.config.loading import Fault, InvalidConfig, Loaded, find_origins, load
from proxy.config.policies import Policy
from proxy.config.settings import Access, AdminConfig, Config, Listen, LogConfig, State, Team, Transcripts, Upstream
from proxy.config.values import Secret
from proxy.config.warnings import find_warnings

__all__ = [
    "Access",
    "AdminConfig",
    "Attachment",
    "Config",
    "Fault",
    "InvalidConfig",
    "Listen",
    "Loaded",
    "LogConfig",
    "Occasion",
    "Policy",
    "RolloutChoice",
    "Secret",
    "State",
    "Team",
    "Transcripts",
    "Upstream",
    "as_yaml",
    "find_origins",
    "find_warnings",
    "load",
]

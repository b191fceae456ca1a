"""Configuration: proxy.yaml, variables and options become frozen values.

`settings.py`, `policies.py`, `teams.py` and `hooks.py` define the settings, `loading.py` reads them, `faults.py` and
`warnings.py` say what is wrong or probably a mistake, `origins.py` where a value was set, and `defaults.py` writes the
shipped file.
"""

from proxy.config.defaults import as_yaml
from proxy.config.faults import Fault, InvalidConfig
from proxy.config.loading import Loaded, load
from proxy.config.origins import find_origins
from proxy.config.policies import Policy
from proxy.config.secrets import Secret
from proxy.config.settings import Config, Listen, LogConfig, State, Transcripts, Upstream
from proxy.config.teams import Access, AdminConfig, Attachment, Occasion, RolloutChoice, Team
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

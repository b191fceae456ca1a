"""Configuration: proxy.yaml, variables and options become frozen values.

`settings.py`, `policies.py` and `attachments.py` define the settings, `values.py` the types that several of them have.
`loading.py` reads them and says what is wrong, `warnings.py` what is probably a mistake; `defaults.py` writes the
shipped file, `editing.py` changes a policy in the text of a file.
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

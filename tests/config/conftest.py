"""A configuration from the text of its file."""

from types import MappingProxyType

import pytest

from proxy.config.faults import InvalidConfig
from proxy.config.loading import load


@pytest.fixture
def load_text(tmp_path):
    """Loads a file with this text."""

    def read(text, environ=MappingProxyType({})):
        file = tmp_path / "proxy.yaml"
        file.write_text(str(text))
        return load(file, environ).config

    return read


@pytest.fixture
def refuse(load_text):
    """Loads a file with a text that is wrong; answers the exception with its faults."""

    def read(text, environ=MappingProxyType({})):
        with pytest.raises(InvalidConfig) as refused:
            load_text(text, environ)
        return refused.value

    return read

"""The model that every group of settings is made from."""

from pydantic import BaseModel, ConfigDict


class ConfigModel(BaseModel):
    """A group of settings: frozen, and closed to settings that it does not have."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        arbitrary_types_allowed=True,
        hide_input_in_errors=True,
        use_attribute_docstrings=True,
    )

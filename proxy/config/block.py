"""What every group of settings is: frozen, and closed to what it does not know."""

from pydantic import BaseModel, ConfigDict


class Block(BaseModel):
    """A frozen group of settings that refuses what it does not know."""

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True, hide_input_in_errors=True)

"""JSON Schema of proxy.yaml (https://json-schema.org), by which editors complete and explain settings.

`compaction-proxy check --schema` prints it; `check` itself uses the models.
"""

from typing import Any

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue

from proxy.config.settings import Config


class _FileSchema(GenerateJsonSchema):
    """Adds the spellings that `ConfigModel` accepts: one text for a list, and nothing for a group."""

    def tuple_schema(self, schema: Any) -> JsonSchemaValue:  # noqa: ANN401 (a core schema of pydantic)
        listed = super().tuple_schema(schema)
        items = listed.get("items", {})
        if items.get("type") == "string":
            return {"anyOf": [listed, items]}
        return listed

    def model_schema(self, schema: Any) -> JsonSchemaValue:  # noqa: ANN401 (a core schema of pydantic)
        return {**super().model_schema(schema), "type": ["object", "null"]}

    def field_title_should_be_set(self, _: Any) -> bool:  # noqa: ANN401 (a core schema of pydantic)
        return False


def as_json_schema() -> dict[str, Any]:
    dialect = {"$schema": GenerateJsonSchema.schema_dialect, "title": "proxy.yaml of compaction-proxy"}
    return {**Config.model_json_schema(schema_generator=_FileSchema), **dialect}

"""The field ``init`` of a run: the stage of the study that its training starts from."""

from typing import Annotated, Any

from pydantic import ConfigDict, Field, WithJsonSchema, model_validator

from attnlab.config.types import Section, expected


class InitConfig(Section):
    """Start training from the weights of a stage: ``{from: pretrain}``, or ``pretrain`` for short."""

    model_config = ConfigDict(serialize_by_alias=True)

    stage: str = Field(alias="from", min_length=1, description="a name under stages")
    fingerprint: str = Field(default="", description="of the run with these weights; filled in by the plan")

    @model_validator(mode="before")
    @classmethod
    def _short(cls, value: Any) -> Any:
        if isinstance(value, str):
            return {"from": value}
        if not isinstance(value, dict):
            raise expected("the name of a stage, or {from: ...}")
        return value


_STAGE = {"type": "string", "minLength": 1}
_FROM = {"type": "object", "properties": {"from": _STAGE}, "required": ["from"], "additionalProperties": False}
InitField = Annotated[InitConfig, WithJsonSchema({"anyOf": [_STAGE, _FROM]})]

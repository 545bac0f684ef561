"""From a configuration to its model."""

from attnlab.config.run import RunConfig
from attnlab.models.backbone import TaskShape
from attnlab.models.classifier import Classifier
from attnlab.models.language_model import LanguageModel


def build(config: RunConfig, task: TaskShape) -> LanguageModel | Classifier:
    """The model of a resolved configuration, initialised by its seed, on the CPU in float32."""
    return LanguageModel(config, task) if task.kind == "language_model" else Classifier(config, task)

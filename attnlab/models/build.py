"""Construction of the model of a configuration."""

from attnlab.config.run import RunConfig
from attnlab.models.backbone import TaskShape
from attnlab.models.classifier import Classifier
from attnlab.models.gpt2 import initialize_as_gpt2
from attnlab.models.initialization import initialize
from attnlab.models.language_model import LanguageModel
from attnlab.registry import MODELS


def build(config: RunConfig, task: TaskShape) -> LanguageModel | Classifier:
    """Return the model of a resolved configuration, on the CPU in float32.

    Its seed and the name of each tensor determine the initial values (``attnlab.models.initialization``).

    Args:
        config: the configuration, with ``auto`` resolved.
        task: the task; ``task.kind`` is the name of the model in the registry.

    Raises:
        UserError: no model has this name.
    """
    model: type[LanguageModel | Classifier] = MODELS.get(task.kind)

    def construct() -> LanguageModel | Classifier:
        constructed = model(config, task)
        if config.model.initialization == "gpt2":
            initialize_as_gpt2(constructed, depth=config.model.depth)
        return constructed

    return initialize(construct, config.seed)

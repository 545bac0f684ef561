"""Construction of the model of a configuration."""

from attnlab.config.run import RunConfig
from attnlab.models.base import Model, TaskShape, model_class
from attnlab.models.initialization import initialize, initialize_as_gpt2
from attnlab.models.parts import connect_components


def build(config: RunConfig, task: TaskShape) -> Model:
    """Return the model of a resolved configuration, on the CPU in float32.

    Its seed and the name of each tensor determine the initial values (``attnlab.models.initialization``).

    Args:
        config: the configuration, with ``auto`` resolved.
        task: the task; its kind decides the model if the configuration names none.

    Raises:
        UserError: no model has this name.
    """
    model = model_class(config, task)

    def construct() -> Model:
        constructed = model(config, task, **config.model.options)
        if config.model.initialization == "gpt2":
            initialize_as_gpt2(constructed, depth=config.model.depth)
        connect_components(constructed)
        return constructed

    return initialize(construct, config.seed)

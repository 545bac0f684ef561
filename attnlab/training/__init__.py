"""One training run: a resolved configuration in, a result out. Internal: not part of the public interface.

``train.train`` is the entry point. The package knows neither Optuna nor MLflow.
"""

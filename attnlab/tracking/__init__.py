"""MLflow: writing a study's records, reading them back, and serving the UI. The only package that imports mlflow.

Internal: not part of the public interface.
"""

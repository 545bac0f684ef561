"""What a study writes to MLflow, and the view in which its UI opens."""

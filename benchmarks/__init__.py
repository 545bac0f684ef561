"""attnlab side by side with what it is measured against: commands that write pages under ``reports/``."""

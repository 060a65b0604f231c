"""exactlyonce: run Spark streaming jobs on Kubernetes so that every record takes effect exactly once."""

__version__ = "0.1.0"

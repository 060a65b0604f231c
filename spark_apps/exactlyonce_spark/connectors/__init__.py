"""What each connector does inside Spark, under the names of `exactlyonce.connectors`."""

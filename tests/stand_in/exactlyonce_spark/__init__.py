"""Stands in for the driver where a test is about how drivers are started and watched, not about what they do."""

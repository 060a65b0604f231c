"""From typed models to the schema of a custom resource; nothing of this product."""

"""From the bytes of records to typed Arrow columns, for every source of bytes; no Spark on this floor (docs/values.md, ADR 64)."""

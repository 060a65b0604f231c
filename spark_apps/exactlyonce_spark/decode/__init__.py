"""From the bytes of records to typed Arrow columns, for every source of bytes; no Spark here (docs/values.md, ADR 64)."""

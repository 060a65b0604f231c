"""The ExactlyOnceStream resource as typed objects: what is asked for (spec) and what is so (status)."""

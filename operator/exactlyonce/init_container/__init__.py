"""What runs as a driver pod's init container: reconciliation where only the stream's pods reach the checkpoint."""

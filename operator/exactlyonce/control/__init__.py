"""The operator on Kubernetes: what wakes a stream's pass, who may act, and what a pass is given."""

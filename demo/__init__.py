"""`make demo`: the whole promise on one machine, on real input, while drivers are killed."""

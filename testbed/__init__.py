"""Real servers on loopback for the tests, the demo and the benchmarks; no part of the product."""

"""Models on real data that the demo, the benchmarks and the tests share. Nothing here knows the device `neuron`."""

"""trnsim: configuration and reports of the simulated device ``neuron``."""

from trnsim.session import configure, fallbacks, report, reset_report, simulated_time_ns

__all__ = ["configure", "fallbacks", "report", "reset_report", "simulated_time_ns"]

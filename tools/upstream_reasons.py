"""Why a test of PyTorch fails for a reason outside of the device: what tools/upstream counts as "explained".

(pattern of "file::Class::test", pattern of the failure's message, reason), the first that fits. A test that fails on
the CPU of the installed PyTorch as well needs no row: the runner finds that out.
"""

REASONS: list[tuple[str, str, str]] = []

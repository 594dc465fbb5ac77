"""Statistics of the caching allocator. reserved >= allocated >= active at all times; read them after synchronize()."""

from trnsim import _C


def _index(device):
    from torch_neuronx.neuron import _index_of

    return _index_of(device)


def memory_stats(device=None):
    """Flattened statistics, e.g. ``allocated_bytes.all.current``."""
    return dict(sorted(_C.memory_stats(_index(device))))


def memory_stats_as_nested_dict(device=None):
    nested = {}
    for key, value in memory_stats(device).items():
        *path, last = key.split(".")
        place = nested
        for part in path:
            place = place.setdefault(part, {})
        place[last] = value
    return nested


def _stat(name, device):
    return memory_stats(device)[name]


def memory_allocated(device=None):
    return _stat("allocated_bytes.all.current", device)


def max_memory_allocated(device=None):
    return _stat("allocated_bytes.all.peak", device)


def memory_reserved(device=None):
    return _stat("reserved_bytes.all.current", device)


def max_memory_reserved(device=None):
    return _stat("reserved_bytes.all.peak", device)


def reset_peak_memory_stats(device=None):
    _C.reset_peak_memory_stats(_index(device))


def reset_accumulated_memory_stats(device=None):
    _C.reset_accumulated_memory_stats(_index(device))


def empty_cache():
    """Gives cached segments without live tensors back to the device."""
    _C.empty_cache()


def mem_get_info(device=None):
    """(free, total) bytes of the logical core's HBM."""
    return _C.mem_get_info(_index(device))


def memory_summary(device=None, abbreviated=False):
    index = _index(device)
    stats = memory_stats(index)
    rows = [("allocated", "allocated_bytes"), ("active", "active_bytes"), ("reserved", "reserved_bytes")]
    if not abbreviated:
        rows += [("requested", "requested_bytes"), ("split, unused", "inactive_split_bytes")]
    pools = ["all"] if abbreviated else ["all", "small_pool", "large_pool"]
    free, total = mem_get_info(index)
    lines = [
        f"memory of neuron:{index} (bytes): {total} in total, {free} not reserved",
        f"{'':16}{'pool':12}{'current':>16}{'peak':>16}{'allocated':>18}{'freed':>18}",
    ]
    for title, key in rows:
        for pool in pools:
            now, peak, allocated, freed = (
                stats[f"{key}.{pool}.{kind}"] for kind in ("current", "peak", "allocated", "freed")
            )
            lines.append(f"{title:16}{pool:12}{now:16}{peak:16}{allocated:18}{freed:18}")
    lines.append(f"out of memory: {stats['num_ooms']}, retries after emptying the cache: {stats['num_alloc_retries']}")
    return "\n".join(lines)

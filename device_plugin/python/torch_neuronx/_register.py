"""Makes the device known to PyTorch. Kept cheap: it runs inside ``import torch`` and must not start the simulator."""

import atexit
import importlib.metadata
import os
import sys


def _refuse_other_package():
    # Both install the import name torch_neuronx; what would load is a mixture of the two.
    try:
        version = importlib.metadata.version("torch-neuronx")
    except importlib.metadata.PackageNotFoundError:
        return
    raise ImportError(
        f"user error: the package torch-neuronx {version} for real Trainium hardware is installed beside trnsim, and "
        "both provide torch_neuronx. Use one environment for each: pip uninstall torch-neuronx or pip uninstall trnsim."
    )


def _check_version(torch):
    release = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])
    if release < (2, 13):
        raise ImportError(f"user error: trnsim needs PyTorch 2.13 or 2.14; this is {torch.__version__}.")


def _fix_dlpack(torch):
    # Up to 2.14 Tensor.__dlpack_device__ compares the device type with a literal that a renamed device never equals.
    original = torch.Tensor.__dlpack_device__

    def __dlpack_device__(self):
        if self.device.type == "neuron":
            from torch.utils.dlpack import DLDeviceType

            return (DLDeviceType.kDLExtDev, self.device.index or 0)
        return original(self)

    torch.Tensor.__dlpack_device__ = __dlpack_device__


def _print_from_host(torch):
    # Printing looks at single elements; a copy to the host is one transfer instead of a program for each of its steps.
    module = torch._tensor_str
    original = module._tensor_str

    def _tensor_str(self, indent):
        return original(self.cpu() if self.device.type == "neuron" else self, indent)

    module._tensor_str = _tensor_str


def _finish(native):
    try:
        # The report ends with the runtime, which writes its own part of TRNSIM_JSON when it closes: ours comes last.
        path = os.environ.get("TRNSIM_JSON")
        if path and native.is_initialized() and not native.in_bad_fork():
            import json

            import trnsim
            from trnsim.output_file import write_whole

            report = trnsim.report()
            native.shutdown()
            try:
                write_whole(path, json.dumps(report, indent=2) + "\n")
            except OSError as e:
                # The exit code of a process cannot be changed here without skipping the hooks that are to come.
                why = e.strerror or e
                print(
                    f"trnsim: user error: the report cannot be written to {path} (TRNSIM_JSON): {why}", file=sys.stderr
                )
    finally:  # also after Ctrl-C
        native.shutdown()


def register():
    import torch

    _refuse_other_package()
    _check_version(torch)
    from trnsim import _C  # loading the library registers kernels, hooks, guard and allocators

    torch.utils.rename_privateuse1_backend("neuron")
    from torch_neuronx import neuron
    from torch_neuronx._processes import refuse_other_processes, register_process_group
    from torch_neuronx._random_state import register_random_state

    torch._register_device_module("neuron", neuron)
    for name in ("memory", "random", "streams"):
        sys.modules[f"torch.neuron.{name}"] = getattr(neuron, name)
    torch.utils.generate_methods_for_privateuse1_backend(for_storage=True)

    register_process_group(torch)
    refuse_other_processes(torch)
    register_random_state()
    _fix_dlpack(torch)
    _print_from_host(torch)

    if os.environ.get("TRNSIM_PROGRESS") == "on":
        from trnsim import progress

        progress.start()
    atexit.register(_finish, _C)

"""Public names of the package for real hardware whose parts this version does not have."""


def not_simulated(name: str, instead: str):
    raise NotImplementedError(f"not simulated: torch_neuronx.{name} is not part of this version; {instead}.")


_KERNELS_INSTEAD = "write the kernel with PyTorch operators"


def nki_op(*arguments, **settings):
    not_simulated("nki_op", _KERNELS_INSTEAD)


def wrap_nki(*arguments, **settings):
    not_simulated("wrap_nki", _KERNELS_INSTEAD)

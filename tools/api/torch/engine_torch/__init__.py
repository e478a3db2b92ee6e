"""Registers the backend "engine" of torch.distributed (docs/pytorch.md).

The wheel names register() as an entry point of torch.backends, so PyTorch calls it at `import torch` and scripts need no import.
The library is loaded for the first process group: a broken one must not break `import torch`.
"""
import warnings


def register():
    """Makes init_process_group("engine") known. PyTorch calls it at `import torch`, which it must not break."""
    import torch
    try:
        import torch.distributed as dist
        if dist.is_available() and "engine" not in dist.Backend.backend_list:
            dist.Backend.register_backend("engine", _create, extended_api=True, devices=["cpu"])
    except Exception as error:
        warnings.warn(f'PyTorch {torch.__version__} has no backend "engine": {type(error).__name__}: {error}; expected a version that '
                      "register_backend() supports; install the engine_torch that was built for this PyTorch")


def _create(options, own_options):
    return _library().create(options, own_options)


def _library():
    import torch
    try:
        from engine_torch import _backend
    except ImportError as error:
        raise RuntimeError(f"the library of engine_torch cannot be loaded into PyTorch {torch.__version__}: {error}; "
                           "install the engine_torch that was built for this Python and PyTorch") from error
    if torch.__version__.split(".")[:2] != _backend.torch_version.split("."):
        raise RuntimeError(f"engine_torch was built for PyTorch {_backend.torch_version}, and this is {torch.__version__}; "
                           "install the engine_torch that was built for this PyTorch")
    return _backend


def __getattr__(name):
    if name == "__version__":
        return _library().__version__
    raise AttributeError(f"module engine_torch has no attribute {name!r}")


# PyTorch may import this module while `import torch` here is at work: register() is defined by then.
register()

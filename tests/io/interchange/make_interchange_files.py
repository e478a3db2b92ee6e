# Writes the files in data/ beside this script, with NumPy and PyTorch's own writers, for npz_test, safetensors_test and
# torch_archive_test.
#
# Usage: python3 tests/io/interchange/make_interchange_files.py        needs numpy, torch and safetensors
# Every array is a ramp: element i (in C order) is i * 0.5 - 1 for floats, i - 1 for signed integers, i for u1.
import os

import numpy
import torch
from safetensors.torch import save_file

folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "data")
os.makedirs(folder, exist_ok=True)


def ramp(dtype, *shape):
    count = int(numpy.prod(shape, dtype=int))
    i = numpy.arange(count)
    values = i * 0.5 - 1 if numpy.dtype(dtype).kind == "f" else i - 1 if numpy.dtype(dtype).kind == "i" else i
    return values.astype(dtype).reshape(shape)


arrays = {
    "conv1.weight": ramp("f4", 4, 2, 3, 3),
    "turned": numpy.asfortranarray(ramp("f4", 3, 4, 5)),
    "bn1.running_mean": ramp("f8", 4),
    "bn1.num_batches_tracked": ramp("i8"),
    "half": ramp("f2", 7),
    "ids": ramp("i4", 2, 3),
    "bytes": ramp("u1", 300),
    "none": ramp("f4", 0, 3),
}
numpy.savez(os.path.join(folder, "numpy_stored.npz"), **arrays)
numpy.savez_compressed(os.path.join(folder, "numpy_deflated.npz"), **arrays)
numpy.savez(os.path.join(folder, "numpy_objects.npz"), a=numpy.array([1, "x", None], dtype=object))
numpy.savez(os.path.join(folder, "numpy_big_endian.npz"), a=ramp(">f4", 3))
numpy.savez(os.path.join(folder, "numpy_structured.npz"), a=numpy.zeros(2, dtype=[("x", "<f4"), ("y", "<i4")]))

tensors = {
    "module.conv1.weight": torch.tensor(ramp("f4", 4, 2, 3, 3)),
    "module.bn1.running_mean": torch.tensor(ramp("f8", 4)),
    "module.bn1.num_batches_tracked": torch.tensor(-1),
    "module.half": torch.tensor(ramp("f2", 7)),
    "module.brain": torch.tensor(ramp("f4", 5)).to(torch.bfloat16),
    "module.ids": torch.tensor(ramp("i4", 2, 3)),
    "module.bytes": torch.tensor(ramp("u1", 300)),
}
save_file(tensors, os.path.join(folder, "torch_ramps.safetensors"), metadata={"format": "pt"})
torch.save({"w": torch.zeros(2)}, os.path.join(folder, "torch_legacy.pth"), _use_new_zipfile_serialization=False)

module = torch.nn.BatchNorm2d(4)
module.running_mean.copy_(torch.tensor(ramp("f4", 4)))
pool = torch.tensor(ramp("f4", 40))
views = {
    "conv1.weight": torch.tensor(ramp("f4", 4, 2, 3, 3)).contiguous(memory_format=torch.channels_last),
    "turned": torch.tensor(ramp("f8", 3, 4)).t().contiguous().t(),
    "part": pool[10:16].view(2, 3),  # three views of one storage
    "steps": pool[1:20:3],
    "tied": pool,
    "same": torch.tensor(2.5).expand(2, 3),
    "scalar": torch.tensor(-1),
    "half": torch.tensor(ramp("f2", 7)),
    "brain": torch.tensor(ramp("f4", 5)).to(torch.bfloat16),
    "i32": torch.tensor(ramp("i4", 2, 3)),
    "i16": torch.tensor(ramp("i2", 300)),
    "i8": torch.tensor(ramp("i1", 2, 3)).t(),
    "u8": torch.tensor(ramp("u1", 256)),
    "bool": torch.tensor([True, False, True]),
    "none": torch.zeros(0, 3),
    "parameter": torch.nn.Parameter(torch.tensor(ramp("f4", 3))),
}
torch.save(views, os.path.join(folder, "torch_ramps.pth"))
torch.save(views, os.path.join(folder, "torch_ramps_protocol5.pth"), pickle_protocol=5)
optimizer = torch.optim.AdamW(module.parameters())
torch.save({"epoch": 3, "loss": torch.tensor(0.5), "optimizer": optimizer.state_dict(), "lr": 0.1, "seed": 2**64 - 1,
            "model_state_dict": {"module." + k: v for k, v in module.state_dict().items()}},
           os.path.join(folder, "torch_training.pth"))
torch.save(module, os.path.join(folder, "torch_module.pth"))

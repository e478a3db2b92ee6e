#!/usr/bin/env python3
"""The real program beside PyTorch: files of torch.save are compared, imported, evaluated and trained from, and what `export`
writes is loaded by torch.load(weights_only=True) with the same bits. The residual networks are those of torchvision.

Usage: PEER_PYTHON=PYTHON tests/io/interchange/torch/torch_files_test.py ENGINE
PEER_PYTHON is an interpreter with torch and torchvision. Exit code: 0, 1 with what went wrong, 77 without such an interpreter (of
torchvision alone: after all other tests).
"""
import os
import pathlib
import subprocess
import sys
import tempfile

FLOATS = ("float64", "float32", "float16", "bfloat16")
INTEGERS = ("int64", "int32", "int16", "int8", "uint8", "bool")


def engine(*arguments, code=0):
    """What it prints on stdout and stderr."""
    result = subprocess.run([ENGINE, *map(str, arguments)], capture_output=True, text=True, timeout=300)
    assert result.returncode == code, f"{arguments}: exit code {result.returncode}, expected {code}: {result.stderr}"
    return result.stdout, result.stderr


def bits(tensor):
    return tensor.contiguous().flatten().view(torch.uint8).numpy().tobytes() if tensor.numel() else b""


def same(one, other):
    return one.dtype == other.dtype and one.shape == other.shape and bits(one) == bits(other)


def exported(path):
    """The state dict of a file that went through export."""
    engine("export", path, "-o", path.with_suffix(".out.pt"))
    return torch.load(path.with_suffix(".out.pt"), weights_only=True)


def every_type(folder):
    """Each type, plain and as views, comes back from the program with the same bits."""
    torch.manual_seed(3)
    state = {}
    for name in FLOATS + INTEGERS:
        dtype = getattr(torch, name)
        block = torch.randn(4, 6, 2) * 50 if name in FLOATS else torch.randint(0, 2 if name == "bool" else 100, (4, 6, 2))
        block = block.to(dtype)
        state |= {name: block, name + ".turned": block.permute(2, 0, 1), name + ".steps": block[1:, ::2, 1],
                  name + ".scalar": block[1, 1, 1], name + ".none": block[:0], name + ".wide": block[0, 0, :1].expand(3, 5)}
    widened = {"int16": torch.int32, "int8": torch.int32, "bool": torch.uint8}
    for protocol in (2, 3, 4, 5):
        torch.save(state, folder / "types.pth", pickle_protocol=protocol)
        back = exported(folder / "types.pth")
        assert list(back) == list(state), "another order"
        for name, tensor in state.items():
            expected = tensor.to(widened.get(name.split(".")[0], tensor.dtype))
            assert same(back[name], expected), f"{name}, protocol {protocol}: {back[name]} and {expected}"
    mapped = torch.load(folder / "types.out.pt", weights_only=True, mmap=True)
    assert same(mapped["float64"], state["float64"])


def verify_prints_names(folder):
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.Linear(4, 5))
    state = model.state_dict()
    torch.save(state, folder / "final_model_rank_0.pth")
    torch.save(model.to(memory_format=torch.channels_last).state_dict(), folder / "final_model_rank_1.pth")
    files = folder / "final_model_rank_0.pth", folder / "final_model_rank_1.pth"
    assert engine("verify", *files) == ("", "verify: 0 of 9 tensors differ\n")
    other = {name: tensor.clone() for name, tensor in state.items()}
    other["2.bias"][3] += 1
    other["1.running_var"][0] += 1
    torch.save({"epoch": 1, "model_state_dict": {"module." + k: v for k, v in other.items()}}, files[1])
    out, err = engine("verify", "--strip-prefix", "module.", *files, code=1)
    assert out == "1.running_var\n2.bias\n", out
    assert err == "verify: 2 of 9 tensors differ (1 parameters, 1 BatchNorm running statistics)\n", err


def into_the_program_and_back(folder):
    """Weights of a PyTorch model in train, import and eval; and the trained ones back in that model."""
    data = ("--dataset", "synthetic", "--synthetic-shape", "6x6x1", "--synthetic-size", "60")
    engine("train", "--model", "mlp", *data, "--batch-size", "12", "--steps", "3", "--threads", "1", "--save-dir", folder / "run")
    engine("export", folder / "run", "-o", folder / "run.pth")
    state = torch.load(folder / "run.pth", weights_only=True)
    weights = [t for t in state.values() if t.dim() == 2]
    model = torch.nn.Sequential(*(torch.nn.Linear(w.shape[1], w.shape[0]) for w in weights))
    model.load_state_dict(dict(zip(model.state_dict(), state.values())))
    wrapped = {"module." + name: tensor for name, tensor in zip(state, model.state_dict().values())}
    torch.save({"model": wrapped, "optimizer": torch.optim.AdamW(model.parameters()).state_dict()}, folder / "ddp.pth")
    assert engine("verify", "--strip-prefix", "module.", folder / "run", folder / "ddp.pth")[0] == ""
    engine("import", folder / "ddp.pth", "-o", folder / "ddp.ckpt", "--model", "mlp", *data)
    assert engine("verify", folder / "run.pth", folder / "ddp.ckpt")[0] == ""
    of_run = engine("eval", folder / "run", "--format", "json")[0]
    assert engine("eval", folder / "ddp.ckpt", "--format", "json")[0] == of_run
    assert engine("eval", folder / "ddp.pth", "--model", "mlp", *data, "--format", "json")[0] == of_run
    out = engine("train", "--model", "mlp", *data, "--batch-size", "12", "--steps", "1", "--init-from", folder / "ddp.pth")[0]
    assert f"weights from {folder / 'ddp.pth'}" in out, out


class Hostile:
    def __init__(self, target):
        self.target = target

    def __reduce__(self):
        return os.system, (f"touch {self.target}",)


def refusals(folder):
    good, bad = folder / "good.pth", folder / "bad.pth"
    torch.save({"w": torch.zeros(2)}, good)

    def refused(value, words, **options):
        torch.save(value, bad, **options)
        out, err = engine("verify", good, bad, code=2)
        assert out == "" and words in err and err.count("\n") == 1, err
    refused({"w": torch.zeros(2), "x": Hostile(folder / "ran")}, "posix.system: only tensors are read")
    assert not (folder / "ran").exists(), "it ran"
    refused(torch.nn.Linear(2, 2), "refuses to load torch.nn.modules.linear.Linear: only tensors are read")
    refused({"w": torch.zeros(2)}, "torch.save of PyTorch >= 1.6", _use_new_zipfile_serialization=False)
    refused({"w": torch.zeros(2, dtype=torch.complex64)}, "only dense tensors of")
    refused({"w": torch.zeros(2, 2).to_sparse()}, "only dense tensors of")
    refused({"w": torch.complex(torch.ones(2), torch.ones(2)).conj().imag}, "conjugated or negated")


def torchvision_models(folder):
    """tests/models/state_dicts.txt, to which the program's models are held, has torchvision's names and shapes; and weights of
    torchvision go through the program unchanged."""
    stored = {}
    for line in (pathlib.Path(__file__).parents[3] / "models" / "state_dicts.txt").read_text().splitlines():
        model, name, shape = line.split(" ", 2)
        stored.setdefault(model, []).append((name, shape))
    for model in ("resnet18", "resnet34", "resnet50", "resnet101", "resnet152"):
        state = getattr(torchvision.models, model)(weights=None).state_dict()
        assert [(name, str(list(tensor.shape))) for name, tensor in state.items()] == stored[model], model
        if model != "resnet18":
            continue
        torch.save(state, folder / "theirs.pth")
        engine("import", folder / "theirs.pth", "-o", folder / "ours.ckpt", "--model", model)
        engine("export", folder / "ours.ckpt", "-o", folder / "back.pth")
        back = torch.load(folder / "back.pth", weights_only=True)
        assert back.keys() == state.keys() and all(same(back[name], state[name]) for name in state)


def torchvision_logits(folder):
    """Networks with torchvision's weights have its logits, and `import` finds their model."""
    torch.manual_seed(5)
    pixels = torch.randint(0, 256, (2, 3, 64, 64), dtype=torch.uint8)
    for i, image in enumerate(pixels):
        torchvision.io.write_png(image, str(folder / f"{i}.png"))
    data = ("--dataset", "synthetic", "--synthetic-size", "1100", "--synthetic-shape", "64x64x3", "--synthetic-classes", "1000",
            "--normalize", "unit")
    for name in ("resnet18", "resnet50"):
        model = getattr(torchvision.models, name)(weights=None).eval()
        for module in model.modules():
            if isinstance(module, torch.nn.BatchNorm2d):
                with torch.no_grad():
                    module.weight.uniform_(0.5, 1)
                    module.bias.normal_(0, 0.2)
                    module.running_mean.normal_(0, 0.2)
                    module.running_var.uniform_(0.5, 2)
        torch.save(model.state_dict(), folder / "theirs.pth")
        out = engine("import", folder / "theirs.pth", "-o", folder / f"{name}.ckpt")[0]
        assert f" tensors of {name}, " in out, out
        engine("predict", folder / f"{name}.ckpt", "--model", name, *data, folder / "0.png", folder / "1.png", "--embeddings",
               "fc", "--embeddings-file", folder / "fc.npy")
        with torch.inference_mode():
            expected = model.double()(pixels.double() / 255).numpy()
        difference = abs(numpy.load(folder / "fc.npy") - expected).max() / abs(expected).max()
        assert difference <= 1e-5, f"{name}: {difference:.1e} of the largest logit"
    torch.save(torchvision.models.mobilenet_v2(weights=None).state_dict(), folder / "other.pth")
    err = engine("import", folder / "other.pth", "-o", folder / "other.ckpt", code=2)[1]
    assert "314 arrays" in err and "'features.0.0.weight'" in err, err


def main():
    with tempfile.TemporaryDirectory() as name:
        tests = [every_type, verify_prints_names, into_the_program_and_back, refusals]
        for test in tests + ([torchvision_models, torchvision_logits] if torchvision else []):
            folder = pathlib.Path(name) / test.__name__
            folder.mkdir()
            test(folder)
            print(f"{test.__name__}: passed")
    if not torchvision:
        print("skipped: there is no torchvision")
        sys.exit(77)


try:
    import numpy
    import torch
except ImportError:
    peer = os.environ.get("PEER_PYTHON", "")
    if not peer or os.environ.get("TORCH_FILES_TEST_PEER"):
        print(f"{peer or 'python3'} has no torch; PEER_PYTHON names an interpreter that has")
        sys.exit(77)
    os.environ["TORCH_FILES_TEST_PEER"] = "1"
    os.execvp(peer, [peer, *sys.argv])
try:
    import torchvision
except ImportError:
    torchvision = None
ENGINE = str(pathlib.Path(sys.argv[1]).resolve())
main()

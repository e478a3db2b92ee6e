"""Measures of tests for structure_bounds.py: where they lie."""
import os
import re

# Folders of tests that span several tested ones, with all below them.
SPANNING = ("backends/device", "backends/faults", "emulator", "faults", "fuzz", "gpu", "parity", "simulation", "support", "tools/api/device",
            "tools/commands/devices", "tools/commands/onnx", "tools/commands/published", "tools/commands/runs", "tools/commands/train",
            "tools/commands/views", "training")


def misplaced_tests(names, product):
    """A line for each test that does not lie where the tested sources do: in the folder of the unit after which it is named, else in
    one that has the name of a tested folder, or in one of those that span several."""
    homes, folders = {}, set()
    for name in names:
        if name.startswith(product) and name.endswith((".h", ".cc", ".cu")):
            folder = os.path.dirname(name)
            homes[os.path.splitext(os.path.basename(name))[0]] = folder
            while folder:
                folders.add(folder)
                folder = os.path.dirname(folder)
    lines = []
    for name in names:
        match = re.fullmatch(r"tests/(.*)/(\w+?)(_cuda)?_test\.cc", name)
        if match is None:
            continue
        folder, unit, cuda = match.groups()
        home = homes.get(unit + (cuda or ""), homes.get(unit))
        if home is not None and home != folder:
            lines.append(f"{name}: {home} has {unit}")
        elif folder not in folders and not any(folder == spanning or folder.startswith(spanning + "/") for spanning in SPANNING):
            lines.append(f"{name}: there is no {folder}, nor is it in SPANNING of test_measures.py")
    return lines

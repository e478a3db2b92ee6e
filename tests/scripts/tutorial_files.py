"""What others read in the files that the commands of docs/tutorial.md have left in the current folder: onnxruntime's predictions
are those of `engine predict`, safetensors has the weights of the ONNX file and writes them so that the program takes them,
TensorBoard finds the curves, and the trace has each step of both ranks.

Usage: tutorial_files.py ENGINE      exits with 77 (skipped) where a package is missing
"""
import csv
import json
import subprocess
import sys

try:
    import numpy
    import onnx
    import safetensors.numpy
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

engine = sys.argv[1]
IMAGES = 30


def rows_of(file):
    with open(file, encoding="utf-8") as lines:
        return list(csv.DictReader(lines))


def expect_same_predictions(one, other):
    assert len(one) == len(other) == IMAGES, f"{len(one)} and {len(other)} predictions"
    for a, b in zip(one, other):
        assert all(a[key] == b[key] for key in ("input", "sample", "prediction")), f"{a} and {b}"
        assert abs(float(a["probability"]) - float(b["probability"])) < 1e-4, f"{a} and {b}"


def metrics(event):
    with open("runs/shapes/metrics.jsonl", encoding="utf-8") as lines:
        found = [line for line in map(json.loads, lines) if line["event"] == event]
    return {line["step"]: line for line in found if line["step"] > 60}  # what came with --tensorboard


predictions = rows_of("predictions.csv")
right = sum(row["input"].split("/")[2] == row["prediction"] for row in predictions)
assert right >= 0.85 * IMAGES, f"{right} of {IMAGES} images are recognized"
expect_same_predictions(predictions, rows_of("elsewhere.csv"))

weights = safetensors.numpy.load_file("shapes.safetensors")
graph = onnx.load("shapes.onnx").graph
shared = [tensor for tensor in graph.initializer if tensor.name in weights]
assert len(shared) >= 59, f"only {len(shared)} arrays have the same name in both files"
for tensor in shared:
    assert numpy.array_equal(onnx.numpy_helper.to_array(tensor), weights[tensor.name]), tensor.name
safetensors.numpy.save_file(weights, "again.safetensors")
command = [engine, "predict", "again.safetensors", *(row["input"] for row in predictions), "--model", "resnet20-cifar"]
command += ["--dataset", "images", "--data-dir", "shapes", "--image-size", "32"]
again = subprocess.run(command, capture_output=True, text=True, check=True).stdout
expect_same_predictions(predictions, list(csv.DictReader(again.splitlines())))

events = EventAccumulator("runs/shapes/tensorboard").Reload()
for tag, event, key in (("train/loss", "step", "loss"), ("test/accuracy", "eval", "accuracy")):
    shown = {scalar.step: scalar.value for scalar in events.Scalars(tag)}
    wanted = {step: float(numpy.float32(line[key])) for step, line in metrics(event).items() if key in line}
    assert wanted and shown == wanted, f"{tag}: TensorBoard has {shown}, the metrics {wanted}"

with open("trace.json", encoding="utf-8") as file:
    spans = [event for event in json.load(file)["traceEvents"] if event["ph"] == "X"]
steps = {(span["pid"], span["args"]["step"]) for span in spans if span["name"] == "step"}
assert steps == {(rank, step) for rank in (0, 1) for step in range(61, 91)}, f"the trace has the steps {sorted(steps)}"
print("onnxruntime, safetensors and TensorBoard read what the tutorial has made")

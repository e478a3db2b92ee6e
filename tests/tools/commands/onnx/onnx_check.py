"""Holds ONNX models against stored logits.

Usage: onnx_check.py MODEL.onnx EXPECTED.npz
EXPECTED holds, for any NAMEs, the input NAME.input and what the engine makes of it, NAME.logits.
Checks the model with onnx.checker (full_check), runs it with onnxruntime, with and without its
optimizations, and prints the largest difference, relative to the largest logit. Exit code: 0; 1 where
that is more than 1e-5; 77 where onnx, onnxruntime or numpy are missing.
"""
import sys

try:
    import numpy
    import onnx
    import onnxruntime
except ImportError as error:
    print(error)
    sys.exit(77)


def main(path, expected_path):
    model = onnx.load(path)
    onnx.checker.check_model(model, full_check=True)
    # Shapes that can be inferred must be those that the file states.
    onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True, data_prop=True)
    names = [node.name for node in model.graph.node]
    assert len(set(names)) == len(names), "nodes of one name"
    expected = numpy.load(expected_path)
    cases = sorted({key.rsplit(".", 1)[0] for key in expected.files})
    assert cases, "nothing to compare"
    worst = 0.0
    levels = onnxruntime.GraphOptimizationLevel
    for level in (levels.ORT_DISABLE_ALL, levels.ORT_ENABLE_ALL):
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = level
        options.intra_op_num_threads = 1
        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        for case in cases:
            wanted = expected[case + ".logits"]
            (got,) = session.run(["logits"], {"input": expected[case + ".input"]})
            assert got.shape == wanted.shape, f"{case}: {got.shape}, expected {wanted.shape}"
            assert got.dtype == wanted.dtype == numpy.float32
            largest = numpy.abs(wanted).max()
            assert largest > 1e-3 and numpy.isfinite(got).all() and wanted.std() > 1e-4, "trivial logits"
            worst = max(worst, float(numpy.abs(got - wanted).max() / largest))
    print(f"largest difference {worst:.2e} of the largest logit, {len(cases)} cases")
    return 0 if worst <= 1e-5 else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2]))

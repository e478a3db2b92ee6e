// Computes constants: the arithmetic on shapes, indices and masks that exporters write into a
// graph.
#include "models/onnx_import/onnx_folding.h"

#include <algorithm>
#include <numeric>

#include "models/onnx_tokens/onnx_constant_entries.h"

namespace models {
namespace {

using Numbers = std::vector<std::int64_t>;

// Integers that count samples: 0, 1, ... up to their number. Returns false for other ranges.
bool count_samples(OnnxOperator& op) {
  for (const std::size_t i : {0U, 1U, 2U})
    if (!op.is_computable(i) || op.tensor(i).is_real) return false;
  if (op.numbers(0) != Numbers{0} || op.numbers(1) != Numbers{kOnnxBatch} ||
      op.numbers(2) != Numbers{1})
    return false;
  op.set(OnnxSampleIndices{1, {.shape = {1}, .integers = {0}, .reals = {}}});
  return true;
}

void multiply_indices(OnnxSampleIndices& all, std::int64_t factor) {
  for (std::int64_t& offset : all.offsets.integers) offset = computed_extent("Mul", offset, factor);
  all.step = computed_extent("Mul", all.step, factor);
}

void add_to_indices(OnnxOperator& op, OnnxSampleIndices& all, const OnnxTensor& other) {
  const Numbers shape = broadcast_shape(all.offsets.shape, other.shape);
  all.offsets = expanded(op, all.offsets, shape);
  const OnnxTensor added = expanded(op, other, shape);
  for (std::size_t i = 0; i < added.integers.size(); ++i)
    all.offsets.integers[i] = computed_extent("Add", all.offsets.integers[i], added.integers[i]);
}

// Integers that count samples, with a number for each: their product, sum or other shape. Returns
// false for other nodes.
bool fold_sample_indices(OnnxOperator& op) {
  const std::string& type = op.node().type;
  if (type == "Range") return count_samples(op);
  const auto* found = std::get_if<OnnxSampleIndices>(&op.input(0));
  if (found == nullptr || !op.has_input(1) || !op.is_computable(1)) return false;
  OnnxSampleIndices all = *found;
  const OnnxTensor other = op.tensor(1);
  if (other.is_real) return false;
  const std::size_t rank = all.offsets.shape.size();
  if (type == "Unsqueeze" &&
      std::ranges::count_if(other.integers, [](auto i) { return i < 1; }) == 0)
    all.offsets.shape.resize(rank + other.integers.size(), 1);  // after the samples
  else if (type == "Mul" && other.integers.size() == 1)
    multiply_indices(all, other.integers[0]);
  else if (type == "Add" && other.shape.size() == rank && other.shape[0] == 1)
    add_to_indices(op, all, other);
  else
    return false;
  op.set(std::move(all));
  return true;
}

bool is_matrix(const OnnxConstant& constant) {
  const io::StoredTensor& tensor = *constant.tensor;
  return tensor.shape.size() == 2 && tensor.type && base::is_floating(*tensor.type);
}

// Numbers that the exporter has computed, perhaps from parameters, are not trained.
void note_computed_inputs(OnnxOperator& op) {
  if (op.node().type == "Shape") return;
  for (std::size_t i = 0; i < op.node().inputs.size(); ++i) {
    const auto* constant = op.has_input(i) ? std::get_if<OnnxConstant>(&op.input(i)) : nullptr;
    if (constant == nullptr || constant->origin != OnnxOrigin::kComputed) continue;
    const io::StoredTensor& tensor = *constant->tensor;
    if (tensor.count() > 1 && tensor.type && base::is_floating(*tensor.type))
      add_once(op.all().read_as_computed, initializer_name(*constant));
  }
}

}  // namespace

bool fold_node(OnnxOperator& op) {
  const std::string& type = op.node().type;
  static const std::map<std::string, OnnxFold> table = [] {
    std::map<std::string, OnnxFold> all = onnx_arithmetic();
    all.merge(onnx_constant_movements());
    all.merge(onnx_constant_entries());
    return all;
  }();
  const auto found = table.find(type);
  if (found == table.end() || op.node().inputs.empty()) return false;
  if (op.has_input(0) && fold_sample_indices(op)) return true;
  for (std::size_t i = 0; i < op.node().inputs.size(); ++i) {
    if (!op.has_input(i)) continue;
    // Values of a mask may be stored as a parameter would be; a matrix is transposed by its layer.
    const auto* constant = std::get_if<OnnxConstant>(&op.input(i));
    if (type == "ScatterND" && constant != nullptr) continue;
    if (!op.is_computable(i) ||
        (type == "Transpose" && constant != nullptr && is_matrix(*constant)))
      return false;
  }
  note_computed_inputs(op);
  const std::size_t before = op.all().computed;
  OnnxTensor result = found->second(op);
  const std::size_t counted = op.all().computed - before, elements = count_of(result);
  if (counted < elements) count_computed(op, elements - counted);  // a copy of another one
  op.set(std::move(result));
  return true;
}

}  // namespace models

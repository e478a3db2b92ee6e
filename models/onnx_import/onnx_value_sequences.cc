// The parts of a value as a sequence, which exports without optimization contain.
#include <algorithm>
#include <string>
#include <vector>

#include "models/onnx_import/onnx_operators.h"
#include "models/onnx_translation/onnx_plain.h"
#include "models/onnx_translation/onnx_tensors.h"

namespace models {
namespace {

using Numbers = std::vector<std::int64_t>;

std::string part_name(const std::string& sequence, std::int64_t part) {
  return sequence + "\n" + std::to_string(part);
}

// Returns the extents of the parts: all of a size, but for the last, or those that are given.
Numbers part_extents(OnnxOperator& op, std::int64_t extent) {
  if (!op.has_input(1)) throw OnnxUnsupported("without lengths");
  Numbers lengths = op.numbers(1);
  if (!op.tensor(1).shape.empty()) return lengths;
  const std::int64_t length = lengths.at(0);
  if (length < 1 || extent < 1 || (extent - 1) / length >= std::int64_t{kMaxOnnxNumbers})
    throw OnnxUnsupported("parts of " + std::to_string(length) + " of " + std::to_string(extent));
  lengths.clear();
  for (std::int64_t left = extent; left > 0; left -= length)
    lengths.push_back(std::min(left, length));
  return lengths;
}

// A Split, whose outputs SequenceAt reads.
void translate_split_to_sequence(OnnxOperator& op) {
  const Numbers shape = plain_input(op, 0).shape;
  const std::int64_t axis = op.integer("axis", 0);
  const Numbers extents = part_extents(op, shape.at(dimension_of(axis, shape.size())));
  if (extents.empty()) throw OnnxUnsupported("no parts");
  io::ReadNode split = op.node();
  split.type = "Split";
  split.inputs.resize(1);
  split.attributes = {{"axis", axis}, {"split", extents}};
  split.outputs.clear();
  for (std::int64_t part = 0; part < std::ssize(extents); ++part)
    split.outputs.push_back(part_name(op.node().outputs[0], part));
  OnnxOperator inner(op.all(), split);
  find_onnx_operator(split.type)(inner);
  op.set(OnnxSequence{std::ssize(extents)});
}

void translate_sequence_at(OnnxOperator& op) {
  const auto* sequence = std::get_if<OnnxSequence>(&op.input(0));
  const Numbers index = op.numbers(1);
  if (sequence == nullptr || index.size() != 1)
    throw OnnxUnsupported("expected an entry of a sequence by SplitToSequence");
  const std::int64_t part = checked_entry(index[0], sequence->count);
  op.set(OnnxKnown(*op.all().values.find(part_name(op.node().inputs[0], part))));
}

}  // namespace

std::vector<OnnxOperatorRow> onnx_sequences() {
  return {{"SplitToSequence", translate_split_to_sequence}, {"SequenceAt", translate_sequence_at}};
}

}  // namespace models

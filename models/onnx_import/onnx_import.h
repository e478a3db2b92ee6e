// Translates an ONNX file of another program to a list of layers, as FILE.toml has it, and the
// parameters of these layers.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "io/interchange/onnx/onnx_reader.h"

namespace models {

// The texts of a network that reads token ids.
struct OnnxTextCounts {
  std::int64_t length = 0;      // token ids of a sample
  std::int64_t vocabulary = 0;  // classes of each position; 0: a sample has one class
};

struct OnnxImport {
  std::string definition;          // the list of layers, as TOML text
  std::vector<std::string> heads;  // layers with a number per class; none: it cannot be another
  std::vector<std::string> notes;  // what the user should know, a line each
  std::optional<OnnxTextCounts> text;
  bool leaves_out_softmax = false;     // at the end, as the loss of classes contains it
  std::string probability_note;        // on an output of probabilities, if classes are learned
  std::vector<io::NamedArray> arrays;  // with the names of the layers' parameters and buffers
};

enum class OnnxArrays { kLoad, kSkip };

// Throws engine::ModelError that names all nodes without a translation, and the errors of the
// reader.
OnnxImport import_onnx(const io::OnnxReader& file, OnnxArrays arrays);

}  // namespace models

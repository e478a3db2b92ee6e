// Translates an ONNX file of another program to a list of layers, as FILE.toml has it, and the
// parameters of these layers.
#pragma once

#include <string>
#include <vector>

#include "io/interchange/onnx/onnx_reader.h"

namespace models {

struct OnnxImport {
  std::string definition;              // the list of layers, as TOML text
  std::string head;                    // the layer with an output per class; "": none was found
  std::vector<std::string> notes;      // what the user should know, a line each
  bool leaves_out_softmax = false;     // at the end, as the loss of classes contains it
  std::vector<io::NamedArray> arrays;  // with the names of the layers' parameters and buffers
};

enum class OnnxArrays { kLoad, kSkip };

// Throws engine::ModelError that names all nodes without a translation, and the errors of the
// reader.
OnnxImport import_onnx(const io::OnnxReader& file, OnnxArrays arrays);

}  // namespace models

// Tells the user what the file leaves open about its parameters.
#pragma once

#include <string>
#include <vector>

#include "models/onnx_translation/onnx_translation.h"

namespace models {

// Adds notes on parameters that the file does not distinguish from buffers, on those that are not
// trained, and on norms that the exporter has folded into other layers.
void note_parameters(const OnnxTranslation& all, const std::vector<bool>& needed,
                     std::vector<std::string>& notes);
void note_folded_norms(const OnnxTranslation& all, std::vector<std::string>& notes);

}  // namespace models

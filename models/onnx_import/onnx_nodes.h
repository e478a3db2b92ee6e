// Goes through the nodes of an ONNX graph in their order.
#pragma once

#include "models/onnx_import/onnx_translation.h"

namespace models {

// Translates all nodes to layers; returns the value that the model computes. Throws
// engine::ModelError that names all nodes without a translation.
OnnxActivation translate_nodes(OnnxTranslation& all);

// onnx_parameters/ has these.
//
// Throws engine::ModelError if two layers share a weight but not their biases: an Add after a
// MatMul shows that only after all nodes.
void expect_shared_weights(const OnnxTranslation& all);
// With dynamo=True, the exporter leaves out biases that are 0, which PyTorch trains.
void restore_zero_biases(OnnxLayerList& layers);
// Adds the keys of parameters that several of the needed layers read as their own to `apart`.
// Returns false if there are none. Throws engine::ModelError if a layer still reads one of `apart`.
bool separate_parameters(const OnnxTranslation& all, const std::vector<bool>& needed,
                         std::unordered_set<std::string>& apart);
// Lets the layers whose outputs are the classes have as many as the data. Returns their names, and
// those of norms and parameters with a number for each class; none if one of them is shared or
// cannot be found, and nothing is replaced.
std::vector<std::string> open_heads(OnnxLayerList& layers, const std::vector<bool>& needed,
                                    const OnnxActivation& output);
// Adds notes on parameters that the file does not distinguish from buffers, on those that are not
// trained, and on norms that the exporter has folded into other layers.
void note_parameters(const OnnxTranslation& all, const std::vector<bool>& needed,
                     std::vector<std::string>& notes);
void note_folded_norms(const OnnxTranslation& all, std::vector<std::string>& notes);

}  // namespace models

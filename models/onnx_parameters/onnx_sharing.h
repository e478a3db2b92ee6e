// Adds layers with parameters, which may share them with earlier layers.
#pragma once

#include <string>
#include <unordered_set>
#include <vector>

#include "models/onnx_translation/onnx_operator.h"

namespace models {

// With dynamo=True, the exporter stores a parameter that PyTorch reads as it is and transposed as
// two tensors: they are one parameter again.
void share_orders(OnnxTranslation& all);
// Sets the reader of a weight with no name of its own, which may stand for those of several
// modules.
void set_reader(OnnxOperator& op, OnnxConstant& weight);
// Whether both layers have the same parameters.
bool has_arrays_of(OnnxTranslation& all, const OnnxListedLayer& layer,
                   const OnnxListedLayer& other);
// Adds a layer with a weight and perhaps a bias. A weight that an earlier layer has is shared, as
// in PyTorch, with its bias. Returns the layer's index.
int add_weighted(OnnxOperator& op, OnnxListedLayer layer);
// Adds a norm: its weight, its bias and, of a batch norm, mean and variance. One with the
// parameters of an earlier norm shares them and its running statistics. Returns the layer's index.
int add_norm(OnnxOperator& op, OnnxListedLayer layer);
// Lets a layer with the weight and the bias of an earlier one share them.
void tie_to_owner(OnnxTranslation& all, int index);
// Whether the parameter is a layer of its own, since several layers read it in different ways.
bool is_apart(const OnnxTranslation& all, const OnnxConstant& parameter);
// Whether the parameters belong to one module, by their names in PyTorch: a bias of another one, or
// of none, is a layer of its own, so that it keeps its name.
bool is_bias_of(const OnnxOperator& op, const OnnxTranslation& all, const OnnxConstant& weight,
                const OnnxConstant& bias);
// Whether the node has a bias as input 2. Zeros that the graph computes are none: PyTorch writes
// them with optimize=False for a layer without a bias.
bool has_bias(OnnxOperator& op);
bool has_own_bias(OnnxOperator& op);  // and is the layer's own
// Adds a bias that is not the layer's own to its output.
OnnxActivation with_bias_apart(OnnxOperator& op, OnnxActivation value);

// Adds a bias of zeros to a product by a layer's output: the exporter leaves it out with
// dynamo=True, but PyTorch trains it.
OnnxActivation with_zero_bias(OnnxOperator& op, OnnxActivation value);

// Throws engine::ModelError if two layers share a weight but not their biases: an Add after a
// MatMul shows that only after all nodes.
void expect_shared_weights(const OnnxTranslation& all);
// With dynamo=True, the exporter leaves out biases that are 0, which PyTorch trains.
void restore_zero_biases(OnnxLayerList& layers);
// Adds the keys of parameters that several of the needed layers read as their own to `apart`.
// Returns false if there are none. Throws engine::ModelError if a layer still reads one of `apart`.
bool separate_parameters(const OnnxTranslation& all, const std::vector<bool>& needed,
                         std::unordered_set<std::string>& apart);

}  // namespace models

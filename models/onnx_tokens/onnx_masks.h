// Masks of attention: constants that let positions read earlier ones alone, and booleans.
#pragma once

#include <string>
#include <unordered_set>

#include "models/onnx_translation/onnx_operator.h"

namespace models {

// Returns the tensors that are masks by their numbers: 1 or 0 for earlier positions and 0 or below
// -10,000 for later ones, or infinite ones anywhere. A file without a signature does not
// distinguish them from parameters.
std::unordered_set<const io::StoredTensor*> constant_masks(const io::OnnxReader& file);

// Adds input `index`, a constant mask, to scores of attention. Returns false for other sums.
bool add_mask(OnnxOperator& op, std::size_t index);
// Returns the layer of attention's scores whose later positions the node masks by this
// condition; -1: it is another choice. The node's input becomes that layer's output.
int masked_scores(OnnxOperator& op, const OnnxTensor& condition);
// A choice of all entries of one value is that value. Returns false for other choices.
bool set_only_choice(OnnxOperator& op, const OnnxTensor& condition);
// IsNaN of a softmax is false if each row has entries without a mask. Returns false for other
// values.
bool set_never_nan(OnnxOperator& op);

// Whether the value consists of booleans in the file. Layers have 1 and 0 in their place, which a
// float mask would add.
bool is_boolean(const OnnxTranslation& all, std::string value);

}  // namespace models

// Token ids choose rows of a table of embeddings.
#pragma once

#include "models/onnx_translation/onnx_operator.h"

namespace models {

// Passes on token ids that a node does not change: a Reshape to their shape, a Cast to integers.
// Returns false for other inputs. Throws OnnxUnsupported if the node changes them.
bool keep_tokens(OnnxOperator& op);

// Gather of rows of a table by token ids is a layer `embedding`. Returns false for other indices.
bool set_embedding(OnnxOperator& op);

}  // namespace models

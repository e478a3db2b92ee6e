// Makes the element types of tensors available to the engine.
#pragma once

#include "io/base/numbers/element_type.h"

namespace engine {

// kBF16 and kF16 store activations and copies of weights on CUDA devices; kBF16 also stores
// activations on CPUs.
using base::DType;
using base::DTypeOf;
using base::is_half;
using base::size_of;
using base::to_string;

using base::bf16;
using base::f16;
using base::from_float;
using base::to_float;

// The dtype of parameters if activations are stored as `compute`: f32 for half types, otherwise the
// same.
constexpr DType state_dtype(DType compute) { return is_half(compute) ? DType::kF32 : compute; }

}  // namespace engine

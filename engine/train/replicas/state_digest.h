// Digests of training state, with which ranks compare their replicas.
#pragma once

#include <cstddef>

#include "engine/core/parameter_buffer.h"
#include "io/base/digests/digest.h"

namespace engine {

using StateDigest = base::Digest;

StateDigest digest(const void* data, std::size_t bytes);
StateDigest digest(const FlatBuffer& buffer);  // over all its bytes

}  // namespace engine

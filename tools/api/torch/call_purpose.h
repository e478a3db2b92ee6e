// Distinguishes calls of torch.distributed that are made of the same calls of the library: by their
// element type, reduction and destination.
#pragma once

#include <c10/core/ScalarType.h>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include <cstdint>
#include <string>

namespace engine::pytorch {

// Returns the number for Communicator::purpose. `type`: Undefined if the library's own call
// names it. `destination`: of a reduce, else -1; equal for destinations that differ by a
// multiple of 127.
std::uint16_t purpose_of(at::ScalarType type, c10d::ReduceOp op = c10d::ReduceOp::SUM,
                         int destination = -1);
// Returns the kind of a message.
std::uint8_t kind_of(at::ScalarType type);

// Replaces purposes and kinds in a message of the library by their text, e.g. "(Int AVG)".
std::string with_purposes(const std::string& message);

}  // namespace engine::pytorch

// Computes the memory of the codes of an averaging on CUDA devices.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "engine/core/parameter_buffer.h"
#include "tools/options/table/session_options.h"

namespace tools {

// Returns the bytes of codes of up to `elements` trained parameters on a CUDA device.
std::size_t coded_sum_bytes_on_device(const AveragingOptions& options, int world_size,
                                      engine::DType dtype, std::int64_t elements);
// Returns the bytes of PowerSGD's sums on a CUDA device, with `copies` of the factors; `trained`:
// the tensors of the gradients.
std::size_t factor_bytes_on_device(const AveragingOptions& options, int world_size,
                                   engine::DType dtype,
                                   std::span<const engine::NamedLayout> trained, int copies);

}  // namespace tools

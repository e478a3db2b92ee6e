// Asks the sums of codes for their memory.
#include "tools/run/choices/device_codes.h"

#include <vector>

#include "engine/averaging/low_rank/power_sgd_parts.h"
#include "engine/averaging/math/device_math.h"
#include "engine/averaging/sums/device_sum.h"
#include "tools/run/choices/averaging_choice.h"

namespace tools {

std::size_t coded_sum_bytes_on_device(const AveragingOptions& options, int world_size,
                                      engine::DType dtype, std::int64_t elements) {
  if (world_size == 1) return 0;
  const bool of_gradients = encodes_gradients_on_device(options);
  if (of_gradients && options.compression == AveragingOptions::Compression::kBf16)
    return static_cast<std::size_t>(elements) * engine::size_of(engine::DType::kBF16);
  if (of_gradients && options.compression == AveragingOptions::Compression::kTopK)
    return engine::top_k_device_sum_bytes(elements, dtype, options.topk_ratio, world_size);
  const auto codes = codes_of(options, 0);
  if (!codes) return 0;
  if (of_gradients)
    return engine::coded_device_sum_bytes(*codes, elements, dtype, options.buckets, world_size);
  return options.of_parameters() ? engine::coded_parameters_bytes(*codes, elements, world_size) : 0;
}

std::size_t factor_bytes_on_device(const AveragingOptions& options, int world_size,
                                   engine::DType dtype,
                                   std::span<const engine::NamedLayout> trained, int copies) {
  if (world_size == 1 || !encodes_gradients_on_device(options) ||
      options.compression != AveragingOptions::Compression::kPowerSgd)
    return 0;
  const int rank = options.powersgd_rank;
  const std::vector<engine::NamedLayout> factors = engine::power_sgd_parts(trained, rank).factors;
  return engine::power_sgd_device_sum_bytes(trained, dtype, rank) +
         static_cast<std::size_t>(copies) * engine::FlatBuffer(dtype, factors).bytes();
}

}  // namespace tools

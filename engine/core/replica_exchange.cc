// Exchanges tensors of a device through pinned memory.
#include "engine/core/replica_exchange.h"

#include "engine/core/cuda.h"

namespace engine {

ReplicaExchange::~ReplicaExchange() {
  if (!staging_.empty()) cuda::release_pinned(staging_.data());
}

std::int64_t ReplicaExchange::merge_moments(const ReplicaRows& rows, const TensorView& moments,
                                            void* stream) {
  return exchange(Kind::kMoments, rows, moments, stream);
}

std::int64_t ReplicaExchange::add(const ReplicaRows& rows, const TensorView& sums, void* stream) {
  return exchange(Kind::kSums, rows, sums, stream);
}

std::int64_t ReplicaExchange::exchange(Kind kind, const ReplicaRows& rows, const TensorView& values,
                                       void* stream) {
  if (values.device.kind == Device::Kind::kCpu)
    return exchange_on_host(kind, rows.count(), values.span<double>());
  return exchange_on_device(kind, rows, values, stream);
}

std::int64_t ReplicaExchange::exchange_on_host(Kind kind, std::int64_t rows,
                                               std::span<double> values) {
  return kind == Kind::kMoments ? merge_moments(rows, values) : add(rows, values);
}

std::int64_t ReplicaExchange::exchange_on_device(Kind kind, const ReplicaRows& rows,
                                                 const TensorView& values, void* stream) {
  const std::span<double> here = staged(static_cast<std::size_t>(values.count()), stream);
  cuda::copy_async(here.data(), values.data, values.bytes(), stream);
  cuda::synchronize_stream(stream);
  const std::int64_t all = exchange_on_host(kind, rows.count(), here);
  cuda::copy_async(values.data, here.data(), values.bytes(), stream);
  return all;
}

std::span<double> ReplicaExchange::staged(std::size_t count, void* stream) {
  if (staging_.size() < count) {
    auto* larger = static_cast<double*>(cuda::allocate_pinned(count * sizeof(double)));
    cuda::synchronize_stream(stream);  // the last result may still be on its way to the device
    if (!staging_.empty()) cuda::release_pinned(staging_.data());
    staging_ = {larger, count};
  }
  return staging_.first(count);
}

}  // namespace engine

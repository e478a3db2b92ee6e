// Exchanges tensors of a device through pinned memory.
#include "engine/core/replica_exchange.h"

#include "engine/core/cuda.h"

namespace engine {

ReplicaExchange::~ReplicaExchange() {
  if (!staging_.empty()) cuda::release_pinned(staging_.data());
}

std::int64_t ReplicaExchange::merge_moments(std::int64_t rows, const TensorView& moments,
                                            void* stream) {
  return on_host(moments, stream,
                 [&](std::span<double> values) { return merge_moments(rows, values); });
}

std::int64_t ReplicaExchange::add(std::int64_t rows, const TensorView& sums, void* stream) {
  return on_host(sums, stream, [&](std::span<double> values) { return add(rows, values); });
}

template <class Call>
std::int64_t ReplicaExchange::on_host(const TensorView& values, void* stream, Call call) {
  if (values.device.kind == Device::Kind::kCpu) return call(values.span<double>());
  const std::span<double> here = staged(static_cast<std::size_t>(values.count()), stream);
  cuda::copy_async(here.data(), values.data, values.bytes(), stream);
  cuda::synchronize_stream(stream);
  const std::int64_t rows = call(here);
  cuda::copy_async(values.data, here.data(), values.bytes(), stream);
  return rows;
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

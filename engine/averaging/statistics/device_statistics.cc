// Gathers the blocks of all ranks on the caller's stream. The number of rows of all ranks is known
// to the host without communication, so that it can be an argument of captured kernels.
#include "engine/averaging/statistics/device_statistics.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "backends/control_word.h"
#include "engine/core/cuda_host.h"
#include "engine/core/error.h"
#include "engine/ops/replicas/replica_moments.h"

namespace engine {
namespace {

std::size_t bytes_of(std::int64_t values) {
  return static_cast<std::size_t>(values) * sizeof(double);
}

[[noreturn]] void refuse_host_memory() {
  throw Error("internal: statistics of a CUDA device were passed in host memory");
}

}  // namespace

DeviceStatistics::DeviceStatistics(backends::DeviceCommunicator& communicator,
                                   std::span<const std::int64_t> sizes,
                                   const KernelContext& context, bool measured)
    : communicator_(communicator), context_(context), measured_(measured) {
  std::vector<backends::ControlWord> calls;
  for (const std::int64_t size : sizes)
    calls.push_back(backends::transfer_word(backends::Operation::kAllGather,
                                            static_cast<std::uint32_t>(calls.size() + 1),
                                            bytes_of(1 + size)));
  communicator.agree(calls);
  const cuda::MemoryPurpose purpose("averaging");
  const std::size_t block = sizes.empty() ? 0 : bytes_of(1 + *std::ranges::max_element(sizes));
  own_ = Arena(block, context.device, "workspace");
  all_ = Arena(block * static_cast<std::size_t>(communicator.world_size()), context.device,
               "workspace");
}

void DeviceStatistics::set_counts(std::span<const std::int64_t> counts) {
  samples_ = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
  next_ = 0;
}

double DeviceStatistics::waited_seconds() const {
  double seconds = 0;
  for (const Wait& wait : waits_) seconds += wait.end.seconds_since(wait.begin);
  return seconds;
}

std::int64_t DeviceStatistics::merge_moments(std::int64_t /*rows*/, std::span<double> /*moments*/) {
  refuse_host_memory();
}
std::int64_t DeviceStatistics::add(std::int64_t /*rows*/, std::span<double> /*sums*/) {
  refuse_host_memory();
}

std::int64_t DeviceStatistics::exchange_on_device(Kind kind, const ReplicaRows& rows,
                                                  const TensorView& values, void* stream) {
  const bool moments = kind == Kind::kMoments;
  const std::int64_t length = values.count() + (moments ? 1 : 0);
  TensorView block = values, blocks = values;
  blocks.data = all_.data();
  blocks.shape = {communicator_.world_size(), length};
  context_.stream = stream;
  if (moments) {
    block.data = own_.data();
    block.shape = {length};
    ops::pack_moments(context_, rows.samples * rows.per_sample, values, block);
  }
  Wait* wait = nullptr;
  if (measured_) wait = next_ < waits_.size() ? &waits_[next_] : &waits_.emplace_back();
  ++next_;
  if (wait != nullptr) cuda::record_in_graph(wait->begin, stream);
  communicator_.all_gather_on(stream, block.data, bytes_of(length), blocks.data);
  if (wait != nullptr) cuda::record_in_graph(wait->end, stream);
  if (moments)
    ops::merge_moments(context_, blocks, values);
  else
    ops::add_sums(context_, blocks, values);
  return samples_ * rows.per_sample;
}

}  // namespace engine

// Scales and sums flat buffers, and measures the distance of each from the mean.
#include "engine/averaging/sums/replica_mean.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "engine/averaging/math/flat_math.h"

namespace engine {
namespace {

std::byte* address(const FlatBuffer& buffer, std::int64_t element) {
  return static_cast<std::byte*>(buffer.data()) +
         static_cast<std::size_t>(element) * size_of(buffer.dtype());
}

void copy_range(const FlatBuffer& from, const FlatBuffer& to, Elements range) {
  if (range.count > 0)
    std::memcpy(address(to, range.first), address(from, range.first),
                static_cast<std::size_t>(range.count) * size_of(from.dtype()));
}

}  // namespace

ReplicaMean::ReplicaMean(backends::Communicator& communicator, KernelContext& context,
                         ParameterBuffer& parameters, std::vector<FlatBuffer*> further,
                         const std::optional<LossyOptions>& lossy)
    : communicator_(communicator),
      context_(context),
      host_(context, &communicator),
      parameters_(parameters),
      further_(std::move(further)) {
  std::size_t most = 0;
  for (const FlatBuffer* buffer : further_) most = std::max(most, averaged_bytes(*buffer));
  if (most > parameters.gradients.bytes()) wide_ = Arena(most);
  if (!lossy) return;
  const FlatBuffer& like = parameters.gradients;
  coded_.emplace(Coded{.sum = CodedSum(communicator, *lossy, "parameters", like.size()),
                       .start = FlatBuffer::like(like),
                       .error = FlatBuffer::like(like),
                       .rest = FlatBuffer::like(like)});
}

// Frozen parameters and their states are equal on all ranks: a mean could only round them.
std::size_t ReplicaMean::averaged_bytes(const FlatBuffer& buffer) const {
  return static_cast<std::size_t>(parameters_.trained_elements(buffer)) * size_of(buffer.dtype());
}

void ReplicaMean::start(Elements range, const TensorView& values) {
  if (coded_ && range.count > 0)
    std::memcpy(address(coded_->start, range.first), values.data, values.bytes());
}

// The mean goes to the memory of the gradients, so that a failed collective changes no value.
void ReplicaMean::average(double weight, std::int64_t round, std::span<FlatBuffer* const> further,
                          const AverageOptions& options) {
  if (options.device != nullptr) return average_there(*options.device, weight, further);
  const FlatBuffer& mean = parameters_.gradients;
  contribute(weight, all(), mean);
  if (options.start != nullptr) add_start(weight, *options.start);
  sum_range(round, all(), mean, context_.threads);
  bytes_sent_ += bytes_of(round, all());
  take_mean(host_);
  const double of_further = options.start != nullptr ? 1.0 / communicator_.world_size() : weight;
  for (FlatBuffer* buffer : further) sum(host_, of_further, *buffer);
}

// Ranks may be threads of one process. They meet before the first call on a device, since a driver
// may wait for all devices of the process while a rank creates a graph.
void ReplicaMean::average_there(StateMath& device, double weight,
                                std::span<FlatBuffer* const> further) {
  require(fits_device(), "a compressed mean, or a sum without memory, on a device");
  const TensorView mean = parameters_.gradients.part(0, all().count);
  communicator_.barrier();
  device.scale(weight, parameters_.values.part(0, all().count), mean);
  device.sum_over_ranks(mean);
  bytes_sent_ += bytes_of(0, all());
  take_mean(device);
  for (FlatBuffer* buffer : further) sum(device, weight, *buffer);
}

// The values serve as memory of their difference from the mean. The last collective comes when they
// are the mean.
void ReplicaMean::take_mean(StateMath& math) {
  const TensorView values = parameters_.values.part(0, all().count),
                   mean = parameters_.gradients.part(0, all().count);
  const bool measure = std::exchange(measure_, false);
  double spread = 0;
  if (measure) {
    const double norm = std::sqrt(math.sum_of_squares(mean));
    math.subtract(values, mean, values);
    const double apart = std::sqrt(math.sum_of_squares(values));
    spread = norm > 0 ? apart / norm : apart;
  }
  math.copy(mean, values);
  if (!measure) return;
  communicator_.all_reduce(&spread, 1, DType::kF64, backends::ReduceOp::kMax);
  spread_ = spread;
}

// With the weight of a plain mean, the bits are those without a start.
void ReplicaMean::add_start(double weight, const FlatBuffer& start) {
  require(!coded_, "replicas that did not start equal average uncompressed");
  const double even = 1.0 / communicator_.world_size();
  const std::int64_t trained = all().count;
  if (weight != even)
    add_rows(context_, even - weight, start.part(0, trained),
             parameters_.gradients.part(0, trained));
}

// The sum goes to separate memory, so that a failed collective leaves the buffer unchanged: to the
// memory of the gradients if it is large enough.
void ReplicaMean::sum(StateMath& math, double weight, const FlatBuffer& buffer) {
  const std::size_t bytes = averaged_bytes(buffer);
  if (bytes == 0) return;
  const TensorView own = buffer.part(0, parameters_.trained_elements(buffer));
  TensorView total = own;
  total.data = bytes > parameters_.gradients.bytes() ? static_cast<void*>(wide_.data())
                                                     : parameters_.gradients.data();
  math.scale(weight, own, total);
  math.sum_over_ranks(total);
  math.copy(total, own);
  bytes_sent_ += static_cast<std::int64_t>(bytes);
}

void ReplicaMean::contribute(double weight, Elements range, const FlatBuffer& memory) {
  if (!coded_) {
    host_.scale(weight, parameters_.values.part(range.first, range.count),
                memory.part(range.first, range.count));
    return;
  }
  with_element_type(memory.dtype(), [&]<class T>(T) {
    const T *value = parameters_.values.span<T>().data() + range.first,
            *start = coded_->start.span<T>().data() + range.first;
    T* to = memory.span<T>().data() + range.first;
    const T factor = static_cast<T>(weight);
    context_.threads->run(range.count, [=](std::int64_t first, std::int64_t last, int) {
      for (std::int64_t i = first; i < last; ++i) to[i] = factor * (value[i] - start[i]);
    });
  });
}

// With codes, the mean is start + the sum of weight * (values - start): all ranks add the same sum
// to the same values. The error changes after the collectives have succeeded.
void ReplicaMean::sum_range(std::int64_t round, Elements range, const FlatBuffer& memory,
                            ThreadPool* threads) {
  if (!coded_) {
    communicator_.all_reduce(address(memory, range.first), static_cast<std::size_t>(range.count),
                             memory.dtype(), backends::ReduceOp::kSum);
    return;
  }
  coded_->sum.sum({memory, coded_->error, coded_->rest}, range, round, threads);
  with_element_type(memory.dtype(), [&]<class T>(T) {
    const T* start = coded_->start.span<T>().data() + range.first;
    T* to = memory.span<T>().data() + range.first;
    const auto add = [=](std::int64_t first, std::int64_t last, int) {
      for (std::int64_t i = first; i < last; ++i) to[i] = start[i] + to[i];
    };
    if (threads == nullptr)
      add(0, range.count, 0);
    else
      threads->run(range.count, add);
  });
  copy_range(coded_->rest, coded_->error, range);
}

std::int64_t ReplicaMean::bytes_of(std::int64_t round, Elements range) const {
  return coded_ ? static_cast<std::int64_t>(code_bytes(coded_->sum.options(), range.count, round))
                : range.count * static_cast<std::int64_t>(size_of(parameters_.values.dtype()));
}

std::string ReplicaMean::note() const {
  return coded_ ? " (as " + lossy_text(coded_->sum.options()) + ")" : "";
}

std::vector<PolicyState> ReplicaMean::state() {
  if (!coded_) return {};
  return {{"parameter_error", &coded_->error, true}};
}

}  // namespace engine

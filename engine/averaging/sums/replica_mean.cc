// Scales and sums flat buffers, and measures the distance of each from the mean.
#include "engine/averaging/sums/replica_mean.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "engine/averaging/math/exchange_gate.h"
#include "engine/averaging/math/flat_math.h"

namespace engine {
namespace {

TensorView part_of(const FlatBuffer& buffer, const Elements& range) {
  return buffer.part(range.first, range.count);
}

// to += values; `threads` may be null.
void add_values(ThreadPool* threads, const TensorView& values, const TensorView& to) {
  with_element_type(to.dtype, [&]<class T>(T) {
    const T* x = values.as<T>();
    T* z = to.as<T>();
    const auto add = [=](std::int64_t first, std::int64_t last, int) {
      for (std::int64_t i = first; i < last; ++i) z[i] = x[i] + z[i];
    };
    if (threads == nullptr)
      add(0, to.count(), 0);
    else
      threads->run(to.count(), add);
  });
}

// Returns true if slots and gaps of `buffer` are where those of `gradients` are, as far as both go.
bool has_slots_of(const FlatBuffer& gradients, const FlatBuffer& buffer) {
  const auto same = [](const FlatBuffer::Slot& a, const FlatBuffer::Slot& b) {
    return a.offset == b.offset && a.count == b.count;
  };
  const auto slots = buffer.slots(), own = gradients.slots();
  return slots.size() >= own.size() && std::equal(own.begin(), own.end(), slots.begin(), same);
}

}  // namespace

ReplicaMean::ReplicaMean(backends::Communicator& communicator, KernelContext& context,
                         ParameterBuffer& parameters, std::vector<FlatBuffer*> further,
                         const std::optional<LossyOptions>& lossy,
                         const std::optional<SomeRanks>& some)
    : communicator_(communicator),
      context_(context),
      host_(context),
      parameters_(parameters),
      further_(std::move(further)),
      some_(some) {
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

void ReplicaMean::start(Elements range, const TensorView& values, StateMath* home) {
  if (coded_) math(home).copy(values, part_of(coded_->start, range));
}

// The mean goes to the memory of the gradients, so that a failed collective changes no value.
void ReplicaMean::average(double weight, std::int64_t round, std::span<FlatBuffer* const> further,
                          const AverageOptions& options) {
  require(options.home == nullptr || fits_device(), "a sum without memory on a device");
  StateMath& here = math(options.home);
  const FlatBuffer& mean = parameters_.gradients;
  calculate_contribution(here, weight, all(), mean);
  if (options.start != nullptr) add_start(here, weight, *options.start);
  prepare(here, part_of(mean, all()), sum_of_parameters());
  sum_range(round, all(), mean, context_.threads, options.home);
  receive(all(), mean, options.home);
  bytes_sent_ += bytes_of(round, all());
  take_mean(here);
  const double of_further = options.start != nullptr ? 1.0 / communicator_.world_size() : weight;
  for (FlatBuffer* buffer : further) sum(here, of_further, *buffer);
}

bool ReplicaMean::in_host_memory(const StateMath* home, Sum sum) const {
  if (home == nullptr) return true;
  if (some_) return sum == Sum::kCoded || some_->devices == nullptr;
  return sum == Sum::kCoded ? !home->sums_codes() : !home->sums_on_devices();
}

void ReplicaMean::prepare(StateMath& math, const TensorView& values, Sum sum) {
  if (in_host_memory(&math, sum))
    math.fetch(values);
  else
    math.wait();
}

// Ranks may be threads of one process. They synchronize before a call on a device, since a driver
// may wait for all devices of the process while a rank creates a graph.
void ReplicaMean::sum_plain(StateMath* home, const TensorView& values) {
  if (in_host_memory(home, Sum::kPlain))
    return communicator_.all_reduce(values.data, static_cast<std::size_t>(values.count()),
                                    values.dtype, backends::ReduceOp::kSum);
  communicator_.barrier();
  if (!some_) return home->sum_on_devices(values, nullptr);
  std::optional<ExchangeGate::Exchange> exchange;
  if (communicator_.rank() == 0) exchange.emplace(ExchangeGate::of_process());
  communicator_.barrier();  // the gate is passed
  home->sum_on_devices(values, some_->devices);
}

// The ranks synchronize as for sum_plain() if their devices exchange the codes.
void ReplicaMean::sum_coded(StateMath& home, const FlatBuffer& memory, Elements range,
                            std::int64_t round) {
  if (home.sums_on_devices()) communicator_.barrier();
  home.sum_codes({memory.flat(), coded_->error.flat(), coded_->rest.flat()}, range, round);
}

void ReplicaMean::complete(StateMath& math, const TensorView& values, Sum sum) {
  if (in_host_memory(&math, sum)) math.store(values);
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
void ReplicaMean::add_start(StateMath& math, double weight, const FlatBuffer& start) {
  require(!coded_, "replicas that did not start equal average uncompressed");
  const double even = 1.0 / communicator_.world_size();
  const TensorView mean = part_of(parameters_.gradients, all());
  if (weight != even) math.combine(1, mean, even - weight, part_of(start, all()), mean);
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
  prepare(math, total, Sum::kPlain);
  sum_plain(&math, total);
  complete(math, total, Sum::kPlain);
  math.copy(total, own);
  // Backward leaves the gaps between gradients as they are, and the norm of all gradients includes
  // them as zeros.
  if (total.data == parameters_.gradients.data() && !has_slots_of(parameters_.gradients, buffer))
    math.scale(0, total, total);
  if (communicator_.world_size() > 1) bytes_sent_ += static_cast<std::int64_t>(bytes);
}

void ReplicaMean::calculate_contribution(StateMath& math, double weight, Elements range,
                                         const FlatBuffer& memory) {
  const TensorView values = part_of(parameters_.values, range), to = part_of(memory, range);
  if (!coded_) return math.scale(weight, values, to);
  math.subtract(values, part_of(coded_->start, range), to);
  math.scale(weight, to, to);
}

void ReplicaMean::contribute(double weight, Elements range, const FlatBuffer& memory,
                             StateMath* home) {
  calculate_contribution(math(home), weight, range, memory);
  prepare(math(home), part_of(memory, range), sum_of_parameters());
}

// With codes, the mean is start + the sum of weight * (values - start): all ranks add the same sum
// to the same values. In host memory it is added here, since a checkpoint may store the mean before
// it is received. The error changes after the collectives have succeeded.
void ReplicaMean::sum_range(std::int64_t round, Elements range, const FlatBuffer& memory,
                            ThreadPool* threads, StateMath* home) {
  const TensorView sum = part_of(memory, range);
  if (!coded_) return sum_plain(home, sum);
  if (!in_host_memory(home, Sum::kCoded)) return sum_coded(*home, memory, range, round);
  coded_->sum.sum({memory, coded_->error, coded_->rest}, range, round, threads);
  if (home == nullptr) add_values(threads, part_of(coded_->start, range), sum);
  const TensorView error = part_of(coded_->error, range);
  if (error.bytes() > 0) std::memcpy(error.data, part_of(coded_->rest, range).data, error.bytes());
}

void ReplicaMean::receive(Elements range, const FlatBuffer& memory, StateMath* home) {
  if (home == nullptr) return;
  const TensorView sum = part_of(memory, range);
  complete(*home, sum, sum_of_parameters());
  if (coded_) home->combine(1, part_of(coded_->start, range), 1, sum, sum);
}

std::int64_t ReplicaMean::bytes_of(std::int64_t round, Elements range) const {
  if (communicator_.world_size() == 1) return 0;
  return coded_ ? static_cast<std::int64_t>(code_bytes(coded_->sum.options(), range.count, round))
                : range.count * static_cast<std::int64_t>(size_of(parameters_.values.dtype()));
}

std::string ReplicaMean::note() const {
  return coded_ ? " (as " + lossy_text(coded_->sum.options()) + ")" : "";
}

std::vector<HomeBuffer> ReplicaMean::buffers_at_home() {
  if (!coded_) return {};
  return {{.buffer = &coded_->start, .is_state = false},
          {.buffer = &coded_->error},
          {.buffer = &coded_->rest, .is_state = false}};
}

std::vector<PolicyState> ReplicaMean::state() {
  if (!coded_) return {};
  return {{"parameter_error", &coded_->error, true}};
}

}  // namespace engine

// Computes the weighted mean of replicas: of parameters and of whatever is averaged with them.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "backends/communicator.h"
#include "engine/averaging/codes/coded_sum.h"
#include "engine/averaging/math/state_home.h"
#include "engine/averaging/math/state_math.h"
#include "engine/averaging/sums/policy_state.h"
#include "engine/core/parameter_buffer.h"
#include "engine/ops/common/kernel_context.h"

namespace engine {

struct AverageOptions {
  // For replicas that did not start equal (with the slots of the gradients): the values become the
  // mean over the ranks of `start` plus the sum of weight * (values - start), and the further
  // buffers their means over the ranks. Not with `lossy`.
  const FlatBuffer* start = nullptr;
  StateMath* home = nullptr;  // calculates with the state of a device; REQUIRES: fits_device()
};

class ReplicaMean {
 public:
  // Describes a mean over some ranks, without codes.
  struct SomeRanks {
    // Sums on their devices; null: exchanges pass through host memory.
    backends::DeviceCommunicator* devices = nullptr;
  };
  // All references must outlive the mean. `further` are buffers besides the parameters' values,
  // which are never compressed. With `lossy`, the changes of the parameters since they were last
  // equal are sent as codes, with error feedback. `some`: the communicator connects some ranks
  // only.
  ReplicaMean(backends::Communicator& communicator, KernelContext& context,
              ParameterBuffer& parameters, std::vector<FlatBuffer*> further,
              const std::optional<LossyOptions>& lossy = std::nullopt,
              const std::optional<SomeRanks>& some = std::nullopt);

  // The trained parameters, as a range of their values.
  Elements all() const { return {0, parameters_.trained_elements(parameters_.values)}; }
  // With `lossy`, called before a range of trained parameters changes on this rank: the next
  // average of the range needs the `values` of the range that all ranks had last. `home` as in
  // AverageOptions, in all functions.
  bool needs_start() const { return coded_.has_value(); }
  void start(Elements range, const TensorView& values, StateMath* home = nullptr);

  // Replaces the values and `further`, some of the further buffers, without the part of frozen
  // parameters, by the sum over ranks of weight * contents, with the same bits on every rank.
  // `round` counts the averages, also over resumptions. Collective; a failed collective leaves its
  // buffer unchanged. REQUIRES: the weights of the ranks add up to 1. Overwrites the gradients.
  void average(double weight, std::int64_t round, std::span<FlatBuffer* const> further,
               const AverageOptions& options = {});
  // Returns true if all sums fit into the memory of the gradients.
  bool fits_device() const { return wide_.bytes() == 0; }
  // The same for a range of trained parameters alone, in three parts, in that range of `memory`
  // (with the slots of the gradients), which holds the mean after them. The second may run on
  // another thread while this rank trains; nothing else uses the communicator or changes the start
  // of the range then. `threads` may be null.
  void contribute(double weight, Elements range, const FlatBuffer& memory,
                  StateMath* home = nullptr);
  void sum_range(std::int64_t round, Elements range, const FlatBuffer& memory, ThreadPool* threads,
                 StateMath* home = nullptr);
  void receive(Elements range, const FlatBuffer& memory, StateMath* home = nullptr);
  // Returns the payload of that.
  std::int64_t bytes_of(std::int64_t round, Elements range) const;

  // Returns the spread of AveragingReport, if one was measured since the last call; the next
  // average measures it again.
  std::optional<double> next_spread() {
    measure_ = true;
    return std::exchange(spread_, std::nullopt);
  }
  std::int64_t bytes_sent() const { return bytes_sent_; }
  void set_bytes_sent(std::int64_t bytes) { bytes_sent_ = bytes; }
  // A suffix that names the compression: " (as int8)", or "".
  std::string note() const;
  std::vector<PolicyState> state();
  // Returns the memory with which this calculates where the state is.
  std::vector<HomeBuffer> buffers_at_home();

 private:
  // Memory of compressed averages, with the slots of the gradients.
  struct Coded {
    CodedSum sum;
    FlatBuffer start;  // the values that all ranks had last
    FlatBuffer error;  // what earlier averages did not send
    FlatBuffer rest;   // what the average in progress does not send
  };

  StateMath& math(StateMath* home) { return home != nullptr ? *home : host_; }
  // Adds what average() with this start adds to the weighted values in that memory.
  void add_start(StateMath& math, double weight, const FlatBuffer& start);
  std::size_t averaged_bytes(const FlatBuffer& buffer) const;
  // Replaces the values by the mean, which is in the memory of the gradients, and measures the
  // spread if it is wanted.
  void take_mean(StateMath& math);
  // Replaces a further buffer by the sum over ranks of weight * contents.
  void sum(StateMath& math, double weight, const FlatBuffer& buffer);
  void calculate_contribution(StateMath& math, double weight, Elements range,
                              const FlatBuffer& memory);
  // The form in which the ranks sum values: as codes, or uncompressed.
  enum class Sum { kPlain, kCoded };
  Sum sum_of_parameters() const { return coded_ ? Sum::kCoded : Sum::kPlain; }
  // The parts of an exchange of values: before, during, and after it. The second, on any thread,
  // replaces uncompressed values by their sum over ranks.
  bool in_host_memory(const StateMath* home, Sum sum) const;
  void prepare(StateMath& math, const TensorView& values, Sum sum);
  void sum_plain(StateMath* home, const TensorView& values);
  void complete(StateMath& math, const TensorView& values, Sum sum);
  void sum_coded(StateMath& home, const FlatBuffer& memory, Elements range, std::int64_t round);

  backends::Communicator& communicator_;
  KernelContext& context_;
  HostMath host_;
  ParameterBuffer& parameters_;
  const std::vector<FlatBuffer*> further_;
  const std::optional<SomeRanks> some_;
  std::optional<Coded> coded_;
  Arena wide_;  // for a buffer that is larger than the gradients; otherwise empty
  bool measure_ = false;
  std::optional<double> spread_;
  std::int64_t bytes_sent_ = 0;
};

}  // namespace engine

// Computes PowerSGD's factors on the device, and sums them by the communicator of the devices or,
// the factors alone, in host memory.
#include <algorithm>
#include <memory>
#include <vector>

#include "backends/control_word.h"
#include "engine/averaging/codes/device_coded_sum.h"
#include "engine/averaging/low_rank/power_sgd_parts.h"
#include "engine/averaging/sums/device_sum.h"
#include "engine/core/cuda.h"
#include "engine/ops/low_rank/low_rank_codes.h"
#include "io/base/time/trace.h"

namespace engine {
namespace {

std::vector<ops::LowRankPart> device_parts(const PowerSgdParts& parts, const FlatBuffer& gradients,
                                           const FlatBuffer& factors) {
  std::vector<ops::LowRankPart> all;
  const auto add = [&](const PowerSgdPart& part) {
    const FlatBuffer::Slot& slot = gradients.slots()[part.tensor];
    const std::size_t index = all.size();
    all.push_back({.offset = slot.offset,
                   .packed = part.packed,
                   .factor = index < factors.slots().size() ? factors.slots()[index].offset : 0,
                   .rows = part.rows,
                   .columns = part.columns,
                   .key = power_sgd_key(slot.name)});
  };
  for (const PowerSgdPart& part : parts.matrices) add(part);
  for (const PowerSgdPart& part : parts.plain) add(part);
  return all;
}

// Everything is enqueued on the stream of the step: the sum does not overlap with backward.
class PowerSgdDeviceSum final : public DeviceGradientSum {
 public:
  PowerSgdDeviceSum(const CodeExchange& exchange, const FlatBuffer& gradients, int rank)
      : exchange_(exchange),
        gradients_(gradients),
        parts_(power_sgd_parts(gradients, rank)),
        factors_(gradients.dtype(), parts_.factors),
        packed_(static_cast<std::size_t>(parts_.packed) * size_of(gradients.dtype()),
                gradients.device(), "averaging"),
        table_memory_((parts_.matrices.size() + parts_.plain.size()) * sizeof(ops::LowRankPart),
                      gradients.device(), "averaging") {
    std::vector<ops::LowRankPart> parts = device_parts(parts_, gradients, factors_);
    table_ = ops::number_tiles(parts, static_cast<int>(parts_.matrices.size()), rank);
    table_.parts = reinterpret_cast<const ops::LowRankPart*>(table_memory_.data());
    const cuda::Stream stream;
    cuda::copy_async(table_memory_.data(), parts.data(), table_memory_.bytes(), stream.handle());
    stream.synchronize();
    if (exchange.on_devices == nullptr) {
      in_host_memory_ =
          std::make_unique<cuda::PinnedMemory>(std::max(packed_.bytes(), factors_.bytes()));
      return;
    }
    std::vector<std::int64_t> ends{parts_.packed};
    if (factors_.size() > 0) ends.push_back(parts_.packed + factors_.size());
    exchange.on_devices->agree(calls_of_buckets(ends, gradients.dtype()));
  }

  // The factors are in the policy's memory, which is saved.
  void set_errors(std::span<const FlatBuffer* const> errors) override {
    require(errors.size() == 2, "PowerSGD without the memory of its error and its factors");
    error_ = errors.front();
    home_ = errors.back();
    require(home_->size() == factors_.size(), "PowerSGD with the factors of another rank");
  }

  void ready(std::int64_t, void*) override {}  // one sum of all gradients has the fewest calls

  void finish(void* stream) override {
    const base::TraceSpan span("wait for averaging");
    require(error_ != nullptr, "PowerSGD without the memory of its error and its factors");
    KernelContext context;
    context.device = gradients_.device();
    context.stream = stream;
    const TensorView packed{packed_.data(), gradients_.dtype(), Shape{parts_.packed},
                            gradients_.device()};
    const ops::LowRankOperands operands{.gradients = gradients_.flat(),
                                        .error = error_->flat(),
                                        .packed = packed,
                                        .factors = home_->flat()};
    ops::pack_low_rank(context, table_, operands);
    reduce(packed, stream);
    ops::project_low_rank(context, table_, operands);
    if (home_->size() > 0) reduce(home_->flat(), stream);
    ops::expand_low_rank(context, table_, operands);
  }

  void drop_step() override {}
  std::string first_failure(const std::string& own) override {
    return in_host_memory_ ? own : exchange_.on_devices->first_failure(own);
  }
  bool capturable() const override {
    return !in_host_memory_ && exchange_.on_devices->capturable();
  }
  std::string_view exchanged() const override { return "factors of gradients"; }
  void wait(void* stream) override { wait_for(exchange_.on_devices, {stream}); }

 private:
  void reduce(const TensorView& values, void* stream) {
    const auto count = static_cast<std::size_t>(values.count());
    if (!in_host_memory_) {
      exchange_.on_devices->all_reduce_on(stream, values.data, count, values.dtype,
                                          backends::ReduceOp::kSum);
      return;
    }
    std::byte* const here = in_host_memory_->data();
    cuda::copy_async(here, values.data, values.bytes(), stream);  // after the last copy from there
    copied_.record(stream);
    copied_.synchronize();
    exchange_.in_host_memory->all_reduce(here, count, values.dtype, backends::ReduceOp::kSum);
    cuda::copy_async(values.data, here, values.bytes(), stream);
  }

  const CodeExchange exchange_;
  const FlatBuffer& gradients_;
  const PowerSgdParts parts_;
  const FlatBuffer factors_;  // the layout of the factors
  const FlatBuffer *error_ = nullptr, *home_ = nullptr;
  const Arena packed_, table_memory_;
  ops::LowRankTable table_;
  // The summed factors, if they are summed there; otherwise null.
  std::unique_ptr<cuda::PinnedMemory> in_host_memory_;
  cuda::Event copied_;
};

}  // namespace

std::unique_ptr<DeviceGradientSum> make_power_sgd_device_sum(const CodeExchange& exchange,
                                                             const FlatBuffer& gradients,
                                                             int rank) {
  return std::make_unique<PowerSgdDeviceSum>(exchange, gradients, rank);
}

std::size_t power_sgd_device_sum_bytes(std::span<const NamedLayout> tensors, DType dtype,
                                       int rank) {
  const PowerSgdParts parts = power_sgd_parts(tensors, rank);
  return align_up(static_cast<std::size_t>(parts.packed) * size_of(dtype)) +
         align_up(tensors.size() * sizeof(ops::LowRankPart));
}

}  // namespace engine

// Selects the largest elements of the gradients on the device, and exchanges them by the
// communicator of the devices or, as codes alone, in host memory.
#include <cstring>
#include <memory>
#include <vector>

#include "backends/control_word.h"
#include "engine/averaging/codes/device_coded_sum.h"
#include "engine/averaging/sums/device_sum.h"
#include "engine/averaging/sums/gradient_sum.h"
#include "engine/core/cuda.h"
#include "engine/ops/codes/top_k_codes.h"
#include "engine/ops/codes/top_k_entry.h"
#include "io/base/time/trace.h"

namespace engine {
namespace {

// Everything is enqueued on the stream of the step: the sum does not overlap with backward.
class TopKDeviceSum final : public DeviceGradientSum {
 public:
  TopKDeviceSum(const CodeExchange& exchange, const FlatBuffer& gradients, double ratio)
      : exchange_(exchange),
        gradients_(gradients),
        sent_(top_k_elements(gradients, ratio)),
        bytes_(ops::top_k_bytes(sent_, size_of(gradients.dtype()))),
        ranks_(exchange.communicator().world_size()),
        own_(bytes_, gradients.device(), "averaging"),
        all_(bytes_ * static_cast<std::size_t>(ranks_), gradients.device(), "averaging"),
        scratch_(ops::top_k_scratch_bytes(), gradients.device(), "averaging") {
    if (exchange.on_devices == nullptr) {
      in_host_memory_ = std::make_unique<cuda::PinnedMemory>(own_.bytes() + all_.bytes());
      return;
    }
    exchange.on_devices->agree(std::vector<backends::ControlWord>{
        backends::transfer_word(backends::Operation::kAllGather, 1, bytes_)});
  }

  void set_errors(std::span<const FlatBuffer* const> errors) override {
    require(errors.size() == 1, "a sum of codes without the memory of its errors");
    error_ = errors.front();
  }

  void ready(std::int64_t, void*) override {}  // the selection needs all gradients

  void finish(void* stream) override {
    const base::TraceSpan span("wait for averaging");
    require(error_ != nullptr, "a sum of codes without the memory of its errors");
    KernelContext context;
    context.device = gradients_.device();
    context.stream = stream;
    context.scratch = {scratch_.data(), scratch_.bytes()};
    ops::take_top_k(context, {.values = gradients_.flat(), .error = error_->flat()}, sent_,
                    own_.data());
    if (in_host_memory_)
      exchange_on_host(stream);
    else
      exchange_.on_devices->all_gather_on(stream, own_.data(), bytes_, all_.data());
    ops::add_top_k(context, sent_, {all_.data(), bytes_, ranks_}, gradients_.flat());
  }

  void drop_step() override {}
  std::string first_failure(const std::string& own) override {
    return in_host_memory_ ? own : exchange_.on_devices->first_failure(own);
  }
  bool capturable() const override {
    return !in_host_memory_ && exchange_.on_devices->capturable();
  }
  std::string_view exchanged() const override { return "codes of gradients"; }
  void wait(void* stream) override { wait_for(exchange_.on_devices, {stream}); }

 private:
  void exchange_on_host(void* stream) {
    std::byte *const own = in_host_memory_->data(), *const all = own + own_.bytes();
    cuda::copy_async(own, own_.data(), bytes_, stream);
    encoded_.record(stream);
    encoded_.synchronize();
    exchange_.in_host_memory->all_gather(own, bytes_, all);
    for (int rank = 0; rank < ranks_; ++rank) check(all + static_cast<std::size_t>(rank) * bytes_);
    cuda::copy_async(all_.data(), all, all_.bytes(), stream);
  }
  void check(const std::byte* code) const {
    const std::byte* indices = code + ops::top_k_indices_at(sent_, size_of(gradients_.dtype()));
    for (std::int64_t i = 0; i < sent_; ++i) {
      ops::TopKIndex index;
      std::memcpy(&index, indices + static_cast<std::size_t>(i) * sizeof index, sizeof index);
      check_top_k_index(index, gradients_.size());
    }
  }

  const CodeExchange exchange_;
  const FlatBuffer& gradients_;
  const FlatBuffer* error_ = nullptr;
  const std::int64_t sent_;  // elements of a rank
  const std::size_t bytes_;  // of a rank's code
  const int ranks_;
  const Arena own_, all_, scratch_;  // this rank's code, those of all ranks
  // Both codes, if they are exchanged there; otherwise null.
  std::unique_ptr<cuda::PinnedMemory> in_host_memory_;
  cuda::Event encoded_;
};

}  // namespace

std::unique_ptr<DeviceGradientSum> make_top_k_device_sum(const CodeExchange& exchange,
                                                         const FlatBuffer& gradients,
                                                         double ratio) {
  return std::make_unique<TopKDeviceSum>(exchange, gradients, ratio);
}

std::size_t top_k_device_sum_bytes(std::int64_t elements, DType dtype, double ratio, int ranks) {
  const std::size_t code = ops::top_k_bytes(top_k_elements(elements, ratio), size_of(dtype));
  return align_up(code) + align_up(code * static_cast<std::size_t>(ranks)) +
         align_up(ops::top_k_scratch_bytes());
}

}  // namespace engine

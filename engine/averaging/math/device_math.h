// Calculates with the state of a CUDA device, and sums over the ranks' devices if they can.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "backends/device_communicator.h"
#include "engine/averaging/codes/device_coded_sum.h"
#include "engine/averaging/math/state_math.h"
#include "engine/core/parameter_buffer.h"

namespace engine {

// The memory of a device and its mirror, of equal size.
using MirroredBuffer = std::pair<const FlatBuffer*, const FlatBuffer*>;  // host, device

// The codes of sums of the parameters, computed on the device.
struct CodedParameters {
  LossyOptions options;
  backends::Communicator* in_host_memory;  // exchanges codes unless the devices do
};

struct DeviceMathParts {
  KernelContext& context;  // of the device, with scratch for its largest buffer
  // Not used otherwise; null: values are exchanged in host memory.
  backends::DeviceCommunicator* communicator;
  MirroredBuffer values, gradients;
  TensorView half;  // receives what is copied to the values, rounded; may be empty
  std::optional<CodedParameters> codes = {};
};

class DeviceMath final : public StateMath {
 public:
  // With a communicator collective: registers the memory of the gradients. All parts must outlive
  // this object.
  explicit DeviceMath(const DeviceMathParts& parts);
  ~DeviceMath() override;  // before the memory is freed

  // Further memory that operands may be in; it must outlive its use.
  void add(MirroredBuffer buffer) { buffers_.push_back(buffer); }

  void copy(const TensorView& from, const TensorView& to) override;
  void scale(double factor, const TensorView& from, const TensorView& to) override;
  void subtract(const TensorView& a, const TensorView& b, const TensorView& to) override;
  void combine(double x, const TensorView& a, double y, const TensorView& b,
               const TensorView& to) override;
  void sgd_step(const ops::SgdStep& step, const TensorView& gradient, const TensorView& velocity,
                const TensorView& value) override;
  double sum_of_squares(const TensorView& values) override;
  void fetch(const TensorView& values) override;
  void store(const TensorView& values) override;
  void wait() override;
  bool sums_on_devices() const override { return parts_.communicator != nullptr; }
  void sum_on_devices(const TensorView& values, backends::DeviceCommunicator* some) override;
  bool sums_codes() const override { return codes_.has_value(); }
  void sum_codes(const CodedViews& views, Elements range, std::int64_t round) override;

 private:
  // Returns the memory on the device that a view of host memory stands for.
  TensorView there(const TensorView& view) const;
  // Rounds the copies of parameters that have changed.
  void update_half(const TensorView& changed);

  const DeviceMathParts parts_;
  std::vector<MirroredBuffer> buffers_;
  // The operands of a kernel, and the memory for its result.
  Arena numbers_;
  std::byte* pinned_ = nullptr;
  std::optional<DeviceCodedSum> codes_;
};

// Returns the device memory of these codes in bytes; `elements`: of all trained parameters.
std::size_t coded_parameters_bytes(const LossyOptions& options, std::int64_t elements, int ranks);

}  // namespace engine

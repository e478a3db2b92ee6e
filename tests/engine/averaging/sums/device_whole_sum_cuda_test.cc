// Sums of all gradients at once on CUDA devices, top-k and PowerSGD, have the bits of those in host
// memory.
#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#include "backends/group.h"
#include "engine/averaging/codes/device_coded_sum.h"
#include "engine/averaging/low_rank/power_sgd_parts.h"
#include "engine/averaging/sums/device_sum.h"
#include "engine/averaging/sums/gradient_sum.h"
#include "tests/engine/averaging/sums/device_sum_test_support.h"

namespace engine {
namespace {

using device_sum_test::fill;
using device_sum_test::kDevice;
using device_sum_test::Mirrored;
using device_sum_test::on_ranks;

class DeviceWholeSumCuda : public cuda_test::CudaTest {};

// Sizes that are no multiples of a tile, with gaps between the tensors.
std::vector<NamedLayout> tensors(DType dtype) {
  return {{"bias", TensorLayout::plain({7}), dtype},
          {"fc.weight", TensorLayout::plain({60, 11}), dtype},
          {"conv.weight", TensorLayout::plain({3, 3, 5, 40}), dtype},
          {"scalar", TensorLayout::plain({1}), dtype}};
}

struct Method {
  std::function<std::unique_ptr<GradientSum>(backends::Communicator&, FlatBuffer&, KernelContext&)>
      in_host_memory;
  std::function<std::unique_ptr<DeviceGradientSum>(const CodeExchange&, const FlatBuffer&)>
      on_device;
};

Method top_k(double ratio) {
  return {[ratio](backends::Communicator& wire, FlatBuffer& gradients, KernelContext&) {
            return make_top_k_sum(wire, gradients, ratio);
          },
          [ratio](const CodeExchange& exchange, const FlatBuffer& gradients) {
            return make_top_k_device_sum(exchange, gradients, ratio);
          }};
}

Method power_sgd(int rank) {
  return {[rank](backends::Communicator& wire, FlatBuffer& gradients, KernelContext& context) {
            return make_power_sgd_sum(wire, gradients, context, rank);
          },
          [rank](const CodeExchange& exchange, const FlatBuffer& gradients) {
            return make_power_sgd_device_sum(exchange, gradients, rank);
          }};
}

void clear_gaps(const FlatBuffer& buffer) {
  std::vector<std::byte> all(buffer.bytes());
  for (const FlatBuffer::Slot& slot : buffer.slots()) {
    const std::size_t at = static_cast<std::size_t>(slot.offset) * size_of(buffer.dtype()),
                      bytes = static_cast<std::size_t>(slot.count) * size_of(buffer.dtype());
    std::memcpy(all.data() + at, static_cast<const std::byte*>(buffer.data()) + at, bytes);
  }
  std::memcpy(buffer.data(), all.data(), all.size());
}

// The state of the sum in host memory, on the device.
std::vector<FlatBuffer> copies_of(const std::vector<PolicyState>& state) {
  std::vector<FlatBuffer> copies;
  for (const PolicyState& each : state) {
    copies.push_back(FlatBuffer::like(*each.buffer, kDevice));
    const cuda::Stream stream;
    cuda::copy_async(copies.back().data(), each.buffer->data(), each.buffer->bytes(),
                     stream.handle());
    stream.synchronize();
  }
  return copies;
}

bool is_equal(const FlatBuffer& device, const FlatBuffer& host) {
  const FlatBuffer copied = FlatBuffer::like(host);
  const cuda::Stream stream;
  cuda::copy_async(copied.data(), device.data(), copied.bytes(), stream.handle());
  stream.synchronize();
  return std::memcmp(copied.data(), host.data(), host.bytes()) == 0;
}

void expect_same_sums(const Method& method, int world, DType dtype) {
  SCOPED_TRACE(std::to_string(world) + " ranks");
  on_ranks(world, [&](backends::Group& group) {
    const auto communicator = group.make_communicator();
    const Mirrored gradients(dtype, tensors(dtype));
    ThreadPool threads(1);
    KernelContext context;
    context.threads = &threads;
    FlatBuffer host = FlatBuffer::like(gradients.host);
    const auto in_host_memory = method.in_host_memory(*communicator, host, context);
    const auto on_device = method.on_device({communicator.get()}, gradients.device);
    const std::vector<PolicyState> kept = in_host_memory->state();
    const std::vector<FlatBuffer> at_home = copies_of(kept);
    std::vector<const FlatBuffer*> errors;
    errors.reserve(at_home.size());
    for (const FlatBuffer& each : at_home) errors.push_back(&each);
    on_device->set_errors(errors);
    EXPECT_FALSE(on_device->capturable());
    const cuda::Stream stream;
    for (int step = 0; step < 4; ++step) {
      if (step != 2) fill(host, group.rank(), step);
      if (step == 2) std::memset(host.data(), 0, host.bytes());
      clear_gaps(host);
      std::memcpy(gradients.host.data(), host.data(), host.bytes());
      gradients.upload();
      in_host_memory->begin_step(step);
      in_host_memory->sum(0, host.size());
      on_device->begin_step(nullptr, step);
      on_device->ready(host.size(), stream.handle());
      on_device->finish(stream.handle());
      on_device->wait(stream.handle());
      EXPECT_TRUE(is_equal(gradients.device, host)) << "step " << step;
      for (std::size_t i = 0; i < kept.size(); ++i)
        EXPECT_TRUE(is_equal(at_home[i], *kept[i].buffer)) << kept[i].name << " in step " << step;
    }
  });
}

TEST_F(DeviceWholeSumCuda, OfTopKHasTheBitsOfHostMemory) {
  for (const int world : {1, 2, 3, 4}) expect_same_sums(top_k(0.03), world, DType::kF32);
  for (const double ratio : {0.0001, 0.6, 1.0}) expect_same_sums(top_k(ratio), 2, DType::kF32);
  for (const double ratio : {0.03, 1.0}) expect_same_sums(top_k(ratio), 3, DType::kF64);
}

TEST_F(DeviceWholeSumCuda, OfPowerSgdHasTheBitsOfHostMemory) {
  for (const int world : {1, 2, 3, 4}) expect_same_sums(power_sgd(2), world, DType::kF32);
  for (const int rank : {1, 5, 100}) expect_same_sums(power_sgd(rank), 2, DType::kF32);
  for (const int rank : {2, 5}) expect_same_sums(power_sgd(rank), 3, DType::kF64);
}

// What the ranks send, by the sums in host memory and by the plan.
TEST_F(DeviceWholeSumCuda, SendsTheBytesOfThePlan) {
  on_ranks(1, [](backends::Group& group) {
    const auto communicator = group.make_communicator();
    FlatBuffer gradients(DType::kF32, tensors(DType::kF32));
    ThreadPool threads(1);
    KernelContext context;
    context.threads = &threads;
    const auto sent = [&](const Method& method) {
      const auto sum = method.in_host_memory(*communicator, gradients, context);
      sum->sum(0, gradients.size());
      return static_cast<std::size_t>(sum->bytes_sent());
    };
    EXPECT_EQ(sent(top_k(0.03)), top_k_bytes(gradients, 0.03));
    for (const int rank : {2, 100})
      EXPECT_EQ(sent(power_sgd(rank)), power_sgd_bytes(gradients, rank));
  });
}

}  // namespace
}  // namespace engine

// Shared by the tests of sums on CUDA devices: memory on both sides, numbers, and ranks on
// threads.
#pragma once

#include <cstring>
#include <functional>
#include <thread>
#include <vector>

#include "backends/group.h"
#include "engine/core/parameter_buffer.h"
#include "engine/core/random.h"
#include "tests/engine/ops/device/cuda_test_support.h"
#include "tests/support/time_limits.h"

namespace engine::device_sum_test {

inline constexpr Device kDevice = cuda_test::kDevice;

// Memory on both sides.
struct Mirrored {
  FlatBuffer host, device;

  Mirrored(DType dtype, std::int64_t count)
      : Mirrored(dtype, {{"v", TensorLayout::plain({count}), dtype}}) {}
  Mirrored(DType dtype, const std::vector<NamedLayout>& tensors)
      : host(dtype, tensors), device(FlatBuffer::like(host, kDevice)) {}
  void upload() const { copy(device, host); }
  // Returns true if the device has the bits of the host.
  bool is_equal() const {
    const FlatBuffer copied = FlatBuffer::like(host);
    copy(copied, device);
    return std::memcmp(copied.data(), host.data(), host.bytes()) == 0;
  }

 private:
  static void copy(const FlatBuffer& to, const FlatBuffer& from) {
    const cuda::Stream stream;
    cuda::copy_async(to.data(), from.data(), to.bytes(), stream.handle());
    stream.synchronize();
  }
};

// Some elements are much larger than others, so that blocks have different scales.
inline void fill(const FlatBuffer& values, int rank, int round) {
  for (std::int64_t i = 0; i < values.size(); ++i) {
    const double value = (uniform_float(philox(3, static_cast<std::uint64_t>(16 * round + rank),
                                               static_cast<std::uint64_t>(i))[0]) -
                          0.4) *
                         (i % 1000 < 300 ? 1 : 1e-3);
    if (values.dtype() == DType::kF64)
      values.span<double>()[static_cast<std::size_t>(i)] = value;
    else
      values.span<float>()[static_cast<std::size_t>(i)] = static_cast<float>(value);
  }
}

// Runs call(group) for each rank on a thread of its own.
inline void on_ranks(int world, const std::function<void(backends::Group&)>& call) {
  auto groups = backends::make_inproc_groups(world, test_support::deadline_ms(60'000));
  std::vector<std::jthread> ranks;
  ranks.reserve(groups.size());
  for (auto& group : groups)
    ranks.emplace_back([&call, &group] {
      cuda::use_device(0);
      call(*group);
      group->leave();
    });
}

}  // namespace engine::device_sum_test

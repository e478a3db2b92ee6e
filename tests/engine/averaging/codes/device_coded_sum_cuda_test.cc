// Sums of codes on CUDA devices have the bits of those in host memory.
#include "engine/averaging/codes/device_coded_sum.h"

#include <cstring>
#include <vector>

#include "backends/group.h"
#include "engine/averaging/codes/coded_sum.h"
#include "engine/averaging/sums/bucket_reducer.h"
#include "engine/averaging/sums/device_sum.h"
#include "engine/averaging/sums/gradient_sum.h"
#include "engine/ops/optim_step/step_numbers.h"
#include "tests/engine/averaging/sums/device_sum_test_support.h"

namespace engine {
namespace {

using device_sum_test::fill;
using device_sum_test::kDevice;
using device_sum_test::Mirrored;
using device_sum_test::on_ranks;

class DeviceCodedSumCuda : public cuda_test::CudaTest {};

struct Case {
  int world;
  std::int64_t count;
  DType dtype;
  int bits;
  bool is_sparse = false, with_momentum = false;
  int rounds = 3;

  // With a share of the elements that differs between blocks of few elements.
  LossyOptions options() const {
    if (!is_sparse) return {.bits = bits, .seed = 5};
    return {.kind = LossyOptions::Kind::kSparse,
            .bits = bits,
            .ratio = 0.03,
            .warmup = 2,
            .decay = 0.5,
            .momentum = with_momentum ? 0.9 : 0};
  }
};

// Several rounds of a part of a buffer, with a separate rest.
void expect_same_sums(const Case& c) {
  SCOPED_TRACE(std::to_string(c.count) + " elements on " + std::to_string(c.world));
  on_ranks(c.world, [&c](backends::Group& group) {
    const LossyOptions options = c.options();
    const auto communicator = group.make_communicator();
    const Mirrored values(c.dtype, c.count), error(c.dtype, c.count), rest(c.dtype, c.count);
    const Elements all[] = {{0, c.count}}, part{c.count / 3, c.count - c.count / 3};
    CodedSum in_host_memory(*communicator, options, "test", c.count);
    DeviceCodedSum on_device({communicator.get()}, options, "test", all, kDevice);
    for (int round = 0; round < c.rounds; ++round) {
      fill(values.host, group.rank(), round);
      values.upload();
      in_host_memory.sum({values.host, error.host, rest.host}, part, round, nullptr);
      std::memcpy(error.host.part(part.first, part.count).data,
                  rest.host.part(part.first, part.count).data,
                  error.host.part(part.first, part.count).bytes());
      on_device.sum({values.device.flat(), error.device.flat(), rest.device.flat()}, part, round);
      EXPECT_TRUE(values.is_equal()) << "round " << round;
      EXPECT_TRUE(error.is_equal()) << "round " << round;
    }
  });
}

TEST_F(DeviceCodedSumCuda, HasTheBitsOfHostMemory) {
  for (const int world : {1, 2, 3, 4})
    for (const std::int64_t count : {1, 257, 1281, 5000})
      for (const DType dtype : {DType::kF32, DType::kF64})
        for (const int bits : {8, 4}) expect_same_sums({world, count, dtype, bits});
}

TEST_F(DeviceCodedSumCuda, OfSparseCodesHasTheBitsOfHostMemory) {
  for (const int world : {1, 2, 4})
    for (const std::int64_t count : {1, 700, 4096, 12'000})
      for (const DType dtype : {DType::kF32, DType::kF64})
        for (const int bits : {8, 2}) expect_same_sums({world, count, dtype, bits, true});
}

// A sum of gradients in several buckets, and steps whose numbers are in device memory.
void expect_same_gradients(const Case& c, bool overlap) {
  SCOPED_TRACE(std::to_string(c.count) + " elements on " + std::to_string(c.world));
  on_ranks(c.world, [&c, overlap](backends::Group& group) {
    const LossyOptions options = c.options();
    const BucketOptions buckets{.bytes = 4096, .overlap = overlap};
    const auto communicator = group.make_communicator();
    const Mirrored gradients(c.dtype, c.count), error(c.dtype, c.count), velocity(c.dtype, c.count);
    ThreadPool threads(1);
    KernelContext context;
    context.threads = &threads;
    FlatBuffer host = FlatBuffer::like(gradients.host);
    const auto in_host_memory = make_coded_sum(*communicator, host, context, options);
    const auto on_device =
        make_coded_device_sum({communicator.get()}, gradients.device, options, buckets);
    const FlatBuffer* errors[] = {&error.device, &velocity.device};
    on_device->set_errors(std::span(errors).first(c.with_momentum ? 2 : 1));
    EXPECT_FALSE(on_device->capturable());
    const cuda::Stream stream;
    const Arena numbers(sizeof(StepNumbers), kDevice);
    for (int step = 0; step < 3; ++step) {
      fill(host, group.rank(), step);
      std::memcpy(gradients.host.data(), host.data(), host.bytes());
      gradients.upload();
      {
        const auto bytes = c.is_sparse ? static_cast<std::int64_t>(host.bytes()) : 4096;
        BucketReducer reducer(*in_host_memory, host, {.bytes = bytes, .overlap = false});
        in_host_memory->begin_step(step);
        reducer.ready(host.size());
        reducer.finish();
      }
      const StepNumbers now{.round = step};
      cuda::copy_async(numbers.data(), &now, sizeof now, stream.handle());
      on_device->begin_step(reinterpret_cast<const StepNumbers*>(numbers.data()), step);
      on_device->ready(c.count / 2, stream.handle());
      on_device->ready(c.count, stream.handle());
      on_device->finish(stream.handle());
      on_device->wait(stream.handle());
      std::memcpy(gradients.host.data(), host.data(), host.bytes());
      EXPECT_TRUE(gradients.is_equal()) << "step " << step;
      const std::vector<PolicyState> kept = in_host_memory->state();
      const Mirrored* const mirrored[] = {&error, &velocity};
      ASSERT_EQ(kept.size(), c.with_momentum ? 2U : 1U);
      for (std::size_t i = 0; i < kept.size(); ++i) {
        std::memcpy(mirrored[i]->host.data(), kept[i].buffer->data(), kept[i].buffer->bytes());
        EXPECT_TRUE(mirrored[i]->is_equal()) << kept[i].name << " in step " << step;
      }
    }
  });
}

TEST_F(DeviceCodedSumCuda, OfGradientsHasTheBitsOfHostMemory) {
  for (const int world : {2, 4})
    for (const bool overlap : {true, false}) {
      expect_same_gradients({world, 20'000, DType::kF32, 8}, overlap);
      expect_same_gradients({world, 5003, DType::kF64, 4}, overlap);
      expect_same_gradients({world, 20'000, DType::kF32, 2, true, true}, overlap);
      expect_same_gradients({world, 5003, DType::kF64, 8, true}, overlap);
    }
}

// The pieces of a large bucket have places of their own.
TEST_F(DeviceCodedSumCuda, OfSeveralPiecesHasTheBitsOfHostMemory) {
  for (const int world : {2, 3}) expect_same_sums({world, kCodedPiece + 3000, DType::kF32, 4});
  expect_same_sums({.world = 2,
                    .count = kCodedPiece + 3000,
                    .dtype = DType::kF32,
                    .bits = 2,
                    .is_sparse = true,
                    .rounds = 1});
}

}  // namespace
}  // namespace engine

// The pipeline through pinned buffers with pieces so small that every call has many, the last of
// them odd.
#include <gtest/gtest.h>

#include <cstring>

#include "backends/compose/staged/staged_communicator.h"
#include "tests/backends/device/device_harness.h"

namespace {

using namespace device_harness;
using backends::DeviceCommunicator;
using backends::Group;
using backends::ReduceOp;
using base::DType;

Bytes floats(int rank, std::size_t count) {
  Bytes bytes(count * 4);
  for (std::size_t i = 0; i < count; ++i) {
    const auto value = static_cast<float>((i * 5 + static_cast<std::size_t>(rank) * 11) % 101);
    std::memcpy(bytes.data() + i * 4, &value, 4);
  }
  return bytes;
}
Bytes sum_of(int ranks, std::size_t count) {
  Bytes bytes(count * 4);
  for (std::size_t i = 0; i < count; ++i) {
    float sum = 0;
    for (int r = 0; r < ranks; ++r)
      sum += static_cast<float>((i * 5 + static_cast<std::size_t>(r) * 11) % 101);
    std::memcpy(bytes.data() + i * 4, &sum, 4);
  }
  return bytes;
}

class StagedPieces : public ::testing::TestWithParam<std::size_t> {
 protected:
  void SetUp() override {
    if (const std::string why = lacking(1); !why.empty()) GTEST_SKIP() << why;
  }
  void each_rank(const std::function<void(DeviceCommunicator&)>& body) {
    for (const int world : {2, 3}) {
      const auto outcomes =
          run_threads(world, {.one_device = true, .inproc = true}, [&](Group& group) {
            const auto c = backends::make_staged_communicator(group.make_communicator(),
                                                              {.piece_bytes = GetParam()});
            body(*c);
          });
      for (const std::string& outcome : outcomes) EXPECT_EQ(outcome, "");
    }
  }
};

TEST_P(StagedPieces, EveryCallAtEveryCount) {
  each_rank([](DeviceCommunicator& c) {
    const auto n = static_cast<std::size_t>(c.world_size()), r = static_cast<std::size_t>(c.rank());
    const Stream stream;
    for (const std::size_t count : {1u, 15u, 16u, 17u, 63u, 64u, 65u, 129u, 1001u}) {
      const Bytes input = floats(c.rank(), count), sum = sum_of(c.world_size(), count);
      // Back to back on one stream, with no wait between: the buffers of one call are those of the
      // next.
      const DeviceBytes reduced(input), scattered(input), sent(input), own(input),
          gathered(count * 4 * n), parts(floats(c.rank(), count * n)), exchanged(count * 4 * n);
      c.all_reduce_on(stream.get(), reduced.get(), count, DType::kF32, ReduceOp::kSum);
      c.reduce_scatter_on(stream.get(), scattered.get(), count, DType::kF32, ReduceOp::kSum);
      c.broadcast_on(stream.get(), sent.get(), count * 4, 1);
      c.all_gather_on(stream.get(), own.get(), count * 4, gathered.get());
      c.all_to_all_on(stream.get(), parts.get(), count * 4, exchanged.get());
      c.all_reduce_on(stream.get(), own.get(), count, DType::kF32, ReduceOp::kMax);
      c.wait(stream.get());
      EXPECT_TRUE(reduced.read() == sum) << count;
      const Bytes share = scattered.read();
      const std::size_t begin = r * count / n * 4, end = (r + 1) * count / n * 4;
      EXPECT_EQ(std::memcmp(share.data() + begin, sum.data() + begin, end - begin), 0) << count;
      EXPECT_TRUE(sent.read() == floats(1, count)) << count;
      Bytes all, of_this;
      for (int rank = 0; rank < c.world_size(); ++rank) {
        const Bytes theirs = floats(rank, count);
        all.insert(all.end(), theirs.begin(), theirs.end());
        const Bytes sent_by = floats(rank, count * n);
        const auto from = sent_by.begin() + static_cast<std::ptrdiff_t>(r * count * 4);
        of_this.insert(of_this.end(), from, from + static_cast<std::ptrdiff_t>(count * 4));
      }
      EXPECT_TRUE(gathered.read() == all) << count;
      EXPECT_TRUE(exchanged.read() == of_this) << count;
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Bytes, StagedPieces, ::testing::Values(1, 64, 192, 4096));

}  // namespace

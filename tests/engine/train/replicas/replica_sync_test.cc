// Buffers that become rank 0's: only those that differ are sent.
#include "engine/train/replicas/replica_sync.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <functional>
#include <numeric>
#include <vector>

#include "tests/engine/train/trainer_fixture.h"

namespace {

using engine::FlatBuffer;

// The bytes of each broadcast on a rank while three ranks equalize a buffer of 64 bytes and one of
// 128, after `change` was called with each rank's number and its buffers. All ranks agree.
std::vector<std::uint64_t> broadcasts_of(
    const std::function<void(int, FlatBuffer&, FlatBuffer&)>& change) {
  std::array<std::vector<std::uint64_t>, 3> sent;
  trainer_fixture::in_threads(3, [&](backends::Group& group) {
    trainer_fixture::HookedCommunicator control(group.make_communicator());
    const int rank = group.rank();
    std::vector<std::uint64_t>& of_rank = sent[static_cast<std::size_t>(rank)];
    control.before = [&](const backends::Call& call) {
      if (call.word.operation == backends::Operation::kBroadcast)
        of_rank.push_back(call.word.count);
    };
    const auto buffer = [](const char* name, std::int64_t count) {
      return FlatBuffer(engine::DType::kF32,
                        {{.name = name, .layout = engine::TensorLayout::plain({count})}});
    };
    FlatBuffer a = buffer("a", 16), b = buffer("b", 32);
    for (FlatBuffer* values : {&a, &b})
      std::iota(values->span<float>().begin(), values->span<float>().end(), 1.0F);
    change(rank, a, b);
    const bool was_sent = engine::equalize(control, std::array{&a, &b});
    EXPECT_EQ(was_sent, !of_rank.empty());
    float next = 1;
    for (const float value : b.span<float>()) EXPECT_EQ(value, next++);
  });
  EXPECT_EQ(sent[0], sent[1]);
  EXPECT_EQ(sent[0], sent[2]);
  return sent[0];
}

TEST(ReplicaSync, BuffersThatAreEqualOnAllRanksAreNotSent) {
  EXPECT_EQ(broadcasts_of([](int, FlatBuffer&, FlatBuffer&) {}), std::vector<std::uint64_t>{});
}

TEST(ReplicaSync, ABufferThatDiffersOnAnyRankIsReplacedByThatOfRank0) {
  const auto differs = [](int rank, FlatBuffer&, FlatBuffer& b) {
    if (rank == 2) b.span<float>()[7] = 100;
  };
  EXPECT_EQ(broadcasts_of(differs), std::vector<std::uint64_t>{128});
}

}  // namespace

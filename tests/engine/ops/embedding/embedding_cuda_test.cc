// Embedding and learned positions on a CUDA device against the float64 reference, for every
// storage; tokens out of range.
#include "engine/ops/embedding/embedding.h"

#include <random>

#include "tests/engine/ops/device/device_runs.h"

namespace engine::ops {
namespace {

using namespace cuda_test;

template <class T>
class EmbeddingCuda : public CudaTest {};
TYPED_TEST_SUITE(EmbeddingCuda, Storages);

struct EmbeddingSizes {
  std::int64_t n, t, vocabulary, width;
};

Operand<std::int32_t> some_tokens(const EmbeddingSizes& s) {
  std::mt19937 generator(5);
  Operand<std::int32_t> tokens({s.n, s.t}, 0);
  for (std::int32_t& token : tokens.values)
    token = static_cast<std::int32_t>(generator() % static_cast<unsigned>(s.vocabulary));
  return tokens;
}

template <class T>
void compare_embedding(const EmbeddingSizes& s, Write write) {
  SCOPED_TRACE((Shape{s.n, s.t, s.vocabulary, s.width}.to_string() +
                (write == Write::kAdd ? ", added" : "")));
  const Shape rows{s.n, s.t, s.width}, all{s.vocabulary, s.width};
  const Given operands[] = {some_tokens(s), random_operand(all, 1), random_operand(rows, 2),
                            nothing(rows), state(output(all, write))};
  const DeviceContext device(embedding_scratch_bytes(s.n * s.t, s.vocabulary, kDevice.kind));
  const auto [found, expected] =
      run_on_device<T>(device, operands,
                       [&](KernelContext& c, TensorView tokens, TensorView table, TensorView dy,
                           TensorView y, TensorView dtable) {
                         embedding_forward(c, {tokens, table, y});
                         embedding_backward(c, {tokens, dy, dtable, write});
                       });
  EXPECT_LE(relative_error(found[3], expected[3]), 0);
  EXPECT_LE(relative_error(found[4], expected[4]), state_error<T>());
}

TYPED_TEST(EmbeddingCuda, AgreesWithTheReference) {
  for (const Write write : {Write::kOverwrite, Write::kAdd})
    for (const EmbeddingSizes& s :
         {EmbeddingSizes{0, 5, 3, 8}, EmbeddingSizes{1, 1, 1, 1}, EmbeddingSizes{2, 7, 33, 48},
          EmbeddingSizes{3, 64, 65, 65}, EmbeddingSizes{2, 65, 200, 384},
          EmbeddingSizes{10, 120, 65, 128}, EmbeddingSizes{9, 111, 31, 130}})
      compare_embedding<TypeParam>(s, write);
}

TYPED_TEST(EmbeddingCuda, PositionsAgreeWithTheReference) {
  for (const Write write : {Write::kOverwrite, Write::kAdd})
    for (const EmbeddingSizes& s :
         {EmbeddingSizes{0, 5, 6, 8}, EmbeddingSizes{1, 1, 1, 1}, EmbeddingSizes{5, 7, 9, 65},
          EmbeddingSizes{3, 64, 64, 48}, EmbeddingSizes{70, 3, 5, 128}}) {
      SCOPED_TRACE((Shape{s.n, s.t, s.vocabulary, s.width}.to_string() +
                    (write == Write::kAdd ? ", added" : "")));
      const Shape rows{s.n, s.t, s.width}, all{s.vocabulary, s.width};
      const Given operands[] = {random_operand(rows, 1), random_operand(all, 2),
                                state(output(all, write))};
      const auto [found, expected] = run_on_device<TypeParam>(
          operands, [&](KernelContext& c, TensorView x, TensorView positions, TensorView dp) {
            add_positions_backward(c, x, dp, write);
            add_positions_forward(c, x, positions, x);  // in place
          });
      EXPECT_LE(relative_error(found[0], expected[0]), storage_error<TypeParam>());
      EXPECT_LE(relative_error(found[2], expected[2]), state_error<TypeParam>());
    }
}

class EmbeddingFaults : public CudaTest {};

TEST_F(EmbeddingFaults, ATokenOutOfRangeIsReportedAndCountsAsZero) {
  const EmbeddingSizes s{2, 40, 5, 8};
  auto tokens = some_tokens(s), mended = tokens;
  tokens.values[77] = 5, tokens.values[30] = -1;
  mended.values[77] = mended.values[30] = 0;
  const Operand<float> table = random_operand({s.vocabulary, s.width}, 1);
  DeviceContext c(embedding_scratch_bytes(s.n * s.t, s.vocabulary, Device::Kind::kCuda));
  const Arena memory(sizeof(DeviceFault), kDevice);
  c.context.fault = reinterpret_cast<DeviceFault*>(memory.data());
  DeviceFault fault;
  engine::cuda::copy_async(c.context.fault, &fault, sizeof fault, c.context.stream);
  const auto device_table = to_device<float>(table.shape, table.values);
  const auto run = [&](const Operand<std::int32_t>& ids) {
    const DeviceOperand<std::int32_t> device_tokens(ids.shape, ids.values);
    const auto y = to_device<float>(
                   {s.n, s.t, s.width},
                   std::vector<float>(static_cast<std::size_t>(s.n * s.t * s.width), NAN)),
               dtable = to_device<float>(table.shape, std::vector<float>(table.values.size(), NAN));
    embedding_forward(
        c.context, {.tokens = device_tokens.view(), .table = device_table.view(), .y = y.view()});
    embedding_backward(c.context, {.tokens = device_tokens.view(),
                                   .dy = y.view(),
                                   .dtable = dtable.view(),
                                   .write = Write::kOverwrite});
    c.finish();
    std::vector<float> found = y.values(), slopes = dtable.values();
    found.insert(found.end(), slopes.begin(), slopes.end());
    return found;
  };
  const std::vector<float> found = run(tokens);
  engine::cuda::copy_async(&fault, c.context.fault, sizeof fault, c.context.stream);
  c.finish();
  EXPECT_EQ(fault.found, 1);
  EXPECT_EQ(fault.value, -1);
  EXPECT_EQ(fault.at, 30);
  EXPECT_EQ(fault.limit, 5);
  EXPECT_EQ(found, run(mended));
}

}  // namespace
}  // namespace engine::ops

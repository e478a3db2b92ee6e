// PowerSGD's sums on a CUDA device have the bits of its calculations on the CPU.
#include "engine/ops/low_rank/low_rank_codes.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "engine/averaging/low_rank/low_rank.h"
#include "engine/core/random.h"
#include "tests/engine/ops/codes/code_test_support.h"

namespace engine::ops {
namespace {

using namespace cuda_test;
using namespace code_test;

template <class T>
class LowRankCodesCuda : public CudaTest {};
using LowRankNumbers = testing::Types<float, double>;
TYPED_TEST_SUITE(LowRankCodesCuda, LowRankNumbers);

constexpr std::int64_t kGap = 3;  // between parts, and where nothing may be written

struct Sizes {
  std::int64_t rows, columns;
};

// Parts one after another, with gaps.
struct Layout {
  std::vector<LowRankPart> parts;
  std::int64_t elements = kGap, packed = kGap, factors = kGap;

  Layout(const std::vector<Sizes>& matrices, const std::vector<std::int64_t>& plain, int rank) {
    for (const std::int64_t count : plain) packed += count;
    const std::int64_t first_p = packed;
    packed = kGap;
    std::vector<LowRankPart> others;
    for (const std::int64_t count : plain) {  // in the gradients before the matrices
      others.push_back({.offset = elements, .packed = packed, .rows = count, .columns = 1});
      elements += count + kGap;
      packed += count;
    }
    packed = first_p;
    for (const Sizes& m : matrices) {
      parts.push_back({.offset = elements,
                       .packed = packed,
                       .factor = factors,
                       .rows = m.rows,
                       .columns = m.columns,
                       .key = stream_key(7, std::to_string(parts.size()))});
      elements += m.rows * m.columns + kGap;
      packed += m.rows * rank;
      factors += m.columns * rank + kGap;
    }
    parts.insert(parts.end(), others.begin(), others.end());
  }
};

template <class T>
struct State {
  std::vector<T> gradients, error, packed, factors;
};

// One rank's sums by the functions of the CPU.
template <class T>
struct OnCpu {
  const Layout& layout;
  std::size_t matrices;
  int rank;
  State<T> state;
  ThreadPool threads{1};

  template <class Call>
  void for_parts(const Call& call) {
    for (std::size_t i = 0; i < layout.parts.size(); ++i) {
      const LowRankPart& part = layout.parts[i];
      call(part, i < matrices, LowRankSizes{part.rows, part.columns, rank},
           state.gradients.data() + part.offset, state.error.data() + part.offset,
           state.packed.data() + part.packed, state.factors.data() + part.factor);
    }
  }
  void pack() {
    for_parts([&](const LowRankPart& part, bool is_matrix, LowRankSizes s, T* gradient, T* error,
                  T* p, T* q) {
      if (!is_matrix) {
        std::copy_n(gradient, part.rows, p);
        return;
      }
      for (std::int64_t i = 0; i < part.rows * part.columns; ++i) error[i] += gradient[i];
      multiply(threads, s, error, q, p);
    });
  }
  void project() {
    for_parts([&](const LowRankPart& part, bool is_matrix, LowRankSizes s, T* gradient, T* error,
                  T* p, T* q) {
      if (!is_matrix) {
        std::copy_n(p, part.rows, gradient);
        return;
      }
      orthonormalize(p, part.rows, rank);
      multiply_transposed(threads, s, error, p, q);
      add_product(threads, s, T(-1), p, q, error);
      std::transform(error, error + part.rows * part.columns, error, kept_of<T>);
    });
  }
  void expand() {
    for_parts(
        [&](const LowRankPart& part, bool is_matrix, LowRankSizes s, T* gradient, T*, T* p, T* q) {
          if (!is_matrix) return;
          std::fill_n(gradient, part.rows * part.columns, T(0));
          add_product(threads, s, T(1), p, q, gradient);
          for (int c = 0; c < rank; ++c)
            if (is_lost_column(q, part.columns, rank, c)) draw(part, q, c);
        });
  }
  void draw(const LowRankPart& part, T* q, int column) const {
    for (std::int64_t i = 0; i < part.columns; ++i) {
      float sum = -2;
      for (const std::uint32_t word :
           philox(part.key, static_cast<std::uint64_t>(column), static_cast<std::uint64_t>(i)))
        sum += uniform_float(word);
      q[i * rank + column] = static_cast<T>(sum);
    }
  }
};

// Two rounds; between the calls, sums of other ranks would follow.
template <class T>
void expect_values_of_cpu(const std::vector<Sizes>& matrices,
                          const std::vector<std::int64_t>& plain, int rank,
                          const std::string& kind = "uniform") {
  SCOPED_TRACE(std::to_string(matrices.size()) + " matrices of rank " + std::to_string(rank) +
               ", " + kind);
  Layout layout(matrices, plain, rank);
  OnCpu<T> cpu{
      .layout = layout,
      .matrices = matrices.size(),
      .rank = rank,
      .state = {.gradients = numbers<T>(kind, layout.elements, 1),
                .error = numbers<T>(kind == "zeros" ? kind : "uniform", layout.elements, 2),
                .packed = numbers<T>("uniform", layout.packed + kGap, 3),
                .factors = numbers<T>("uniform", layout.factors, 4)}};
  const auto operand = [](const std::vector<T>& values) {
    return DeviceOperand<T>({static_cast<std::int64_t>(values.size())}, values);
  };
  const DeviceOperand<T> gradients = operand(cpu.state.gradients), error = operand(cpu.state.error),
                         packed = operand(cpu.state.packed), factors = operand(cpu.state.factors);
  LowRankTable table = number_tiles(layout.parts, static_cast<int>(matrices.size()), rank);
  const Arena memory(layout.parts.size() * sizeof(LowRankPart), kDevice);
  DeviceContext context;
  engine::cuda::copy_async(memory.data(), layout.parts.data(), memory.bytes(),
                           context.stream.handle());
  table.parts = reinterpret_cast<const LowRankPart*>(memory.data());
  const LowRankOperands operands{gradients.view(), error.view(), packed.view(), factors.view()};
  const auto expect_equal = [&](const char* after) {
    SCOPED_TRACE(after);
    context.finish();
    expect_same(gradients.values(), cpu.state.gradients, "gradient");
    expect_same(error.values(), cpu.state.error, "error");
    expect_same(packed.values(), cpu.state.packed, "packed");
    expect_same(factors.values(), cpu.state.factors, "factor");
  };
  for (int round = 0; round < 2; ++round) {
    pack_low_rank(context.context, table, operands);
    cpu.pack();
    expect_equal("pack");
    project_low_rank(context.context, table, operands);
    cpu.project();
    expect_equal("project");
    expand_low_rank(context.context, table, operands);
    cpu.expand();
    expect_equal("expand");
  }
}

TYPED_TEST(LowRankCodesCuda, HaveTheBitsOfTheCpu) {
  for (const int rank : {1, 2, 4, 5, 9})
    expect_values_of_cpu<TypeParam>({{2, 3}, {70, 31}, {300, 65}, {16, 130}, {64, 32}},
                                    {1, 1025, 64}, rank);
}

TYPED_TEST(LowRankCodesCuda, OfAnyNumbersHaveTheBitsOfTheCpu) {
  for (const std::string kind : {"zeros", "mixed", "denormals", "nan"})
    expect_values_of_cpu<TypeParam>({{40, 20}, {20, 40}}, {5}, 3, kind);
}

TYPED_TEST(LowRankCodesCuda, OfMatricesAloneOrNoneHaveTheBitsOfTheCpu) {
  expect_values_of_cpu<TypeParam>({{600, 5}}, {}, 2);
  expect_values_of_cpu<TypeParam>({}, {3000, 7}, 2);
}

TYPED_TEST(LowRankCodesCuda, RejectOperandsThatDiffer) {
  std::vector<LowRankPart> parts{{.rows = 4, .columns = 1}};
  const LowRankTable table = number_tiles(parts, 0, 1);
  const DeviceOperand<TypeParam> four({4}, std::vector<TypeParam>(4)),
      three({3}, std::vector<TypeParam>(3));
  DeviceContext context;
  EXPECT_THROW(
      pack_low_rank(context.context, table, {four.view(), three.view(), four.view(), four.view()}),
      Error);
  KernelContext on_cpu;
  EXPECT_THROW(pack_low_rank(on_cpu, table, {four.view(), four.view(), four.view(), four.view()}),
               Error);
}

}  // namespace
}  // namespace engine::ops

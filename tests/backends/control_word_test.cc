// What control words hold of a call's element type.
#include "backends/control_word.h"

#include <gtest/gtest.h>

#include <utility>

#include "backends/backend_error.h"
#include "backends/reduction.h"
#include "tests/support/expect_contains.h"

namespace {

using backends::Operation;
using backends::ReduceOp;
using base::DType;

// Ranks of other builds read them.
TEST(ControlWord, CodesOfElementTypesDoNotChange) {
  const std::pair<DType, int> codes[] = {{DType::kF32, 0}, {DType::kF64, 1}, {DType::kI64, 2},
                                         {DType::kU8, 3},  {DType::kF16, 4}, {DType::kBF16, 5}};
  for (const auto& [type, code] : codes) {
    const backends::ControlWord word =
        backends::reduction_word(Operation::kAllReduce, 1, 7, type, ReduceOp::kMin);
    EXPECT_EQ(word.type_and_op, code * 16 + 2) << to_string(type);
    EXPECT_EQ(to_string(word), "all_reduce min of 7 " + std::string(to_string(type)));
  }
}

TEST(ControlWord, AnExchangeKeepsItsCodeAndSaysItsBytes) {
  const backends::ControlWord word = backends::transfer_word(Operation::kAllToAll, 3, 12);
  EXPECT_EQ(static_cast<int>(word.operation), 7);  // part of the wire format
  EXPECT_EQ(to_string(word), "all_to_all of 12 bytes");
}

TEST(ControlWord, APurposeIsInTheFieldThatTheOperationLeavesFree) {
  const backends::ControlWord sum =
      backends::reduction_word(Operation::kAllReduce, 1, 7, DType::kF32, ReduceOp::kMax)
          .with_purpose(300);
  EXPECT_EQ(sum.purpose(), 300);
  EXPECT_EQ(to_string(sum), "all_reduce max of 7 f32 [purpose 300]");
  const backends::ControlWord broadcast =
      backends::transfer_word(Operation::kBroadcast, 1, 12, 3).with_purpose(9);
  EXPECT_EQ(broadcast.root, 3);
  EXPECT_EQ(broadcast.purpose(), 9);
  EXPECT_VALUES(to_string(broadcast), "broadcast 12 bytes rank 3 [purpose 9]");
}

TEST(ControlWord, AnUnknownCodeHasNoName) {
  EXPECT_EQ(backends::type_name({.operation = Operation::kAllReduce, .type_and_op = 6 * 16}), "?");
}

TEST(ControlWord, I32IsNotReduced) {
  EXPECT_THROW(backends::reduction_word(Operation::kAllReduce, 1, 1, DType::kI32, ReduceOp::kSum),
               backends::Error);
  std::int32_t value = 1;
  EXPECT_THROW(backends::reduce_into(&value, &value, 1, DType::kI32, ReduceOp::kSum),
               backends::Error);
}

}  // namespace

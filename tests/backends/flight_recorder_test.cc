// What the flight record says after calls that ended, failed and run still.
#include "backends/flight_recorder.h"

#include <gtest/gtest.h>

namespace {

using backends::FlightRecorder;
using backends::Operation;
using backends::ReduceOp;
using base::DType;

std::size_t occurrences(const std::string& text, const std::string& part) {
  std::size_t n = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
  return n;
}

TEST(FlightRecorder, TellsEachCallAndItsState) {
  FlightRecorder recorder;
  recorder.end(recorder.begin(0, backends::reduction_word(Operation::kAllReduce, 1, 7, DType::kBF16,
                                                          ReduceOp::kMax)),
               false);
  recorder.end(recorder.begin(1, backends::transfer_word(Operation::kBroadcast, 1, 12, 3)), true);
  recorder.begin(0, backends::transfer_word(Operation::kBarrier, 2, 0));
  const std::string json = recorder.to_json({2, 4, 99, "n\"7", "shm", "rank 1 died\n", "step 5"});
  for (const char* part :
       {"\"schema\":1", "\"rank\":2", "\"world_size\":4", "\"pid\":99", "\"host\":\"n\\\"7\"",
        "\"reason\":\"rank 1 died\\u000a\"", "\"activity\":\"step 5\"",
        "\"operation\":\"all_reduce\",\"count\":7,\"type\":\"bf16\",\"op\":\"max\"",
        "\"operation\":\"broadcast\",\"count\":12,\"type\":\"u8\",\"root\":3", "\"state\":\"done\"",
        "\"state\":\"failed\"", "\"end_us\":null,\"state\":\"running\""})
    EXPECT_NE(json.find(part), std::string::npos) << part << "\n" << json;
  EXPECT_EQ(occurrences(json, "\"communicator\":"), 3u);
}

TEST(FlightRecorder, KeepsTheLastOnes) {
  FlightRecorder recorder;
  const auto first = recorder.begin(0, backends::transfer_word(Operation::kBarrier, 1, 0));
  for (std::uint32_t i = 2; i <= FlightRecorder::kCapacity + 5; ++i)
    recorder.end(recorder.begin(0, backends::transfer_word(Operation::kBarrier, i, 0)), false);
  recorder.end(first, true);  // its place belongs to another call by now
  const std::string json = recorder.to_json({});
  EXPECT_EQ(occurrences(json, "\"sequence\":"), FlightRecorder::kCapacity);
  EXPECT_EQ(json.find("\"sequence\":5,"), std::string::npos);
  EXPECT_NE(json.find("\"sequence\":6,"), std::string::npos);
  EXPECT_EQ(json.find("failed"), std::string::npos);
}

}  // namespace

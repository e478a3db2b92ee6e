// What the flight record says after calls that ended, failed and run still.
#include "backends/flight_recorder.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <thread>
#include <vector>

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

std::atomic<std::int64_t> set_time{0};  // microseconds

// A clock that is set, by a user or a server of time, makes nobody wait longer.
TEST(FlightRecorder, ASetClockChangesNoDuration) {
  constexpr std::int64_t kHour = 3'600'000'000;
  FlightRecorder recorder(+[] { return base::unix_us() + set_time; });
  recorder.begin(0, backends::transfer_word(Operation::kBarrier, 1, 0));
  for (const std::int64_t hours : {100, -100, 0}) {
    set_time = hours * kHour;
    const std::int64_t waited = recorder.running().value().waited_us;
    EXPECT_GE(waited, 0) << hours;
    EXPECT_LT(waited, kHour) << hours;
  }
}

// The number behind `key` at or after `at`.
std::int64_t number_after(const std::string& text, const std::string& key, std::size_t at = 0) {
  at = text.find(key, at);
  if (at == std::string::npos) return -1;
  return std::strtoll(text.c_str() + at + key.size(), nullptr, 10);
}

std::int64_t now_us() {
  return std::chrono::duration_cast<std::chrono::microseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

TEST(FlightRecorder, TimesAreThoseOfTheDay) {
  FlightRecorder recorder;
  const std::int64_t before = now_us();
  const auto call = recorder.begin(0, backends::transfer_word(Operation::kBarrier, 1, 0));
  const std::int64_t begun = now_us();
  while (now_us() < begun + 20'000) std::this_thread::yield();
  const std::int64_t late = now_us();
  recorder.end(call, false);
  const std::int64_t after = now_us();
  const std::string json = recorder.to_json({});
  const std::int64_t begin_us = number_after(json, "\"begin_us\":"),
                     end_us = number_after(json, "\"end_us\":");
  constexpr std::int64_t kClocksDiffer = 2'000;
  EXPECT_GE(begin_us, before - kClocksDiffer);
  EXPECT_LE(begin_us, begun + kClocksDiffer);
  EXPECT_GE(end_us, late - kClocksDiffer);
  EXPECT_LE(end_us, after + kClocksDiffer);
}

TEST(FlightRecorder, TheLongestRunningCallIsToldWhileOthersEnd) {
  FlightRecorder recorder;
  EXPECT_FALSE(recorder.running());
  const auto first = recorder.begin(3, backends::transfer_word(Operation::kBroadcast, 7, 12, 1));
  for (std::uint32_t i = 1; i <= 2 * FlightRecorder::kCapacity; ++i)
    recorder.end(recorder.begin(0, backends::transfer_word(Operation::kBarrier, i, 0)), false);
  const auto running = recorder.running();
  ASSERT_TRUE(running);
  EXPECT_EQ(running->communicator, 3);
  EXPECT_EQ(running->call, backends::transfer_word(Operation::kBroadcast, 7, 12, 1));
  recorder.end(first, false);
  EXPECT_FALSE(recorder.running());
}

// Whoever reads while ranks call sees each call as a whole: here its count says which it is.
TEST(FlightRecorder, IsReadWholeWhileCallsAreMade) {
  FlightRecorder recorder;
  std::atomic<bool> done{false};
  std::vector<std::thread> callers;
  for (int c = 1; c <= 2; ++c) {
    callers.emplace_back([&recorder, &done, c] {
      for (std::uint32_t i = 1; !done.load(); ++i) {
        const std::size_t count = std::size_t{i} * 3 + static_cast<std::size_t>(c);
        recorder.end(recorder.begin(c, backends::transfer_word(Operation::kAllGather, i, count)),
                     false);
      }
    });
  }
  std::size_t read = 0;
  for (int n = 0; n < 10 || read < 10 * FlightRecorder::kCapacity / 2; ++n) {
    const std::string json = recorder.to_json({});
    for (std::size_t at = json.find("{\"communicator\":"); at != std::string::npos;
         at = json.find("{\"communicator\":", at + 1), ++read) {
      const std::int64_t c = number_after(json, "\"communicator\":", at),
                         sequence = number_after(json, "\"sequence\":", at),
                         begin = number_after(json, "\"begin_us\":", at),
                         end = number_after(json, "\"end_us\":", at);
      ASSERT_EQ(number_after(json, "\"count\":", at), sequence * 3 + c);
      if (end != 0) {  // null: it was running
        ASSERT_LE(begin, end);
      }
    }
    if (const auto running = recorder.running()) {
      ASSERT_EQ(running->call.count,
                running->call.sequence * 3ull + static_cast<std::uint64_t>(running->communicator));
    }
  }
  done = true;
  for (std::thread& caller : callers) caller.join();
}

}  // namespace

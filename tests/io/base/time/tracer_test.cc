// What a tracer keeps of the spans of its threads.
#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "io/base/time/trace.h"

namespace {

using base::Tracer;
using base::TraceSpan;
using base::TraceThread;

TEST(Tracer, RecordsSpansWithTheirNumbersInTheOrderInWhichTheyEnd) {
  Tracer tracer(8);
  tracer.set_recording(true);
  const TraceThread thread(&tracer, "training");
  {
    const TraceSpan step("step", {"step", 7});
    const TraceSpan call(tracer.keep(std::string("all") + "_reduce"), {"count", 3}, 42);
  }
  const Tracer::Record record = tracer.record();
  ASSERT_EQ(record.events.size(), 2u);
  const Tracer::Event &call = record.events[0], &step = record.events[1];
  EXPECT_EQ(record.names[call.name], "all_reduce");
  EXPECT_EQ(record.names[call.key], "count");
  EXPECT_EQ(call.value, 3);
  EXPECT_EQ(call.call, 42u);
  EXPECT_EQ(record.names[step.name], "step");
  EXPECT_EQ(step.call, 0u);
  EXPECT_LE(step.begin_ns, call.begin_ns);
  EXPECT_LE(call.begin_ns, call.end_ns);
  EXPECT_LE(call.end_ns, step.end_ns);
  EXPECT_EQ(record.threads, std::vector<std::string>{"training"});
  EXPECT_EQ(record.dropped, 0);
}

TEST(Tracer, KeepsTheLatestAndCountsTheOthers) {
  Tracer tracer(4);
  tracer.set_recording(true);
  const TraceThread thread(&tracer, "training");
  for (int i = 0; i < 11; ++i) const TraceSpan span("step", {"step", i});
  const Tracer::Record record = tracer.record();
  ASSERT_EQ(record.events.size(), 4u);
  EXPECT_EQ(record.dropped, 7);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(record.events[static_cast<std::size_t>(i)].value, 7 + i);
}

TEST(Tracer, RecordsNothingWhileItIsOffOrOnThreadsOfNobody) {
  Tracer tracer(4);
  { const TraceSpan before("a"); }
  const TraceThread thread(&tracer, "training");
  { const TraceSpan off("b"); }
  {
    const TraceSpan began_before("c");
    tracer.set_recording(true);
  }
  std::thread([] { const TraceSpan elsewhere("d"); }).join();
  {
    const TraceThread nobody(nullptr, "");
    EXPECT_EQ(Tracer::of_this_thread(), nullptr);
    const TraceSpan of_nobody("e");
  }
  EXPECT_EQ(Tracer::of_this_thread(), &tracer);
  { const TraceSpan recorded("f"); }
  const Tracer::Record record = tracer.record();
  ASSERT_EQ(record.events.size(), 1u);
  EXPECT_EQ(record.names[record.events[0].name], "f");
}

TEST(Tracer, TellsThreadsApart) {
  Tracer tracer(4);
  tracer.set_recording(true);
  const TraceThread thread(&tracer, "training");
  std::thread([&tracer] {
    const TraceThread traced(&tracer, "averaging");
    const TraceSpan span("bucket");
  }).join();
  { const TraceSpan span("step"); }
  const Tracer::Record record = tracer.record();
  ASSERT_EQ(record.events.size(), 2u);
  EXPECT_EQ(record.threads[record.events[0].thread], "averaging");
  EXPECT_EQ(record.threads[record.events[1].thread], "training");
}

std::vector<std::string> followed;  // calls of kFollower

constexpr base::SpanListener kFollower{
    .begin = [](const char* name) noexcept { followed.push_back(name); },
    .end = []() noexcept { followed.push_back("end"); },
    .name_thread = [](const char* name) noexcept { followed.push_back(name); }};

TEST(Tracer, AListenerFollowsSpansWhetherTheyAreRecordedOrNot) {
  followed.clear();
  Tracer tracer(4, &kFollower);
  {
    const TraceThread thread(&tracer, "training");
    const TraceSpan step("step");
    {
      const TraceSpan began_before("forward");
      tracer.set_recording(true);
    }
    {
      const TraceSpan recorded("backward");
      tracer.set_recording(false);
    }
    const TraceThread nobody(nullptr, "");
    const TraceSpan elsewhere("elsewhere");
  }
  EXPECT_EQ(followed, (std::vector<std::string>{"training", "step", "forward", "end", "backward",
                                                "end", "end"}));
  const Tracer::Record record = tracer.record();
  ASSERT_EQ(record.events.size(), 1u);
  EXPECT_EQ(record.names[record.events[0].name], "backward");
}

}  // namespace

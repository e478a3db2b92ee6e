// How the process ends when an error leaves a thread.
#include "tools/report/output/uncaught_errors.h"

#include <gtest/gtest.h>

#include <csignal>
#include <new>
#include <stdexcept>
#include <thread>

namespace {

template <class E>
void end_a_thread_by(const E& error) {
  tools::report_uncaught_errors();
  tools::report_uncaught_errors();  // a second time changes nothing
  std::thread([&] { throw error; }).join();
}

TEST(UncaughtErrors, NoMemoryIsOneLineAndAnExitCode) {
  EXPECT_EXIT(end_a_thread_by(std::bad_alloc()), testing::ExitedWithCode(69),
              "^engine: error: out of memory[^\n]*\n$");
}

TEST(UncaughtErrors, OthersAbortAsBefore) {
  EXPECT_EXIT(end_a_thread_by(std::runtime_error("a mistake")), testing::KilledBySignal(SIGABRT),
              "a mistake");
}

}  // namespace

// A line that says most and never wraps.
#include "tools/report/text/progress_line.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>

namespace {

using tools::progress_line;
using tools::ProgressState;

const ProgressState kState{.step = 300,
                           .total_steps = 1200,
                           .loss = 0.12345,
                           .rate = "1,280 images/s",
                           .seconds_left = 71.2};

TEST(ProgressLine, HasAllPartsWhereTheyFit) {
  const std::string all =
      "[######..................]   25 %  step 300/1200  loss 0.1235  1,280 images/s  ETA 1:12";
  EXPECT_EQ(progress_line(kState, 200), all);
  const int width = static_cast<int>(all.size());
  EXPECT_EQ(progress_line(kState, width + 1), all);
  EXPECT_EQ(progress_line(kState, width),
            " 25 %  step 300/1200  loss 0.1235  1,280 images/s  ETA 1:12")
      << "the last column stays free";
}

TEST(ProgressLine, LosesPartsAndNeverWraps) {
  EXPECT_EQ(progress_line(kState, 50), " 25 %  step 300/1200  loss 0.1235  ETA 1:12");
  EXPECT_EQ(progress_line(kState, 40), " 25 %  step 300/1200  ETA 1:12");
  EXPECT_EQ(progress_line(kState, 25), " 25 %  step 300/1200");
  EXPECT_EQ(progress_line(kState, 10), " 25 %");
  for (int columns = 0; columns < 120; ++columns)
    EXPECT_LT(static_cast<int>(progress_line(kState, columns).size()), std::max(1, columns));
}

TEST(ProgressLine, SaysNothingOfALossThatIsNotKnown) {
  ProgressState state = kState;
  state.loss.reset();
  EXPECT_EQ(progress_line(state, 80).find("loss"), std::string::npos);
}

TEST(ProgressLine, RatesAndTimesAreReadable) {
  const tools::ProgressUnit unit{"images", 1};
  EXPECT_EQ(tools::rate_text(unit, 1234567.4), "1,234,567 images/s");
  EXPECT_EQ(tools::rate_text(unit, 12.3), "12 images/s");
  EXPECT_EQ(tools::rate_text(unit, 0.26), "0.3 images/s");
  EXPECT_EQ(tools::rate_text({"tokens", 64}, 20), "1,280 tokens/s");
  EXPECT_EQ(tools::clock_text(0), "0:00");
  EXPECT_EQ(tools::clock_text(11.2), "0:12");
  EXPECT_EQ(tools::clock_text(3599.5), "1:00:00");
  EXPECT_EQ(tools::clock_text(36061), "10:01:01");
  EXPECT_EQ(tools::clock_text(-1), "0:00");
}

TEST(TerminalColumns, AreTheTerminals) {
  const int terminal = posix_openpt(O_RDWR | O_NOCTTY);
  if (terminal < 0) GTEST_SKIP() << "no pseudo-terminals here";
  winsize size{};
  size.ws_col = 33;
  ASSERT_EQ(ioctl(terminal, TIOCSWINSZ, &size), 0);
  EXPECT_EQ(tools::terminal_columns(terminal), 33);
  close(terminal);
  EXPECT_EQ(tools::terminal_columns(-1), 80);
}

}  // namespace

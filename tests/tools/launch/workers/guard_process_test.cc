// The guard that outlives a launcher, when somebody stops it.
#include "tools/launch/workers/guard_process.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

#include <memory>

namespace tools {
namespace {

TEST(GuardProcess, ThatIsStoppedIsNotWaitedForWithoutEnd) {
  auto guard = std::make_unique<GuardProcess>(true);
  const pid_t pid = guard->pid();
  ASSERT_EQ(kill(pid, SIGSTOP), 0);
  int status = 0;
  ASSERT_EQ(waitpid(pid, &status, WUNTRACED), pid);
  ASSERT_TRUE(WIFSTOPPED(status));
  guard.reset();
  EXPECT_EQ(kill(pid, 0), -1) << "it is still there";
}

}  // namespace
}  // namespace tools

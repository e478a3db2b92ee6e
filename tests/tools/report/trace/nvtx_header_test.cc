// Tests with NVIDIA's header that the library that plays a tool of NVTX is attached as real ones
// are.
#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/support/nvtx_log.h"
#include "tests/support/test_support.h"

#ifdef ENGINE_NVTX_HEADER
#include <nvtx3/nvToolsExt.h>
#endif

namespace {

TEST(NvtxHeader, AttachesTheSameTool) {
#ifdef ENGINE_NVTX_HEADER
  const test_support::TemporaryDirectory folder;
  for (const auto& [name, value] : nvtx_log::environment(folder / "log"))
    setenv(name.c_str(), value.c_str(), 1);
  nvtxRangePushA("outer");
  nvtxRangePushA("inner");
  nvtxRangePop();
  nvtxRangePop();
  for (const auto& [name, value] : nvtx_log::environment("")) unsetenv(name.c_str());
  EXPECT_EQ(nvtx_log::ranges(folder / "log").at("unnamed"),
            (std::vector<std::string>{"outer", "outer > inner"}));
#else
  GTEST_SKIP() << "built without NVIDIA's header";
#endif
}

}  // namespace

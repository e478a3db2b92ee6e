// Records of CUPTI, played by a library of the tests.
#include "tools/report/trace/device_activity.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "io/base/time/trace.h"
#include "tests/tools/report/trace/cupti_records.h"

#if defined(ENGINE_CUPTI_HEADER)
#include <cupti.h>

#include <cstddef>

// What the tests play is laid out as the real one.
#define EXPECT_PLACE(fake, field, real, name) \
  static_assert(offsetof(fake_cupti::fake, field) == offsetof(real, name))
EXPECT_PLACE(Kernel, start, CUpti_ActivityKernel9, start);
EXPECT_PLACE(Kernel, end, CUpti_ActivityKernel9, end);
EXPECT_PLACE(Kernel, device, CUpti_ActivityKernel9, deviceId);
EXPECT_PLACE(Kernel, stream, CUpti_ActivityKernel9, streamId);
EXPECT_PLACE(Kernel, name, CUpti_ActivityKernel9, name);
EXPECT_PLACE(Copy, direction, CUpti_ActivityMemcpy5, copyKind);
EXPECT_PLACE(Copy, bytes, CUpti_ActivityMemcpy5, bytes);
EXPECT_PLACE(Copy, start, CUpti_ActivityMemcpy5, start);
EXPECT_PLACE(Copy, device, CUpti_ActivityMemcpy5, deviceId);
EXPECT_PLACE(Copy, stream, CUpti_ActivityMemcpy5, streamId);
EXPECT_PLACE(Fill, bytes, CUpti_ActivityMemset4, bytes);
EXPECT_PLACE(Fill, start, CUpti_ActivityMemset4, start);
EXPECT_PLACE(Fill, device, CUpti_ActivityMemset4, deviceId);
EXPECT_PLACE(Fill, stream, CUpti_ActivityMemset4, streamId);
#endif

namespace {

using tools::DeviceActivity;
using tools::DeviceSpan;

struct Variable {
  Variable(const char* variable, const char* value) : name(variable) { setenv(name, value, 1); }
  ~Variable() { unsetenv(name); }
  const char* name;
};

class DeviceActivityTest : public ::testing::Test {
 protected:
  const Variable library_{"ENGINE_CUPTI_LIBRARY", FAKE_CUPTI_LIBRARY};
};

TEST_F(DeviceActivityTest, TellsKernelsAndCopiesOfADevice) {
  const std::int64_t begin = base::Tracer::now_ns();
  const DeviceActivity activity;
  ASSERT_EQ(activity.missing(), "");
  const std::vector<DeviceSpan> spans = activity.between(0, begin, INT64_MAX);
  ASSERT_EQ(spans.size(), 2u);
  EXPECT_EQ(spans[0].name, "copy to device");
  EXPECT_EQ(spans[0].bytes, 4096);
  EXPECT_EQ(spans[0].stream, 8u);
  EXPECT_EQ(spans[1].name, "engine::gemm_kernel");
  EXPECT_EQ(spans[1].bytes, -1);
  EXPECT_EQ(spans[1].stream, 7u);
  EXPECT_LE(begin, spans[0].begin_ns);
  EXPECT_LE(spans[0].end_ns, spans[1].begin_ns);
  EXPECT_LE(spans[1].end_ns, base::Tracer::now_ns());
  EXPECT_EQ(activity.between(1, begin, INT64_MAX).size(), 2u);  // one more since
  EXPECT_TRUE(activity.between(0, base::Tracer::now_ns(), INT64_MAX).empty());
}

TEST_F(DeviceActivityTest, KeepsRecordsWhileARankOfTheProcessNeedsThem) {
  const std::int64_t begin = base::Tracer::now_ns();
  const DeviceActivity one;
  {
    const DeviceActivity other;
    EXPECT_FALSE(other.between(0, begin, INT64_MAX).empty());
  }
  EXPECT_EQ(one.between(0, begin, INT64_MAX).size(), 4u);
}

TEST_F(DeviceActivityTest, SaysWhyItCannotRecord) {
  const Variable refuses("FAKE_CUPTI", "refuses");
  const DeviceActivity activity;
  EXPECT_EQ(activity.missing(), "CUPTI cannot record: NOT_PERMITTED");
  EXPECT_TRUE(activity.between(0, 0, INT64_MAX).empty());
}

TEST(DeviceActivityNames, AreThoseOfFunctions) {
  EXPECT_EQ(tools::kernel_name("_ZN6engine12_GLOBAL__N_111gemm_kernelIfLi128EEEvPKf"),
            "engine::gemm_kernel");
  EXPECT_EQ(tools::kernel_name("_Z3addPfi"), "add");
  EXPECT_EQ(tools::kernel_name("ncclDevKernel_AllReduce_Sum_f32_RING_LL"),
            "ncclDevKernel_AllReduce_Sum_f32_RING_LL");
}

}  // namespace

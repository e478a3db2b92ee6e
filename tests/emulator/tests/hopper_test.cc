// The interpreter of PTX with what sm_90a has for warps with roles, on kernels that nvcc compiled
// (hopper_kernels.cu): right results, and for each flaw a fault. Needs their PTX in ENGINE_TEST_PTX
// (tests/gpu/ptx_tests.sh).
#include "tests/emulator/tests/hopper_flaws.h"

#include <cudaTypedefs.h>
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "io/gpu/cuda_runtime.h"
#include "tests/emulator/ptx/decode/module.h"
#include "tests/emulator/ptx/instructions/matrix.h"
#include "tests/emulator/ptx/machine/run.h"

namespace ptx {
namespace {

// Device memory with these values.
template <class T>
class OnDevice {
 public:
  explicit OnDevice(const std::vector<T>& values) : values_(values) {
    device_ = base::cuda::allocate(values.size() * sizeof(T));
    const base::cuda::Stream stream;
    base::cuda::copy_async(device_, values_.data(), values.size() * sizeof(T), stream.handle());
    stream.synchronize();
  }
  ~OnDevice() { base::cuda::release(device_); }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

  void* device() const { return device_; }
  std::vector<T> values() {
    const base::cuda::Stream stream;
    base::cuda::copy_async(values_.data(), device_, values_.size() * sizeof(T), stream.handle());
    stream.synchronize();
    return values_;
  }

 private:
  std::vector<T> values_;
  void* device_;
};

PFN_cuTensorMapEncodeTiled_v12000 encode_tiled() {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult result;
  EXPECT_EQ(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000,
                                             cudaEnableDefault, &result),
            cudaSuccess);
  EXPECT_EQ(result, cudaDriverEntryPointSuccess);
  return reinterpret_cast<PFN_cuTensorMapEncodeTiled_v12000>(function);
}

CUtensorMap map_2d(CUtensorMapDataType type, void* device, cuuint64_t columns, cuuint64_t rows,
                   cuuint64_t row_bytes, cuuint32_t box_columns, cuuint32_t box_rows,
                   CUtensorMapSwizzle swizzle) {
  CUtensorMap map;
  const cuuint64_t size[] = {columns, rows};
  const cuuint32_t box[] = {box_columns, box_rows}, every[] = {1, 1};
  EXPECT_EQ(encode_tiled()(&map, type, 2, device, size, &row_bytes, box, every,
                           CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle, CU_TENSOR_MAP_L2_PROMOTION_NONE,
                           CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE),
            CUDA_SUCCESS);
  return map;
}

class Hopper : public ::testing::Test {
 public:
  void SetUp() override {
    const char* folder = std::getenv("ENGINE_TEST_PTX");
    if (folder == nullptr) GTEST_SKIP() << "ENGINE_TEST_PTX is not set";
    if (!can_run()) GTEST_SKIP() << "the processor lacks AVX2";
    module_ = Module::read(std::string(folder) + "/hopper_kernels.ptx");
    const char* seed = std::getenv("ENGINE_TEST_PTX_SEED");
    if (seed != nullptr) first_seed_ = static_cast<std::uint32_t>(std::atoi(seed));
  }

  // The fault's text, or nothing.
  template <class... Arguments>
  std::string run(const char* kernel, unsigned blocks, unsigned threads, std::size_t shared,
                  std::uint32_t seed, const Arguments&... arguments) {
    std::string fault;
    const auto program = module_->decode(kernel);
    std::vector<std::byte> bytes(program->parameter_bytes);
    std::size_t n = 0;
    const auto put = [&](const void* value, std::size_t size) {
      const Program::Parameter& p = program->parameters.at(n++);
      ASSERT_EQ(p.bytes, size);
      std::memcpy(bytes.data() + p.offset, value, size);
    };
    (put(&arguments, sizeof arguments), ...);
    const base::cuda::Stream stream;
    simt::enqueue(stream.handle(), [&] {
      try {
        ptx::run(*program, bytes.data(), {blocks, 1, 1}, {threads, 1, 1}, shared, {seed});
      } catch (const Fault& f) {
        fault = f.what();
      }
    });
    stream.synchronize();
    return fault;
  }

  // out = 2 in + 1; the last tile is half outside of the tensor.
  std::string pipeline(Flaw flaw, std::uint32_t seed) {
    constexpr int kTiles = 5;
    constexpr std::size_t kRows = 8 * kTiles - 4, kColumns = 30, kPitch = 32;
    std::vector<float> values(kRows * kPitch);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
    OnDevice<float> in(values), out(std::vector<float>(values.size(), -1.0f));
    const auto map = [&](void* device) {
      return map_2d(CU_TENSOR_MAP_DATA_TYPE_FLOAT32, device, kColumns, kRows, kPitch * 4, 32, 8,
                    CU_TENSOR_MAP_SWIZZLE_NONE);
    };
    std::string fault = run("tile_pipeline", 1, 96, 1024 + 3 * 1024 + 32, seed, map(in.device()),
                            map(out.device()), kTiles, static_cast<int>(flaw));
    if (!fault.empty()) return fault;
    const std::vector<float> results = out.values();
    for (std::size_t r = 0; r < kRows; ++r)
      for (std::size_t c = 0; c < kPitch; ++c) {
        const float expected = c < kColumns ? 2 * values[r * kPitch + c] + 1 : -1.0f;
        if (results[r * kPitch + c] != expected) return "wrong numbers";
      }
    return "";
  }

  std::string product(Flaw flaw, std::uint32_t seed) {
    constexpr int kBlocks = 5;
    constexpr std::size_t kDepth = 64 * kBlocks - 8;  // the last block is cut
    const auto operand = [&](int lines, int salt) {
      std::vector<std::uint16_t> values;
      for (int i = 0; i < lines * static_cast<int>(kDepth); ++i)
        values.push_back(to_bf16(static_cast<float>((i * 7 + i / 13 * salt) % 17 - 8) / 4));
      return values;
    };
    const std::vector<std::uint16_t> a = operand(64, 3), b = operand(128, 5);
    OnDevice<std::uint16_t> on_a(a), on_b(b);
    OnDevice<float> on_c(std::vector<float>(64 * 128));
    const auto map = [&](void* device, unsigned lines) {
      return map_2d(CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, device, kDepth, lines, kDepth * 2, 64, lines,
                    CU_TENSOR_MAP_SWIZZLE_128B);
    };
    std::string fault = run("swizzled_product", 1, 256, 1024 + 2 * 24576 + 32, seed,
                            map(on_a.device(), 64), map(on_b.device(), 128),
                            static_cast<float*>(on_c.device()), kBlocks, static_cast<int>(flaw));
    if (!fault.empty()) return fault;
    const std::vector<float> c = on_c.values();
    for (std::size_t row = 0; row < 64; ++row)
      for (std::size_t column = 0; column < 128; ++column) {
        float expected = 0;  // exact: multiples of 1/16
        for (std::size_t k = 0; k < kDepth; ++k)
          expected += from_bf16(a[row * kDepth + k]) * from_bf16(b[column * kDepth + k]);
        if (c[row * 128 + column] != expected) return "wrong numbers";
      }
    return "";
  }

  std::string multicast(Flaw flaw, std::uint32_t seed) {
    constexpr int kTiles = 5, kTile = 256;
    std::vector<float> values(kTiles * kTile);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
    OnDevice<float> in(values), out(std::vector<float>(2 * values.size(), -1.0f));
    const CUtensorMap map = map_2d(CU_TENSOR_MAP_DATA_TYPE_FLOAT32, in.device(), 32, 8 * kTiles,
                                   128, 32, 4, CU_TENSOR_MAP_SWIZZLE_NONE);
    std::string fault = run("multicast_copy", 2, 64, 1024 + 2 * 1024 + 32, seed, map,
                            static_cast<float*>(out.device()), kTiles, static_cast<int>(flaw));
    if (!fault.empty()) return fault;
    values.insert(values.end(), values.begin(), values.end());
    return out.values() == values ? "" : "wrong numbers";
  }

  using Kernel = std::string (Hopper::*)(Flaw, std::uint32_t);
  void expect_right(Kernel kernel) {
    for (std::uint32_t seed = first_seed_; seed < first_seed_ + 6; ++seed)
      EXPECT_EQ((this->*kernel)(kNone, seed), "") << "seed " << seed;
  }
  // Whatever the order; with the line of the kernel's source.
  void expect_fault(const std::string& part, Kernel kernel, Flaw flaw) {
    for (std::uint32_t seed = first_seed_; seed < first_seed_ + 3; ++seed) {
      const std::string fault = (this->*kernel)(flaw, seed);
      EXPECT_NE(fault.find(part), std::string::npos) << "seed " << seed << ": " << fault;
      EXPECT_NE(fault.find("hopper_kernels.ptx"), std::string::npos) << fault;
    }
  }

  std::unique_ptr<Module> module_;
  std::uint32_t first_seed_ = 0;
};

TEST_F(Hopper, TilesAreCopiedInAndOut) { expect_right(&Hopper::pipeline); }
TEST_F(Hopper, SwizzledTilesAreMultiplied) { expect_right(&Hopper::product); }
TEST_F(Hopper, HalvesAreCopiedToBothBlocks) { expect_right(&Hopper::multicast); }

TEST_F(Hopper, FlawsOfAPipelineAreFaults) {
  const auto fault = [&](const char* part, Flaw flaw) {
    expect_fault(part, &Hopper::pipeline, flaw);
  };
  fault("lacks 1 of 65 arrivals and 0 bytes", kCountsTooMany);
  fault("no fence.proxy.async or fence.mbarrier_init", kNoInitFence);
  fault("mbarrier", kNoInitBarrier);
  fault("is arrived at 1 times, 0 of 1 are pending", kNoEmptyWait);
  fault("and 16 bytes", kWrongBytes);
  fault("not aligned to 128 bytes", kMisaligned);
  fault("a race", kNoFullWait);
  fault("lacks 64 of 64 arrivals", kNoRelease);
  fault("a race", kLateRead);
  fault("which a copy still reads", kNoWaitForRead);
  fault("a race", kNoResultBarrier);
  fault("without fence.proxy.async", kNoProxyFence);
  fault("still reads shared memory", kNoWaitAtEnd);
}

TEST_F(Hopper, FlawsOfAProductAreFaults) {
  expect_fault("registers, of which", &Hopper::product, kTooManyRegisters);
  expect_fault("a race", &Hopper::product, kReleasedEarly);
}

TEST_F(Hopper, FlawsOfAClusterAreFaults) {
  expect_fault("before it is known to have started", &Hopper::multicast, kNoClusterStart);
  expect_fault("is arrived at 1 times, 0 of 1 are pending", &Hopper::multicast, kNoEmptyWait);
  expect_fault("lacks 32 of 64 arrivals", &Hopper::multicast, kNoRemoteRelease);
  expect_fault("of the cluster", &Hopper::multicast, kNoClusterEnd);
}

}  // namespace
}  // namespace ptx

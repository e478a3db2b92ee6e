// Copies in bulk and by tensor maps in the interpreter of PTX, and what the driver refuses about a
// tensor map.
#include <cudaTypedefs.h>
#include <cuda_runtime_api.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "tests/emulator/tests/ptx_fixture.h"

namespace ptx {
namespace {

// A tensor of 32-bit numbers; what is not said is as the tests mostly want it.
struct TensorShape {
  std::vector<cuuint64_t> size = {16, 8};
  std::vector<cuuint64_t> stride = {64};  // bytes, of dimensions 1 and up
  std::vector<cuuint32_t> box = {8, 4};
  std::vector<cuuint32_t> every = {1, 1};
  CUtensorMapSwizzle swizzle = CU_TENSOR_MAP_SWIZZLE_NONE;
  CUtensorMapDataType type = CU_TENSOR_MAP_DATA_TYPE_UINT32;
};

CUresult encode(const TensorShape& shape, void* address, CUtensorMap& map) {
  void* function = nullptr;
  cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault);
  return reinterpret_cast<PFN_cuTensorMapEncodeTiled_v12000>(function)(
      &map, shape.type, static_cast<cuuint32_t>(shape.size.size()), address, shape.size.data(),
      shape.stride.data(), shape.box.data(), shape.every.data(), CU_TENSOR_MAP_INTERLEAVE_NONE,
      shape.swizzle, CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
}

TEST(TensorMaps, AreRefusedAsByADriver) {
  CUtensorMap map;
  alignas(64) std::byte memory[256];
  EXPECT_EQ(encode({}, memory, map), CUDA_SUCCESS);
  EXPECT_EQ(encode({}, memory + 8, map), CUDA_ERROR_INVALID_VALUE);
  const auto refused = [&](auto&& change) {
    TensorShape shape;
    change(shape);
    return encode(shape, memory, map) == CUDA_ERROR_INVALID_VALUE;
  };
  EXPECT_TRUE(refused([](auto& s) { s.stride = {72}; }));
  EXPECT_TRUE(refused([](auto& s) { s.box = {8, 257}; }));
  EXPECT_TRUE(refused([](auto& s) { s.box = {8, 0}; }));
  EXPECT_TRUE(refused([](auto& s) { s.box = {6, 4}; }));
  EXPECT_TRUE(refused([](auto& s) { s.every = {1, 9}; }));
  EXPECT_TRUE(refused([](auto& s) { s.size = {0, 8}; }));
  EXPECT_TRUE(refused([](auto& s) { s.size = {}; }));
  EXPECT_TRUE(refused([](auto& s) {
    s.box = {16, 4};
    s.swizzle = CU_TENSOR_MAP_SWIZZLE_32B;
  }));
  void* function = &map;
  cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSuccess;
  EXPECT_EQ(cudaGetDriverEntryPointByVersion("cuLaunchKernel", &function, 12000, cudaEnableDefault,
                                             &result),
            cudaSuccess);
  EXPECT_EQ(result, cudaDriverEntryPointSymbolNotFound);
  EXPECT_EQ(function, nullptr);
}

// values: the tensor map, then the tensor from 128 bytes on, then what comes out, 4 KiB further.
constexpr unsigned kTensor = 32, kOut = 32 + 1024;
// The tile is at address 2048 of shared memory, the mbarrier at its start; thread 0 copies.
const std::string kOne =
    "setp.ne.u32 %p1, %r0, 0; @%p1 bra END;\nmov.u32 %r10, engine_block_shared; mov.u32 %r11, "
    "2048; "
    "add.s64 %rd2, %rd0, 128; add.s64 %rd3, %rd0, 4224;\n"
    "mbarrier.init.shared::cta.b64 [%r10], 1;\nfence.proxy.async.shared::cta;\n";
const std::string kEnd = "cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;\nEND:";
std::string arrive_and_wait(unsigned bytes) {
  return "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r10], " + std::to_string(bytes) +
         ";\nWAIT: mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r10], 0; @!%p3 bra WAIT;\n";
}
// The tile as it lies in shared memory.
std::string bring_out(unsigned bytes) {
  return "cp.async.bulk.global.shared::cta.bulk_group [%rd3], [%r11], " + std::to_string(bytes) +
         ";\n";
}

class PtxCopies : public Ptx {
 public:
  std::string run_copy(const std::string& body, std::uint32_t seed = 0) {
    values.assign(kOut + 1024, 0);
    for (unsigned n = 0; n < 1024; ++n) values[kTensor + n] = n;
    for (unsigned n = 0; n < 1024; ++n) values[kOut + n] = 77;
    prepare = [this](void* device) {
      CUtensorMap map;
      EXPECT_EQ(encode(shape, static_cast<std::byte*>(device) + 128, map), CUDA_SUCCESS);
      std::memcpy(values.data(), &map, sizeof map);
    };
    return run(kOne + body + kEnd, 32, 8192, seed);
  }
  void expect_copy_fault(const std::string& part, const std::string& body) {
    const std::string fault = run_copy(body);
    EXPECT_NE(fault.find(part), std::string::npos) << fault << "\n" << body;
  }
  // A box of `place`, as it comes to lie.
  std::vector<std::uint32_t> box_at(const std::string& place, unsigned bytes) {
    const std::string rank = std::to_string(shape.size.size());
    EXPECT_EQ(
        run_copy("cp.async.bulk.tensor." + rank +
                 "d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r11], [%rd0, {" +
                 place + "}], [%r10];\n" + arrive_and_wait(bytes) + bring_out(bytes)),
        "");
    return {values.begin() + kOut, values.begin() + kOut + bytes / 4};
  }
  TensorShape shape;
};

TEST_F(PtxCopies, StraightOnes) {
  for (std::uint32_t seed = 0; seed < 5; ++seed) {
    EXPECT_EQ(run_copy("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r11], "
                       "[%rd2], 64, [%r10];\n" +
                           arrive_and_wait(64) + bring_out(64),
                       seed),
              "");
    for (unsigned n = 0; n < 17; ++n) EXPECT_EQ(values[kOut + n], n < 16 ? n : 77);
  }
  const auto copy = [](const std::string& change, unsigned bytes = 64) {
    return change +
           "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r11], [%rd2], " +
           std::to_string(bytes) + ", [%r10];\n" + arrive_and_wait(bytes);
  };
  expect_copy_fault("its size 72 is not a multiple of 16", copy("", 72));
  expect_copy_fault("the address in global memory", copy("add.s64 %rd2, %rd2, 8;"));
  expect_copy_fault("the address in shared memory", copy("add.s32 %r11, %r11, 8;"));
  expect_copy_fault("is beyond its allocation", copy("add.s64 %rd2, %rd2, 8064;", 256));
  expect_copy_fault("is beyond the block's", copy("add.s32 %r11, %r11, 8192;"));
  expect_copy_fault("still writes",
                    "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::"
                    "bytes [%r11], [%rd2], 64, [%r10];\nld.shared.u32 %r1, [%r11];" +
                        arrive_and_wait(64));
  expect_copy_fault("which a copy still reads",
                    copy("") + bring_out(64) + "st.shared.u32 [%r11], %r0;");
  expect_copy_fault("ends while the copy of",
                    "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r11], "
                    "[%rd2], 64, [%r10];\n");
}

TEST_F(PtxCopies, OfBoxesWithZerosOutside) {
  const auto box = box_at("12, -1", 128);  // columns 12 to 19 of 16, rows -1 to 2
  for (unsigned row = 0; row < 4; ++row)
    for (unsigned column = 0; column < 8; ++column)
      EXPECT_EQ(box[row * 8 + column], row == 0 || column >= 4 ? 0 : (row - 1) * 16 + 12 + column);
  shape.every = {1, 2};  // every second row
  const auto sparse = box_at("-2, 1", 64);
  for (unsigned row = 0; row < 2; ++row)
    for (unsigned column = 0; column < 8; ++column)
      EXPECT_EQ(sparse[row * 8 + column], column < 2 ? 0 : (1 + 2 * row) * 16 + column - 2);
}

TEST_F(PtxCopies, OfAllRanks) {
  shape = {{64}, {}, {8}, {1}};
  EXPECT_EQ(box_at("5", 32)[2], 7u);
  shape = {{4, 4, 4, 4, 4}, {16, 64, 256, 1024}, {4, 2, 2, 1, 2}, {1, 1, 1, 1, 1}};
  const auto box = box_at("0, 1, 2, 3, 1", 128);
  for (unsigned n = 0; n < 32; ++n)
    EXPECT_EQ(box[n],
              n / 16 * 256 + 256 + 3 * 64 + (2 + n / 8 % 2) * 16 + (1 + n / 4 % 2) * 4 + n % 4);
}

TEST_F(PtxCopies, Swizzles) {
  // The chunk of 16 bytes c of a row of the pattern's bytes lies at c xor (address / 128).
  const auto expect_swizzle = [&](CUtensorMapSwizzle swizzle, unsigned numbers) {
    shape = {{numbers, 1024 / numbers}, {numbers * 4}, {numbers, 16}, {1, 1}, swizzle};
    const auto box = box_at("0, 0", numbers * 64);
    for (unsigned n = 0; n < numbers * 16; ++n) {
      const unsigned row_of_128 = n / 32, chunk = n / 4 % (numbers / 4);
      const unsigned place = (chunk ^ (row_of_128 % (numbers / 4))) * 4 + n % 4;
      EXPECT_EQ(box[n / numbers * numbers + place], n);
    }
  };
  expect_swizzle(CU_TENSOR_MAP_SWIZZLE_32B, 8);
  expect_swizzle(CU_TENSOR_MAP_SWIZZLE_64B, 16);
  expect_swizzle(CU_TENSOR_MAP_SWIZZLE_128B, 32);
}

TEST_F(PtxCopies, SumsInGlobalMemory) {
  const std::string copy =
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r11], [%rd2], 128, "
      "[%r10];\n" +
      arrive_and_wait(128);
  EXPECT_EQ(run_copy(copy + "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%rd3], "
                            "[%r11], 64;\n"),
            "");
  EXPECT_EQ(values[kOut + 5], 77u + 5);
  EXPECT_EQ(values[kOut + 16], 77u);
  EXPECT_EQ(run_copy(copy + "cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group "
                            "[%rd0, {8, 7}], [%r11];\n"),
            "");
  EXPECT_EQ(values[kTensor + 7 * 16 + 8 + 3], 7 * 16 + 8 + 3 + 3u);
  EXPECT_EQ(values[kTensor + 128], 128u);  // rows beyond the tensor are left alone
}

TEST_F(PtxCopies, OfTensorsAreChecked) {
  const auto copy = [](const std::string& opcode, const std::string& map,
                       const std::string& place) {
    return "cp.async.bulk.tensor." + opcode +
           ".shared::cluster.global.mbarrier::complete_tx::bytes [%r11], [" + map + ", {" + place +
           "}], [%r10];\n" + arrive_and_wait(128);
  };
  expect_copy_fault("a copy of 3 dimensions by a tensor map of 2", copy("3d", "%rd0", "0, 0, 0"));
  expect_copy_fault("no tensor map at this address", copy("2d", "%rd2", "0, 0"));
  expect_copy_fault("not aligned to 128", "add.s32 %r11, %r11, 64;" + copy("2d", "%rd0", "0, 0"));
  expect_copy_fault("is beyond the block's",
                    "add.s32 %r11, %r11, 7296;" + copy("2d", "%rd0", "0, 0"));
  expect_copy_fault("phase 0 lacks 0 of 1 arrivals and -64 bytes",
                    "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
                    "[%r11], [%rd0, {0, 0}], [%r10];\n" +
                        arrive_and_wait(64));
}

}  // namespace
}  // namespace ptx

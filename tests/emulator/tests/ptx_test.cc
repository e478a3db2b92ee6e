// The interpreter of PTX, instruction by instruction and fault by fault, with kernels written by
// hand.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "tests/emulator/ptx/interpreter.h"
#include "tests/emulator/tests/ptx_fixture.h"

namespace ptx {
namespace {

std::uint32_t bits(float value) { return std::bit_cast<std::uint32_t>(value); }

TEST_F(Ptx, IntegersWrapAndShiftsEndAtTheWidth) {
  expect_result(2, "mov.u32 %r2, -1; add.s32 %r1, %r2, 3;");
  expect_result(0xfffffffe, "mov.u32 %r2, -1; mul.lo.s32 %r1, %r2, 2;");
  expect_result(1, "mov.u32 %r2, -1; mul.hi.u32 %r1, %r2, 2;");
  expect_result(0, "mov.u32 %r2, -1; shl.b32 %r1, %r2, 32;");
  expect_result(0xffffffff, "mov.u32 %r2, -8; shr.s32 %r1, %r2, 40;");
  expect_result(0x0fffffff, "mov.u32 %r2, -8; shr.u32 %r1, %r2, 4;");
  expect_result(0xfffffffd, "mov.u32 %r2, -7; div.s32 %r1, %r2, 2;");
  expect_result(0xffffffff, "mov.u32 %r2, -7; rem.s32 %r1, %r2, 2;");
  expect_result(0xffffff80, "mov.u32 %r2, 128; cvt.s32.s8 %r1, %r2;");
  expect_result(7, "mov.u64 %rd2, 4294967303; cvt.u32.u64 %r1, %rd2;");
  expect_result(0xffffff5f, "mov.u32 %r2, -11; mov.u32 %r3, -1; bfi.b32 %r1, %r2, %r3, 4, 4;");
  expect_result(0xffffff5f,
                "mov.u64 %rd2, -11; mov.u64 %rd3, -1; bfi.b64 %rd4, %rd2, %rd3, 36, 4; "
                "shr.u64 %rd4, %rd4, 32; cvt.u32.u64 %r1, %rd4;");
  // Beyond the last bit: zeros, or copies of the sign.
  expect_result(0x5, "mov.u32 %r2, 0xa0; bfe.u32 %r1, %r2, 5, 3;");
  expect_result(0xa, "mov.u32 %r2, 0xa0000000; bfe.u32 %r1, %r2, 28, 9;");
  expect_result(0xfffffffd, "mov.u32 %r2, 0xa0; bfe.s32 %r1, %r2, 5, 3;");
  expect_result(0xfffffffa, "mov.u32 %r2, 0xa0000000; bfe.s32 %r1, %r2, 28, 9;");
  expect_result(0xffffffff, "mov.u32 %r2, 0x80000000; bfe.s32 %r1, %r2, 40, 1;");
  expect_result(0, "mov.u32 %r2, -1; bfe.s32 %r1, %r2, 3, 0;");
  expect_result(0x5,
                "mov.u64 %rd2, 0xa000000000; bfe.u64 %rd3, %rd2, 37, 3; cvt.u32.u64 %r1, %rd3;");
  expect_result(0x44332288,
                "mov.u32 %r2, 0x44332211; mov.u32 %r3, 0x88776655; "
                "prmt.b32 %r1, %r2, %r3, 0x3217;");
  expect_result(0x20001, "mov.u16 %h1, 1; mov.u16 %h2, 2; mov.b32 %r1, {%h1, %h2};");
  expect_result(9, "mov.u64 %rd2, 38654705665; mov.b64 {%r2, %r1}, %rd2;");
}

TEST_F(Ptx, FloatsRoundAsAsked) {
  expect_result(bits(std::fma(1.1f, 1.3f, -1.43f)),
                "mov.f32 %f1, 0f3F8CCCCD; mov.f32 %f2, 0f3FA66666; mov.f32 %f3, 0fBFB70A3D; "
                "fma.rn.f32 %f4, %f1, %f2, %f3; mov.b32 %r1, %f4;");
  // 1 - 2^-30 is 1 - 2^-24, or 1.
  expect_result(0x3f7fffff,
                "mov.f32 %f1, 0fB0800000; mov.f32 %f2, 0f3F800000; "
                "fma.rm.f32 %f4, %f1, %f2, %f2; mov.b32 %r1, %f4;");
  expect_result(0x3f800000,
                "mov.f32 %f1, 0fB0800000; mov.f32 %f2, 0f3F800000; "
                "fma.rn.f32 %f4, %f1, %f2, %f2; mov.b32 %r1, %f4;");
  expect_result(bits(8.0f), "mov.f32 %f1, 0f40400000; ex2.approx.f32 %f2, %f1; mov.b32 %r1, %f2;");
  expect_result(bits(0.0f), "mov.f32 %f1, 0f7FC00000; cvt.sat.f32.f32 %f2, %f1; mov.b32 %r1, %f2;");
  expect_result(bits(-2.0f),
                "mov.f32 %f1, 0fBF8CCCCD; cvt.rmi.f32.f32 %f2, %f1; mov.b32 %r1, %f2;");
  // Ties: to even, and away from zero.
  // 1 + 1.5 * 2^-24 and 1 - 2^-30, whose nearest floats are 1 + 2^-23 and 1.
  expect_result(0x3f800000,
                "mov.f32 %f1, 0f3F800000; mov.f32 %f2, 0f33C00000; "
                "add.rz.f32 %f3, %f1, %f2; mov.b32 %r1, %f3;");
  expect_result(0x3f7fffff,
                "mov.f32 %f1, 0f3F800000; mov.f32 %f2, 0fB0800000; "
                "add.rz.f32 %f3, %f1, %f2; mov.b32 %r1, %f3;");
  expect_result(0x3f80, "mov.f32 %f1, 0f3F808000; cvt.rn.bf16.f32 %h1, %f1; cvt.u32.u16 %r1, %h1;");
  expect_result(0x3f82, "mov.f32 %f1, 0f3F818000; cvt.rn.bf16.f32 %h1, %f1; cvt.u32.u16 %r1, %h1;");
  expect_result(0x3f802000, "mov.f32 %f1, 0f3F801000; cvt.rna.tf32.f32 %r1, %f1;");
  expect_result(0x7c00, "mov.f32 %f1, 0f477FF000; cvt.rn.f16.f32 %h1, %f1; cvt.u32.u16 %r1, %h1;");
  expect_result(0x0001, "mov.f32 %f1, 0f33800000; cvt.rn.f16.f32 %h1, %f1; cvt.u32.u16 %r1, %h1;");
  expect_result(0x33800000, "mov.u16 %h1, 1; cvt.f32.f16 %f1, %h1; mov.b32 %r1, %f1;");
  expect_result(bits(-2.0f), "mov.u16 %h1, 65534; cvt.rn.f32.s16 %f1, %h1; mov.b32 %r1, %f1;");
}

TEST_F(Ptx, ComparisonsKnowNaN) {
  const std::string nan = "mov.f32 %f1, 0f7FC00000; mov.f32 %f2, 0f3F800000; ";
  const auto compare = [&](const std::string& test) {
    return nan + "setp." + test + ".f32 %p1, %f1, %f2; selp.u32 %r1, 1, 0, %p1;";
  };
  for (const char* test : {"eq", "ne", "lt", "le", "gt", "ge", "num"})
    expect_result(0, compare(test));
  for (const char* test : {"equ", "neu", "ltu", "leu", "gtu", "geu", "nan"})
    expect_result(1, compare(test));
}

TEST_F(Ptx, LanesPartAndMeetAgain) {
  // Each lane counts to its own number; then all shuffle together.
  const auto r = results(
      "mov.u32 %r1, 0;\nLOOP: setp.ge.u32 %p1, %r1, %r0; @%p1 bra DONE; add.s32 %r1, %r1, 1; "
      "bra.uni LOOP;\nDONE: mov.u32 %r3, 31; mov.u32 %r4, -1; "
      "shfl.sync.bfly.b32 %r1|%p2, %r1, 1, %r3, %r4;");
  for (unsigned l = 0; l < 32; ++l) EXPECT_EQ(r[l], l ^ 1);
}

TEST_F(Ptx, GuardsKeepWhatOtherLanesHave) {
  const auto r = results("mov.u32 %r1, 7; setp.lt.u32 %p1, %r0, 4; @!%p1 mov.u32 %r1, %r0;");
  EXPECT_EQ(r[3], 7u);
  EXPECT_EQ(r[4], 4u);
}

TEST_F(Ptx, PlacesOfRegistersAreNotSharedAcrossLoops) {
  // %r2 is written in front of a loop and read in it; %r3 is written late in one turn and read
  // early in the next.
  const auto r = results(
      "mov.u32 %r2, 5; mov.u32 %r3, 0; mov.u32 %r4, 0; mov.u32 %r1, 0;\n"
      "TURN: add.s32 %r1, %r1, %r3; mov.u32 %r5, 100; mov.u32 %r6, 200; add.s32 %r5, %r5, %r6; "
      "mov.u32 %r3, %r2; add.s32 %r4, %r4, 1; setp.lt.u32 %p1, %r4, 4; @%p1 bra TURN;");
  EXPECT_EQ(r[0], 15u);
}

TEST_F(Ptx, BlocksKnowTheirNumber) {
  values.assign(96, 0);
  EXPECT_EQ(run("mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mad.lo.s32 %r4, %r2, %r3, %r0; "
                "mul.wide.u32 %rd2, %r4, 4; add.s64 %rd2, %rd0, %rd2; st.global.u32 [%rd2], %r4;",
                32, 0, 0, 3),
            "");
  for (unsigned i = 0; i < 96; ++i) EXPECT_EQ(values[i], i);
}

// nvcc 12 writes some of them so, e.g. where a pointer may be null.
TEST_F(Ptx, GenericAddressesAreThoseOfGlobalMemory) {
  values.assign(32, 5);
  EXPECT_EQ(run("mul.wide.u32 %rd2, %r0, 4; add.s64 %rd2, %rd0, %rd2; ld.u32 %r1, [%rd2]; "
                "add.s32 %r1, %r1, %r0; st.u32 [%rd2], %r1;"),
            "");
  for (unsigned i = 0; i < 32; ++i) EXPECT_EQ(values[i], 5 + i);
  expect_fault("in no device memory", "mov.u64 %rd2, 64; ld.u32 %r1, [%rd2];");
}

TEST_F(Ptx, FunctionsAreCalled) {
  const Module module("hand.ptx",
                      ".func (.param .b64 back) twice(\n.param .b64 given\n)\n{ .reg .f64 %d<3>; "
                      "ld.param.f64 %d1, [given+0]; add.f64 %d2, %d1, %d1; "
                      "st.param.f64 [back+0], %d2; ret; }\n"
                      ".entry hand()\n{ .reg .f64 %d<3>; mov.f64 %d1, 0d3FF0000000000000;\n"
                      "{ .param .b64 a; st.param.f64 [a+0], %d1; .param .b64 r; "
                      "call.uni (r), twice, (a); ld.param.f64 %d2, [r+0]; } ret; }\n");
  EXPECT_EQ(module.decode("hand")->code.size(), 8u);
}

TEST_F(Ptx, BarriersOrderSharedMemory) {
  const std::string write = kSharedPlace + "st.shared.u32 [%r12], %r0; ",
                    read =
                        "mov.u32 %r13, 252; sub.s32 %r13, %r13, %r11; add.s32 %r13, %r10, %r13; "
                        "ld.shared.u32 %r1, [%r13]; st.global.u32 [%rd1], %r1;";
  values.assign(64, 0);
  for (std::uint32_t seed = 0; seed < 5; ++seed) {
    EXPECT_EQ(run(write + "bar.sync 0; " + read, 64, 256, seed), "");
    for (unsigned i = 0; i < 64; ++i) EXPECT_EQ(values[i], 63 - i);
  }
  expect_fault("a race: warp 1 writes", write + read, 64, 256);
  // The next write needs one, too.
  expect_fault("a race: warp 1 reads", write + "bar.sync 0; " + read + "st.shared.u32 [%r12], %r0;",
               64, 256);
}

TEST_F(Ptx, LanesOfAWarpAreOrderedToo) {
  const std::string write = kSharedPlace + "st.shared.u32 [%r12], %r0; ",
                    other =
                        "mov.u32 %r13, 124; sub.s32 %r13, %r13, %r11; add.s32 %r13, %r10, %r13; ",
                    read = "ld.shared.u32 %r1, [%r13]; ", order = "bar.warp.sync -1; ",
                    result = "st.global.u32 [%rd1], %r1;";
  EXPECT_EQ(run(write + other + order + read + result, 32, 128), "");
  for (unsigned i = 0; i < 32; ++i) EXPECT_EQ(values[i], 31 - i);
  expect_fault("warp 0: shared memory from byte 124 on is read by lane 0 after lane 31 touched it",
               write + other + read + result, 32, 128);
  // The next write needs one, too, and a place that all have read.
  expect_fault("is written by lane 0 after lane 31 touched it",
               write + other + order + read + "st.shared.u32 [%r12], %r1; " + result, 32, 128);
  expect_fault("is written by lane 0 after several lanes touched it",
               write + order + "ld.shared.u32 %r1, [%r10]; st.shared.u32 [%r12], %r1;", 32, 128);
  EXPECT_EQ(run(write + other + order + read + order + "st.shared.u32 [%r12], %r1;", 32, 128), "");
  // What a shuffle passes on is ordered, memory is not.
  expect_fault("without bar.warp.sync",
               write + other +
                   "mov.u32 %r3, 31; mov.u32 %r4, -1; mov.u32 %r5, 1; "
                   "shfl.sync.bfly.b32 %r2|%p1, %r0, %r5, %r3, %r4; " +
                   read,
               32, 128);
}

TEST_F(Ptx, AsynchronousCopies) {
  const auto with = [&](const std::string& body, std::uint32_t seed = 0) {
    values.assign(32, 0x01020304);
    const std::string fault =
        run(kSharedPlace + body + " st.global.u32 [%rd1], %r1;", 32, 4096, seed);
    return fault.empty() ? values[7] : 0;
  };
  const std::string copy = "cp.async.ca.shared.global [%r12], [%rd1], 4; ",
                    load = "ld.shared.u32 %r1, [%r12];";
  EXPECT_EQ(with(copy + "cp.async.commit_group; cp.async.wait_group 0; " + load), 0x01020304u);
  // Read too early: what was there. With a seed it may have arrived.
  const std::string early = copy + "cp.async.commit_group; " + load + " cp.async.wait_group 0;";
  EXPECT_EQ(with(early), 0xffffffffu);
  // Not waited for, as one group may still be under way.
  EXPECT_EQ(with(copy + "cp.async.commit_group; cp.async.wait_group 1; " + load +
                 "cp.async.wait_group 0;"),
            0xffffffffu);
  // Not committed: no wait is for it.
  EXPECT_EQ(with(copy + "cp.async.wait_group 0; " + load +
                 "cp.async.commit_group; "
                 "cp.async.wait_group 0;"),
            0xffffffffu);
  // A part, and nothing.
  EXPECT_EQ(with("mov.u32 %r2, 2; cp.async.ca.shared.global [%r12], [%rd1], 4, %r2; "
                 "cp.async.commit_group; cp.async.wait_group 0; " +
                 load),
            0x0304u);
  EXPECT_EQ(with("{.reg .pred p; setp.eq.u32 p, 0, 0; cp.async.ca.shared.global [%r12], [%rd1], 4, "
                 "p;} cp.async.commit_group; cp.async.wait_group 0; " +
                 load),
            0u);
  expect_fault("ends without waiting", kSharedPlace + copy, 32, 128);
}

TEST_F(Ptx, MatricesAreMultiplied) {
  // A and B all ones (bf16), C 2: 16 products of 1 and 2.
  const auto r = results(
      "mov.u32 %r2, 0x3f803f80; mov.f32 %f1, 0f40000000; "
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%f2,%f3,%f4,%f5}, {%r2,%r2,%r2,%r2}, "
      "{%r2,%r2}, {%f1,%f1,%f1,%f1}; mov.b32 %r1, %f5;");
  for (const std::uint32_t each : r) EXPECT_EQ(each, bits(18.0f));
}

// Each of ones (f16), C 2: 8 products in m16n8k8, 4 in each group of lanes of m8n8k4.
TEST_F(Ptx, MatricesAreMultipliedAsBefore80) {
  const auto whole = results(
      "mov.u32 %r2, 0x3c003c00; mov.f32 %f1, 0f40000000; "
      "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%f2,%f3,%f4,%f5}, {%r2,%r2}, {%r2}, "
      "{%f1,%f1,%f1,%f1}; mov.b32 %r1, %f5;");
  for (const std::uint32_t each : whole) EXPECT_EQ(each, bits(10.0f));
  const auto groups = results(
      ".reg .f32 %d<8>; mov.u32 %r2, 0x3c003c00; mov.f32 %f1, 0f40000000; "
      "mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32 {%d0,%d1,%d2,%d3,%d4,%d5,%d6,%d7}, "
      "{%r2,%r2}, {%r2,%r2}, {%f1,%f1,%f1,%f1,%f1,%f1,%f1,%f1}; mov.b32 %r1, %d7;");
  for (const std::uint32_t each : groups) EXPECT_EQ(each, bits(6.0f));
}

// A warpgroup multiplies ones: A [64, 16], B [16, 128] in shared memory from address 2048 on.
struct WarpgroupKernel {
  std::string fill = "st.shared.u32 [%r12], %r2;", publish = "fence.proxy.async.shared::cta;",
              barrier = "bar.sync 0;", fence = "wgmma.fence.sync.aligned;",
              commit = "wgmma.commit_group.sync.aligned;", between,
              wait = "wgmma.wait_group.sync.aligned 0;", end;
  std::string text() const {
    std::string registers;
    for (int n = 0; n < 64; ++n) registers += (n > 0 ? ", %a" : "%a") + std::to_string(n);
    std::string zeros;
    for (int n = 0; n < 64; ++n) zeros += "mov.f32 %a" + std::to_string(n) + ", 0f3F800000; ";
    return ".reg .f32 %a<64>; " + zeros +
           "mov.u32 %r2, 0x3f803f80; shl.b32 %r11, %r0, 2; add.s32 %r12, %r11, 2048; "
           "mov.u32 %r3, 0;\nFILL: " +
           fill +
           " add.s32 %r12, %r12, 512; add.s32 %r3, %r3, 1; setp.lt.u32 %p1, %r3, 48; "
           "@%p1 bra FILL;\n" +
           publish + "\n" + barrier + "\n" + fence +
           "\nmov.u64 %rd2, 4611686293305360512; mov.u64 %rd3, 4611686293305361024; "
           "setp.eq.u32 %p2, 0, 0;\nwgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" +
           registers + "}, %rd2, %rd3, %p2, 1, 1, 0, 0;\n" + commit + "\n" + between + "\n" + wait +
           "\nst.global.f32 [%rd1], %a63;\n" + end;
  }
};

TEST_F(Ptx, WarpgroupsMultiply) {
  constexpr std::size_t kShared = 896 + 3 * 8192;
  values.assign(128, 0);
  for (std::uint32_t seed = 0; seed < 3; ++seed) {
    EXPECT_EQ(run(WarpgroupKernel{}.text(), 128, kShared, seed), "");
    for (const std::uint32_t each : values) EXPECT_EQ(each, bits(17.0f));
  }
  const auto fault = [&](const std::string& part, auto&& change) {
    WarpgroupKernel kernel;
    change(kernel);
    expect_fault(part, kernel.text(), 128, kShared);
  };
  fault("without wgmma.fence", [](auto& k) { k.fence = ""; });
  fault("without fence.proxy.async", [](auto& k) { k.publish = ""; });
  fault("a race", [](auto& k) { k.barrier = ""; });
  fault("ends without waiting for its wgmma", [](auto& k) { k.wait = ""; });
  fault("ends without waiting for its wgmma", [](auto& k) { k.commit = ""; });
  fault("changed while it was read", [](auto& k) {
    k.between =
        "bar.sync 0; shl.b32 %r11, %r0, 2; add.s32 %r12, %r11, 2048; mov.u32 %r2, 0; "
        "st.shared.u32 [%r12], %r2;";
  });
  fault("written before it was waited for", [](auto& k) {
    k.between =
        "mov.f32 %a5, %a6;"
        "mov.f32 %a5, 0f00000000;";
  });
  expect_fault("beyond", WarpgroupKernel{}.text(), 128, kShared - 64);
}

TEST_F(Ptx, FaultsNameTheLine) {
  const std::string fault = run("\n\nld.global.u32 %r1, [%rd1+1024];");
  EXPECT_NE(fault.find("hand.ptx:17: address"), std::string::npos) << fault;
  EXPECT_NE(fault.find("hand, block 0,0,0, warp 0"), std::string::npos) << fault;
}

TEST_F(Ptx, AccessesAreChecked) {
  expect_fault("in no device memory", "ld.global.u32 %r1, [%rd1+4];");
  expect_fault("not aligned", "ld.global.u32 %r1, [%rd1+2];");
  expect_fault("in no device memory", "mov.u64 %rd2, 64; ld.global.u32 %r1, [%rd2];");
  expect_fault("beyond the block's 128 bytes", kSharedPlace + "ld.shared.u32 %r1, [%r12+4];", 32,
               128);
  expect_fault("beyond the block's", "mov.u32 %r2, 0; ld.shared.u32 %r1, [%r2];", 32, 128);
  expect_fault("not aligned to 16",
               kSharedPlace + "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r1,%r2,%r3,%r4}, [%r12];",
               32, 1024);
}

// As nvcc makes of a structure of 28 bytes: two loads of 16.
TEST_F(Ptx, OfAWidenedLoadTheUsedBytesCount) {
  const std::string load =
      "mov.u32 %r2, engine_block_shared; "
      "ld.shared.v4.f32 {%f1, %f2, %f3, %f4}, [%r2+16];";
  expect_fault("beyond the block's 28 bytes", load, 32, 28);
  EXPECT_EQ(run(".pragma \"used_bytes_mask 4095\"; " + load, 32, 28), "");
  expect_fault("beyond the block's 24 bytes", ".pragma \"used_bytes_mask 4095\"; " + load, 32, 24);
}

TEST_F(Ptx, PredicatesOfLanesThatNeverWroteThem) {
  const auto r = results(
      "mov.u32 %r1, 0; setp.gt.u32 %p1, %r0, 0; @%p1 bra END; setp.eq.u32 %p2, %r0, 1; "
      "@%p2 bra END; mov.u32 %r1, 3;\nEND:");
  EXPECT_EQ(r[0], 3u);
  EXPECT_EQ(r[1], 0u);
}

TEST_F(Ptx, LanesThatNeverMeetAreAFault) {
  const std::string some = "setp.lt.u32 %p1, %r0, 7; @%p1 bra AWAY; ";
  expect_fault("wait for others that never come",
               some + "bar.sync 0; bra.uni END;\nAWAY: bar.sync 0;\nEND:");
  expect_fault("have ended", some +
                                 "mov.u32 %r3, 31; mov.u32 %r4, -1; "
                                 "shfl.sync.idx.b32 %r1|%p2, %r0, 0, %r3, %r4;\nAWAY:");
}

TEST_F(Ptx, WhatIsUnknownIsAFault) {
  expect_fault("unknown instruction add.sat.s32", "add.sat.s32 %r1, %r0, %r0;");
  expect_fault("unknown instruction ld.volatile", "ld.volatile.global.u32 %r1, [%rd0];");
  expect_fault("unknown register %clock", "mov.u32 %r1, %clock;");
  expect_fault("bits where 32 are expected", "add.s32 %r1, %rd0, %r0;");
  expect_fault("too few operands", "add.s32 %r1, %r0;");
  expect_fault("to nowhere", "bra ELSEWHERE;");
  expect_fault("trap", "trap;");
}

TEST_F(Ptx, NamesOfAnonymousNamespacesAreAlike) {
  EXPECT_EQ(comparable("_ZN4cuda45_GLOBAL__N__486f9069_12_gelu_cuda_cu_abb35bfd7forwardIfEEvPKT_"),
            "_ZN4cuda12_GLOBAL__N_17forwardIfEEvPKT_");
  EXPECT_EQ(comparable("_ZN4cuda12_GLOBAL__N_17forwardIfEEvPKT_"),
            "_ZN4cuda12_GLOBAL__N_17forwardIfEEvPKT_");
  EXPECT_EQ(comparable("_ZN4cuda4gemmEv"), "_ZN4cuda4gemmEv");
}

}  // namespace
}  // namespace ptx

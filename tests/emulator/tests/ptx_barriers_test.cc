// mbarriers, barriers by number, clusters and setmaxnreg in the interpreter of PTX, rule by rule.
#include <cstdint>
#include <string>

#include "tests/emulator/tests/ptx_fixture.h"

namespace ptx {
namespace {

// The mbarrier at the start of shared memory, in %r10; thread 0 does `init`, all the rest.
std::string with_barrier(unsigned count, const std::string& rest) {
  return "mov.u32 %r10, engine_block_shared; setp.eq.u32 %p1, %r0, 0;\n"
         "@%p1 mbarrier.init.shared::cta.b64 [%r10], " +
         std::to_string(count) + ";\nbar.sync 0;\n" + rest;
}
std::string wait_parity(unsigned parity) {
  static int number = 0;
  const std::string label = "WAIT" + std::to_string(++number);
  return label + ": mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r10], " +
         std::to_string(parity) + ";\n@!%p3 bra " + label + ";\n";
}
const std::string kArrive = "mbarrier.arrive.shared::cta.b64 %rd5, [%r10];\n",
                  kStore = "st.global.u32 [%rd1], %r1;";

TEST_F(Ptx, PhasesEndWithTheLastArrival) {
  // What each thread writes is read by its neighbor in the other warp.
  values.assign(64, 0);
  for (std::uint32_t seed = 0; seed < 6; ++seed) {
    EXPECT_EQ(run(with_barrier(64,
                               "shl.b32 %r11, %r0, 2; add.s32 %r12, %r10, %r11; "
                               "st.shared.u32 [%r12+16], %r0;\n" +
                                   kArrive + wait_parity(0) +
                                   "xor.b32 %r13, %r11, 128; add.s32 %r13, %r10, %r13; "
                                   "ld.shared.u32 %r1, [%r13+16];" +
                                   kStore),
                  64, 16 + 256, seed),
              "");
    for (unsigned i = 0; i < 64; ++i) EXPECT_EQ(values[i], i ^ 32);
  }
}

TEST_F(Ptx, StatesAndParitiesTellPhasesApart) {
  const auto tested = [&](const std::string& test) {
    return results(with_barrier(32, kArrive + test + "selp.u32 %r1, 1, 0, %p4;"))[3];
  };
  // A barrier that has just been made: the phase before is over, the first one is not.
  const auto fresh = [&](const std::string& parity) {
    return results(with_barrier(33, "mbarrier.test_wait.parity.shared.b64 %p4, [%r10], " + parity +
                                        ";\nselp.u32 %r1, 1, 0, %p4;"))[3];
  };
  shared_bytes_of_results = 64;
  EXPECT_EQ(fresh("1"), 1u);
  EXPECT_EQ(fresh("0"), 0u);
  EXPECT_EQ(tested("mbarrier.test_wait.shared::cta.b64 %p4, [%r10], %rd5;"), 1u);
  EXPECT_EQ(tested("mbarrier.test_wait.parity.shared::cta.b64 %p4, [%r10], 0;"), 1u);
  EXPECT_EQ(tested("mbarrier.test_wait.parity.shared::cta.b64 %p4, [%r10], 1;"), 0u);
  // Two phases later the state is too old.
  expect_fault("a state of phase 0, but it is in phase 3",
               with_barrier(32, kArrive + "mov.b64 %rd6, %rd5;\n" + kArrive + kArrive +
                                    "mbarrier.test_wait.shared::cta.b64 %p4, [%r10], %rd6;"),
               32, 64);
}

TEST_F(Ptx, CountsOfArrivals) {
  const auto one = [&](const std::string& body) {  // in thread 0 only
    return with_barrier(4, "setp.ne.u32 %p2, %r0, 0; @%p2 bra END;\n" + body + "END:");
  };
  const auto pending = [&](const std::string& body) {
    return results(one(body + "mbarrier.pending_count.b64 %r1, %rd5;"))[0];
  };
  shared_bytes_of_results = 64;
  EXPECT_EQ(pending(kArrive), 4u);
  EXPECT_EQ(pending("mbarrier.arrive.noComplete.release.cta.shared::cta.b64 %rd5, [%r10], 3;\n" +
                    kArrive),
            1u);
  // One less takes part from the next phase on.
  EXPECT_EQ(pending("mbarrier.arrive_drop.shared::cta.b64 %rd5, [%r10];\n"
                    "mbarrier.arrive.shared::cta.b64 %rd5, [%r10], 3;\n" +
                    kArrive),
            3u);
  expect_fault("is arrived at 5 times, 4 of 4 are pending",
               one("mbarrier.arrive.shared::cta.b64 %rd5, [%r10], 5;\n"), 32, 64);
  expect_fault("but the phase would end",
               one("mbarrier.arrive.noComplete.shared::cta.b64 %rd5, [%r10], 4;\n"), 32, 64);
  expect_fault("with a count of 0",
               "mov.u32 %r10, engine_block_shared; mbarrier.init.shared::cta.b64 [%r10], 0;", 32,
               64);
}

TEST_F(Ptx, BytesKeepAPhaseOpen) {
  const auto bytes = [&](unsigned expected, unsigned complete) {
    return with_barrier(
        32, "@%p1 mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r10], " +
                std::to_string(expected) + ";\nbar.sync 0;\n" + kArrive +
                "@%p1 mbarrier.complete_tx.relaxed.cluster.shared::cluster.b64 [%r10], " +
                std::to_string(complete) + ";\n" + wait_parity(0));
  };
  EXPECT_EQ(run(bytes(48, 48), 32, 64), "");
  expect_fault("phase 0 lacks 0 of 32 arrivals and 16 bytes", bytes(64, 48), 32, 64);
  expect_fault("beyond its range", bytes(1 << 20, 0), 32, 64);
}

TEST_F(Ptx, LifeOfAnMBarrier) {
  const std::string place = "mov.u32 %r10, engine_block_shared; setp.eq.u32 %p1, %r0, 0; ";
  const std::string init = "@%p1 mbarrier.init.shared::cta.b64 [%r10], 64;\n",
                    inval = "bar.sync 0; @%p1 mbarrier.inval.shared::cta.b64 [%r10];\n";
  expect_fault("no mbarrier at byte 0", place + kArrive, 32, 64);
  // The other warp may see the place before it is one.
  expect_fault("before its mbarrier.init is visible", place + init + kArrive, 64, 64);
  expect_fault("is an mbarrier's", place + init + "bar.sync 0; ld.shared.u32 %r1, [%r10+4];", 64,
               64);
  expect_fault("is there already", place + init + init, 32, 64);
  expect_fault("no longer (mbarrier.inval)", place + init + inval + "bar.sync 0;" + kArrive, 64,
               64);
  EXPECT_EQ(run(place + init + inval + "@%p1 st.shared.u32 [%r10], %r0;\n" + init, 64, 64), "");
  expect_fault("not aligned to 8", place + "add.s32 %r10, %r10, 4;" + init, 32, 64);
}

TEST_F(Ptx, ArrivalsThatAreRelaxedOrderNothing) {
  const auto exchange = [&](const std::string& how) {
    return with_barrier(64,
                        "shl.b32 %r11, %r0, 2; add.s32 %r12, %r10, %r11; "
                        "st.shared.u32 [%r12+16], %r0;\nmbarrier.arrive" +
                            how + ".cta.shared::cta.b64 %rd5, [%r10];\n" + wait_parity(0) +
                            "xor.b32 %r13, %r11, 128; add.s32 %r13, %r10, %r13; "
                            "ld.shared.u32 %r1, [%r13+16];");
  };
  EXPECT_EQ(run(exchange(".release"), 64, 272), "");
  expect_fault("a race", exchange(".relaxed"), 64, 272);
}

TEST_F(Ptx, LanesThatWaitLetOthersOfTheirWarpGoOn) {
  // Lane 0 waits for what lanes 1 to 31 do behind it.
  EXPECT_EQ(run(with_barrier(31, "@!%p1 bra ARRIVE;\n" + wait_parity(0) +
                                     "bra.uni END;\nARRIVE: " + kArrive + "END:"),
                32, 64),
            "");
}

TEST_F(Ptx, BarriersByNumber) {
  values.assign(96, 0);
  // Warp 0 writes and goes on; warp 1 waits for it; warp 2 has nothing to do with them.
  const auto kernel = [&](const std::string& arrive, const std::string& sync) {
    return "mov.u32 %r10, engine_block_shared; setp.lt.u32 %p1, %r0, 32; setp.ge.u32 %p2, %r0, 64; "
           "and.b32 %r11, %r0, 31; shl.b32 %r11, %r11, 2; add.s32 %r12, %r10, %r11;\n"
           "@%p2 bra END; @!%p1 bra READ;\nst.shared.u32 [%r12], %r0;\n" +
           arrive + "bra.uni END;\nREAD:\n" + sync +
           "ld.shared.u32 %r1, [%r12]; st.global.u32 [%rd1], %r1;\nEND:";
  };
  for (std::uint32_t seed = 0; seed < 6; ++seed) {
    EXPECT_EQ(run(kernel("bar.arrive 3, 64;\n", "bar.sync 3, 64;\n"), 96, 128, seed), "");
    EXPECT_EQ(values[32 + 7], 7u);
  }
  expect_fault("barrier 3 (32 of 64 threads have come)",
               kernel("bar.arrive 4, 64;\n", "bar.sync 3, 64;\n"), 96, 128);
  expect_fault("several counts", kernel("bar.arrive 3, 64;\n", "bar.sync 3, 96;\n"), 96, 128);
  expect_fault("there are 16", kernel("bar.arrive 16, 64;\n", "bar.sync 16, 64;\n"), 96, 128);
  expect_fault("a barrier of 48 threads", kernel("bar.arrive 3, 48;\n", "bar.sync 3, 48;\n"), 96,
               128);
}

TEST_F(Ptx, RegistersOfWarpgroups) {
  // Without bounds 64 registers a thread.
  const auto kernel = [](const std::string& first, const std::string& second) {
    return "setp.lt.u32 %p1, %r0, 128; @%p1 bra FIRST;\n" + second + "bra.uni END;\nFIRST:\n" +
           first + "END:";
  };
  const std::string dec = "setmaxnreg.dec.sync.aligned.u32 ",
                    inc = "setmaxnreg.inc.sync.aligned.u32 ";
  EXPECT_EQ(run(kernel(dec + "40;\n", inc + "88;\n"), 256), "");
  expect_fault("registers, of which", kernel(dec + "40;\n", inc + "96;\n"), 256);
  expect_fault("no multiple of 8 in 24..256", kernel(dec + "41;\n", ""), 256);
  expect_fault("no multiple of 8 in 24..256", kernel(dec + "16;\n", ""), 256);
  expect_fault("of a thread that has 40", kernel(dec + "40;\n" + dec + "48;\n", ""), 256);
  expect_fault("a warpgroup that is not whole", dec + "40;", 64);
  expect_fault("have different setmaxnreg",
               "setp.lt.u32 %p1, %r0, 32; @%p1 bra ONE;\n" + dec + "40; bra.uni END;\nONE: " + dec +
                   "40;\nEND:",
               128);
}

TEST_F(Ptx, ElectedLanes) {
  const auto r = results(
      "elect.sync %r2|%p1, 0xffffffff; selp.u32 %r1, 1, 0, %p1; @!%p1 bra END; "
      "st.global.u32 [%rd1], %r1;\nEND:");
  unsigned elected = 0;
  for (const std::uint32_t each : r) elected += each;
  EXPECT_EQ(elected, 1u);
}

// %r20: this block's place 0 in the other block of two; %rd2: the element of this thread of all.
const std::string kOther =
    "mov.u32 %r10, engine_block_shared; mov.u32 %r21, %cluster_ctarank; xor.b32 %r22, %r21, 1; "
    "mapa.shared::cluster.u32 %r20, %r10, %r22; shl.b32 %r11, %r0, 2; add.s32 %r12, %r10, %r11; "
    "add.s32 %r13, %r20, %r11; mov.u32 %r14, %ctaid.x; mad.lo.s32 %r15, %r14, 32, %r0; "
    "mul.wide.u32 %rd2, %r15, 4; add.s64 %rd2, %rd0, %rd2;\n";
const std::string kMeet = "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;\n";

TEST_F(Ptx, BlocksOfAClusterReadEachOthersMemory) {
  cluster = 2;
  values.assign(128, 0);
  const std::string write = "st.shared.u32 [%r12], %r15;\n",
                    read = "ld.shared::cluster.u32 %r1, [%r13]; st.global.u32 [%rd2], %r1;\n";
  for (std::uint32_t seed = 0; seed < 4; ++seed) {
    EXPECT_EQ(run(kOther + write + kMeet + read + kMeet, 32, 128, seed, 4), "");
    for (unsigned i = 0; i < 128; ++i) EXPECT_EQ(values[i], i ^ 32);
  }
  const auto fault = [&](const std::string& part, const std::string& body, unsigned blocks = 4) {
    const std::string what = run(kOther + body, 32, 128, 0, blocks);
    EXPECT_NE(what.find(part), std::string::npos) << what;
  };
  fault("before it is known to have started", write + read + kMeet);
  fault("of the cluster", write + kMeet + read);
  fault("a race: warp 0 of block 1 writes",
        kMeet + write + "st.shared::cluster.u32 [%r13], %r0;\n" + kMeet);
  fault("without a barrier or a wait",
        kMeet + write + "barrier.cluster.arrive.relaxed.aligned; barrier.cluster.wait.aligned;\n" +
            read + kMeet);
  fault("in clusters of 2x1x1", kMeet, 3);
  fault("without barrier.cluster.arrive before", "barrier.cluster.wait.aligned;");
  fault("twice", "barrier.cluster.arrive.aligned; barrier.cluster.arrive.aligned;");
  fault("mapa to block 2", "mapa.shared::cluster.u32 %r20, %r10, 2;");
}

}  // namespace
}  // namespace ptx

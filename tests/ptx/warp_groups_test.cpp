// Products of warp groups and mbarriers, in kernels written by hand, and mistakes in them.
#include <gmock/gmock.h>

#include <bit>
#include <cstring>

#include "src/tensor/dtype.hpp"
#include "tests/ptx/small_kernel.hpp"
#include "tests/support/message_of.hpp"

namespace trireme::ptx {
namespace {

using testing::HasSubstr;

constexpr int group_threads = 128, columns = 64, steps = 16, block_bytes = 64 * 128;

/// Small whole numbers, exact in every sum.
float left(int row, int k) { return static_cast<float>((row + 3 * k) % 5 - 2); }
float right(int k, int n) { return static_cast<float>((2 * k + n) % 7 - 3); }
std::uint16_t bits(float x) { return std::bit_cast<std::uint16_t>(bf16(x)); }

/// Fragments of the left factor, 16 bytes a thread, and then a block of 64 x 64 elements with the right factor: from
/// column 16 on or, if transposed, from row 16 on.
std::vector<std::uint64_t> operands(bool transposed) {
  std::vector<std::uint64_t> x(2 * group_threads + block_bytes / 8);
  auto* a = reinterpret_cast<std::uint16_t*>(x.data());
  for (int thread = 0; thread < group_threads; ++thread) {
    for (int i = 0; i < 8; ++i) {
      const int r = i / 2, row = thread / 32 * 16 + thread % 32 / 4 + 8 * (r % 2);
      a[8 * thread + i] = bits(left(row, 2 * (thread % 4) + i % 2 + 8 * (r / 2)));
    }
  }
  auto* block = reinterpret_cast<std::uint16_t*>(x.data() + 2 * group_threads);
  for (int k = 0; k < steps; ++k) {
    for (int n = 0; n < columns; ++n) {
      const int row = transposed ? 16 + k : n, column = transposed ? n : 16 + k;
      block[row * 64 + (column / 8 ^ row % 8) * 8 + column % 8] = bits(right(k, n));
    }
  }
  return x;
}

struct Parts {
  std::string publish = "fence.proxy.async.shared::cta; bar.sync 0;", begin = "wgmma.fence.sync.aligned;",
              after_commit = "", wait = "wgmma.wait_group.sync.aligned 0;", guard = "";
};

/// A group's product of the operands. Every thread copies 64 bytes of the block and writes its 32 sums.
std::string product(bool transposed, const Parts& parts) {
  std::string sums, store;
  for (int i = 0; i < 32; ++i) sums += fmt::format("{}%f{}", i == 0 ? "" : ",", i);
  for (int i = 0; i < 32; i += 2)
    store += fmt::format("st.global.v2.f32 [%rd6+{}], {{%f{}, %f{}}};\n", 4 * i, i, i + 1);
  const int begin = transposed ? 16 * 128 : 16 * 2;
  return fmt::format(
      R"(mov.u32 %r2, memory; mul.wide.u32 %rd3, %r1, 64; add.s64 %rd4, %rd1, %rd3; cvt.u32.u64 %r3, %rd3;
add.s32 %r3, %r3, %r2; mov.u32 %r4, 8;
$copy:
ld.global.u64 %rd5, [%rd4+{}]; st.shared.u64 [%r3], %rd5; add.s64 %rd4, %rd4, 8; add.s32 %r3, %r3, 8;
add.s32 %r4, %r4, -1; setp.gt.s32 %p1, %r4, 0; @%p1 bra $copy;
{}
mul.wide.u32 %rd3, %r1, 16; add.s64 %rd3, %rd1, %rd3; ld.global.v4.u32 {{%r10, %r11, %r12, %r13}}, [%rd3];
shr.u32 %r5, %r2, 4; add.s32 %r5, %r5, {}; mov.u32 %r6, 0x40000040; mov.b64 %rd7, {{%r5, %r6}};
mul.wide.u32 %rd6, %r1, 128; add.s64 %rd6, %rd2, %rd6; setp.ne.s32 %p2, %r4, %r4;
setp.lt.s32 %p3, %r1, 96;
{}
{} wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {{{}}},{{%r10,%r11,%r12,%r13}},%rd7,%p2,1,1,{};
wgmma.commit_group.sync.aligned;
{}
{}
{})",
      2 * 8 * group_threads, parts.publish, begin / 16, parts.begin, parts.guard, sums, transposed ? 1 : 0,
      parts.after_commit, parts.wait, store);
}
std::vector<std::uint64_t> run_product(bool transposed, const Parts& parts = {}) {
  return run_small(small_kernel(product(transposed, parts), memory, group_threads), operands(transposed),
                   16 * group_threads, group_threads, block_bytes);
}

TEST(PtxWarpGroups, MultiplyBySwizzledBlocks) {
  for (const bool transposed : {false, true}) {
    const std::vector<std::uint64_t> y = run_product(transposed);
    for (int thread = 0; thread < group_threads; ++thread) {
      for (int i = 0; i < 32; ++i) {
        const int row = thread / 32 * 16 + thread % 32 / 4 + 8 * (i / 2 % 2), n = i / 4 * 8 + thread % 4 * 2 + i % 2;
        float expected = 0, actual = 0;
        for (int k = 0; k < steps; ++k) expected += left(row, k) * right(k, n);
        std::memcpy(&actual, reinterpret_cast<const float*>(y.data()) + 32 * thread + i, sizeof(actual));
        ASSERT_EQ(actual, expected) << "row " << row << ", column " << n << (transposed ? ", transposed" : "");
      }
    }
  }
}

TEST(PtxWarpGroups, HazardsOfProductsAreFound) {
  const auto error_with = [](const Parts& parts) {
    return test::message_of<PtxError>([&] { run_product(false, parts); });
  };
  EXPECT_EQ(error_with({}), "nothing was thrown");
  EXPECT_THAT(error_with({.publish = "bar.sync 0;"}), HasSubstr("no fence.proxy.async of it follows"));
  EXPECT_THAT(error_with({.publish = "bar.sync 0; fence.proxy.async.shared::cta;"}), HasSubstr("no fence.proxy.async"))
      << "the writing thread's fence comes before the barrier";
  EXPECT_THAT(error_with({.publish = "fence.proxy.async.shared::cta;"}), HasSubstr("no barrier is between"));
  EXPECT_THAT(error_with({.begin = ""}), HasSubstr("without wgmma.fence"));
  EXPECT_THAT(error_with({.begin = "wgmma.fence.sync.aligned; mov.u32 %r10, 1;"}),
              HasSubstr("changed after wgmma.fence"));
  EXPECT_THAT(error_with({.begin = "wgmma.fence.sync.aligned; mov.f32 %f3, 0f00000000;"}),
              HasSubstr("changed after wgmma.fence"));
  EXPECT_THAT(error_with({.after_commit = "mov.u32 %r10, 1;"}), HasSubstr("accesses a register of a product"));
  EXPECT_THAT(error_with({.after_commit = "st.shared.u64 [%r2+32], %rd5;"}),
              HasSubstr("a product of a warp group reads this shared memory, and was not waited for"));
  EXPECT_EQ(error_with({.after_commit = "mov.u32 %r14, 1;"}), "nothing was thrown");
  EXPECT_THAT(error_with({.wait = ""}), HasSubstr("accesses a register of a product that was not waited for"));
  EXPECT_THAT(error_with({.wait = "wgmma.wait_group.sync.aligned 1;"}), HasSubstr("accesses a register of a product"));
  EXPECT_THAT(error_with({.guard = "@%p3"}), HasSubstr("other warps of the group have begun more products"));
}

/// Thread 0 initialises an mbarrier, writes and arrives; the threads of warp 1 wait and read.
std::string signal(const std::string& initialise, const std::string& write, const std::string& parity) {
  return fmt::format(R"(mov.u32 %r2, memory; setp.eq.s32 %p1, %r1, 0; setp.eq.s32 %p4, %r1, 1; setp.ge.s32 %p2, %r1, 32;
{}
@%p2 bra $wait;
{}
bra $end;
$wait:
mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r2], {}; @!%p3 bra $wait;
ld.shared.u32 %r3, [%r2+16];
$end:)",
                     initialise, write, parity);
}

TEST(PtxMbarriers, OrderWhatComesBeforeAnArrival) {
  const std::string init = "@%p1 mbarrier.init.shared::cta.b64 [%r2], 1;\n", sync = "bar.sync 0;";
  const std::string store = "@%p1 st.shared.u32 [%r2+16], %r1;\n";
  const std::string arrive = "@%p1 mbarrier.arrive.shared::cta.b64 _, [%r2];\n";
  const std::string arrive_of_lane_1 = "@%p4 mbarrier.arrive.shared::cta.b64 _, [%r2];\n";
  const auto error_of = [](const std::string& body) {
    return test::message_of<PtxError>([&] { run_small(small_kernel(body, memory), {1, 2}, 64, 64, 1024); });
  };
  EXPECT_EQ(error_of(signal(init + sync, store + arrive, "0")), "nothing was thrown");
  EXPECT_EQ(error_of(signal(init + sync, store + "bar.warp.sync -1;\n" + arrive_of_lane_1, "0")), "nothing was thrown");
  EXPECT_THAT(error_of(signal(init, store + arrive, "0")), HasSubstr("race: thread 0 wrote"));
  EXPECT_THAT(error_of(signal(sync, store + arrive, "0")), HasSubstr("this mbarrier was not initialised"));
  EXPECT_THAT(error_of(signal(init + sync, store, "0")), HasSubstr("waits for a phase that does not end"));
  EXPECT_THAT(error_of(signal(init + sync, arrive + store, "0")), HasSubstr("race: thread 0 wrote"));
  EXPECT_THAT(error_of(signal(init + sync, store + arrive_of_lane_1, "0")), HasSubstr("race: thread 0 wrote"));
  EXPECT_THAT(error_of(signal(init + sync, store + arrive, "1")), HasSubstr("waits for a phase that does not end"))
      << "the next phase has no arrival";
}

}  // namespace
}  // namespace trireme::ptx

// Mistakes in PTX and in kernels: each must be found and named.
#include <gmock/gmock.h>

#include "tests/ptx/small_kernel.hpp"
#include "tests/support/message_of.hpp"

namespace trireme::ptx {
namespace {

using testing::HasSubstr;

/// Returns the error message with which the kernel ends.
std::string error_of(const std::string& body, int threads = warp_size, const std::string& head = "") {
  return test::message_of<PtxError>([&] { run_small(small_kernel(body, head), {1, 2}, 64, threads, 1024); });
}

TEST(PtxErrors, NameWhatIsNotUnderstoodAndItsLine) {
  EXPECT_THAT(error_of("fma.rz.f32 %f1, %f2, %f3, %f4;"),
              HasSubstr("line 12: fma.rz.f32 %f1, %f2, %f3, %f4;: the instruction fma.rz.f32 is unknown"));
  EXPECT_THAT(error_of("\nadd.s32 %r1, %r2;"), HasSubstr("line 13: add.s32 %r1, %r2;: 3 operands"));
  EXPECT_THAT(error_of("mov.u32 %r30, 1;"), HasSubstr("%r30 is unknown"));
  EXPECT_THAT(error_of("bra $away;"), HasSubstr("no such label"));
  EXPECT_THAT(error_of("mov.u32 %r1, <3>;"), HasSubstr("'<' are not understood"));
  EXPECT_THAT(error_of(".alias a, b;"), HasSubstr("this directive is unknown"));
}

TEST(PtxErrors, OutOfBoundsAccessesAreFound) {
  EXPECT_THAT(error_of("ld.global.u64 %rd3, [%rd1+16];"), HasSubstr("thread 0, line 12: ld.global.u64"));
  EXPECT_THAT(error_of("ld.global.u64 %rd3, [%rd1+16];"), HasSubstr("outside of what was allocated"));
  EXPECT_THAT(error_of("ld.global.u64 %rd3, [%rd1+4];"), HasSubstr("is not aligned"));
  EXPECT_THAT(error_of("mov.u32 %r2, 1024; st.shared.u32 [%r2], %r1;"),
              HasSubstr("0x400 is outside of the 1024 bytes"));
  EXPECT_EQ(error_of("mov.u32 %r2, 1020; ld.shared.u32 %r3, [%r2];"), "nothing was thrown");
}

// Thread i writes word i of the dynamic shared memory and reads that of thread i ^ `distance`.
std::string exchange(int distance, const std::string& between) {
  return fmt::format(R"(shl.b32 %r2, %r1, 2; xor.b32 %r3, %r2, {};
mov.u32 %r4, memory; add.s32 %r5, %r4, %r2; st.shared.u32 [%r5], %r1;
{}
add.s32 %r6, %r4, %r3; ld.shared.u32 %r7, [%r6];)",
                     4 * distance, between);
}

TEST(PtxErrors, AMissingBarrierIsFound) {
  EXPECT_THAT(error_of(exchange(32, ""), 64, memory),
              HasSubstr("thread 32, line 13: st.shared.u32 [%r5], %r1; race: thread 0 read"));
  EXPECT_THAT(error_of(exchange(32, "bar.warp.sync -1;"), 64, memory), HasSubstr("race: thread"));
  EXPECT_EQ(error_of(exchange(32, "bar.sync 0;"), 64, memory), "nothing was thrown");
  EXPECT_THAT(error_of(exchange(1, ""), 32, memory), HasSubstr("race: thread 1 wrote"));
  EXPECT_EQ(error_of(exchange(1, "bar.warp.sync -1;"), 32, memory), "nothing was thrown");
  EXPECT_EQ(error_of(exchange(0, ""), 64, memory), "nothing was thrown");
  // A write after reads of others.
  const std::string again = " st.shared.u32 [%r5], %r7;";
  EXPECT_THAT(error_of(exchange(1, "bar.sync 0;") + again, 64, memory), HasSubstr("read the same shared memory"));
  EXPECT_EQ(error_of(exchange(1, "bar.sync 0;") + "bar.warp.sync -1;" + again, 64, memory), "nothing was thrown");
}

TEST(PtxErrors, ACopyThatIsNotWaitedForIsFound) {
  const std::string copy = R"(setp.ne.s32 %p1, %r1, 0; @%p1 bra $end; mov.u32 %r2, memory;
cp.async.cg.shared.global [%r2], [%rd1], 16, 16; cp.async.commit_group;
cp.async.cg.shared.global [%r2+16], [%rd1], 16, 0; cp.async.commit_group;)";
  const std::string end = "ld.shared.u32 %r3, [%r2]; st.global.u32 [%rd2], %r3;\n$end:";
  EXPECT_THAT(error_of(copy + end, 32, memory),
              HasSubstr("the copy by thread 0 into this shared memory was not waited"));
  EXPECT_THAT(error_of(copy + "cp.async.wait_group 2;" + end, 32, memory), HasSubstr("was not waited for"));
  EXPECT_EQ(error_of(copy + "cp.async.wait_group 1;" + end, 32, memory), "nothing was thrown");
}

TEST(PtxErrors, ThreadsThatDoNotMeetAreFound) {
  const std::string skip = "setp.eq.s32 %p1, %r1, 5; @%p1 bra $end;\n";
  EXPECT_THAT(error_of(skip + "bar.sync 0;\n$end:", 64), HasSubstr("not all threads of the block reach this barrier"));
  EXPECT_THAT(error_of(skip + "bar.warp.sync -1;\n$end:"), HasSubstr("wait here for others of the warp"));
  EXPECT_THAT(error_of(skip + "shfl.sync.idx.b32 %r2|%p2, %r1, 0, 31, -1;\n$end:"), HasSubstr("wait here for others"));
  EXPECT_THAT(error_of("", 128), HasSubstr("blocks of 128 threads, and it was compiled for at most 64"));
}

}  // namespace
}  // namespace trireme::ptx

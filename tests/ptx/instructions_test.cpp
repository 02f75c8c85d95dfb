// Single instructions, on hand-computed values.
#include <gtest/gtest.h>

#include "tests/ptx/small_kernel.hpp"

namespace trireme::ptx {
namespace {

/// Operands are in registers 10, 11 and 12 of each size and type, the result in register 20 of one.
struct Case {
  const char* code;
  std::uint64_t a, b, c, expected;
};

std::uint64_t result_of(const Case& given) {
  const std::string code = given.code;
  std::string body;
  for (int i = 10; i < 13; ++i) {
    body += fmt::format("ld.global.u64 %rd{0}, [%rd1+{1}]; cvt.u32.u64 %r{0}, %rd{0}; cvt.u16.u64 %rs{0}, %rd{0};\n", i,
                        8 * (i - 10));
    body += fmt::format("mov.b32 %f{0}, %r{0}; mov.b64 %fd{0}, %rd{0};\n", i);
  }
  body += code + "\n";
  if (code.find("%p20") != std::string::npos) body += "selp.b32 %r20, 1, 0, %p20;\n";
  if (code.find("%rs20") != std::string::npos) body += "cvt.u32.u16 %r20, %rs20;\n";
  const bool is_double = code.find("%fd20") != std::string::npos, is_float = code.find("%f20") != std::string::npos;
  const bool is_long = code.find("%rd20") != std::string::npos;
  body += is_double  ? "st.global.f64 [%rd2], %fd20;"
          : is_float ? "st.global.f32 [%rd2], %f20;"
          : is_long  ? "st.global.u64 [%rd2], %rd20;"
                     : "st.global.u32 [%rd2], %r20;";
  return run_small(small_kernel(body), {given.a, given.b, given.c}, 1)[0];
}

void expect(std::initializer_list<Case> cases) {
  for (const Case& given : cases) {
    EXPECT_EQ(result_of(given), given.expected)
        << given.code << fmt::format(" of {:#x}, {:#x}, {:#x}: {:#x}", given.a, given.b, given.c, result_of(given));
  }
}

constexpr std::uint64_t minus(std::uint64_t x) { return ~x + 1; }
constexpr std::uint64_t low = 0xffffffff;

TEST(PtxIntegers, WrapExtendAndCarry) {
  expect({
      {"add.s32 %r20, %r10, %r11;", low, 2, 0, 1},
      {"sub.s64 %rd20, %rd10, %rd11;", 1, 2, 0, minus(1)},
      {"mul.lo.s32 %r20, %r10, %r11;", 0x10001, 0x10001, 0, 0x20001},
      {"mul.hi.u32 %r20, %r10, %r11;", low, low, 0, 0xfffffffe},
      {"mul.hi.s32 %r20, %r10, %r11;", low, 2, 0, low},
      {"mul.wide.s32 %rd20, %r10, %r11;", minus(2), 3, 0, minus(6)},
      {"mul.wide.u32 %rd20, %r10, 16;", low, 0, 0, low * 16},
      {"mad.lo.s32 %r20, %r10, %r11, %r12;", 3, 5, minus(1), 14},
      {"div.s32 %r20, %r10, %r11;", minus(7), 2, 0, low & minus(3)},
      {"rem.s32 %r20, %r10, %r11;", minus(7), 2, 0, low},
      {"div.u32 %r20, %r10, %r11;", minus(7), 2, 0, 0x7ffffffc},
      {"min.s64 %rd20, %rd10, %rd11;", minus(7), 2, 0, minus(7)},
      {"shl.b32 %r20, %r10, %r11;", 1, 32, 0, 0},
      {"shr.s32 %r20, %r10, %r11;", 0x80000000, 40, 0, low},
      {"shr.u32 %r20, %r10, %r11;", 0x80000000, 40, 0, 0},
      {"shr.s16 %rs20, %rs10, 8;", 0x8000, 0, 0, 0xff80},
      {"cvt.s32.s16 %r20, %rs10;", 0x8000, 0, 0, 0xffff8000},
      {"cvt.s64.s32 %rd20, %r10;", 0x80000000, 0, 0, 0xffffffff80000000},
      {"add.cc.u32 %r19, %r10, %r11; addc.u32 %r20, %r12, 0;", low, 1, 5, 6},
      {"sub.cc.u32 %r19, %r10, %r11; subc.u32 %r20, %r12, 0;", 0, 1, 5, 4},
      {"mad.lo.cc.u32 %r19, %r10, %r11, %r12; madc.hi.u32 %r20, %r10, %r11, 0;", low, 2, 2, 2},
      {"setp.lt.s32 %p20, %r10, %r11;", low, 0, 0, 1},
      {"setp.lt.u32 %p20, %r10, %r11;", low, 0, 0, 0},
      {"setp.eq.s16 %p20, %rs10, -1;", 0x1ffff, 0, 0, 1},
  });
}

TEST(PtxBits, AreMovedAndCounted) {
  expect({
      {"bfi.b32 %r20, %r10, %r11, 4, 4;", 0x25, low, 0, 0xffffff5f},
      {"bfi.b64 %rd20, %rd10, %rd11, 32, 32;", 0x1234567, 0x89abcdef, 0, 0x0123456789abcdef},
      {"shf.l.wrap.b32 %r20, %r10, %r11, %r12;", 0x89abcdef, 0x01234567, 4, 0x12345678},
      {"shf.l.wrap.b32 %r20, %r10, %r10, %r12;", minus(2), 0, 33, 0xfffffffd},
      {"shf.l.wrap.b32 %r20, %r10, %r11, %r12;", low, 5, 32, 5},
      {"prmt.b32 %r20, %r10, %r11, 0x5410;", 0x33221100, 0x77665544, 0, 0x55441100},
      {"prmt.b32 %r20, %r10, %r11, %r12;", 0x8000, 0, 0x0009, 0xff},
      {"brev.b32 %r20, %r10;", 1, 0, 0, 0x80000000},
      {"popc.b32 %r20, %r10;", 0xf0f, 0, 0, 8},
      {"clz.b64 %r20, %rd10;", 1, 0, 0, 63},
      {"bfind.shiftamt.u32 %r20, %r10;", 1, 0, 0, 31},
      {"bfind.shiftamt.u32 %r20, %r10;", 0, 0, 0, low},
      {"mov.b32 {%rs1, %rs20}, %r10;", 0x12345678, 0, 0, 0x1234},
      {"mov.b64 {_, %r20}, %rd10;", 0x123456789abcdef0, 0, 0, 0x12345678},
      {"mov.b64 %rd20, {%r10, %r11};", 1, 2, 0, 0x200000001},
      {"{ .reg .b32 %r10; mov.u32 %r10, 1; }\nmov.b32 %r20, %r10;", 7, 0, 0, 7},
      {"not.pred %p20, %p21;\nmov.pred %p20, -1;", 0, 0, 0, 1},
  });
}

constexpr std::uint64_t one = 0x3f800000, nan = 0x7fc00000, minus_zero = 0x80000000;

TEST(PtxFloats, AreRoundedOnce) {
  expect({
      // (1 + 2^-12)^2 - (1 + 2^-11) is 2^-24 if rounded once, and 0 if rounded twice.
      {"fma.rn.f32 %f20, %f10, %f11, %f12;", 0x3f800800, 0x3f800800, 0xbf801000, 0x33800000},
      {"mul.f32 %f1, %f10, %f11; add.f32 %f20, %f1, %f12;", 0x3f800800, 0x3f800800, 0xbf801000, 0},
      {"fma.rm.f32 %f20, %f10, %f11, %f12;", one, 0xb0800000, one, 0x3f7fffff},  // 1 - 2^-30
      {"fma.rm.f32 %f20, %f10, %f11, %f12;", one, 0x30800000, one, one},         // 1 + 2^-30
      {"fma.rm.f32 %f20, %f10, %f11, %f12;", one, 0xa0000000, one, 0x3f7fffff},  // 1 - 2^-63
      {"div.rn.f32 %f20, %f10, %f11;", one, 0x40400000, 0, 0x3eaaaaab},
      {"sqrt.rn.f32 %f20, %f10;", 0x40000000, 0, 0, 0x3fb504f3},
      {"max.f32 %f20, %f10, %f11;", nan, one, 0, one},
      {"max.f32 %f20, %f10, %f11;", minus_zero, 0, 0, 0},
      {"min.f32 %f20, %f10, %f11;", 0, minus_zero, 0, minus_zero},
      {"min.f32 %f20, %f10, %f11;", one, nan, 0, one},
      {"copysign.f32 %f20, %f10, %f11;", minus_zero, one, 0, 0xbf800000},
      {"neg.f32 %f20, %f10;", 0, 0, 0, minus_zero},
      {"setp.ltu.f32 %p20, %f10, %f11;", nan, one, 0, 1},
      {"setp.lt.f32 %p20, %f10, %f11;", nan, one, 0, 0},
      {"setp.ne.f32 %p20, %f10, %f11;", nan, one, 0, 0},
      {"setp.neu.f32 %p20, %f10, %f11;", nan, one, 0, 1},
      {"setp.nan.f32 %p20, %f10, %f11;", nan, one, 0, 1},
      {"ex2.approx.ftz.f32 %f20, %f10;", 0x40400000, 0, 0, 0x41000000},
      {"ex2.approx.ftz.f32 %f20, %f10;", 0xc3010000, 0, 0, 0},       // 2^-129 is flushed
      {"ex2.approx.f32 %f20, %f10;", 0xc3010000, 0, 0, 0x00100000},  // 2^-129
      {"rcp.approx.ftz.f32 %f20, %f10;", 0x40800000, 0, 0, 0x3e800000},
      {"rcp.approx.ftz.f32 %f20, %f10;", 1, 0, 0, 0x7f800000},
      {"rcp.approx.ftz.f64 %fd20, %fd10;", 0x4008000012345678, 0, 0, 0x3fd5555500000000},
  });
}

TEST(PtxConversions, RoundAndSaturate) {
  expect({
      {"cvt.rn.bf16.f32 %rs20, %f10;", 0x3f808000, 0, 0, 0x3f80},
      {"cvt.rn.bf16.f32 %rs20, %f10;", 0x3f818000, 0, 0, 0x3f82},
      {"cvt.rn.bf16x2.f32 %r20, %f10, %f11;", one, 0xc0000000, 0, 0x3f80c000},
      {"cvt.rn.f16x2.f32 %r20, %f10, %f11;", one, 0xc0000000, 0, 0x3c00c000},
      {"cvt.rn.satfinite.e4m3x2.f32 %rs20, %f10, %f11;", one, 0xc3e80000, 0, 0x38fe},         // -464
      {"cvt.rn.satfinite.e4m3x2.f32 %rs20, %f10, %f11;", 0x3b400000, 0x80000000, 0, 0x0280},  // 1.5 2^-9
      {"cvt.rn.satfinite.e5m2x2.f32 %rs20, %f10, %f11;", 0x7f800000, 0x37000000, 0, 0x7b00},  // 2^-17
      {"cvt.rn.satfinite.e5m2x2.f32 %rs20, %f10, %f11;", nan, 0x3fe00000, 0, 0x7f3f},         // 1.75
      {"cvt.f32.bf16 %f20, %rs10;", 0xc000, 0, 0, 0xc0000000},
      {"cvt.f32.f16 %f20, %rs10;", 0x0001, 0, 0, 0x33800000},
      {"cvt.rni.f32.f32 %f20, %f10;", 0x40200000, 0, 0, 0x40000000},
      {"cvt.rzi.f32.f32 %f20, %f10;", 0xbfc00000, 0, 0, 0xbf800000},
      {"cvt.sat.f32.f32 %f20, %f10;", nan, 0, 0, 0},
      {"cvt.sat.f32.f32 %f20, %f10;", 0x40000000, 0, 0, one},
      {"cvt.rni.s32.f64 %r20, %fd10;", 0x4004000000000000, 0, 0, 2},
      {"cvt.rzi.s32.f64 %r20, %fd10;", 0x4202a05f20000000, 0, 0, 0x7fffffff},
      {"cvt.rzi.u32.f32 %r20, %f10;", 0xbf800000, 0, 0, 0},
      {"cvt.rzi.s32.f32 %r20, %f10;", nan, 0, 0, 0},
      {"cvt.rn.f32.s64 %f20, %rd10;", minus(1), 0, 0, 0xbf800000},
      {"cvt.rn.f32.s32 %f20, %r10;", 0x1000001, 0, 0, 0x4b800000},
      {"cvt.rn.f32.f64 %f20, %fd10;", 0x3ff0000010000000, 0, 0, one},
      {"cvt.f64.f32 %fd20, %f10;", one, 0, 0, 0x3ff0000000000000},
  });
}

TEST(PtxMemory, IsSharedLocalAndConstant) {
  expect({
      {R"(.local .align 8 .b8 depot[16]; mov.u64 %rd3, depot; cvta.local.u64 %rd4, %rd3;
          st.local.v2.u32 [%rd3+8], {%r10, %r11}; ld.u64 %rd20, [%rd4+8];)",
       1, 2, 0, 0x200000001},
      {R"(.shared .align 8 .b8 own[256]; mov.u32 %r3, own; shl.b32 %r4, %r1, 3; add.s32 %r3, %r3, %r4;
          st.shared.u32 [%r3+4], %r10; ld.shared.s32 %rd20, [%r3+4];)",
       low, 0, 0, minus(1)},
  });
  const std::string table = ".global .align 4 .b8 table[4] = {1, 2, 3, 4};";
  const std::string body =
      "mov.u64 %rd3, table; cvta.global.u64 %rd3, %rd3; ld.global.u32 %r3, [%rd3]; st.global.u32 [%rd2], %r3;";
  EXPECT_EQ(run_small(small_kernel(body, table), {}, 1)[0], 0x04030201U);
}

TEST(PtxCalls, RunTheFunctionInPlace) {
  const std::string twice = R"(.func (.param .b64 result) twice(.param .b64 twice_a)
{ .reg .b64 %rd<3>; .reg .pred %p<2>; ld.param.u64 %rd1, [twice_a]; setp.eq.s64 %p1, %rd1, 5; @%p1 bra $five;
add.s64 %rd1, %rd1, %rd1;
$five:
st.param.b64 [result+0], %rd1; ret; })";
  const std::string body = R"(ld.global.u64 %rd3, [%rd1];
{ .param .b64 param0; st.param.b64 [param0+0], %rd3; .param .b64 retval0;
call.uni (retval0), twice, (param0);
ld.param.b64 %rd4, [retval0+0]; }
st.global.u64 [%rd2], %rd4;)";
  EXPECT_EQ(run_small(small_kernel(body, twice), {21}, 1)[0], 42U);
  EXPECT_EQ(run_small(small_kernel(body, twice), {5}, 1)[0], 5U);
}

TEST(PtxWarps, ExchangeValuesAndMeetAfterBranches) {
  // The odd lanes run a separate loop; then lane i gets 10 times the number of lane i ^ 3.
  const std::string body = R"(mul.lo.s32 %r2, %r1, 10;
and.b32 %r3, %r1, 1; setp.eq.s32 %p1, %r3, 0; @%p1 bra $even;
mov.u32 %r4, %r1;
$loop:
add.s32 %r4, %r4, -1; setp.gt.s32 %p2, %r4, 0; @%p2 bra $loop;
$even:
shfl.sync.bfly.b32 %r5|%p3, %r2, 3, 31, -1;
vote.sync.ballot.b32 %r6, %p1, -1;
mul.wide.u32 %rd3, %r1, 8; add.s64 %rd2, %rd2, %rd3; st.global.v2.u32 [%rd2], {%r5, %r6};)";
  const std::vector<std::uint64_t> y = run_small(small_kernel(body), {}, 32);
  for (std::uint64_t lane = 0; lane < 32; ++lane) EXPECT_EQ(y[lane], (lane ^ 3) * 10 | 0x55555555ULL << 32);
}

}  // namespace
}  // namespace trireme::ptx

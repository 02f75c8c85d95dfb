// A canary: the fake cuBLASLt finds what the documentation forbids.
#include "tests/fakes/cublaslt/rules.hpp"

#include <gmock/gmock.h>

#include <string>

namespace fake_cublaslt {
namespace {

/// An address that nothing reads.
std::byte* at(std::uintptr_t number) { return reinterpret_cast<std::byte*>(4096 * number); }

/// A product of 16 x 24 x 8 in bf16 with GELU, bias and kept values.
struct Call {
  Description what{.compute = CUBLAS_COMPUTE_32F,
                   .scale = CUDA_R_32F,
                   .epilogue = CUBLASLT_EPILOGUE_GELU_AUX_BIAS,
                   .bias = at(5),
                   .aux = at(6),
                   .aux_stride = 16};
  Layout a{CUDA_R_16BF, 16, 8, 16}, b{CUDA_R_16BF, 8, 24, 8}, c{CUDA_R_16BF, 16, 24, 16}, d = c;
  Addresses addresses{at(1), at(2), at(3), at(3), at(4)};
  std::size_t workspace_bytes = 4 << 20;
};

/// Returns the rule that a call breaks if it changes after the search for its algorithm; empty: none.
std::string rule_broken_by(void (*change)(Call&)) {
  Call call;
  const Operation operation{&call.what, &call.a, &call.b, &call.c, &call.d};
  const Algorithm algorithm =
      make_algorithm(3, operation, {.max_workspace_bytes = call.workspace_bytes, .alignment = {64, 64, 64, 64}});
  change(call);
  const char* rule = broken_by(operation, algorithm, call.addresses, call.workspace_bytes);
  return rule == nullptr ? "" : rule;
}

struct Violation {
  const char* rule;
  void (*change)(Call&);
};
const Violation violations[] = {
    {"types:", [](Call& c) { c.b.type = CUDA_R_16F; }},
    {"types:", [](Call& c) { c.what.compute = CUBLAS_COMPUTE_32F_FAST_TF32; }},
    {"types:", [](Call& c) { c.what.scale = CUDA_R_16F; }},
    {"types:", [](Call& c) { c.c.type = c.d.type = CUDA_R_16F; }},
    {"epilogue:", [](Call& c) { c.what.epilogue = CUBLASLT_EPILOGUE_RELU; }},
    {"bias type:", [](Call& c) { c.what.bias_type = CUDA_R_32F; }},
    {"type of kept values:", [](Call& c) { c.what.aux_type = CUDA_R_16BF; }},
    {"dimensions:", [](Call& c) { c.b.rows = 9; }},
    {"dimensions:", [](Call& c) { c.c.columns = c.d.columns = 23; }},
    {"c:", [](Call& c) { c.c.columns = 23; }},
    {"size:", [](Call& c) { c.b.columns = c.c.columns = c.d.columns = 1ULL << 31; }},
    {"leading dimension:", [](Call& c) { c.a.stride = 15; }},
    {"batch:", [](Call& c) { c.b.batch = 2; }},
    {"leading dimension of kept values:", [](Call& c) { c.what.aux_stride = 17; }},
    {"leading dimension of kept values:", [](Call& c) { c.what.aux_stride = 8; }},
    {"bias: the epilogue", [](Call& c) { c.what.bias = nullptr; }},
    {"kept values: the epilogue", [](Call& c) { c.what.aux = nullptr; }},
    {"algorithm:", [](Call& c) { c.a.type = c.b.type = c.c.type = c.d.type = CUDA_R_16F; }},
    {"matrices:", [](Call& c) { c.addresses.a = nullptr; }},
    {"addresses:", [](Call& c) { c.addresses.a = at(1) + 32; }},
    {"addresses:", [](Call& c) { c.b.batch_stride = 8 * 24 + 1; }},
    {"addresses:", [](Call& c) { c.addresses.c = c.addresses.d = at(3) + 32; }},
    {"bias and kept values:", [](Call& c) { c.what.bias = at(5) + 16; }},
    {"bias and kept values:", [](Call& c) { c.what.aux = at(6) + 16; }},
    {"in place:", [](Call& c) { c.c.stride = 24; }},
    {"workspace: 256", [](Call& c) { c.addresses.workspace = at(4) + 128; }},
    {"workspace: it has", [](Call& c) { c.workspace_bytes = 100; }},
};

/// A product of 32 x 48 x 16 in FP8 with a bias, and scales of blocks.
void set_fp8(Call& c) {
  c.what = {.compute = CUBLAS_COMPUTE_32F,
            .scale = CUDA_R_32F,
            .op_a = CUBLAS_OP_T,
            .epilogue = CUBLASLT_EPILOGUE_BIAS,
            .bias = at(5),
            .a_scales = reinterpret_cast<const float*>(at(6)),
            .b_scales = reinterpret_cast<const float*>(at(7)),
            .a_scale_mode = CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F,
            .b_scale_mode = CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F};
  c.a = {CUDA_R_8F_E4M3, 16, 32, 16}, c.b = {CUDA_R_8F_E5M2, 16, 48, 16}, c.c = c.d = {CUDA_R_16BF, 32, 48, 32};
}
const Violation fp8_violations[] = {
    {"FP8 types:", [](Call& c) { c.a.type = CUDA_R_8F_E5M2; }},
    {"FP8 types:", [](Call& c) { c.b.type = CUDA_R_16BF; }},
    {"FP8 sums:", [](Call& c) { c.what.compute = CUBLAS_COMPUTE_32F_FAST_TF32; }},
    {"FP8 operands:", [](Call& c) { c.what.op_a = CUBLAS_OP_N; }},
    {"FP8 operands:", [](Call& c) { c.what.op_b = CUBLAS_OP_T; }},
    {"FP8 extents:", [](Call& c) { c.b.columns = 40; }},
    {"FP8 epilogue:", [](Call& c) { c.what.epilogue = CUBLASLT_EPILOGUE_BGRADB; }},
    {"FP8 bias type:", [](Call& c) { c.what.bias_type = CUDA_R_32F; }},
    {"FP8 scales: the program", [](Call& c) { c.what.b_scales = nullptr; }},
    {"FP8 scale modes:", [](Call& c) { c.what.b_scale_mode = c.what.a_scale_mode; }},
    {"FP8 scale modes:", [](Call& c) { c.what.a_scale_mode = 0; }},
    {"FP8 scales: those", [](Call& c) { c.what.a_scales += 2; }},
};

TEST(CublasLtRules, FindEveryViolation) {
  for (const Violation& violation : fp8_violations) {
    Call call;
    set_fp8(call);
    const Operation operation{&call.what, &call.a, &call.b, &call.c, &call.d};
    ASSERT_EQ(broken_by(operation), nullptr);
    violation.change(call);
    EXPECT_THAT(broken_by(operation), testing::StartsWith(violation.rule)) << &violation - fp8_violations;
  }
  EXPECT_EQ(rule_broken_by([](Call&) {}), "");
  for (const Violation& violation : violations) {
    EXPECT_THAT(rule_broken_by(violation.change), testing::StartsWith(violation.rule)) << &violation - violations;
  }
}

TEST(CublasLtRules, AbortTheProgramOnAViolation) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_DEATH(cublasLtCreate(nullptr), "the program breaks cuBLASLt's rule of parameters: none is unexpectedly null");
}

}  // namespace
}  // namespace fake_cublaslt

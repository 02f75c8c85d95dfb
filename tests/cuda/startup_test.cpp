// Comparisons of kernels, and the test at the start of a run, on the fakes of the CUDA libraries.
#include "src/selftest/startup.hpp"

#include <gmock/gmock.h>

#include "src/selftest/kernels/kernel_check.hpp"
#include "tests/cuda/gpu_backend.hpp"
#include "tests/fakes/cublaslt/fake_cublaslt.hpp"
#include "tests/fakes/fake_cuda.hpp"
#include "tests/support/message_of.hpp"

namespace trireme::selftest {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class StartupTestOnFakes : public testing::Test {
 protected:
  void SetUp() override {
    fake_cuda::reset();
    fake_cublaslt::reset();
    backend_ = test::make_gpu_backend({.deterministic = true});
  }
  void TearDown() override {
    fake_cublaslt::reset();
    fake_cuda::spoil_kernel("");
  }
  /// Names of the wrong forms of a small product with bias and GELU.
  std::vector<std::string> wrong_forms() {
    const Comparison comparison{.backend = *backend_,
                                .reference = *cpu_,
                                .dtype = DType::bf16,
                                .forms = {EpilogueForm::chosen, EpilogueForm::fused, EpilogueForm::separate}};
    const std::vector<Case> cases = gemm_cases({.s = 4, .b = 2, .h = 16, .f = 24});
    std::vector<std::string> wrong;
    for (const Result& result : comparison.run(cases[3])) {
      if (!result.passed) wrong.push_back(result.item);
    }
    return wrong;
  }
  std::vector<std::string> test_kernels() {
    return test_at_start(*backend_, *cpu_,
                         {.dtype = DType::bf16, .fp8 = {true, true}, .where = "rank 3 on host node7"});
  }
  std::unique_ptr<Backend> cpu_ = make_backend(BackendChoice::cpu, 1);
  std::unique_ptr<Backend> backend_;
};

TEST_F(StartupTestOnFakes, ReplacesAWrongFusedProductByItsPartsWithAWarning) {
  fake_cublaslt::behaviour().wrong = {CUBLASLT_EPILOGUE_GELU_BIAS};
  EXPECT_THAT(
      test_kernels(),
      ElementsAre(AllOf(HasSubstr("rank 3 on host node7: the fused product gives wrong results"),
                        HasSubstr("gemm bf16 linear bias gelu_tanh [64, 128] x 136, fused: result 1: element 0 of"))));
  EXPECT_THAT(test_kernels(), IsEmpty()) << "the backend keeps to the parts";
}

TEST_F(StartupTestOnFakes, BothFormsOfAnEpilogueAreCompared) {
  const std::string name = "linear bias gelu_tanh [8, 16] x 24";
  EXPECT_THAT(wrong_forms(), IsEmpty());
  fake_cuda::spoil_kernel("bias_activation");
  EXPECT_THAT(wrong_forms(), ElementsAre(name + ", not fused")) << "the backend chooses the fused form";
  fake_cublaslt::behaviour().wrong = {CUBLASLT_EPILOGUE_GELU_BIAS};
  EXPECT_THAT(wrong_forms(), ElementsAre(name, name + ", fused", name + ", not fused"));
}

TEST_F(StartupTestOnFakes, AnEpilogueThatCublasLtRefusesNeedsNoWarning) {
  fake_cublaslt::behaviour().cannot_fuse = {CUBLASLT_EPILOGUE_DGELU, CUBLASLT_EPILOGUE_BGRADB,
                                            CUBLASLT_EPILOGUE_GELU_AUX_BIAS};
  EXPECT_THAT(test_kernels(), IsEmpty());
}

TEST_F(StartupTestOnFakes, FindsWrongProductsInFp8) {
  fake_cuda::spoil_kernel("round_operand");
  EXPECT_THAT(test::message_of([&] { test_kernels(); }),
              AllOf(HasSubstr("gemm bf16 products in FP8 [144, 176] x 48, not fused: result 1: element 0 of"),
                    HasSubstr("gemm bf16 products in FP8 by blocks")));
}

TEST_F(StartupTestOnFakes, AttentionByWarpGroupsIsUsedOnlyWhereItIsRight) {
  const auto is_wrong_with_groups_spoiled = [&] {
    fake_cuda::spoil_kernel("warp_group_attention");
    const Comparison comparison{.backend = *backend_, .reference = *cpu_, .dtype = DType::bf16};
    const bool passed = comparison.run(warp_group_cases()[1]).front().passed;
    fake_cuda::spoil_kernel("");
    return !passed;
  };
  EXPECT_FALSE(is_wrong_with_groups_spoiled()) << "before a test they are not used";
  EXPECT_THAT(test_kernels(), IsEmpty());
  EXPECT_TRUE(is_wrong_with_groups_spoiled());
  fake_cuda::spoil_kernel("warp_group_attention");
  EXPECT_THAT(
      test_kernels(),
      ElementsAre(AllOf(HasSubstr("rank 3 on host node7: attention by warp groups gives wrong results"),
                        HasSubstr("attention bf16 attention by warp groups, causal dropout [270, 1, 1/1, 64]"))));
  EXPECT_FALSE(is_wrong_with_groups_spoiled()) << "another kernel replaces it";
  setenv("TRIREME_WARP_GROUPS", "off", 1);
  backend_ = test::make_gpu_backend({.deterministic = true});
  unsetenv("TRIREME_WARP_GROUPS");
  EXPECT_THAT(test_kernels(), IsEmpty());
  EXPECT_FALSE(is_wrong_with_groups_spoiled()) << "they were left out";
}

}  // namespace
}  // namespace trireme::selftest

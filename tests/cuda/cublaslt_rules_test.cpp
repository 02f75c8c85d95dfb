// A canary: the fake cuBLASLt refuses what the documentation forbids.
#include "tests/fakes/cublaslt/rules.hpp"

#include <gmock/gmock.h>

#include "cuda/runtime/stream.hpp"
#include "tests/fakes/cublaslt/fake_cublaslt.hpp"
#include "tests/fakes/fake_cuda.hpp"

namespace fake_cublaslt {
namespace {

using testing::Contains;
using testing::HasSubstr;

/// A search and a product by its first algorithm, of 16 x 24 x 8 in bf16 with GELU, bias and kept values.
struct Call {
  cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
  cudaDataType_t scale = CUDA_R_32F;
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
  Layout a{CUDA_R_16BF, 16, 8, 16}, b{CUDA_R_16BF, 8, 24, 8}, c{CUDA_R_16BF, 16, 24, 16}, d = c;
  bool has_c_layout = true;
  std::int32_t bias_type = -1, aux_type = -1;
  std::int64_t aux_stride = 16;
  // Offsets of addresses in bytes; those of the search for the bias and the kept values.
  std::size_t at_a = 0, at_d = 0, at_workspace = 0, at_bias = 0, at_aux = 0, searched_bias = 64, searched_aux = 64;
  bool has_a = true, has_bias = true, has_aux = true, has_alpha = true, has_handle = true;
  std::uint32_t alignment = 64;
  std::uint64_t max_workspace_bytes = 100, workspace_bytes = 100, algorithm = 0;
  int wanted = 1;
  std::size_t attribute_bytes = sizeof(std::int64_t);  // the stride of kept values
  cudaDataType_t other_type = CUDA_R_16BF;             // type of all matrices after the search

  std::vector<std::byte> memory = std::vector<std::byte>(1 << 14);
  /// Place of matrix number i.
  std::byte* at(int i, std::size_t offset) {
    const auto begin = reinterpret_cast<std::uintptr_t>(memory.data());
    return memory.data() + (256 - begin % 256) + i * 2048 + offset;
  }
};

/// Creates and destroys the library's objects. `first_status` is that of the first call that was refused.
class Session {
 public:
  explicit Session(Call& call) : call_(call) {
    cublasLtCreate(&handle_);
    cublasLtMatmulDescCreate(&description_, call.compute, call.scale);
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, call.epilogue);
    set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, call.bias_type);
    set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE, call.aux_type);
    take(cublasLtMatmulDescSetAttribute(description_, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &call.aux_stride,
                                        call.attribute_bytes));
    make_layouts();
  }
  ~Session() {
    cublasLtMatmulDescDestroy(description_);
    for (cublasLtMatrixLayout_t layout : layouts_) cublasLtMatrixLayoutDestroy(layout);
    cublasLtDestroy(handle_);
  }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  cublasStatus_t run(cudaStream_t stream) {
    const cublasLtMatmulHeuristicResult_t found = search();
    if (status_ != CUBLAS_STATUS_SUCCESS) return status_;
    for (Layout* layout : {&call_.a, &call_.b, &call_.c, &call_.d}) {
      if (call_.other_type != CUDA_R_16BF) layout->type = call_.other_type;
    }
    make_layouts();
    set_pointers(call_.has_bias ? call_.at_bias : 0, call_.has_aux ? call_.at_aux : 0);
    const float one = 1, zero = 0;
    std::byte* const d = call_.at(3, call_.at_d);
    take(cublasLtMatmul(call_.has_handle ? handle_ : nullptr, description_, call_.has_alpha ? &one : nullptr,
                        call_.has_a ? call_.at(0, call_.at_a) : nullptr, layouts_[0], call_.at(1, 0), layouts_[1],
                        &zero, d, call_.has_c_layout ? layouts_[2] : nullptr, d, layouts_[3], &found.algo,
                        call_.at(6, call_.at_workspace), call_.workspace_bytes, stream));
    return status_;
  }

 private:
  void take(cublasStatus_t status) {
    if (status_ == CUBLAS_STATUS_SUCCESS) status_ = status;
  }
  template <class T>
  void set(cublasLtMatmulDescAttributes_t attribute, const T& value) {
    take(cublasLtMatmulDescSetAttribute(description_, attribute, &value, sizeof value));
  }
  void make_layouts() {
    const Layout* const made[] = {&call_.a, &call_.b, &call_.c, &call_.d};
    for (std::size_t i = 0; i < 4; ++i) {
      if (layouts_[i] != nullptr) cublasLtMatrixLayoutDestroy(layouts_[i]);
      cublasLtMatrixLayoutCreate(&layouts_[i], made[i]->type, made[i]->rows, made[i]->columns, made[i]->stride);
    }
  }
  void set_pointers(std::size_t at_bias, std::size_t at_aux) {
    set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, call_.has_bias ? call_.at(4, at_bias) : nullptr);
    set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, call_.has_aux ? call_.at(5, at_aux) : nullptr);
  }
  cublasLtMatmulHeuristicResult_t search() {
    set_pointers(call_.searched_bias, call_.searched_aux);
    cublasLtMatmulPreference_t preference = nullptr;
    cublasLtMatmulPreferenceCreate(&preference);
    const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
      take(cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof value));
    };
    prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, call_.max_workspace_bytes);
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, call_.alignment);
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, call_.alignment);
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, call_.alignment);
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, call_.alignment);
    cublasLtMatmulHeuristicResult_t found[4]{};
    int count = 0;
    take(cublasLtMatmulAlgoGetHeuristic(handle_, description_, layouts_[0], layouts_[1],
                                        call_.has_c_layout ? layouts_[2] : nullptr, layouts_[3], preference,
                                        call_.wanted, found, &count));
    cublasLtMatmulPreferenceDestroy(preference);
    return found[call_.algorithm];
  }

  Call& call_;
  cublasLtHandle_t handle_ = nullptr;
  cublasLtMatmulDesc_t description_ = nullptr;
  std::array<cublasLtMatrixLayout_t, 4> layouts_{};
  cublasStatus_t status_ = CUBLAS_STATUS_SUCCESS;
};

class CublasLtRules : public testing::Test {
 protected:
  void SetUp() override {
    fake_cuda::reset();
    reset();
    behaviour().ends_at_broken_rule = false;
    behaviour().algorithms = 4;
  }
  void TearDown() override { reset(); }
  cublasStatus_t run(Call& call) {
    const cublasStatus_t status = Session(call).run(stream_.handle());
    stream_.synchronize();
    return status;
  }
  trireme::cuda::CudaStream stream_{
      std::make_shared<trireme::cuda::Device>(trireme::cuda::DeviceLocation{}, trireme::cuda::LaunchChecks::deferred)};
};

constexpr cublasStatus_t invalid = CUBLAS_STATUS_INVALID_VALUE, unsupported = CUBLAS_STATUS_NOT_SUPPORTED;

struct Violation {
  const char* name;
  const char* rule;
  cublasStatus_t status;
  void (*change)(Call&);
};
const Violation violations[] = {
    {"null matrix", "matrices:", invalid, [](Call& c) { c.has_a = false; }},
    {"null alpha", "parameters:", invalid, [](Call& c) { c.has_alpha = false; }},
    {"null handle", "handles:", CUBLAS_STATUS_NOT_INITIALIZED, [](Call& c) { c.has_handle = false; }},
    {"no bias", "bias: the epilogue", unsupported, [](Call& c) { c.has_bias = false; }},
    {"no kept values", "kept values: the epilogue", unsupported, [](Call& c) { c.has_aux = false; }},
    {"short attribute", "attributes:", invalid, [](Call& c) { c.attribute_bytes = 4; }},
    {"no algorithm wanted", "searches:", invalid, [](Call& c) { c.wanted = 0; }},
    {"fp16 times bf16", "types:", unsupported, [](Call& c) { c.b.type = CUDA_R_16F; }},
    {"TF32 of bf16", "types:", unsupported, [](Call& c) { c.compute = CUBLAS_COMPUTE_32F_FAST_TF32; }},
    {"scale in fp16", "types:", unsupported, [](Call& c) { c.scale = CUDA_R_16F; }},
    {"fp16 of bf16", "types:", unsupported, [](Call& c) { c.c.type = c.d.type = CUDA_R_16F; }},
    {"c of another type", "types:", unsupported, [](Call& c) { c.c.type = CUDA_R_32F; }},
    {"bias in fp32", "bias type:", unsupported, [](Call& c) { c.bias_type = CUDA_R_32F; }},
    {"kept values in fp32", "type of kept values:", unsupported, [](Call& c) { c.aux_type = CUDA_R_32F; }},
    {"kept values in bf16", "type of kept values:", unsupported, [](Call& c) { c.aux_type = CUDA_R_16BF; }},
    {"other k", "dimensions:", unsupported,
     [](Call& c) {
       c.b = {CUDA_R_16BF, 9, 24, 9};
     }},
    {"d is too small", "dimensions:", unsupported, [](Call& c) { c.c.columns = c.d.columns = 23; }},
    {"c is too small", "c:", unsupported, [](Call& c) { c.c.columns = 23; }},
    {"too large", "size:", unsupported, [](Call& c) { c.b.columns = c.c.columns = c.d.columns = 1ULL << 31; }},
    {"overlapping columns", "leading dimension:", unsupported, [](Call& c) { c.a.stride = 15; }},
    {"kept values with odd stride", "leading dimension of kept", unsupported, [](Call& c) { c.aux_stride = 17; }},
    {"overlapping kept values", "leading dimension of kept", unsupported, [](Call& c) { c.aux_stride = 8; }},
    {"a less aligned than told", "addresses:", invalid, [](Call& c) { c.at_a = 32; }},
    {"d less aligned than told", "addresses:", invalid, [](Call& c) { c.at_d = 32; }},
    {"bias less aligned", "bias and kept values:", invalid, [](Call& c) { c.at_bias = 32; }},
    {"kept values less aligned", "bias and kept values:", invalid, [](Call& c) { c.at_aux = 32; }},
    {"in place with two strides", "in place:", invalid, [](Call& c) { c.c.stride = 32; }},
    {"workspace less aligned", "workspace: 256", invalid, [](Call& c) { c.at_workspace = 128; }},
    {"workspace too small", "workspace: it has", invalid,
     [](Call& c) {
       c.wanted = 4;
       c.algorithm = 3;
       c.max_workspace_bytes = 4 << 20;
     }},
    {"algorithm for other types", "algorithm:", invalid, [](Call& c) { c.other_type = CUDA_R_16F; }},
};

TEST_F(CublasLtRules, AllowADocumentedCall) {
  for (const auto epilogue :
       {CUBLASLT_EPILOGUE_DEFAULT, CUBLASLT_EPILOGUE_BIAS, CUBLASLT_EPILOGUE_GELU_AUX_BIAS, CUBLASLT_EPILOGUE_DGELU}) {
    Call call{.epilogue = epilogue};
    EXPECT_EQ(run(call), CUBLAS_STATUS_SUCCESS);
    call.has_c_layout = false;
    EXPECT_EQ(run(call), CUBLAS_STATUS_SUCCESS);
  }
  EXPECT_THAT(fake_cuda::log(), testing::Not(Contains(HasSubstr("refuses"))));
}

TEST_F(CublasLtRules, RefuseEveryViolationByItsName) {
  for (const Violation& violation : violations) {
    fake_cuda::clear_log();
    Call call;
    violation.change(call);
    EXPECT_EQ(run(call), violation.status) << violation.name;
    EXPECT_THAT(fake_cuda::log(), Contains(HasSubstr("by the rule of " + std::string(violation.rule))))
        << violation.name;
  }
}

TEST_F(CublasLtRules, RefuseNullHandles) {
  EXPECT_EQ(cublasLtCreate(nullptr), invalid);
  EXPECT_EQ(cublasLtDestroy(nullptr), invalid);
}

TEST_F(CublasLtRules, EndTheProgramWhereTheyAreNotExpectedToBreak) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  behaviour().ends_at_broken_rule = true;
  Call call{.at_workspace = 128};
  EXPECT_DEATH(run(call), "the program breaks cuBLASLt's rule of workspace: 256 divides its address");
}

}  // namespace
}  // namespace fake_cublaslt

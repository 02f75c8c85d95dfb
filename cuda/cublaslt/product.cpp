#include "cuda/cublaslt/product.hpp"

#include <cstring>
#include <source_location>

namespace trireme::cuda {
namespace {

constexpr int max_candidates = 32;

cudaDataType_t cuda_type(DType dtype) {
  if (dtype == DType::fp32) return CUDA_R_32F;
  if (dtype == DType::bf16) return CUDA_R_16BF;
  if (dtype == DType::fp16) return CUDA_R_16F;
  throw ConfigError("products on a GPU are of fp32, bf16 or fp16, not {}: use <backend> cpu", name_of(dtype));
}

cudaDataType_t cuda_type(Fp8Format format) { return format == Fp8Format::e4m3 ? CUDA_R_8F_E4M3 : CUDA_R_8F_E5M2; }

// Attributes of cuBLASLt 12.9, named here for older headers.
constexpr auto a_scale_mode = static_cast<cublasLtMatmulDescAttributes_t>(31);
constexpr auto b_scale_mode = static_cast<cublasLtMatmulDescAttributes_t>(32);
constexpr std::uint64_t version_of_scale_modes = 120900;
/// cublasLtMatmulMatrixScale_t: SCALAR_32F, VEC128_32F, BLK128x128_32F.
std::int32_t scale_mode(Fp8Blocks blocks) {
  return blocks == Fp8Blocks::whole ? 0 : blocks == Fp8Blocks::vectors ? 4 : 5;
}

struct EpilogueInfo {
  const char* name;
  cublasLtEpilogue_t value;
  bool uses_bias, uses_aux;
};

const EpilogueInfo& info_of(Epilogue epilogue) {
  static constexpr EpilogueInfo table[] = {{"none", CUBLASLT_EPILOGUE_DEFAULT, false, false},
                                           {"bias", CUBLASLT_EPILOGUE_BIAS, true, false},
                                           {"gelu", CUBLASLT_EPILOGUE_GELU, false, false},
                                           {"gelu_aux", CUBLASLT_EPILOGUE_GELU_AUX, false, true},
                                           {"gelu_bias", CUBLASLT_EPILOGUE_GELU_BIAS, true, false},
                                           {"gelu_aux_bias", CUBLASLT_EPILOGUE_GELU_AUX_BIAS, true, true},
                                           {"dgelu", CUBLASLT_EPILOGUE_DGELU, false, true},
                                           {"bias_gradient_b", CUBLASLT_EPILOGUE_BGRADB, true, false}};
  return table[static_cast<int>(epilogue)];
}

/// Operands for a search, which takes the alignment of the bias and the kept values from their addresses (cublasLt.h,
/// CUBLASLT_MATMUL_DESC_BIAS_POINTER). Later products may be aligned no better than the shape says.
ProductOperands least_aligned(const ProductShape& shape) {
  void* const address = reinterpret_cast<void*>(static_cast<std::uintptr_t>(shape.alignment));
  const EpilogueInfo& epilogue = info_of(shape.epilogue);
  const float* const scales = shape.fp8 ? static_cast<const float*>(address) : nullptr;
  return {.bias = epilogue.uses_bias ? address : nullptr,
          .aux = epilogue.uses_aux ? address : nullptr,
          .a_scales = scales,
          .b_scales = scales};
}

template <class T>
cublasStatus_t set(cublasLtMatmulDesc_t description, cublasLtMatmulDescAttributes_t attribute, const T& value) {
  return cublasLtMatmulDescSetAttribute(description, attribute, &value, sizeof value);
}
template <class T>
cublasStatus_t set(cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t attribute,
                   const T& value) {
  return cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof value);
}

cublasLtMatmulAlgo_t algorithm_of(const Choice& choice) {
  cublasLtMatmulAlgo_t algorithm;
  static_assert(sizeof algorithm == sizeof choice.algorithm);
  std::memcpy(&algorithm, choice.algorithm.data(), sizeof algorithm);
  return algorithm;
}

}  // namespace

std::string to_string(const ProductShape& shape) {
  const auto operand = [](Fp8Format format, Fp8Blocks blocks) {
    return fmt::format(" {}:{}", format == Fp8Format::e4m3 ? "e4m3" : "e5m2", static_cast<int>(blocks));
  };
  const std::string fp8 =
      shape.fp8 ? " fp8" + operand(shape.fp8->a, shape.fp8->a_blocks) + operand(shape.fp8->b, shape.fp8->b_blocks) +
                      (shape.fp8->over_rows ? " over rows" : "") + (shape.fp8->fast_sums ? " fast" : "")
                : "";
  return fmt::format("{} {} {}{} {}x{}x{} {} {} align {}{}{}{}", name_of(shape.in), name_of(shape.out),
                     shape.a_transposed ? 'T' : 'N', shape.b_transposed ? 'T' : 'N', shape.m, shape.n, shape.k,
                     shape.accumulate ? "+=" : "=", info_of(shape.epilogue).name, shape.alignment,
                     shape.multiprocessors == 0 ? "" : fmt::format(" on {}", shape.multiprocessors),
                     shape.batch == 0 ? "" : fmt::format(" batch {}", shape.batch), fp8);
}

Products::Products(std::shared_ptr<Device> device, std::shared_ptr<DeviceMemory> memory, bool allow_tf32)
    : device_(std::move(device)), memory_(std::move(memory)), allow_tf32_(allow_tf32) {
  cublasLtHandle_t library = nullptr;
  check(cublasLtCreate(&library), "cublasLtCreate");
  library_.reset(library);
}

void Products::check(cublasStatus_t status, const char* call, const ProductShape* shape) const {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  std::string reason = fmt::format("{} ({})", cublasLtGetStatusString(status), cublasLtGetStatusName(status));
  if (shape != nullptr) reason += " for the product " + to_string(*shape);
  throw CublasError(error_text(call, reason, device_->location(), std::source_location::current()));
}

bool Products::has_block_scales() { return library_version() >= version_of_scale_modes; }

Products::Layout Products::make_layout(cudaDataType_t type, std::int64_t rows, std::int64_t columns,
                                       std::int32_t batch) const {
  cublasLtMatrixLayout_t layout = nullptr;
  check(cublasLtMatrixLayoutCreate(&layout, type, static_cast<std::uint64_t>(rows), static_cast<std::uint64_t>(columns),
                                   rows),
        "cublasLtMatrixLayoutCreate");
  Layout owner(layout);
  const auto set = [&](cublasLtMatrixLayoutAttribute_t attribute, const auto& value) {
    check(cublasLtMatrixLayoutSetAttribute(layout, attribute, &value, sizeof value),
          "cublasLtMatrixLayoutSetAttribute");
  };
  if (batch > 1) {
    set(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, batch);
    set(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, rows * columns);
  }
  return owner;
}

Products::Plan& Products::plan(const ProductShape& shape, const ProductOperands& operands) {
  auto found = plans_.find(shape);
  if (found == plans_.end()) found = plans_.emplace(shape, make_plan(shape)).first;
  const auto set_pointer = [&](cublasLtMatmulDescAttributes_t attribute, const void* pointer) {
    if (pointer == nullptr) return;
    check(set(found->second.description.get(), attribute, pointer), "cublasLtMatmulDescSetAttribute", &shape);
  };
  set_pointer(CUBLASLT_MATMUL_DESC_BIAS_POINTER, operands.bias);
  set_pointer(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, operands.aux);
  set_pointer(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, operands.a_scales);
  set_pointer(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, operands.b_scales);
  return found->second;
}

Products::Plan Products::make_plan(const ProductShape& shape) const {
  Plan plan;
  const bool tf32 = allow_tf32_ && shape.in == DType::fp32 && !shape.fp8;
  cublasLtMatmulDesc_t description = nullptr;
  check(cublasLtMatmulDescCreate(&description, tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F, CUDA_R_32F),
        "cublasLtMatmulDescCreate");
  plan.description.reset(description);
  const auto set_attribute = [&](cublasLtMatmulDescAttributes_t attribute, const auto& value) {
    check(set(description, attribute, value), "cublasLtMatmulDescSetAttribute", &shape);
  };
  set_attribute(CUBLASLT_MATMUL_DESC_TRANSA, shape.a_transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
  set_attribute(CUBLASLT_MATMUL_DESC_TRANSB, shape.b_transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
  set_attribute(CUBLASLT_MATMUL_DESC_EPILOGUE, info_of(shape.epilogue).value);
  // The bias has the training type, its gradient the type of main gradients: that of d in both cases.
  if (info_of(shape.epilogue).uses_bias)
    set_attribute(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, static_cast<std::int32_t>(cuda_type(shape.out)));
  if (info_of(shape.epilogue).uses_aux) {
    // Their type stays unset, as documented: it defaults to that of d.
    set_attribute(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, shape.m);
  }
  // A target of the heuristics (cublasLt.h), which a kernel with many short blocks may exceed.
  if (shape.multiprocessors > 0) set_attribute(CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET, shape.multiprocessors);
  if (shape.fp8) {
    set_attribute(CUBLASLT_MATMUL_DESC_FAST_ACCUM, static_cast<std::int8_t>(shape.fp8->fast_sums));
    if (shape.fp8->a_blocks != Fp8Blocks::whole) {
      set_attribute(a_scale_mode, scale_mode(shape.fp8->a_blocks));
      set_attribute(b_scale_mode, scale_mode(shape.fp8->b_blocks));
    }
  }
  const auto layout = [&](cudaDataType_t type, std::int64_t rows, std::int64_t columns, bool transposed = false) {
    return make_layout(type, transposed ? columns : rows, transposed ? rows : columns, shape.batch);
  };
  const cudaDataType_t type_of_a = shape.fp8 ? cuda_type(shape.fp8->a) : cuda_type(shape.in);
  const cudaDataType_t type_of_b = shape.fp8 ? cuda_type(shape.fp8->b) : cuda_type(shape.in);
  plan.a = layout(type_of_a, shape.m, shape.k, shape.a_transposed);
  plan.b = layout(type_of_b, shape.k, shape.n, shape.b_transposed);
  plan.d = layout(cuda_type(shape.out), shape.m, shape.n);
  return plan;
}

std::vector<Choice> Products::candidates(const ProductShape& shape) {
  const Plan& made = plan(shape, least_aligned(shape));
  cublasLtMatmulPreference_t preference = nullptr;
  check(cublasLtMatmulPreferenceCreate(&preference), "cublasLtMatmulPreferenceCreate");
  const Preference owner(preference);
  const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
    check(set(preference, attribute, value), "cublasLtMatmulPreferenceSetAttribute", &shape);
  };
  prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, std::uint64_t{workspace_bytes});
  // Partial sums are neither rounded to the type of d nor added in block completion order.
  prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, std::uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE});
  for (const auto attribute :
       {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
    prefer(attribute, static_cast<std::uint32_t>(shape.alignment));
  }
  std::vector<cublasLtMatmulHeuristicResult_t> found(max_candidates);
  int count = 0;
  const cublasStatus_t status =
      cublasLtMatmulAlgoGetHeuristic(library_.get(), made.description.get(), made.a.get(), made.b.get(), made.d.get(),
                                     made.d.get(), preference, max_candidates, found.data(), &count);
  // Both mean that there is no algorithm; the epilogue determines which one is returned.
  if (status != CUBLAS_STATUS_NOT_SUPPORTED && status != CUBLAS_STATUS_INVALID_VALUE) {
    check(status, "cublasLtMatmulAlgoGetHeuristic", &shape);
  }
  std::vector<Choice> choices;
  for (int i = 0; status == CUBLAS_STATUS_SUCCESS && i < count; ++i) {
    const cublasLtMatmulHeuristicResult_t& result = found[static_cast<std::size_t>(i)];
    if (result.state != CUBLAS_STATUS_SUCCESS) continue;
    Choice& choice = choices.emplace_back();
    choice.fused = shape.epilogue != Epilogue::none;
    choice.workspace_bytes = result.workspaceSize;
    std::memcpy(choice.algorithm.data(), &result.algo, sizeof result.algo);
  }
  return choices;
}

bool Products::usable(const ProductShape& shape, const Choice& choice) {
  const Plan& made = plan(shape, least_aligned(shape));
  const cublasLtMatmulAlgo_t algorithm = algorithm_of(choice);
  cublasLtMatmulHeuristicResult_t result{};
  return cublasLtMatmulAlgoCheck(library_.get(), made.description.get(), made.a.get(), made.b.get(), made.d.get(),
                                 made.d.get(), &algorithm, &result) == CUBLAS_STATUS_SUCCESS &&
         result.workspaceSize <= workspace_bytes;
}

std::byte* Products::workspace(const CudaStream& stream) {
  Buffer& buffer = workspaces_[stream.handle()];
  if (buffer.data() == nullptr) buffer = memory_->allocate(workspace_bytes);
  return buffer.data();
}

void Products::run(CudaStream& stream, const ProductShape& shape, const Choice& choice,
                   const ProductOperands& operands) {
  const Plan& made = plan(shape, operands);
  const float beta = shape.accumulate ? 1 : operands.beta;
  const void* c = operands.c == nullptr ? operands.d : operands.c;
  const cublasLtMatmulAlgo_t algorithm = algorithm_of(choice);
  check(cublasLtMatmul(library_.get(), made.description.get(), &operands.alpha, operands.a, made.a.get(), operands.b,
                       made.b.get(), &beta, c, made.d.get(), operands.d, made.d.get(), &algorithm, workspace(stream),
                       workspace_bytes, stream.handle()),
        "cublasLtMatmul", &shape);
  device_->launched(stream.handle(), "cublasLtMatmul");
}

}  // namespace trireme::cuda

#include "tests/fakes/cublaslt/rules.hpp"

#include <algorithm>
#include <bit>
#include <utility>

namespace fake_cublaslt {
namespace {

struct Types {
  cublasComputeType_t compute;
  cudaDataType_t scale, a_and_b, c_and_d;
};
// Manual, cublasLtMatmul(), table of regular matrices, as far as the fake can compute them. The type of the bias is
// that of c in all of these.
constexpr Types supported_types[] = {
    {CUBLAS_COMPUTE_32F, CUDA_R_32F, CUDA_R_16BF, CUDA_R_16BF},
    {CUBLAS_COMPUTE_32F, CUDA_R_32F, CUDA_R_16F, CUDA_R_16F},
    {CUBLAS_COMPUTE_32F, CUDA_R_32F, CUDA_R_16BF, CUDA_R_32F},
    {CUBLAS_COMPUTE_32F, CUDA_R_32F, CUDA_R_16F, CUDA_R_32F},
    {CUBLAS_COMPUTE_32F, CUDA_R_32F, CUDA_R_32F, CUDA_R_32F},
    {CUBLAS_COMPUTE_32F_FAST_TF32, CUDA_R_32F, CUDA_R_32F, CUDA_R_32F},
};

// The same, table of FP8 kernels; the types of c and d are equal in those the fake computes.
constexpr std::pair<cudaDataType_t, cudaDataType_t> fp8_operands[] = {
    {CUDA_R_8F_E4M3, CUDA_R_8F_E4M3}, {CUDA_R_8F_E4M3, CUDA_R_8F_E5M2}, {CUDA_R_8F_E5M2, CUDA_R_8F_E4M3}};
constexpr cudaDataType_t fp8_results[] = {CUDA_R_16BF, CUDA_R_16F, CUDA_R_32F};

// The fake computes these of cublasLtEpilogue_t.
constexpr cublasLtEpilogue_t epilogues[] = {
    CUBLASLT_EPILOGUE_DEFAULT,   CUBLASLT_EPILOGUE_BIAS,          CUBLASLT_EPILOGUE_GELU,  CUBLASLT_EPILOGUE_GELU_AUX,
    CUBLASLT_EPILOGUE_GELU_BIAS, CUBLASLT_EPILOGUE_GELU_AUX_BIAS, CUBLASLT_EPILOGUE_DGELU, CUBLASLT_EPILOGUE_BGRADB};

std::uint32_t alignment_of(const void* address) {
  return std::uint32_t{1} << std::countr_zero(reinterpret_cast<std::uintptr_t>(address) | 256);
}

std::array<std::uint8_t, 8> types_of(const Operation& o) {
  const auto word = [](int type) { return static_cast<std::uint8_t>(type); };
  return {word(o.description->compute),
          word(o.description->scale),
          word(o.a->type),
          word(o.b->type),
          word(o.c->type),
          word(o.d->type)};
}

/// The rules of FP8 kernels (manual, cublasLtMatmul() and "Narrow Precision Data Types Usage").
const char* broken_by_fp8(const Operation& o) {
  const Description& what = *o.description;
  const bool listed = std::ranges::find(fp8_operands, std::pair(o.a->type, o.b->type)) != std::end(fp8_operands) &&
                      std::ranges::find(fp8_results, o.d->type) != std::end(fp8_results) && o.c->type == o.d->type;
  if (!listed) return "FP8 types: the combination is in the table of FP8 kernels";
  if (what.compute != CUBLAS_COMPUTE_32F || what.scale != CUDA_R_32F) return "FP8 sums: they are in fp32";
  if (what.op_a != CUBLAS_OP_T || what.op_b != CUBLAS_OP_N) return "FP8 operands: a is transposed and b is not";
  for (const Layout* layout : {o.a, o.b, o.d}) {
    if (layout->rows % 16 != 0 || layout->columns % 16 != 0) return "FP8 extents: they are multiples of 16";
  }
  if (what.epilogue != CUBLASLT_EPILOGUE_DEFAULT && what.epilogue != CUBLASLT_EPILOGUE_BIAS) {
    return "FP8 epilogue: it is one that the fake computes";
  }
  const cudaDataType_t bias = o.d->type == CUDA_R_16F ? CUDA_R_16F : CUDA_R_16BF;
  if (uses_bias(what.epilogue) && (what.bias_type == -1 ? o.d->type : what.bias_type) != bias) {
    return "FP8 bias type: it is that of the table of FP8 kernels";
  }
  if (what.a_scales == nullptr || what.b_scales == nullptr) return "FP8 scales: the program has them for both operands";
  constexpr int whole = 0, vectors = 4, squares = 5;
  const std::pair modes(what.a_scale_mode, what.b_scale_mode);
  if (modes != std::pair(whole, whole) && modes != std::pair(vectors, vectors) &&
      modes != std::pair(vectors, squares) && modes != std::pair(squares, vectors)) {
    return "FP8 scale modes: the combination is supported";
  }
  if (what.a_scale_mode != whole && (alignment_of(what.a_scales) < 16 || alignment_of(what.b_scales) < 16)) {
    return "FP8 scales: those of blocks are aligned to 16 bytes";
  }
  return nullptr;
}

const char* broken_by_types(const Operation& o) {
  const Description& what = *o.description;
  if (is_fp8(o.a->type) || is_fp8(o.b->type)) return broken_by_fp8(o);
  const bool listed = std::ranges::any_of(supported_types, [&](const Types& types) {
    return types.compute == what.compute && types.scale == what.scale && types.a_and_b == o.a->type &&
           types.a_and_b == o.b->type && types.c_and_d == o.c->type && types.c_and_d == o.d->type;
  });
  if (!listed) return "types: the combination is in the table (manual, cublasLtMatmul())";
  if (std::ranges::find(epilogues, what.epilogue) == std::end(epilogues)) {
    return "epilogue: it is one that the fake computes";
  }
  if (uses_bias(what.epilogue) && what.bias_type != -1 && what.bias_type != o.d->type) {
    return "bias type: it is unset or that of d (manual, cublasLtMatmul(), column Bias Type)";
  }
  if (uses_aux(what.epilogue) && what.aux_type != -1) {
    return "type of kept values: it is unset except for 8-bit floats (manual, cublasLtMatmulDescAttributes_t, "
           "EPILOGUE_AUX_DATA_TYPE)";
  }
  return nullptr;
}

const char* broken_by_layouts(const Operation& o) {
  const auto is_turned = [](cublasOperation_t op) { return op != CUBLAS_OP_N; };
  const bool a_turned = is_turned(o.description->op_a), b_turned = is_turned(o.description->op_b);
  const std::uint64_t m = a_turned ? o.a->columns : o.a->rows, k = a_turned ? o.a->rows : o.a->columns;
  const std::uint64_t n = b_turned ? o.b->rows : o.b->columns;
  if (o.d->rows != m || o.d->columns != n || (b_turned ? o.b->columns : o.b->rows) != k) {
    return "dimensions: op(a) is m x k, op(b) k x n, d m x n (manual, cublasLtMatmul())";
  }
  if (o.c->rows != o.d->rows || o.c->columns != o.d->columns) {
    return "c: it has the rows and columns of d (manual, cublasLtMatmul())";
  }
  for (const Layout* layout : {o.a, o.b, o.c, o.d}) {
    if (layout->batch < 1 || layout->batch != o.d->batch) {
      return "batch: all matrices have the same number (header, MATRIX_LAYOUT_BATCH_COUNT)";
    }
    if (layout->rows > INT32_MAX || layout->columns > INT32_MAX) {
      return "size: rows and columns are of 31 bits (header, MATRIX_LAYOUT_ROWS and COLS)";
    }
    // "The leading dimension of C can be 0" out of place (manual, cublasLtMatmul()); the program has no use for it.
    if (layout->stride < static_cast<std::int64_t>(layout->rows)) {
      return "leading dimension: it is at least the number of rows (header, MATRIX_LAYOUT_LD)";
    }
  }
  if (uses_aux(o.description->epilogue) &&
      (o.description->aux_stride % 8 != 0 || o.description->aux_stride < static_cast<std::int64_t>(o.d->rows))) {
    return "leading dimension of kept values: 8 divides it, and it is at least the rows of d (header, "
           "MATMUL_DESC_EPILOGUE_AUX_LD)";
  }
  return nullptr;
}

}  // namespace

std::int64_t size_of(cudaDataType_t type) { return is_fp8(type) ? 1 : type == CUDA_R_32F ? 4 : 2; }
bool uses_bias(cublasLtEpilogue_t epilogue) {
  return (epilogue & CUBLASLT_EPILOGUE_BIAS) != 0 || epilogue == CUBLASLT_EPILOGUE_BGRADB;
}
bool uses_aux(cublasLtEpilogue_t epilogue) {
  constexpr int aux = 128;
  return (epilogue & aux) != 0;
}

Algorithm make_algorithm(std::uint64_t number, const Operation& operation, const Preference& preference) {
  Algorithm algorithm{.number = number, .types = types_of(operation)};
  constexpr std::uint64_t unit = 1 << 20;
  algorithm.workspace_bytes = number * unit % (preference.max_workspace_bytes + 1);
  std::ranges::copy(preference.alignment, algorithm.alignment.begin());
  // Header, BIAS_POINTER and EPILOGUE_AUX_POINTER: a search depends on their values "to determine expected pointer
  // alignment".
  if (uses_bias(operation.description->epilogue)) algorithm.bias_alignment = alignment_of(operation.description->bias);
  if (uses_aux(operation.description->epilogue)) algorithm.aux_alignment = alignment_of(operation.description->aux);
  return algorithm;
}

const char* broken_by(const Operation& o) {
  const Description& what = *o.description;
  if (const char* broken = broken_by_types(o)) return broken;
  if (const char* broken = broken_by_layouts(o)) return broken;
  // Manual, cublasLtMatmul(): CUBLAS_STATUS_INVALID_VALUE "if the parameters are unexpectedly NULL".
  if (uses_bias(what.epilogue) && what.bias == nullptr) {
    return "bias: the epilogue has its vector (manual, cublasLtMatmulDescAttributes_t, BIAS_POINTER)";
  }
  if (uses_aux(what.epilogue) && what.aux == nullptr) {
    return "kept values: the epilogue has its buffer (manual, cublasLtMatmulDescAttributes_t, "
           "EPILOGUE_AUX_POINTER)";
  }
  return nullptr;
}

const char* broken_by(const Operation& o, const Algorithm& algorithm) {
  if (const char* broken = broken_by(o)) return broken;
  if (algorithm.types != types_of(o)) {
    return "algorithm: it was made for these types (header, cublasLtMatmulAlgoCheck())";
  }
  return nullptr;
}

const char* broken_by(const Operation& o, const Algorithm& algorithm, const Addresses& addresses,
                      std::size_t workspace_bytes) {
  if (const char* broken = broken_by(o, algorithm)) return broken;
  const void* const matrices[] = {addresses.a, addresses.b, addresses.c, addresses.d};
  for (std::size_t i = 0; i < 4; ++i) {
    if (matrices[i] == nullptr) return "matrices: none is null (manual, cublasLtMatmul())";
    const Layout& layout = i == 0 ? *o.a : i == 1 ? *o.b : i == 2 ? *o.c : *o.d;
    if (is_fp8(o.a->type) && alignment_of(matrices[i]) < 16) return "FP8 addresses: 16 divides them";
    const std::uint32_t next = alignment_of(reinterpret_cast<const void*>(layout.batch_stride * size_of(layout.type)));
    if (std::min(alignment_of(matrices[i]), next) < algorithm.alignment[i]) {
      return "addresses: they are aligned as the search was told (header, MATMUL_PREF_MIN_ALIGNMENT_A_BYTES "
             "and cublasLtMatmulAlgoCheck())";
    }
  }
  if (alignment_of(o.description->bias) < algorithm.bias_alignment ||
      alignment_of(o.description->aux) < algorithm.aux_alignment) {
    return "bias and kept values: they are aligned as those of the search (header, MATMUL_DESC_BIAS_POINTER and "
           "EPILOGUE_AUX_POINTER)";
  }
  if (addresses.c == addresses.d && *o.c != *o.d) {
    return "in place: the layouts of c and d are equal (manual, cublasLtMatmul())";
  }
  if (alignment_of(addresses.workspace) < 256) {
    return "workspace: 256 divides its address (manual, cublasLtMatmul())";
  }
  if (workspace_bytes < algorithm.workspace_bytes) {
    return "workspace: it has the bytes that the algorithm needs (header, cublasLtMatmul())";
  }
  return nullptr;
}

}  // namespace fake_cublaslt

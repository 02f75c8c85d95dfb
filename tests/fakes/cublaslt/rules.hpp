#pragma once

#include <cublasLt.h>

#include <array>
#include <cstdint>

/// Documented rules of cuBLASLt. Sources: cublasLt.h of version 13.1 ("header"), and the cuBLAS manual for CUDA 13 with
/// the name of a section. Only types and epilogues that the fake computes are supported.
namespace fake_cublaslt {

// The library's opaque types, as far as the program uses them.
struct Description {
  cublasComputeType_t compute;
  cudaDataType_t scale;
  cublasOperation_t op_a = CUBLAS_OP_N, op_b = CUBLAS_OP_N;
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  void* bias = nullptr;
  void* aux = nullptr;
  std::int64_t aux_stride = 0;
  std::int32_t bias_type = -1, aux_type = -1;
  std::int32_t multiprocessors = 0;  // number that it should take at most; 0: all
  const float* a_scales = nullptr;
  const float* b_scales = nullptr;
  std::int32_t a_scale_mode = 0, b_scale_mode = 0;  // cublasLtMatmulMatrixScale_t
  std::int8_t fast_sums = 0;
};
struct Layout {
  cudaDataType_t type;
  std::uint64_t rows, columns;
  std::int64_t stride;
  std::int32_t batch = 1;
  std::int64_t batch_stride = 0;
  bool operator==(const Layout&) const = default;
};
struct Preference {
  std::uint64_t max_workspace_bytes = 0;
  std::uint32_t reduction_schemes = CUBLASLT_REDUCTION_SCHEME_MASK;
  std::array<std::uint32_t, 4> alignment{256, 256, 256, 256};  // a, b, c and d
};
/// The words of cublasLtMatmulAlgo_t.
struct Algorithm {
  std::uint64_t number = 0;
  std::uint64_t workspace_bytes = 0;
  std::array<std::uint8_t, 8> types{};       // compute type, scale type, and those of a, b, c and d
  std::array<std::uint16_t, 4> alignment{};  // the least of a, b, c and d
  std::uint32_t bias_alignment = 0, aux_alignment = 0;
  std::array<std::uint64_t, 3> unused{};
};
static_assert(sizeof(Algorithm) == sizeof(cublasLtMatmulAlgo_t));

struct Operation {
  const Description* description;
  const Layout *a, *b, *c, *d;
};
struct Addresses {
  const void *a, *b, *c, *d, *workspace;
};

inline bool is_fp8(cudaDataType_t type) { return type == CUDA_R_8F_E4M3 || type == CUDA_R_8F_E5M2; }
std::int64_t size_of(cudaDataType_t type);
bool uses_bias(cublasLtEpilogue_t epilogue);
bool uses_aux(cublasLtEpilogue_t epilogue);
/// An algorithm for the operation, within the limits of the preference.
Algorithm make_algorithm(std::uint64_t number, const Operation& operation, const Preference& preference);

/// Returns the first rule that the operation breaks, regardless of its memory; null if none.
const char* broken_by(const Operation& operation);
/// The first that the operation breaks with this algorithm.
const char* broken_by(const Operation& operation, const Algorithm& algorithm);
/// The first that the addresses and the workspace break.
const char* broken_by(const Operation& operation, const Algorithm& algorithm, const Addresses& addresses,
                      std::size_t workspace_bytes);

}  // namespace fake_cublaslt

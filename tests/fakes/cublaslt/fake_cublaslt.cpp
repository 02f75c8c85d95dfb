#include "tests/fakes/cublaslt/fake_cublaslt.hpp"

#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <vector>

#include "src/backend/kernels/fp8.hpp"
#include "src/tensor/dtype.hpp"
#include "tests/fakes/cublaslt/rules.hpp"
#include "tests/fakes/fake_cuda.hpp"
#include "tests/support/activations.hpp"

namespace {

using trireme::bf16;
using trireme::fp16;

using namespace fake_cublaslt;

struct State {
  fake_cublaslt::Behaviour behaviour;
  fake_cublaslt::Last last;
  fake_cublaslt::Search last_search;
  int products = 0;
  int products_of_flipped_rows = 0;
  int searches = 0;
};
State& state() {
  static State the_state;
  return the_state;
}

double load(const void* data, cudaDataType_t type, std::int64_t i) {
  switch (type) {
    case CUDA_R_32F:
      return static_cast<const float*>(data)[i];
    case CUDA_R_16BF:
      return static_cast<float>(static_cast<const bf16*>(data)[i]);
    case CUDA_R_8F_E4M3:
    case CUDA_R_8F_E5M2:
      return trireme::fp8_number(static_cast<const std::uint8_t*>(data)[i],
                                 type == CUDA_R_8F_E4M3 ? trireme::Fp8Format::e4m3 : trireme::Fp8Format::e5m2);
    default:
      return static_cast<float>(static_cast<const fp16*>(data)[i]);
  }
}
void store(void* data, cudaDataType_t type, std::int64_t i, double value) {
  const auto x = static_cast<float>(value);
  switch (type) {
    case CUDA_R_32F:
      static_cast<float*>(data)[i] = x;
      break;
    case CUDA_R_16BF:
      static_cast<bf16*>(data)[i] = bf16(x);
      break;
    default:
      static_cast<fp16*>(data)[i] = fp16(x);
  }
}

[[noreturn]] void refuse(const char* rule) {
  std::fprintf(stderr, "the program breaks cuBLASLt's rule of %s\n", rule);
  std::abort();
}
void refuse_null_if(bool is_null) {
  if (is_null) refuse("parameters: none is unexpectedly null (manual, cublasLtMatmul())");
}

/// Copies the value of an attribute.
template <class Member>
cublasStatus_t take(Member& member, const void* value, size_t size) {
  if (value == nullptr || size != sizeof member) {
    refuse(
        "attributes: the value is not null and has the size of its type (header, cublasLtMatmulDescSetAttribute() and "
        "cublasLtMatmulPreferenceSetAttribute())");
  }
  std::memcpy(&member, value, size);
  return CUBLAS_STATUS_SUCCESS;
}

Operation operation_of(cublasLtMatmulDesc_t description, cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                       cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d) {
  const auto layout = [](cublasLtMatrixLayout_t opaque) { return reinterpret_cast<const Layout*>(opaque); };
  // "If Cdesc is omitted, this function assumes it to be equal to Ddesc" (manual, cublasLtMatmul()).
  return {reinterpret_cast<const Description*>(description), layout(a), layout(b), layout(c == nullptr ? d : c),
          layout(d)};
}
bool has_null(const Operation& o) {
  return o.description == nullptr || o.a == nullptr || o.b == nullptr || o.d == nullptr;
}
Algorithm algorithm_of(const cublasLtMatmulAlgo_t& opaque) {
  Algorithm algorithm;
  std::memcpy(static_cast<void*>(&algorithm), &opaque, sizeof algorithm);
  return algorithm;
}

/// Scale of element (row, p) of an operand with `rows` rows and k columns (manual, "Scaling factors layouts").
double scale_of(const float* scales, std::int32_t mode, std::int64_t rows, std::int64_t k, std::int64_t row,
                std::int64_t p) {
  constexpr std::int64_t block = 128;
  if (scales == nullptr) return 1;
  if (mode == 0) return *scales;
  if (mode == 4) return scales[p / block * rows + row];
  return scales[row / block * (((k + block - 1) / block + 3) / 4 * 4) + p / block];
}

/// d = epilogue(alpha op(a) op(b) + beta c), column-major.
void multiply(const Description& what, double alpha, const void* a, const Layout& la, const void* b, const Layout& lb,
              double beta, const void* c, void* d, const Layout& ld) {
  const auto m = static_cast<std::int64_t>(ld.rows), n = static_cast<std::int64_t>(ld.columns);
  const auto k = static_cast<std::int64_t>(what.op_a == CUBLAS_OP_N ? la.columns : la.rows);
  // Both with k as the fastest dimension.
  std::vector<double> rows(static_cast<std::size_t>(m * k)), columns(static_cast<std::size_t>(n * k));
  for (std::int64_t p = 0; p < k; ++p) {
    for (std::int64_t i = 0; i < m; ++i) {
      rows[static_cast<std::size_t>(i * k + p)] =
          load(a, la.type, what.op_a == CUBLAS_OP_N ? i + p * la.stride : p + i * la.stride) *
          scale_of(what.a_scales, what.a_scale_mode, m, k, i, p);
    }
    for (std::int64_t j = 0; j < n; ++j) {
      columns[static_cast<std::size_t>(j * k + p)] =
          load(b, lb.type, what.op_b == CUBLAS_OP_N ? p + j * lb.stride : j + p * lb.stride) *
          scale_of(what.b_scales, what.b_scale_mode, n, k, j, p);
    }
  }
  const cudaDataType_t bias_type = ld.type, aux_type = ld.type;
  const bool has_bias = (what.epilogue & CUBLASLT_EPILOGUE_BIAS) != 0;
  for (std::int64_t j = 0; j < n; ++j) {
    const double* column = columns.data() + j * k;
    for (std::int64_t i = 0; i < m; ++i) {
      double sum = alpha * std::inner_product(column, column + k, rows.data() + i * k, 0.0);
      if (beta != 0) sum += beta * load(c, ld.type, i + j * ld.stride);
      if (has_bias) sum += load(what.bias, bias_type, i);
      if ((what.epilogue & CUBLASLT_EPILOGUE_GELU) != 0) {
        if ((what.epilogue & CUBLASLT_EPILOGUE_GELU_AUX) == CUBLASLT_EPILOGUE_GELU_AUX) {
          store(what.aux, aux_type, i + j * what.aux_stride, sum);
        }
        sum = trireme::test::activated(trireme::Activation::gelu_tanh, sum);
      }
      if (what.epilogue == CUBLASLT_EPILOGUE_DGELU) {
        const double kept = load(what.aux, aux_type, i + j * what.aux_stride);
        sum *= trireme::test::activation_slope(trireme::Activation::gelu_tanh, kept);
      }
      store(d, ld.type, i + j * ld.stride, sum);
    }
    if (what.epilogue == CUBLASLT_EPILOGUE_BGRADB) {
      store(what.bias, bias_type, j, std::accumulate(column, column + k, 0.0));
    }
  }
}

fake_cuda::Demand demand_of(const Description& what, const Layout& a, const Layout& d) {
  return fake_cuda::product_demand(d.rows, d.columns * static_cast<std::uint64_t>(d.batch),
                                   what.op_a == CUBLAS_OP_N ? a.columns : a.rows, what.multiprocessors);
}

}  // namespace

namespace fake_cublaslt {
Behaviour& behaviour() { return state().behaviour; }
const Last& last() { return state().last; }
const Search& last_search() { return state().last_search; }
int products() { return state().products; }
int searches() { return state().searches; }
void reset() { state() = {}; }
}  // namespace fake_cublaslt

extern "C" {

size_t cublasLtGetVersion() { return 130100; }
const char* cublasLtGetStatusName(cublasStatus_t status) {
  return status == CUBLAS_STATUS_NOT_INITIALIZED ? "CUBLAS_STATUS_NOT_INITIALIZED"
         : status == CUBLAS_STATUS_INVALID_VALUE ? "CUBLAS_STATUS_INVALID_VALUE"
         : status == CUBLAS_STATUS_NOT_SUPPORTED ? "CUBLAS_STATUS_NOT_SUPPORTED"
                                                 : "CUBLAS_STATUS_EXECUTION_FAILED";
}
const char* cublasLtGetStatusString(cublasStatus_t) { return "a text of the fake cuBLASLt"; }
cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  refuse_null_if(handle == nullptr);
  *handle = reinterpret_cast<cublasLtHandle_t>(&state());
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  refuse_null_if(handle == nullptr);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* description, cublasComputeType_t compute,
                                        cudaDataType_t scale) {
  *description = reinterpret_cast<cublasLtMatmulDesc_t>(new Description{.compute = compute, .scale = scale});
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t description) {
  delete reinterpret_cast<Description*>(description);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t opaque, cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, size_t size) {
  auto* description = reinterpret_cast<Description*>(opaque);
  const auto take = [&](auto& member) { return ::take(member, value, size); };
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
      return take(description->op_a);
    case CUBLASLT_MATMUL_DESC_TRANSB:
      return take(description->op_b);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
      return take(description->epilogue);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
      return take(description->bias);
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE:
      return take(description->bias_type);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER:
      return take(description->aux);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD:
      return take(description->aux_stride);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE:
      return take(description->aux_type);
    case CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET:
      return take(description->multiprocessors);
    case CUBLASLT_MATMUL_DESC_A_SCALE_POINTER:
      return take(description->a_scales);
    case CUBLASLT_MATMUL_DESC_B_SCALE_POINTER:
      return take(description->b_scales);
    case CUBLASLT_MATMUL_DESC_A_SCALE_MODE:
      return take(description->a_scale_mode);
    case CUBLASLT_MATMUL_DESC_B_SCALE_MODE:
      return take(description->b_scale_mode);
    case CUBLASLT_MATMUL_DESC_FAST_ACCUM:
      return take(description->fast_sums);
    default:
      return CUBLAS_STATUS_INVALID_VALUE;
  }
}
cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType type, uint64_t rows,
                                          uint64_t columns, int64_t stride) {
  *layout = reinterpret_cast<cublasLtMatrixLayout_t>(new Layout{type, rows, columns, stride});
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t opaque,
                                                cublasLtMatrixLayoutAttribute_t attribute, const void* value,
                                                size_t size) {
  auto* layout = reinterpret_cast<Layout*>(opaque);
  if (attribute == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT) return take(layout->batch, value, size);
  if (attribute == CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET) return take(layout->batch_stride, value, size);
  return CUBLAS_STATUS_INVALID_VALUE;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  delete reinterpret_cast<Layout*>(layout);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  *preference = reinterpret_cast<cublasLtMatmulPreference_t>(new Preference);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  delete reinterpret_cast<Preference*>(preference);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t opaque,
                                                    cublasLtMatmulPreferenceAttributes_t attribute, const void* value,
                                                    size_t size) {
  auto* preference = reinterpret_cast<Preference*>(opaque);
  switch (attribute) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
      return take(preference->max_workspace_bytes, value, size);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
      return take(preference->reduction_schemes, value, size);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES: {
      const int matrix = attribute - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES;
      return take(preference->alignment[static_cast<std::size_t>(matrix)], value, size);
    }
    default:
      return CUBLAS_STATUS_INVALID_VALUE;
  }
}
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t description,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t opaque, int wanted,
                                              cublasLtMatmulHeuristicResult_t results[], int* found) {
  const Operation operation = operation_of(description, a, b, c, d);
  refuse_null_if(has_null(operation) || opaque == nullptr || results == nullptr || found == nullptr);
  if (wanted <= 0) refuse("searches: at least one algorithm is wanted (header, cublasLtMatmulAlgoGetHeuristic())");
  const auto& preference = *reinterpret_cast<const Preference*>(opaque);
  ++state().searches;
  state().last_search = {wanted, preference.alignment, preference.reduction_schemes};
  *found = 0;
  if (const char* rule = broken_by(operation)) refuse(rule);
  if (state().behaviour.cannot_fuse.contains(operation.description->epilogue)) return CUBLAS_STATUS_NOT_SUPPORTED;
  for (; *found < std::min(wanted, state().behaviour.algorithms); ++*found) {
    const Algorithm algorithm = make_algorithm(static_cast<std::uint64_t>(*found), operation, preference);
    results[*found] = {};
    results[*found].state = CUBLAS_STATUS_SUCCESS;
    results[*found].workspaceSize = algorithm.workspace_bytes;
    std::memcpy(&results[*found].algo, &algorithm, sizeof algorithm);
  }
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t, cublasLtMatmulDesc_t description, cublasLtMatrixLayout_t a,
                                       cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                       const cublasLtMatmulAlgo_t* opaque, cublasLtMatmulHeuristicResult_t* result) {
  const Operation operation = operation_of(description, a, b, c, d);
  refuse_null_if(has_null(operation) || opaque == nullptr || result == nullptr);
  const Algorithm algorithm = algorithm_of(*opaque);
  if (const char* rule = broken_by(operation, algorithm)) refuse(rule);
  result->workspaceSize = algorithm.workspace_bytes;
  return algorithm.number < state().behaviour.usable_algorithms ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}
cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t description, const void* alpha,
                              const void* a, cublasLtMatrixLayout_t layout_a, const void* b,
                              cublasLtMatrixLayout_t layout_b, const void* beta, const void* c,
                              cublasLtMatrixLayout_t layout_c, void* d, cublasLtMatrixLayout_t layout_d,
                              const cublasLtMatmulAlgo_t* algorithm_words, void* workspace, size_t workspace_bytes,
                              cudaStream_t stream) {
  if (handle == nullptr) refuse("handles: they are initialized (header, cublasLtMatmul())");
  const Operation operation = operation_of(description, layout_a, layout_b, layout_c, layout_d);
  refuse_null_if(has_null(operation) || alpha == nullptr || beta == nullptr);
  // Allowed, but of no use to the program: a search of cublasLtMatmul's own.
  if (algorithm_words == nullptr) return CUBLAS_STATUS_NOT_SUPPORTED;
  const Algorithm algorithm = algorithm_of(*algorithm_words);
  if (const char* rule = broken_by(operation, algorithm, {a, b, c, d, workspace}, workspace_bytes)) refuse(rule);
  if (state().behaviour.refused.contains(algorithm.number)) return CUBLAS_STATUS_NOT_SUPPORTED;
  const Description what = *operation.description;
  const float scale = *static_cast<const float*>(alpha), keep = *static_cast<const float*>(beta);
  state().last = {algorithm.number, what.epilogue, what.compute, a, b, d, what.multiprocessors, operation.d->columns};
  // The library chooses the kernels of an algorithm: here others for every size.
  fake_cuda::load_kernel(fmt::format("cublasLtMatmul {} {} {} of {}x{}, {}x{}", algorithm.number,
                                     static_cast<int>(what.epilogue), what.multiprocessors, operation.a->rows,
                                     operation.a->columns, operation.d->rows, operation.d->columns));
  ++state().products;
  const bool is_flipped =
      operation.d->rows == state().behaviour.flipped_rows && ++state().products_of_flipped_rows % 3 == 0;
  const bool is_wrong = state().behaviour.wrong.contains(what.epilogue);
  fake_cuda::enqueue(
      stream, "cublasLtMatmul",
      [is_wrong, is_flipped, what, scale, a, la = *operation.a, b, lb = *operation.b, keep, c, d, ld = *operation.d] {
        const auto at = [](auto* matrices, const Layout& layout, int i) {
          using Bytes = std::conditional_t<std::is_const_v<std::remove_pointer_t<decltype(matrices)>>, const std::byte,
                                           std::byte>;
          const std::int64_t size = size_of(layout.type);
          return static_cast<Bytes*>(matrices) + i * layout.batch_stride * size;
        };
        for (int i = 0; i < ld.batch; ++i) {
          multiply(what, scale, at(a, la, i), la, at(b, lb, i), lb, keep, at(c, ld, i), at(d, ld, i), ld);
        }
        if (is_wrong) store(d, ld.type, 0, load(d, ld.type, 0) + 1);
        if (is_flipped) *static_cast<std::byte*>(d) ^= std::byte{1};
      },
      demand_of(what, *operation.a, *operation.d));
  return CUBLAS_STATUS_SUCCESS;
}

}  // extern "C"

#include "tests/fakes/fake_cublaslt.hpp"

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <vector>

#include "src/tensor/dtype.hpp"
#include "tests/fakes/fake_cuda.hpp"

namespace {

using trireme::bf16;
using trireme::fp16;

// The library's opaque types, as far as the program uses them.
struct Description {
  cublasComputeType_t compute;
  cublasOperation_t op_a = CUBLAS_OP_N, op_b = CUBLAS_OP_N;
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  void* bias = nullptr;
  void* aux = nullptr;
  std::int64_t aux_stride = 0;
  std::int32_t bias_type = -1, aux_type = -1;
};
struct Layout {
  cudaDataType_t type;
  std::uint64_t rows, columns;
  std::int64_t stride;
};

/// The documented alignment where none is set.
struct Preference {
  std::array<std::uint32_t, 4> alignment{256, 256, 256, 256};
};

struct State {
  fake_cublaslt::Behaviour behaviour;
  fake_cublaslt::Last last;
  fake_cublaslt::Search last_search;
  int products = 0;
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

double gelu(double x) { return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))); }
double gelu_derivative(double x) {
  const double t = std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x));
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * std::sqrt(2 / M_PI) * (1 + 3 * 0.044715 * x * x);
}

/// d = epilogue(alpha op(a) op(b) + beta c), column-major.
void multiply(const Description& what, double alpha, const void* a, const Layout& la, const void* b, const Layout& lb,
              double beta, void* d, const Layout& ld) {
  const auto m = static_cast<std::int64_t>(ld.rows), n = static_cast<std::int64_t>(ld.columns);
  const auto k = static_cast<std::int64_t>(what.op_a == CUBLAS_OP_N ? la.columns : la.rows);
  // Both with k as the fastest dimension.
  std::vector<double> rows(static_cast<std::size_t>(m * k)), columns(static_cast<std::size_t>(n * k));
  for (std::int64_t p = 0; p < k; ++p) {
    for (std::int64_t i = 0; i < m; ++i) {
      rows[static_cast<std::size_t>(i * k + p)] =
          load(a, la.type, what.op_a == CUBLAS_OP_N ? i + p * la.stride : p + i * la.stride);
    }
    for (std::int64_t j = 0; j < n; ++j) {
      columns[static_cast<std::size_t>(j * k + p)] =
          load(b, lb.type, what.op_b == CUBLAS_OP_N ? p + j * lb.stride : j + p * lb.stride);
    }
  }
  const auto bias_type = static_cast<cudaDataType_t>(what.bias_type),
             aux_type = static_cast<cudaDataType_t>(what.aux_type);
  const bool has_bias = (what.epilogue & CUBLASLT_EPILOGUE_BIAS) != 0;
  for (std::int64_t j = 0; j < n; ++j) {
    const double* column = columns.data() + j * k;
    for (std::int64_t i = 0; i < m; ++i) {
      double sum = alpha * std::inner_product(column, column + k, rows.data() + i * k, 0.0);
      if (beta != 0) sum += beta * load(d, ld.type, i + j * ld.stride);
      if (has_bias) sum += load(what.bias, bias_type, i);
      if ((what.epilogue & CUBLASLT_EPILOGUE_GELU) != 0) {
        if ((what.epilogue & CUBLASLT_EPILOGUE_GELU_AUX) == CUBLASLT_EPILOGUE_GELU_AUX) {
          store(what.aux, aux_type, i + j * what.aux_stride, sum);
        }
        sum = gelu(sum);
      }
      if (what.epilogue == CUBLASLT_EPILOGUE_DGELU) {
        sum *= gelu_derivative(load(what.aux, aux_type, i + j * what.aux_stride));
      }
      store(d, ld.type, i + j * ld.stride, sum);
    }
    if (what.epilogue == CUBLASLT_EPILOGUE_BGRADB) {
      store(what.bias, bias_type, j, std::accumulate(column, column + k, 0.0));
    }
  }
}

fake_cuda::Demand demand_of(const Description& what, const Layout& a, const Layout& d) {
  return fake_cuda::product_demand(d.rows, d.columns, what.op_a == CUBLAS_OP_N ? a.columns : a.rows, 0);
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
const char* cublasLtGetStatusName(cublasStatus_t) { return "CUBLAS_STATUS_EXECUTION_FAILED"; }
const char* cublasLtGetStatusString(cublasStatus_t) { return "the GPU program failed to execute"; }
cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  *handle = reinterpret_cast<cublasLtHandle_t>(&state());
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t) { return CUBLAS_STATUS_SUCCESS; }
cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* description, cublasComputeType_t compute,
                                        cudaDataType_t) {
  *description = reinterpret_cast<cublasLtMatmulDesc_t>(new Description{.compute = compute});
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t description) {
  delete reinterpret_cast<Description*>(description);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t opaque, cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, size_t size) {
  auto* description = reinterpret_cast<Description*>(opaque);
  const auto take = [&](auto& member) {
    if (size != sizeof member) return CUBLAS_STATUS_INVALID_VALUE;
    std::memcpy(&member, value, size);
    return CUBLAS_STATUS_SUCCESS;
  };
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
    default:
      return CUBLAS_STATUS_INVALID_VALUE;
  }
}
cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType type, uint64_t rows,
                                          uint64_t columns, int64_t stride) {
  *layout = reinterpret_cast<cublasLtMatrixLayout_t>(new Layout{type, rows, columns, stride});
  return CUBLAS_STATUS_SUCCESS;
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
                                                    size_t) {
  auto& alignment = reinterpret_cast<Preference*>(opaque)->alignment;
  const int matrix = attribute - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES;
  if (matrix >= 0 && matrix < 4) std::memcpy(&alignment[static_cast<std::size_t>(matrix)], value, sizeof alignment[0]);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t opaque, cublasLtMatrixLayout_t,
                                              cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                              cublasLtMatmulPreference_t preference, int wanted,
                                              cublasLtMatmulHeuristicResult_t results[], int* found) {
  ++state().searches;
  state().last_search = {wanted, reinterpret_cast<const Preference*>(preference)->alignment};
  *found = 0;
  const auto* description = reinterpret_cast<const Description*>(opaque);
  if (description->aux != nullptr && description->aux_stride % 8 != 0) {
    std::fputs("cuBLASLt wants a stride of kept values that 8 divides, and may not look at it\n", stderr);
    std::abort();
  }
  if (state().behaviour.cannot_fuse.contains(description->epilogue)) return CUBLAS_STATUS_NOT_SUPPORTED;
  for (; *found < std::min(wanted, state().behaviour.algorithms); ++*found) {
    results[*found] = {};
    results[*found].state = CUBLAS_STATUS_SUCCESS;
    results[*found].algo.data[0] = static_cast<std::uint64_t>(*found);
  }
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t,
                                       cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                       const cublasLtMatmulAlgo_t* algorithm, cublasLtMatmulHeuristicResult_t*) {
  return algorithm->data[0] < state().behaviour.usable_algorithms ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}
cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t opaque, const void* alpha, const void* a,
                              cublasLtMatrixLayout_t layout_a, const void* b, cublasLtMatrixLayout_t layout_b,
                              const void* beta, const void* c, cublasLtMatrixLayout_t, void* d,
                              cublasLtMatrixLayout_t layout_d, const cublasLtMatmulAlgo_t* algorithm, void*, size_t,
                              cudaStream_t stream) {
  if (c != d) return CUBLAS_STATUS_INVALID_VALUE;
  if (state().behaviour.refused.contains(algorithm->data[0])) return CUBLAS_STATUS_NOT_SUPPORTED;
  const Description what = *reinterpret_cast<const Description*>(opaque);
  const auto layout = [](cublasLtMatrixLayout_t l) { return *reinterpret_cast<const Layout*>(l); };
  const float scale = *static_cast<const float*>(alpha), keep = *static_cast<const float*>(beta);
  state().last = {algorithm->data[0], what.epilogue, what.compute, a, b, d};
  const bool is_flipped = ++state().products == state().behaviour.flipped_product;
  const bool is_wrong = state().behaviour.wrong.contains(what.epilogue);
  fake_cuda::enqueue(
      stream, "cublasLtMatmul",
      [is_wrong, is_flipped, what, scale, a, la = layout(layout_a), b, lb = layout(layout_b), keep, d,
       ld = layout(layout_d)] {
        multiply(what, scale, a, la, b, lb, keep, d, ld);
        if (is_wrong) store(d, ld.type, 0, load(d, ld.type, 0) + 1);
        if (is_flipped) *static_cast<std::byte*>(d) ^= std::byte{1};
      },
      demand_of(what, layout(layout_a), layout(layout_d)));
  return CUBLAS_STATUS_SUCCESS;
}

}  // extern "C"

#pragma once

#include <cublasLt.h>

#include <compare>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "cuda/cublaslt/algorithm_cache.hpp"
#include "cuda/cublaslt/fp8_types.hpp"
#include "cuda/runtime/memory.hpp"
#include "src/base/unique_handle.hpp"
#include "src/tensor/dtype.hpp"

namespace trireme::cuda {

/// Operation on a product before it is stored.
enum class Epilogue {
  none,
  bias,             ///< a number for each row of d
  gelu,             ///< tanh form
  gelu_aux,         ///< and keeps the value before it
  gelu_bias,        ///< bias, then GELU
  gelu_aux_bias,    ///< keeps the value after the bias
  dgelu,            ///< times GELU's derivative at the kept value
  bias_gradient_b,  ///< also stores the sums of b over k
};

/// d = op(a) op(b), or d += op(a) op(b), in the column-major order of BLAS: op(a) [m, k], op(b) [k, n], d [m, n],
/// without gaps. Of a batch of products, whose matrices follow one another, also d = alpha op(a) op(b) + beta c. The
/// choice of an algorithm depends on nothing else.
struct ProductShape {
  DType in = DType::fp32;   ///< type of a and b, unless they are in FP8, and of the bias and kept values
  DType out = DType::fp32;  ///< type of d and the bias' gradient
  bool a_transposed = false;
  bool b_transposed = false;
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  bool accumulate = false;
  Epilogue epilogue = Epilogue::none;
  int alignment = 16;                ///< bytes that divide all addresses
  std::int32_t multiprocessors = 0;  ///< maximum number to use; 0: no limit
  std::int32_t batch = 0;            ///< products of a batch; 0: one product of a linear layer
  std::optional<Fp8Types> fp8 = {};  ///< a is transposed and b is not, and 16 divides m, n and k
  auto operator<=>(const ProductShape&) const = default;
};

/// "bf16 bf16 TN 3072x8192x768 = gelu_aux_bias align 64", followed by " on 116" if multiprocessors are limited, by
/// " batch 4", and by " fp8 e4m3:0 e5m2:1 over rows"
std::string to_string(const ProductShape& shape);

/// Bytes of an element of a and b.
inline std::size_t operand_element_bytes(const ProductShape& shape) { return shape.fp8 ? 1 : size_of(shape.in); }

/// The memory a product works on. `aux` is the kept value, written by gelu_aux and read by dgelu; `bias` is written by
/// bias_gradient_b. The factors and c are those of a batch.
struct ProductOperands {
  const void* a = nullptr;
  const void* b = nullptr;
  void* d = nullptr;
  void* bias = nullptr;
  void* aux = nullptr;
  const void* c = nullptr;
  float alpha = 1, beta = 0;
  const float* a_scales = nullptr;  ///< factors of a and b in FP8, in cuBLASLt's layout
  const float* b_scales = nullptr;
};

/// Workspace of each stream that products run on: cuBLAS's recommendation for Hopper.
inline constexpr std::size_t workspace_bytes = std::size_t{32} << 20;

/// Matrix products by cuBLASLt. Accumulates in fp32; split-k partial sums are added in fp32 and in order.
class Products {
 public:
  /// Throws CublasError.
  Products(std::shared_ptr<Device> device, std::shared_ptr<DeviceMemory> memory, bool allow_tf32);

  /// Algorithms for a product, the most promising first; none if cuBLASLt cannot fuse this epilogue.
  std::vector<Choice> candidates(const ProductShape& shape);
  /// Returns whether a choice read from a file can still be used.
  bool usable(const ProductShape& shape, const Choice& choice);
  /// Enqueues the product. Throws CublasError.
  void run(CudaStream& stream, const ProductShape& shape, const Choice& choice, const ProductOperands& operands);

  static std::uint64_t library_version() { return cublasLtGetVersion(); }
  /// Returns whether the library has products in FP8 with scales of blocks.
  static bool has_block_scales();

  /// Work space of products on a stream, allocated by the first call: while nothing is recorded.
  std::byte* workspace(const CudaStream& stream);

 private:
  using Library = UniqueHandle<ObjectTraits<cublasLtHandle_t, cublasLtDestroy>>;
  using Description = UniqueHandle<ObjectTraits<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy>>;
  using Layout = UniqueHandle<ObjectTraits<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>>;
  using Preference = UniqueHandle<ObjectTraits<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy>>;

  /// cuBLASLt's descriptors of a shape.
  struct Plan {
    Description description;
    Layout a, b, d;
  };

  void check(cublasStatus_t status, const char* call, const ProductShape* shape = nullptr) const;
  Plan& plan(const ProductShape& shape, const ProductOperands& operands);
  Plan make_plan(const ProductShape& shape) const;
  Layout make_layout(cudaDataType_t type, std::int64_t rows, std::int64_t columns, std::int32_t batch) const;

  std::shared_ptr<Device> device_;
  std::shared_ptr<DeviceMemory> memory_;
  bool allow_tf32_;
  Library library_;
  std::map<ProductShape, Plan> plans_;
  std::map<cudaStream_t, Buffer> workspaces_;  // products of different streams may run at once
};

}  // namespace trireme::cuda
